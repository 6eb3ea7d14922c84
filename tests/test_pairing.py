"""Pairs whose modules and tensors have other names, nesting and packing: sound ones pass, broken ones are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest
import torch
import yaml

from alignment.cli import main
from alignment.faults import LayerPair
from alignment.frameworks import framework, framework_of
from alignment.localize import localize
from alignment.models.links import Link, forms_of
from alignment.models.matching import matched
from alignment.models.values import Trial
from alignment.project import import_file
from bench.layer_faults import finding
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import Entry, read_state, write_state
from tests.conftest import ROOT
from tests.sound_pairs import PAIRS as PAIRS_OF_OTHERS
from tests.sound_pairs import SoundPair, audited
from tools.convert_weights import main as convert

PAIRS = ROOT / "tests" / "pairs"
SHAPES = {"ViT": (2, 3, 16, 16), "LSTM": (2, 7, 6), "Encoder": (2, 7, 16), "Towers": (2, 3, 12, 10), "ResNet": (2, 3, 16, 12)}


def models(port, reference):
    """The two models, and an input of theirs."""
    shape = next(shape for name, shape in SHAPES.items() if reference.startswith(name))
    ours, theirs = import_file(PAIRS / "ours.py"), import_file(PAIRS / "theirs.py")
    framework("paddle").seed(0), framework("torch").seed(0)
    images = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return getattr(ours, port)(), getattr(theirs, reference)(), images


def pairing(port, reference):
    ours, theirs, inputs = models(port, reference)
    return matched(ours, theirs, {}, (framework_of(ours), framework_of(theirs)), lambda: (inputs,))


SOUND = [
    ("ViT", "ViT"), ("ViT", "ViTHead"), ("LSTMNet", "LSTMNet"), ("Gates", "LSTMNet"), ("Encoder", "Encoder"),
    ("Encoder", "EncoderSeq"), ("Towers", "Towers"), ("ResNet", "ResNet"),
]  # fmt: skip


@pytest.mark.parametrize(("port", "reference"), SOUND)
def test_a_sound_pair_of_other_names_has_no_finding(port, reference):
    report = localize(*models(port, reference), weights=False)
    assert report.first is None, report.first.line()
    assert report.notes, "what is paired without equal names is said"


TOKENS = ("Classifier", "PreNorm", "Tagger", "Translator")  # the others take pictures or vectors
PICTURES = {"Patch": (2, 3, 16, 12), "ConvGRU": (2, 3, 8, 12), "Detector": (2, 3, 9, 12)}
SEQUENCES = [*TOKENS, *PICTURES, "Speech", "Fused", "Pooling", "Regressor"]


def sequence_pair(name):
    """Two networks of other people's style; Speech has a BatchNorm, whose running variance is Paddle's own in training mode."""
    ours, theirs = (import_file(PAIRS / f"sequence_{side}.py") for side in ("ours", "theirs"))

    def inputs(rng):
        if name not in TOKENS:
            return rng.standard_normal(PICTURES.get(name, (3, 9, 6))).astype(np.float32)
        numbers = rng.integers(1, 20, (3, 9))
        numbers[0, 7:] = 0
        return numbers

    return LayerPair(getattr(ours, name), getattr(theirs, name), inputs, {}, name != "Speech")


@pytest.mark.parametrize("name", SEQUENCES)
def test_attention_and_recurrent_networks_under_other_names_are_sound_in_both_modes(name):
    pair = sequence_pair(name)
    found = finding(pair, pair.port, 1)
    assert found is None, found.line()


@pytest.mark.parametrize("name", ["Windows", pytest.param("UNet with its outputs", marks=pytest.mark.slow)])
def test_an_audit_of_a_correct_pair_is_silent_and_of_a_wrong_one_is_not(name):
    """The command ``python -m tests.sound_pairs`` on two of its pairs, and on a pair with a mistake."""
    assert not (found := audited(name, PAIRS_OF_OTHERS[name], 1)).status, found
    wrong = SoundPair("pairs/ours.py", "pairs/theirs.py", "wide", "ResNet", "2x3x16x12")
    found = audited("wide", wrong, 1)
    assert found.status == 1 and ("width", "layer2.0.conv1.weight") in {(f["kind"], f["location"]) for f in found.findings}, found
    assert audited("none", replace(wrong, port="nothing"), 1).status == 2


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [("0",), pytest.param(("1", "2"), marks=pytest.mark.weekly)], ids=["a seed", "two more"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_they_pass_whole_audits_over_several_seeds(name, seeds, tmp_path, capsys):
    files = [f"{PAIRS}/sequence_{side}.py:{name}" for side in ("ours", "theirs")]
    array = sequence_pair(name).inputs(np.random.default_rng(2))
    np.savez(tmp_path / "input.npz", x=np.concatenate([array] * 3))
    more = ["--training", "--accept", "initialisation", *(["--accept", "biased_variance"] if name == "Speech" else [])]
    for seed in seeds:
        flags = ["--input", str(tmp_path / "input.npz"), "--report", str(tmp_path / seed), "--seed", seed, *more]
        assert main(["audit", "--port", files[0], "--reference", files[1], *flags]) == 0, capsys.readouterr().out


BROKEN = {
    "wide": "layer2.0.conv1.weight: 20 output channels, expected 16",
    "extra": "layer2.1.extra.c: the port has a layer Conv2D that the reference does not have, called stage2.1.extra.c in the port",
    "missing": "layer1.1.conv2: the layer Conv2d is missing in the port",
}


@pytest.mark.parametrize("port", BROKEN)
def test_what_stays_unpaired_is_named(port):
    first = localize(*models(port, "ResNet")).first
    assert BROKEN[port] in first.line(), first.line()


def test_packed_projections_are_found_with_their_order_and_groups():
    links = pairing("ViT", "ViTHead").links
    packed = [link for link in links if len(link.port) == 3]
    assert len(packed) == 4 and {link.groups for link in packed} == {4}
    names = [name.rpartition("attention.")[2] for name in packed[0].port]
    assert names == ["k.weight", "q.weight", "v.weight"] and packed[0].reference == ("blocks.0.attn.qkv.weight",)
    assert Link(("cls",), ("cls_token",)) in links


def test_parallel_branches_of_one_shape_are_told_apart():
    found = pairing("Towers", "Towers").paired
    assert {own: other for own, other in found.items() if own.endswith(".3")} == {"left.3": "a.3", "right.3": "b.3"}


def audit(folder, port, reference, *flags):
    sides = ["--port", f"{PAIRS}/ours.py:{port}", "--reference", f"{PAIRS}/theirs.py:{reference}"]
    return main(["audit", "--eval-only", *sides, "--report", str(folder), "--input", "2x3x16x16", *flags])


def test_an_audit_writes_a_map_with_tensors_which_is_strict_when_given_back(tmp_path, capsys):
    assert audit(tmp_path / "a", "ViT", "ViTHead") == 0
    assert "stored differently" in capsys.readouterr().out
    file = tmp_path / "a" / "map.yaml"
    said = yaml.safe_load(file.read_text())
    assert said["embed"] == "patch_embed" and said["tensors"][0]["groups"] == 4
    assert audit(tmp_path / "b", "ViT", "ViTHead", "--names", str(file)) == 0
    assert "stored differently" not in capsys.readouterr().out, "nothing was left to find out"
    file.write_text(file.read_text().replace("groups: 4", "groups: 2"))
    assert audit(tmp_path / "c", "ViT", "ViTHead", "--names", str(file)) == 1, "a person's map is strict"


BAD = {
    "tensors:\n- port: clz\n  reference: cls_token\n": "the port has no tensor 'clz'; did you mean 'cls'?",
    "tensors:\n- port: cls\n  reference: pos_embed\n": "shapes (1, 1, 16) and (1, 17, 16) do not fit together",
    "tensors:\n- port: cls\n": "a tensor needs port and reference; reference is missing",
    "tensors:\n- port: cls\n  reference: cls_token\n  heads: 4\n": "unknown heads; known are port, reference, groups",
    "tensors:\n- port: cls\n  reference: cls_token\n  groups: no\n": "groups must be a number from 1, found no",
    "tensors:\n- port: cls\n  reference: cls_token\n- port: cls\n  reference: pos_embed\n": "tensor cls of the port is named twice",
}


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_entry_is_one_line_and_status_2(text, tmp_path, capsys):
    (tmp_path / "map.yaml").write_text(text)
    assert audit(tmp_path / "a", "ViT", "ViT", "--names", str(tmp_path / "map.yaml")) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("error: ") and BAD[text] in said[0], said


def converted(source, target, port, reference, *flags):
    sides = ["--port", f"{PAIRS}/ours.py:{port}", "--reference", f"{PAIRS}/theirs.py:{reference}"]
    return convert([str(source), str(target), *sides, "--model-input", "2x3x16x16", *flags])


@pytest.mark.parametrize(("port", "reference"), [("ViT", "ViTHead"), ("ResNet", "ResNet")])
def test_a_file_of_any_pair_is_converted_and_comes_back_as_it_was(port, reference, tmp_path, capsys):
    _, theirs, _ = models(port, reference)
    state = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    there, own, back = tmp_path / "there.pth", tmp_path / "own.pdparams", tmp_path / "back.safetensors"
    write_state(there, state)
    assert converted(there, own, port, reference) == 0 and converted(own, back, port, reference, "--list") == 0
    assert "port <-> reference" in capsys.readouterr().out
    found = read_state(back)
    assert found.keys() == state.keys() and all(np.array_equal(found[name], array) for name, array in state.items())
    del state[next(iter(state))]
    write_state(there, state)
    assert converted(there, tmp_path / "other.pdparams", port, reference) == 2
    assert converted(own, tmp_path / "wrong.pdparams", port, reference) == 2 and not (tmp_path / "wrong.pdparams").exists()
    assert converted(own, back, "wide", "ResNet") == 2
    assert "the two models do not fit" in capsys.readouterr().err


def test_pieces_go_there_and_back():
    packed = [Entry("qkv.weight", "qkv.weight", (12, 2), True)]
    parts = [Entry(f"{name}.weight", f"{name}.w", (4, 2)) for name in "qkv"]
    link = Link(tuple(e.canonical for e in parts), ("qkv.weight",), groups=2)
    ours, theirs = forms_of([link], parts, packed)
    assert [piece.canonical for piece in theirs["qkv.weight"]] == [f"qkv.weight[{name}]" for name in "qkv"]
    assert [piece.canonical for name in "qkv" for piece in ours[f"{name}.w"]] == [f"qkv.weight[{name}]" for name in "qkv"]
    own, whole = np.arange(24.0).reshape(2, 12), None
    for piece in theirs["qkv.weight"]:
        whole = piece.into(piece.to_canonical(own), whole)
    assert np.array_equal(whole, own)
    assert np.array_equal(theirs["qkv.weight"][1].to_canonical(own), own.T[[2, 3, 8, 9]])
    with pytest.raises(UserError, match="do not lie in 3 groups"):
        forms_of([Link(link.port, link.reference, groups=3)], parts, packed)


def test_two_biases_that_are_added_up_are_one():
    two, one = [Entry(name, name, (3,)) for name in ("ih", "hh")], [Entry("b", "b", (3,))]
    ours, theirs = forms_of([Link(("b",), ("ih", "hh"), added=True)], one, two)
    assert [piece.canonical for piece in ours["b"]] == ["ih"]
    first, second = theirs["ih"][0], theirs["hh"][0]
    total = second.onto(np.full(3, 2.0), first.onto(np.ones(3), None))
    assert np.array_equal(total, np.full(3, 3.0))
    assert np.array_equal(first.into(total, None), total) and not second.into(total, None).any()


def test_rows_of_padding_do_not_tell_two_sound_embeddings_apart():
    """Paddle gives zeros for them whatever they hold, so random weights for them would refute every pairing."""
    rows = {"torch": torch.nn.Embedding(6, 3, padding_idx=0), "paddle": paddle.nn.Embedding(6, 3, padding_idx=0)}
    sides = framework("paddle"), framework("torch")
    trial = Trial((rows["paddle"], rows["torch"]), sides, (np.array([[0, 1, 5], [2, 0, 0]]),))
    trial.load({"": ""}, [])
    assert trial.error("", "") < 1e-6
    assert (trial.state["weight"][1:] != 0).all()
