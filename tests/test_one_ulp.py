"""Sound networks that enlarge rounding pass, by what one-ulp changes do to the reference; mistakes beside them do not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.steps.backward import SGD, History, Iteration, Run, judge_tensors
from alignment.steps.one_ulp import ULP_DRAWS
from alignment.steps.result import StepResult

# A recurrent network in its chaotic range: a difference grows by about a half with every step.
SOURCE = """
import {framework}
from {framework} import nn


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 32)
        self.cell = nn.Linear(32, 32)
        self.last = nn.Linear(32, 4)

    def forward(self, x):
        x = self.first(x)
        for _ in range({steps}):
            x = {framework}.tanh(6 * self.cell(x))
        return self.last(x){then}
"""
SHAPE = ("--input", "5x6", "--training")


def write(folder, steps, then=""):
    (folder / "theirs.py").write_text(SOURCE.format(framework="torch", base="Module", steps=steps, then=""))
    (folder / "ours.py").write_text(SOURCE.format(framework="paddle", base="Layer", steps=steps, then=then))
    return f"{folder}/ours.py:Net", f"{folder}/theirs.py:Net"


def audit(folder, steps, *flags, then=""):
    """Exit status and alignment.json."""
    port, reference = write(folder, steps, then)
    sides = ("--port", port, "--reference", reference, "--accept", "initialisation")
    status = main(["audit", *sides, *SHAPE, "--report", str(folder / "report"), *flags])
    return status, json.loads((folder / "report/alignment.json").read_text())


def largest(found):
    rows = found["steps"][0]["quantities"]
    return max(row["float64_diff"] for row in rows if row["float64_diff"] is not None)


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_network_that_enlarges_rounding_passes(tmp_path, seed):
    status, found = audit(tmp_path, 21, "--seed", str(seed))
    assert 1e-12 < largest(found) < 1e-10, "the network should miss the plain bound"
    assert status == 0, found["first_divergence"]


@pytest.mark.parametrize(("steps", "then"), [(21, " * (1 + 2e-10)"), (1, " * (1 + 2e-12)"), (50, "")])
def test_a_mistake_of_a_few_roundings_fails_and_so_does_a_network_that_nothing_can_be_said_of(tmp_path, steps, then):
    """Twice the largest bound in a sensitive network; twice the plain bound in another; and one where rounding is all there is."""
    status, found = audit(tmp_path, steps, then=then)
    assert status == 1 and found["first_divergence"]["stage"] == "forward", found


@pytest.mark.parametrize("then", ["", " * (1 + 2e-10)"])
def test_two_dumps_know_what_one_ulp_does(tmp_path, then):
    port, reference = write(tmp_path, 21, then)
    dumps = [str(tmp_path / "reference"), str(tmp_path / "port")]
    assert main(["dump", reference, "--framework", "torch", *SHAPE, "--out", dumps[0]]) == 0
    assert main(["dump", port, "--reference-dump", dumps[0], "--training", "--out", dumps[1]]) == 0
    given = ["--reference-dump", dumps[0], "--port-dump", dumps[1], "--training", "--report", str(tmp_path / "report")]
    assert main(["audit", *given]) == (1 if then else 0)


def gradients(bias, draws, matrix=0.0):
    """All lanes of one update: a matrix of norm 6 and a bias; ``draws`` are the bias in the lanes with one-ulp changes."""
    weight = np.full((6, 6), 1.0)

    def iteration(value, moved=0.0):
        return Iteration(np.zeros(()), 0.1, {"weight": weight * (1 + moved), "bias": np.asarray(value)}, {}, {})

    lanes = {"port64": iteration(bias["port"], matrix), "reference64": iteration(bias["reference"])}
    return lanes | {name: iteration(value, 2e-16) for name, value in zip(ULP_DRAWS, draws, strict=True)}


# The gradient of a bias before a BatchNorm, as two frameworks gave it; then one that is 0 in the reference.
NOISE = {"reference": [1.4e-14, -3e-16], "port": [-1.4e-15, 7e-17]}, [[1.27e-14, -3e-16], [1.38e-14, -3e-16], [1.4e-14, 0]]
ZERO = {"reference": [0.0, 0.0], "port": [3e-17, 0.0]}, [[0.0, 0.0]] * 3


@pytest.mark.parametrize("case", [NOISE, ZERO], ids=["noise", "zero"])
@pytest.mark.parametrize(("mistake", "passes"), [(0.0, True), (1e-11, False), (1.0, False)])
def test_a_gradient_that_is_zero_but_for_rounding_has_the_rounding_of_all_and_no_more(case, mistake, passes):
    bias, draws = case
    bias = {**bias, "port": np.add(bias["port"], mistake)}
    result = StepResult(5, "backward")
    judge_tensors(result, Run("train", SGD, True), 1, gradients(bias, draws), "gradients", 0, History())
    assert all(row.passed for row in result.quantities) == passes, [row.reason for row in result.quantities]


def test_a_gradient_that_is_not_zero_has_no_such_leeway():
    draws = [[1e-9, 1e-9]] * 3
    result = StepResult(5, "backward")
    lanes = gradients({"reference": [1e-9, 1e-9], "port": [1.0001e-9, 1e-9]}, draws)
    judge_tensors(result, Run("train", SGD, True), 1, lanes, "gradients", 0, History())
    assert [row.name for row in result.quantities if not row.passed][1:] == ["train.iter1.gradients.bias"]
