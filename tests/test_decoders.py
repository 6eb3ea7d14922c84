"""A decoder as language models have it: a head tied to the embedding, tables of rotary positions outside the weights, masks.

The port calls a function where the reference has the tied head, names its layers otherwise, and computes its tables in its own
framework's float32. Sound it passes, and what is wrong in it is located.
"""

from __future__ import annotations

import json

import pytest

from alignment.cli import main
from tests.conftest import ROOT, mode_of

FOLDER = ROOT / "tests/forms"
# What is changed in the port's source -> kind, first place, words that name it.
MISTAKES = {
    "base of the positions": ("1 / 10000 **", "1 / 1000 **", "constant", "blocks.0.attn", "blocks.0.attn.cos at ["),
    "the head's weight": ("self.tok.weight, transp", "self.tok.weight * 2, transp", "scaled", "GPT.forward", "* 2 is superfluous"),
    "scale": ("math.sqrt(d // h)", "math.sqrt(d)", "call_argument", "blocks.0.attn", "expected 2.82843"),
    "mask": ('float("-inf")), 1)', 'float("-inf")), 2)', "constant", "blocks.0.attn.mask", "at [0, 1] 0, expected -inf"),
}


def audited(source, folder, *flags, name="GPT"):
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:{name}", "--reference", f"{FOLDER}/decoder_theirs.py:{name}"]
    given = ["--input", f"{FOLDER}/decoder_theirs.py:tokens", "--report", str(folder / "report")]
    status = main(["audit", *mode_of(flags), *sides, *given, *flags])
    return status, json.loads((folder / "report" / "alignment.json").read_text())


def test_a_sound_decoder_passes(tmp_path):
    status, found = audited((FOLDER / "decoder_ours.py").read_text(), tmp_path, "--training", "--accept", "initialisation")
    assert status == 0
    exact = [row["float64_diff"] for step in found["steps"] for row in step["quantities"] if row["float64_diff"] is not None]
    assert max(exact) < 1e-13
    names = {row["name"] for step in found["steps"] for row in step["quantities"]}
    assert "eval.iter0.gradients.emb.weight" in names and not any("head" in name for name in names if "gradients" in name)


@pytest.mark.parametrize("name", ["Bert", "Seq"])
def test_other_ways_to_tie_pass(name, tmp_path):
    """A head with a bias of its own, which the port's own model holds, and positions that the reference alone keeps; one module
    at three paths, and tied to the head, too."""
    status, found = audited((FOLDER / "decoder_ours.py").read_text(), tmp_path, name=name)
    assert status == 0, found["localization"]
    rows = {row["name"]: row["passed"] for row in found["steps"][1]["quantities"]}
    assert rows["eval.iter0.gradients." + {"Bert": "head.bias", "Seq": "shared.weight"}[name]]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_decoder_is_located(name, tmp_path):
    before, after, kind, place, words = MISTAKES[name]
    source = (FOLDER / "decoder_ours.py").read_text()
    assert before in source
    status, found = audited(source.replace(before, after), tmp_path)
    first = found["localization"]["first"]
    assert status == 1 and (first["kind"], first["location"]) == (kind, place) and words in first["hint"], first


@pytest.mark.parametrize(
    ("name", "before", "after", "words"),
    [
        ("Bert", "F.gelu(self.transform(x))", "F.relu(self.transform(x))", "relu, expected gelu"),
        ("Bert", "self.norm = nn.LayerNorm(d, epsilon=1e-12)", "self.norm = nn.LayerNorm(d, epsilon=1e-3)", "eps"),
        ("Seq", "transpose_y=True) / 4", "transpose_y=True) / 2", "/ 2, expected 4"),
        ("Seq", "self.dec(self.emb(paddle.flip(a, [1])), h)", "self.dec(self.emb(paddle.flip(a, [1])))", ""),
    ],
)
def test_a_mistake_beside_tied_tensors_is_located(name, before, after, words, tmp_path):
    source = (FOLDER / "decoder_ours.py").read_text()
    assert before in source
    status, found = audited(source.replace(before, after), tmp_path, name=name)
    assert status == 1 and words in found["localization"]["first"]["hint"], found["localization"]["first"]


def test_a_head_of_its_own_is_no_tied_one(tmp_path):
    """The port has a weight more than the reference: the head's gradient no longer reaches the embedding."""
    source = (FOLDER / "decoder_ours.py").read_text()
    source = source.replace("self.norm = RMS(d)\n", "self.norm = RMS(d); self.head = nn.Linear(d, v, bias_attr=False)\n", 1)
    source = source.replace(
        "return paddle.matmul(self.norm(x), self.tok.weight, transpose_y=True)", "return self.head(self.norm(x))"
    )
    status, found = audited(source, tmp_path)
    assert status == 1 and found["localization"]["first"]["stage"] in ("structure", "weights", "backward")
