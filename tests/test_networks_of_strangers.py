"""Pairs as strangers write them: networks over a graph, capsules with routing, a recurrent translator with attention."""

import json

import numpy as np
import pytest

from alignment.cli import main
from tests.conftest import ROOT

FOLDER = ROOT / "tests/forms"
MODELS = {"graph": "Graph", "capsules": "Capsules", "sentence": "Sentence"}
SOUND = {
    "graph": ("", ""),
    "capsules": ("", ""),
    "sentence": ("", ""),
    # The two vectors under each other's names.
    "graph, exchanged": ("h @ self.att_src + (h @ self.att_dst).t()", "(h @ self.att_src).t() + h @ self.att_dst"),
}
# What is changed in the port's source -> place, words of the only mistake.
MISTAKES = {
    "graph, softmax": ("scores, axis=1) @", "scores, axis=0) @", "Graph.forward", "ours.py:28: softmax axis 0, expected 1"),
    "graph, no loops": ("unsqueeze(1) * loops", "unsqueeze(1) * edges", "Graph.forward", "ours.py:39: * takes input 2, expected +"),
    "graph, degree": ("** -0.5", "** -1.0", "Graph.forward", "ours.py:38: ** -1, expected -0.5"),
    "graph, mask": ("adjacency > 0", "adjacency >= 0", "Graph.forward", "ours.py:27: ge(argument 2=0), expected gt"),
    "graph, no bias": ("+ self.bias", "", "Graph.forward", "+ (@ in line 15, a tensor of the reference of shape [8]) is missing"),
    "capsules, axis": ("(logits, axis=2)", "(logits, axis=1)", "digit", "ours.py:33: softmax axis 1, expected 2"),
    "capsules, largest": ("argmax", "argmin", "Capsules.forward", "ours.py:49: argmin(axis=1), expected max(axis=1), output 2"),
    "capsules, sum": (
        "paddle.mean(paddle.sum(votes * v, axis=-1), ", "paddle.sum(paddle.sum(votes * v, axis=-1), ", "digit",
        "ours.py:36: sum(axis=0), expected mean(axis=0)"),
    "capsules, rounds": ("iterations=3", "iterations=2", "digit", ""),
    "sentence, padding": ("features, padding_idx=0", "features", "encoder.embedding", "padding_idx None, expected 0"),
    "sentence, order": ("[state, context], axis", "[context, state], axis", "Sentence.forward", "py:40: concat takes squeeze"),
    "sentence, direction": ("last.transpose", "last[::-1].transpose", "encoder", "ours.py:17: getitem [::-1] is superfluous"),
}  # fmt: skip


def audited(name, source, folder, words=None):
    rng = np.random.default_rng(0)
    edges = np.triu((rng.random((7, 7)) > 0.5).astype(np.float32), 1)
    np.savez(folder / "graph.npz", x=rng.standard_normal((7, 6)).astype(np.float32), edges=edges + edges.T)
    np.savez(folder / "sentence.npz", source=rng.integers(1, 20, (3, 7)) if words is None else words)
    given = "2x1x11x11" if name == "capsules" else f"{folder}/{name}.npz"
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:{MODELS[name]}", "--reference", f"{FOLDER}/{name}_theirs.py:{MODELS[name]}"]
    status = main(["audit", "--eval-only", *sides, "--input", given, "--report", str(folder / "report")])
    return status, json.loads((folder / "report" / "alignment.json").read_text())


def changed(name, before, after):
    source = (FOLDER / f"{name}_ours.py").read_text()
    assert before in source
    return source.replace(before, after)


@pytest.mark.parametrize("case", SOUND)
def test_sound_ports_pass(case, tmp_path):
    name = case.partition(",")[0]
    status, found = audited(name, changed(name, *SOUND[case]), tmp_path)
    assert status == 0, found["localization"]


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_the_only_finding(case, tmp_path):
    name = case.partition(",")[0]
    before, after, place, words = MISTAKES[case]
    status, found = audited(name, changed(name, before, after), tmp_path)
    (mistake,) = found["localization"]["every"]
    assert status == 1 and mistake["location"] == place and words in mistake["hint"], mistake
    assert words or not mistake["kind"], mistake  # what is not understood is not named
    assert words or not mistake["hint"] or mistake["hint"].startswith("no known mistake"), mistake


def test_a_padding_number_in_the_input_is_judged_by_its_gradient(tmp_path):
    """A port that treats the number by itself has other settings and the same gradients: it is right."""
    words = np.arange(21).reshape(3, 7) % 20
    named = audited("sentence", changed("sentence", "features, padding_idx=0", "features"), tmp_path, words)[1]
    (mistake,) = named["localization"]["every"]
    assert mistake["kind"] == "padding_index" and "settings" not in mistake["measured"], mistake
    masked = changed("sentence", "features, padding_idx=0", "features").replace(
        "self.words(source)", "self.words(source) * (source != 0).astype(self.words.weight.dtype).unsqueeze(-1)"
    )
    assert audited("sentence", masked, tmp_path, words)[0] == 0


def test_rows_of_a_graph_are_no_samples(tmp_path, capsys):
    """Arrays of other lengths are given whole, as are those that the reference does not take cut into samples."""
    status, _ = audited("graph", (FOLDER / "graph_ours.py").read_text(), tmp_path)
    assert status == 0 and "x and edges by name, whole, not cut into samples" in capsys.readouterr().out
    sides = ["--port", f"{tmp_path}/ours.py:Graph", "--reference", f"{FOLDER}/graph_theirs.py:Graph"]
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 6), np.float32), edges=np.zeros((0, 0), np.float32))
    assert main(["audit", "--eval-only", *sides, "--input", f"{tmp_path}/none.npz"]) == 2
    assert "expected arrays that hold numbers" in capsys.readouterr().err
