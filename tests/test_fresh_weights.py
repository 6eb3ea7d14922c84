"""Weights that nobody has trained: rounding around zero is judged by what it is part of, and blind outputs are said first."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from alignment import tolerance
from alignment.cli import main
from alignment.compare import Lanes, judge_measured
from alignment.comparisons.model import forward
from alignment.comparisons.model.one_ulp import farthest, judge_again, near_zero, wholes

# Without a shift in the normalisation of a projection, the mean behind the next convolution is zero in exact arithmetic.
SOURCE = """
import {framework}
from {framework} import nn
{norms}

class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.project = nn.Conv2{d}(3, 8, 1, {no_bias})
        self.norm = BatchNorm2{d}(8)
        self.expand = nn.Conv2{d}(8, 16, 1, {no_bias})
        self.second = BatchNorm2{d}(16)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        x = self.expand(self.norm(self.project(x))){then}
        x = {framework}.nn.functional.relu(self.second(x))
        return self.last(x.mean((2, 3))){scaled}
"""
FAULTS = {
    "a shift of the mean": " + 1e-9 * (1 if self.training else 0)",
    "a shift of a tenth": " + 0.1 * (1 if self.training else 0)",
}


def written(folder, then="", scaled=""):
    """The pair with ``then`` in the port alone and ``scaled`` in both, and a file with the reference's own fresh weights."""
    unbiased = "from mobilenetv3_paddle.models.norm import BatchNorm2D"
    kinds = {
        "theirs": ("torch", "Module", "d", "bias=False", "from torch.nn import BatchNorm2d", ""),
        "ours": ("paddle", "Layer", "D", "bias_attr=False", unbiased, then),
    }
    for name, (framework, base, d, no_bias, norms, own) in kinds.items():
        text = SOURCE.format(framework=framework, base=base, d=d, no_bias=no_bias, norms=norms, then=own, scaled=scaled)
        (folder / f"{name}.py").write_text(text)
    import torch

    sys.path.insert(0, str(folder))
    try:
        torch.manual_seed(0)
        torch.save(__import__("theirs").Net().state_dict(), folder / "fresh.pth")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("theirs")
    return ["--port", f"{folder}/ours.py:Net", "--reference", f"{folder}/theirs.py:Net", "--weights", str(folder / "fresh.pth")]


def audited(folder, *flags, **source):
    """Exit status and alignment.json. The frameworks' own fresh weights are a known difference."""
    sides = written(folder, **source)
    shape = (
        "--input",
        "8x3x6x6",
        "--training",
        "--accept",
        "initialisation",
        "--accept",
        "biased_variance",
        "--report",
        str(folder / "report"),
    )
    status = main(["audit", *sides, *shape, *flags])
    return status, json.loads((folder / "report/alignment.json").read_text())


def test_a_mean_that_is_zero_but_for_rounding_is_judged_by_its_layers_statistics(tmp_path):
    status, found = audited(tmp_path)
    assert status == 0, found["first_divergence"]
    (row,) = (row for row in found["steps"][0]["quantities"] if row["name"] == "train.fake.b4.second.running_mean")
    assert row["noise"] and row["passed"] and "zero but for rounding" in row["reason"], row


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mean_that_is_no_rounding_fails(tmp_path, fault):
    status, found = audited(tmp_path, then=FAULTS[fault])
    assert status == 1
    failed = [row["name"] for row in found["steps"][0]["quantities"] if not row["passed"]]
    assert "train.fake.b4.second.running_mean" in failed, failed


def test_outputs_that_say_nothing_are_said_first_and_can_be_calibrated(tmp_path, capsys):
    status, found = audited(tmp_path, scaled=" * 1e-9")
    text = capsys.readouterr().out
    assert status == 1 and found["first_divergence"] is None, found["first_divergence"]
    said = [line for line in text.splitlines() if "calibrate" in line or "diverge" in line]
    assert said[0].startswith("nothing real to compare here: ") and "or use --calibrate" in said[0], text
    assert "localising" not in text
    status, found = audited(tmp_path, "--calibrate")
    assert status == 0 and found["weights"].endswith("fresh.pth (calibrated)")


