"""Models with several inputs and outputs, as strangers write them: sound ones are silent, mistakes are found where they are."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pytest

from alignment.audit.inputs import as_arguments
from alignment.cli import main
from alignment.frameworks.base import Keywords, leaves, mapped
from alignment.models.outputs import in_order, order_of
from tests.conftest import ROOT, mode_of

FOLDER = ROOT / "tests/outputs"
INPUTS = {
    "Detector": "2x3x13x22",
    "UNet": "2x3x13x22",
    "TextEncoder": "tokens",
    "Segmenter": "2x3x13x22",
    "Clip": "clip",
    "AutoEncoder": "2x6",
    "Tagger": "2x3x13x22",
    "Tabular": "columns",
    "MultiTask": "2x3x13x22",
    "WithLoss": "labelled",
    "Heads": "2x6",
    "Pair": "two",
    "Pyramid": "2x3x33x21",
}
# (model, in the port's source, instead, where, kinds that are right; the first word of a place is enough)
MISTAKES = [
    ("Detector", "boxes.append(F.relu(self.box_head(p)))", "boxes.append(self.box_head(p))", "Detector.forward", ""),
    ("Detector", "self.box_head(p)))", "self.box_head(p.detach())))", "Detector.forward", ""),
    (
        "UNet",
        "[dw // 2, dw - dw // 2, dh // 2, dh - dh // 2]",
        "[dw - dw // 2, dw // 2, dh // 2, dh - dh // 2]",
        "UNet.forward",
        "",
    ),
    ("UNet", "paddle.concat([skip, x], axis=1)", "paddle.concat([x, skip], axis=1)", "UNet.forward", ""),
    ("TextEncoder", "product = product + bias.unsqueeze([1, 2])", "pass", "TextEncoder.forward", ""),
    ("TextEncoder", "F.tanh(self.pooler(x[:, 0]))", "F.tanh(self.pooler(x[:, 0])).detach()", "TextEncoder.forward", "detached"),
    ("Segmenter", '{"aux": aux, "out": out}', '{"aux": aux.detach(), "out": out}', "Segmenter.forward", "detached"),
    ("Segmenter", '{"aux": aux, "out": out}', '{"aux": out, "out": aux}', "Segmenter.forward", "permuted"),
    (
        "Clip",
        "ClipOutput(image_features, text_features, logits)",
        "ClipOutput(image_features, text_features, logits.t())",
        "Clip",
        "",
    ),
    ("Clip", "ClipOutput(image_features, text_features", "ClipOutput(image_features, text_features.detach()", "Clip", "detached"),
    ("AutoEncoder", "VAEOutput(self.dec(z), mu, logvar)", "VAEOutput(self.dec(z), mu, logvar.exp())", "AutoEncoder.forward", ""),
    ("AutoEncoder", "VAEOutput(self.dec(z), mu, logvar)", "VAEOutput(self.dec(z), logvar, mu)", "AutoEncoder.forward", "permuted"),
    ("Tagger", "probs.argmax(axis=-1)", "probs.argmin(axis=-1)", "Tagger.forward", ""),
    ("Tagger", "probs.max(axis=-1) > 0.2", "probs.max(axis=-1) > 0.5", "Tagger.forward", ""),
    ("Tabular", "categories[:, i]", "categories[:, 1 - i]", "Tabular.forward", ""),
    ("Tabular", "nn.Linear(4, 8), nn.ReLU()", "nn.Linear(4, 8), nn.LeakyReLU()", "num.1", "activation"),
    ("MultiTask", "F.normalize(self.normal(f), axis=1)", "F.normalize(self.normal(f), axis=-1)", "MultiTask.forward", ""),
    ("MultiTask", "F.softplus(self.depth(f))", "F.relu(self.depth(f))", "MultiTask.forward", ""),
    ("WithLoss", "F.cross_entropy(logits, labels)", 'F.cross_entropy(logits, labels, reduction="sum")', "WithLoss.forward", ""),
    (
        "WithLoss",
        "F.cross_entropy(logits, labels), logits",
        "F.cross_entropy(logits.detach(), labels), logits",
        "WithLoss",
        "detached",
    ),
    ("Heads", '"c": self.c(a)', '"c": self.c(a.detach())', "inner", ""),
    ("Heads", "self.inner(x, scale=0.5)", "self.inner(x)", "Heads.forward", ""),
    ("Pair", ".abs()", ".abs().detach()", "Pair.forward", "detached"),
    ("Pair", ".squeeze(-1)", ".squeeze()", "the model's output", ""),
    ("Pyramid", "features += (x,)", "features += (x.detach(),)", "Pyramid.forward", "detached"),
    ("Pyramid", "ConvBNLayer(4, 6, 2)", "ConvBNLayer(4, 6, 2, act=nn.Hardswish)", "stages.1.2", "activation"),
]


def audit(folder, model, port=None):
    """Exit status, and what was found, of an audit of one of the pairs; ``port`` is another source of the ports."""
    source = FOLDER / "ours.py"
    if port is not None:
        source = folder / "ours.py"
        source.write_text(port)
    given = INPUTS[model]
    given = f"{FOLDER}/theirs.py:{given}" if given.isidentifier() else given
    sides = ["--port", f"{source}:{model}", "--reference", f"{FOLDER}/theirs.py:{model}"]
    status = main(["audit", "--eval-only", *sides, "--input", given, "--report", str(folder / "report")])
    return status, json.loads((folder / "report" / "alignment.json").read_text())


QUICK = ("TextEncoder", "Segmenter", "Clip", "Heads")  # by name, a dictionary, a dataclass, a part with several outputs


SLOW, WEEKLY = (pytest.mark.slow,), (pytest.mark.slow, pytest.mark.weekly)


def sorted_out(mistakes):
    """Detached outputs of the quick models on every change, one mistake of each other model in ``make test-slow``, all weekly."""
    seen = set()
    for one in mistakes:
        quick = one[0] in QUICK and "detach" in one[2]
        marks = () if quick else WEEKLY if one[0] in seen or one[0] in QUICK else SLOW
        seen |= set() if quick else {one[0]}
        yield pytest.param(one, marks=marks)


@pytest.mark.parametrize("model", [pytest.param(one, marks=() if one in QUICK else SLOW) for one in INPUTS])
def test_a_sound_model_is_silent(model, tmp_path, capsys):
    status, _ = audit(tmp_path, model)
    assert status == 0, capsys.readouterr().out[-1500:]


@pytest.mark.parametrize("mistake", sorted_out(MISTAKES))
def test_a_mistake_is_found_where_it_is(mistake, tmp_path, capsys):
    model, old, new, place, kind = mistake
    text = (FOLDER / "ours.py").read_text()
    assert old in text
    status, said = audit(tmp_path, model, text.replace(old, new))
    every = said["localization"].get("every") or [{}]
    first = said["first_divergence"] | {"kind": every[0].get("kind") or ""}
    assert status == 1 and first["location"].startswith(place), (first, capsys.readouterr().out[-1500:])
    assert kind in first["kind"], (first, capsys.readouterr().out[-1500:])


@dataclass
class Held:
    first: np.ndarray
    second: object = None


class Plain:
    def __init__(self, **held):
        self.__dict__.update(held)


def test_arrays_are_found_in_whatever_holds_them():
    one, two = np.zeros(1), np.ones(2)
    for value in (Held(one, two), Plain(a=one, b=[two], of=Plain(deep=1)), {"a": one, "b": (None, two)}, OrderedDict(a=one, b=two)):
        assert [array.size for array in leaves(value, np.ndarray)] == [1, 2], value
        other = mapped(value, np.ndarray, lambda array: array + 5)
        assert type(other) is type(value) and [array.max() for array in leaves(other, np.ndarray)] == [5, 6]
        assert [array.max() for array in leaves(value, np.ndarray)] == [0, 1], "the original stays as it is"
    itself = Plain(a=one)
    itself.me, itself.all = itself, [itself]
    assert leaves(itself, np.ndarray) == [one]


def test_dictionaries_are_read_in_the_order_of_the_reference():
    order = order_of({"out": 1, "more": [{"a": 1, "b": 2}]})
    assert list(in_order({"more": [{"b": 2, "a": 1}], "out": 3}, order)) == ["out", "more"]
    assert list(in_order({"more": [{"b": 2, "a": 1}], "out": 3}, order)["more"][0]) == ["a", "b"]
    assert list(in_order({"more": 1, "other": 2}, order)) == ["more", "other"], "other names are another output"
    assert in_order(Held(1, 2), order_of(Held(3))) == Held(1, 2)
    assert list(in_order(Held(1, 2), {"second": None, "first": None})) == ["second", "first"]
    assert in_order(Held(1, 2), {"second": None, "first": None}, whole=False) == Held(1, 2), "the model itself uses it"


def test_what_a_function_returns_becomes_arguments():
    assert [a.dtype for a in as_arguments(np.zeros(2))] == [np.float32]
    (named,) = as_arguments({"ids": [1, 2], "mask": np.ones(2)})
    assert isinstance(named, Keywords) and named["ids"].tolist() == [1, 2] and named["mask"].dtype == np.float32
    first, named = as_arguments(((np.zeros(2),), {"mask": np.ones(2)}))
    assert first.shape == (2,) and isinstance(named, Keywords)
    (batch,) = as_arguments(({"image": np.zeros((2, 3))},))
    assert type(batch) is dict, "one argument that is a dictionary"


def test_a_file_of_several_named_arrays_goes_by_name(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "in.npz", attention_mask=np.ones((3, 5), "int64"), input_ids=rng.integers(0, 50, (3, 5)))
    sides = ["--port", f"{FOLDER}/ours.py:TextEncoder", "--reference", f"{FOLDER}/theirs.py:TextEncoder"]
    assert main(["audit", "--eval-only", *sides, "--input", f"{tmp_path}/in.npz", "--report", str(tmp_path)]) == 0
    assert "in.npz, attention_mask and input_ids by name" in capsys.readouterr().out


def test_a_port_without_an_argument_of_that_name_is_refused(tmp_path, capsys):
    source = (FOLDER / "ours.py").read_text().replace("attention_mask", "mask")
    (tmp_path / "ours.py").write_text(source)
    sides = ["--port", f"{tmp_path}/ours.py:TextEncoder", "--reference", f"{FOLDER}/theirs.py:TextEncoder"]
    assert main(["audit", "--eval-only", *sides, "--input", f"{FOLDER}/theirs.py:tokens", "--report", str(tmp_path)]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "the port's forward has no argument 'attention_mask' (it has input_ids, " in said[0], said


@pytest.mark.slow  # make test-slow
@pytest.mark.parametrize("model", ["TextEncoder", "Segmenter"])
def test_dumps_hold_inputs_by_name_and_orders(model, tmp_path, capsys):
    given = INPUTS[model]
    given = f"{FOLDER}/theirs.py:{given}" if given.isidentifier() else given
    reference, port = tmp_path / "reference", tmp_path / "port"
    assert main(["dump", f"{FOLDER}/theirs.py:{model}", "--input", given, "--out", str(reference)]) == 0
    assert main(["dump", f"{FOLDER}/ours.py:{model}", "--reference-dump", str(reference), "--out", str(port)]) == 0
    dumps = ["--port-dump", str(port), "--reference-dump", str(reference)]
    assert main(["audit", *dumps, "--report", str(tmp_path)]) == 0, capsys.readouterr().out[-1500:]


UPDATES = {
    "a learning rate of its own": ("learning_rate=0.1", "the update moves it by 0.1 times the reference's"),
    "a weight decay of its own": (
        "regularizer=paddle.regularizer.L2Decay(0.25)",
        "the update also takes 0.25 x the weight away, times the learning rate: weight decay?",
    ),
}


@pytest.mark.parametrize("case", ["sound", *UPDATES])
def test_updates_show_what_gradients_cannot(case, tmp_path, capsys):
    attribute, words = UPDATES.get(case, ("", ""))
    port = tmp_path / "ours.py"
    attributes = f"paddle.ParamAttr({attribute})" if attribute else "None"
    port.write_text((FOLDER / "ours.py").read_text().replace("nn.Linear(5, 5)", f"nn.Linear(5, 5, weight_attr={attributes})"))
    sides = ["--port", f"{port}:Heads", "--reference", f"{FOLDER}/theirs.py:Heads", "--input", "2x6", "--report", str(tmp_path)]
    status = main(["audit", "--eval-only", *sides, "--updates", "3"])
    out = capsys.readouterr().out
    said = json.loads((tmp_path / "alignment.json").read_text())
    row = said["steps"][-1]
    assert row["name"] == "updates" and row["passed"] is (not words) and "step 5 updates, 3 ..." in out, out[-900:]
    assert status == (1 if words else 0) and "| 5 updates |" in (tmp_path / "report.md").read_text()
    if words:
        assert said["first_divergence"]["location"] == "inner.c.weight" and words in said["first_divergence"]["hint"], out[-900:]


@pytest.mark.slow  # make test-slow
@pytest.mark.parametrize(
    "model", ["Heads", *(pytest.param(one, marks=pytest.mark.weekly) for one in ("TextEncoder", "UNet", "Clip"))]
)
def test_updates_of_a_sound_model_pass(model, tmp_path, capsys):
    given = INPUTS[model]
    given = f"{FOLDER}/theirs.py:{given}" if given.isidentifier() else given
    sides = ["--port", f"{FOLDER}/ours.py:{model}", "--reference", f"{FOLDER}/theirs.py:{model}", "--input", given]
    flags = ["--training", "--accept", "initialisation", "--accept", "biased_variance", "--updates", "5"]
    assert main(["audit", *mode_of(flags), *sides, *flags, "--report", str(tmp_path)]) == 0, capsys.readouterr().out[-1500:]
    assert json.loads((tmp_path / "alignment.json").read_text())["steps"][-1]["passed"]


def test_a_wrong_number_of_updates_is_refused(tmp_path, capsys):
    sides = ["--port", f"{FOLDER}/ours.py:Heads", "--reference", f"{FOLDER}/theirs.py:Heads", "--input", "2x6"]
    assert main(["audit", *sides, "--updates", "-1", "--report", str(tmp_path)]) == 2
    assert "--updates must be 0 to 100" in capsys.readouterr().err
