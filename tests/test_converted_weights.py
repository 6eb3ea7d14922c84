"""A converted file against its original: --weights ORIGINAL --port-weights CONVERTED."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.model import converted
from mobilenetv3_common.weights import as_paddle, write_state
from projects.mobilenetv3.project import PROJECT
from tools.align import main

pytestmark = pytest.mark.slow  # make test-slow

FIFTH, SIXTH = "features.5.block.1.0.weight", "features.6.block.1.0.weight"


@pytest.fixture(scope="module")
def original(small_state, tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "original.pth"
    write_state(file, small_state)
    return file


def both(original, small_state, folder, change=lambda state: state, suffix=".pdparams"):
    """The context of a converted file: the port's form of the same weights, changed."""
    file = folder / f"converted{suffix}"
    write_state(file, change({name: array.copy() for name, array in as_paddle(small_state).items()}))
    return Context(PROJECT, weights_from=str(original), port_weights=str(file))


@pytest.mark.parametrize("suffix", [".pdparams", ".safetensors"])
def test_a_right_file_passes(suffix, original, small_state, tmp_path):
    context = both(original, small_state, tmp_path, suffix=suffix)
    result = converted.run(context)
    assert result.passed and len(result.quantities) == len(small_state) and result.covers == ["converted file"]
    assert not any("conversion not checked" in note for note in context.notes())
    port = context.networks.build("port")
    state = context.port.framework.state(port)
    assert all(np.array_equal(state[name], array) for name, array in small_state.items())


def in_bfloat16(array):
    return ((array.view(np.uint32) + 0x7FFF + ((array.view(np.uint32) >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def without(*names):
    return lambda state: {name: array for name, array in state.items() if name not in names}


def with_changed(name, change):
    return lambda state: state | {name: change(state[name])}


WRONG = {
    "two layers swapped": (lambda s: s | {FIFTH: s[SIXTH], SIXTH: s[FIFTH]}, FIFTH, "weights_swapped"),
    "mean and variance swapped": (
        lambda s: s | {"features.0.1._mean": s["features.0.1._variance"], "features.0.1._variance": s["features.0.1._mean"]},
        "features.0.1.running_mean", "weights_swapped"),
    "a kernel transposed": (with_changed(FIFTH, lambda a: a.transpose(0, 1, 3, 2).copy()), FIFTH, "weight_transposed"),
    "a linear layer not transposed": (
        with_changed("classifier.3.weight", lambda a: a.T.copy()), "classifier.3.weight", "weight_transposed"),
    "statistics not converted": (
        lambda s: s | {n: np.zeros_like(a) for n, a in s.items() if n.endswith("._mean")}, "features.0.1.running_mean",
        "weights_not_loaded"),
    "one tensor at its start": (with_changed("classifier.3.bias", np.zeros_like), "classifier.3.bias", "weights_not_loaded"),
    "half precision": (lambda s: {n: a.astype(np.float16) for n, a in s.items()}, "features.0.0.weight", "half_precision"),
    "bfloat16": (lambda s: {n: in_bfloat16(a) for n, a in s.items()}, "features.0.0.weight", "half_precision"),
    "classes in another order": (
        with_changed("classifier.3.bias", lambda a: a[::-1].copy()), "classifier.3.bias", "weight_reordered"),
    "input channels reversed": (
        with_changed("features.0.0.weight", lambda a: a[:, ::-1].copy()), "features.0.0.weight", "channels_reversed"),
    "one value": (
        with_changed(FIFTH, lambda a: a + (np.arange(a.size).reshape(a.shape) == 7) * np.float32(1e-3)), FIFTH, "few_elements"),
    "scaled": (with_changed(FIFTH, lambda a: a * np.float32(2)), FIFTH, "scaled"),
    "a tensor missing": (without("features.3.block.0.1._variance"), "features.3.block.0.1.running_var", "weights_missing"),
    "a tensor too much": (lambda s: s | {"head.weight": np.zeros(3, np.float32)}, "head.weight", "weights_extra"),
    "another shape": (with_changed(FIFTH, lambda a: a[:8].copy()), FIFTH, "shape"),
    "one class less": (lambda s: s | {"classifier.3.weight": s["classifier.3.weight"][:, 1:].copy(),
        "classifier.3.bias": s["classifier.3.bias"][1:].copy()}, "classifier.3.weight", "shape"),
    "names of the other framework": (
        lambda s: {n.replace("._mean", ".running_mean").replace("._variance", ".running_var"): a for n, a in s.items()},
        "features.0.1.running_mean", "weights_missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_a_file_is_located_and_named(case, original, small_state, tmp_path):
    change, place, kind = WRONG[case]
    context = both(original, small_state, tmp_path, change)
    result = converted.run(context)
    assert result.failed
    Path(context.port_weights).unlink()  # what was measured is explained: the file is read once
    first = locate(context, [result], with_table=False).first
    assert (first.stage, first.location, first.kind) == ("weights", place, kind), first.line()


def test_the_command_compares_and_says_what_it_did_not(original, small_state, tmp_path, capsys):
    both(original, small_state, tmp_path)
    flags = ["--weights", str(original), "--steps", "4", "--result-dir", str(tmp_path / "r")]
    good = ["--port-weights", str(tmp_path / "converted.pdparams")]
    assert main([*flags, *good]) == 0
    out = capsys.readouterr().out
    assert "step 0 weights ... passed" in out and "conversion not checked" not in out
    report = json.loads((tmp_path / "r" / "alignment.json").read_text())
    assert report["notes"] == [] and report["steps"][0]["covers"] == ["converted file"]
    assert main(flags) == 0
    assert f"note: conversion not checked: the engine itself loaded the {original} weights" in capsys.readouterr().out
    both(original, small_state, tmp_path, WRONG["two layers swapped"][0])
    assert main([*flags, *good]) == 1
    out = capsys.readouterr().out
    assert f"first divergence: weights: {FIFTH}: it holds the values of {SIXTH}" in out and "2 of 210 tensors differ" in out
    both(original, small_state, tmp_path, WRONG["a tensor missing"][0])
    assert main([*flags, *good]) == 1
    assert "the converted file has no tensor features.3.block.0.1._variance" in capsys.readouterr().out


def test_a_file_that_cannot_be_used_is_refused_in_one_line(original, small_state, tmp_path, capsys):
    (tmp_path / "damaged.pdparams").write_bytes(b"\x80\x04no")
    write_state(tmp_path / "foreign.pdparams", {"fc.weight": np.zeros((3, 4), np.float32)})
    for name, message in (
        ("gone.pdparams", "no such weights file"),
        ("damaged.pdparams", "damaged.pdparams"),
        ("foreign.pdparams", "has 0 of the port's 210 tensors: is it another model's?"),
        ("wrong.pth", "a converted file for Paddle is .pdparams or .safetensors"),
    ):
        flags = ["--weights", str(original), "--port-weights", str(tmp_path / name), "--steps", "3"]
        assert main([*flags, "--result-dir", str(tmp_path / "r")]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ") and err.count("\n") == 1 and message in err, err
    assert main(["--port-weights", "x.pdparams", "--result-dir", str(tmp_path / "r")]) == 2
    assert "--port-weights goes with --weights" in capsys.readouterr().err