def test_a_difference_is_located_under_blind_weights_too(tmp_path, capsys):
    status, found = audited(tmp_path, then=" * 1.001", scaled=" * 1e-9")
    assert status == 1 and found["first_divergence"] is not None
    assert "nothing real to compare here" in capsys.readouterr().out


def test_calibrating_keeps_the_kernels_and_changes_the_rest(tmp_path, small_state):
    from alignment.comparisons.context import Context
    from mobilenetv3_common.weights import write_state
    from projects.mobilenetv3.project import PROJECT

    file = tmp_path / "given.safetensors"
    write_state(file, {name: array * 0.5 if array.dtype.kind == "f" else array for name, array in small_state.items()})
    given, made = (Context(PROJECT, weights_from=str(file), calibrate=on).material.weights for on in (False, True))
    name = "features.0.0.weight"
    assert np.array_equal(given.state[name], made.state[name]) and made.calibrated and not given.calibrated
    assert not np.array_equal(given.state["features.0.1.running_mean"], made.state["features.0.1.running_mean"])


@pytest.mark.slow
def test_torchvisions_fresh_weights_tell_pictures_apart_once_they_are_calibrated(tmp_path):
    """Its small matrices make all pictures' features alike: three pictures of much the same content have to differ, too."""
    import torch

    import mobilenetv3_ref  # noqa: F401  # makes torchvision importable beside a CPU build of torch
    from alignment.comparisons.context import Context
    from projects.mobilenetv3.project import PROJECT

    from torchvision.models import mobilenet_v3_small  # isort: skip

    torch.manual_seed(0)
    torch.save(mobilenet_v3_small().state_dict(), tmp_path / "fresh.pth")
    context = Context(PROJECT, weights_from=str(tmp_path / "fresh.pth"), calibrate=True)
    (case,) = (case for case in forward.cases(context) if case.name == "eval.photos.b3")
    found = forward.run(context, [case])
    assert not found.problems and found.evidence["logits_std_between_pictures"] > 2 * tolerance.LOGITS_STD_BETWEEN


# --- on plain data ---------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
PASS = {"a.running_mean": 1e-17 * RNG.normal(size=16), "a.running_var": np.full(16, 0.9), "block": RNG.normal(size=(4, 16))}


def lanes_of(error, truth=PASS["a.running_mean"]):
    port = truth + error * np.random.default_rng(1).normal(size=16)
    return Lanes(port.astype(np.float32), truth.astype(np.float32), truth.astype(np.float32), port64=port, reference64=truth)


@pytest.mark.parametrize(("error", "passes"), [(1e-17, True), (1e-15, True), (1e-12, False), (1e-3, False)])
def test_rounding_around_zero_has_the_rounding_of_its_whole_and_no_more(error, passes):
    lanes = lanes_of(error)
    row, whole = judge_measured("a.running_mean", lanes), wholes(PASS)["a.running_mean"]
    assert not row.passed, "its own norm says nothing"
    assert near_zero(row, lanes, whole) == passes
    draw = PASS | {"a.running_mean": PASS["a.running_mean"] * 1.5}
    moved = farthest([draw], PASS, ["a.running_mean"])["a.running_mean"]
    again = judge_again(row, lanes, moved, whole)
    assert moved > 0 and again.passed == passes and again.noise


def test_a_small_value_that_one_ulp_does_not_move_is_no_rounding():
    lanes = lanes_of(1e-15, truth=np.full(16, 1e-11))
    row, whole = judge_measured("a.running_mean", lanes), wholes(PASS)["a.running_mean"]
    assert near_zero(row, lanes, whole), "it is small enough to be asked"
    assert not judge_again(row, lanes, 1e-26, whole).passed


def test_a_whole_is_the_layers_statistics_or_the_typical_output():
    found = wholes(PASS | {"b.running_var": np.full(16, 100.0), "mask": np.full(4, -1e12), "block2": np.ones(16), "c": np.ones(2)})
    assert found["a.running_mean"] == pytest.approx((16 * 0.81) ** 0.5) and found["b.running_var"] == 400
    assert found["c"] == pytest.approx(2**0.5, rel=0.1), "a mask of large numbers does not count"
    assert tolerance.SUMMATION_64 * found["a.running_mean"] < tolerance.EXACT_RTOL
