"""Sound networks that enlarge rounding pass, by what one-ulp changes do to the reference; mistakes beside them do not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from alignment import tolerance
from alignment.cli import main
from alignment.compare import Change, Quantity, rounded_by
from alignment.comparisons.model.one_ulp import ULP_DRAWS, farthest, just_missed
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.runs import SGD, Iteration, Run
from alignment.comparisons.update.tensors import History, judge_tensors, summed
from tests.conftest import mode_of

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


def write(folder, source, **values):
    """The two files; each value is the reference's, or a pair of the reference's and the port's."""
    both = {name: value if isinstance(value, tuple) else (value, value) for name, value in values.items()}
    for number, (file, framework, base) in enumerate((("theirs", "torch", "Module"), ("ours", "paddle", "Layer"))):
        own = {name: pair[number] for name, pair in both.items()}
        (folder / f"{file}.py").write_text(source.format(framework=framework, base=base, **own))
    return f"{folder}/ours.py:Net", f"{folder}/theirs.py:Net"


def audit(folder, *flags, source=SOURCE, shape=SHAPE, **values):
    """Exit status and alignment.json."""
    port, reference = write(folder, source, **values)
    sides = ("--port", port, "--reference", reference, "--accept", "initialisation")
    status = main(["audit", *mode_of((*shape, *flags)), *sides, *shape, "--report", str(folder / "report"), *flags])
    return status, json.loads((folder / "report/alignment.json").read_text())


def largest(found):
    rows = found["steps"][0]["quantities"]
    return max(row["float64_diff"] for row in rows if row["float64_diff"] is not None)


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_network_that_enlarges_rounding_passes(tmp_path, seed):
    status, found = audit(tmp_path, "--seed", str(seed), steps=21, then="")
    assert 1e-12 < largest(found) < 1e-10, "the network should miss the plain bound"
    assert status == 0, found["first_divergence"]
    assert any("one-ulp changes of the reference" in row["reason"] for row in found["steps"][0]["quantities"])


@pytest.mark.parametrize(("steps", "then"), [(21, " * (1 + 2e-10)"), (1, " * (1 + 2e-12)")])
def test_a_few_roundings_too_many_are_seen_and_fail_an_audit_that_is_strict(tmp_path, steps, then):
    """Twice the largest bound in a sensitive network; twice the plain bound in another. Float32 does not hold such a factor."""
    status, found = audit(tmp_path, steps=steps, then=("", then))
    assert status == 0 and "float32_constant" in {one["kind"] for one in found["known_differences"]}
    assert audit(tmp_path, "--strict", steps=steps, then=("", then))[0] == 1


def test_a_network_that_nothing_can_be_said_of_fails(tmp_path):
    """One where rounding is all there is."""
    status, found = audit(tmp_path, steps=50, then="")
    assert status == 1 and found["first_divergence"]["stage"] == "forward", found


@pytest.mark.parametrize(
    ("difference", "again"), [(0.9e-12, False), (2e-12, True), (0.9e-10, True), (1.1e-10, False), (None, False)]
)
def test_nothing_beyond_a_hundred_times_the_plain_bound_is_judged_again(difference, again):
    assert just_missed(Quantity("logits", [1], float64_diff=difference, passed=False)) == again
    assert not just_missed(Quantity("logits", [1], float64_diff=difference))


@pytest.mark.parametrize("then", ["", " * (1 + 2e-10)"])
def test_two_dumps_know_what_one_ulp_does(tmp_path, then):
    port, reference = write(tmp_path, SOURCE, steps=21, then=("", then))
    dumps = [str(tmp_path / "reference"), str(tmp_path / "port")]
    assert main(["dump", reference, "--framework", "torch", *SHAPE, "--out", dumps[0]]) == 0
    assert main(["dump", port, "--reference-dump", dumps[0], "--training", "--out", dumps[1]]) == 0
    given = ["--reference-dump", dumps[0], "--port-dump", dumps[1], "--training", "--report", str(tmp_path / "report")]
    assert main(["audit", *given]) == (1 if then else 0)


# A mask that is compared with 1: one ulp of the mask takes all of it away, which says nothing of rounding.
MASKED = """
import {framework}
from {framework} import nn


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x, mask):
        h = self.a(x)
        h = 0.5 * h * (1 + {framework}.tanh({factor} * (h + 0.044715 * h**3)))
        return self.c({framework}.where(mask == 1, h, {framework}.zeros_like(h)))
"""
INPUTS = """
import numpy as np


def make(n, rng):
    return rng.standard_normal((n, 6)).astype(np.float32), rng.choice([0, 1, 1, 2], (n, 8)).astype(np.float32)
"""


def test_a_comparison_that_one_ulp_changes_is_no_rounding(tmp_path):
    """The tenth digit of the tanh GELU's constant: 9e-11 in the outputs."""
    (tmp_path / "inputs.py").write_text(INPUTS)
    given = {"source": MASKED, "shape": ("--input", f"{tmp_path}/inputs.py:make")}
    assert audit(tmp_path, factor=0.7978845608028654, **given)[0] == 0
    status, found = audit(tmp_path, factor=(0.7978845608028654, 0.7978845607), **given)
    assert status == 1 and 1e-12 < largest(found) < 1e-10


# A branch with one short chain of operations beside the chaotic one; the outputs pass by the wider bound alone.
BESIDE = """
import {framework}
from {framework} import nn


class Unit(nn.{base}):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 32)

    def forward(self, x):
        x = self.fc(x)
        return x / ((x * x).mean(-1, keepdim=True).sqrt() + {eps})


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.first, self.cell, self.unit, self.last = nn.Linear(6, 32), nn.Linear(32, 32), Unit(), nn.Linear(32, 4)

    def forward(self, x):
        h = self.first(x)
        for _ in range(21):
            h = {framework}.tanh(6 * self.cell(h))
        return self.last(h + self.unit(x))
"""


@pytest.mark.parametrize(("eps", "status"), [(1e-12, 0), ((1e-12, 1e-11), 1)])
def test_a_block_is_held_to_its_own_rounding(tmp_path, eps, status):
    found = audit(tmp_path, "--strict", "--accept", "initialisation", source=BESIDE, eps=eps)
    assert found[0] == status, found[1]["first_divergence"]
    wrong = [row["name"] for row in found[1]["steps"][0]["quantities"] if not row["passed"]]
    assert all(name.split(".")[-1].startswith("unit") for name in wrong), wrong


# A loop that ends where two steps are equal: with one ulp it may need another number of steps.
SETTLING = """
import {framework}
from {framework} import nn


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.first, self.cell, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        given = self.first(x)
        x = given * 0
        for _ in range(80):
            new = {framework}.tanh(given + 0.3 * self.cell(x))
            done, x = float((new - x).abs().max()) < 2e-16, new
            if done:
                break
        return self.last(x)
"""


def test_a_pass_that_calls_a_module_less_often_can_be_dumped(tmp_path):
    _, reference = write(tmp_path, SETTLING)
    assert main(["dump", reference, "--framework", "torch", *SHAPE, "--out", str(tmp_path / "reference")]) == 0


def test_what_a_pass_does_not_have_or_has_in_another_shape_says_nothing():
    truth = {"a": np.ones(3), "b": np.ones(2), "c": np.ones(4), "d": np.ones(1)}
    passes = [
        {"a": np.ones(3) + 1e-13, "b": np.ones(5), "c": np.zeros(4)},
        {"a": np.ones(3), "b": np.ones(2) + 1e-12, "c": np.ones(4)},
    ]
    found = farthest(passes, truth, truth)
    assert found["a"] == pytest.approx(3**0.5 * 1e-13, rel=1e-2) and found["b"] == pytest.approx(2**0.5 * 1e-12, rel=1e-2)
    assert found["c"] == found["d"] == 0


def lanes_of(kind, reference, port, draws, port32=None):
    """All lanes of one update: a matrix of norm 6 and a bias; ``draws`` are the bias in the lanes with one-ulp changes."""

    def iteration(bias, moved=0.0, dtype="float64"):
        arrays = {"weight": np.full((6, 6), 1.0 + moved, dtype), "bias": np.asarray(bias, dtype)}
        return replace(EMPTY, **{kind: arrays})

    lanes = {"port64": iteration(port), "reference64": iteration(reference)}
    lanes |= {name: iteration(value, 2e-16) for name, value in zip(ULP_DRAWS, draws, strict=True)}
    lanes["port32"] = iteration(port if port32 is None else port32, dtype="float32")
    return lanes | {name: iteration(reference, dtype="float32") for name in ("reference32", "ulp32")}


EMPTY = Iteration(np.zeros(()), 0.1, {}, {}, {})
# The gradient of a bias before a BatchNorm, as two frameworks gave it; then one that is 0 in the reference.
NOISE = [1.4e-14, -3e-16], [-1.4e-15, 7e-17], [[1.27e-14, -3e-16], [1.38e-14, -3e-16], [1.4e-14, 0]]
ZERO = [0.0, 0.0], [3e-17, 0.0], [[0.0, 0.0]] * 3


def judged(lanes, kind="gradients", number=1):
    """Names of the rows that fail."""
    result = StepResult(5, "backward")
    judge_tensors(result, Run("train", SGD, True), number, lanes, kind, 0, History())
    assert all(np.isfinite(row.float64_diff or 0.0) for row in result.quantities if row.passed)
    return [row.name for row in result.quantities if not row.passed]


@pytest.mark.parametrize("case", [NOISE, ZERO], ids=["noise", "zero"])
@pytest.mark.parametrize(("mistake", "passes"), [(0.0, True), (1e-11, False), (1.0, False)])
def test_a_gradient_that_is_zero_but_for_rounding_has_the_rounding_of_all_and_no_more(case, mistake, passes):
    reference, port, draws = case
    assert (not judged(lanes_of("gradients", reference, np.add(port, mistake), draws))) == passes


@pytest.mark.parametrize(("float32", "passes"), [(1e-9, True), (1e-3, False)])
def test_a_gradient_of_zero_may_be_rounding_in_float32(float32, passes):
    reference, port, draws = ZERO
    assert (not judged(lanes_of("gradients", reference, port, draws, [float32, 0.0]), number=0)) == passes


def test_a_gradient_that_is_not_zero_has_no_such_leeway():
    lanes = lanes_of("gradients", [1e-9, 1e-9], [1.0001e-9, 1e-9], [[1e-9, 1e-9]] * 3)
    assert judged(lanes) == ["train.iter1.gradients", "train.iter1.gradients.bias"]


def test_weights_have_no_such_leeway():
    """A mask of large numbers among the buffers would make it as large as a weight."""
    lanes = lanes_of("state", [0.0, 0.0], [1e-3, 0.0], [[0.0, 0.0]] * 3)
    for lane in lanes.values():
        lane.state["mask"] = np.full(1024, -1e12, lane.state["weight"].dtype)
    assert "train.iter1.state.bias" in judged(lanes, "state")


def test_a_single_number_is_held_to_the_bound_of_the_search():
    """Its terms nearly cancel: one-ulp changes move it by 2.1e-11, and another order of the terms by 2.9e-10."""
    floor = 2.1e-11
    one = lambda apart: [1e-3 * (1 + apart)]  # noqa: E731
    drawn = lambda apart: lanes_of("gradients", one(0), one(apart), [one(floor)] * 3)  # noqa: E731
    assert judged(drawn(2.9e-10)) == []
    assert "train.iter1.gradients.bias" in judged(drawn(40 * floor))
    assert summed(Change(floor, 1.0))[1] == rounded_by(()) * floor
    assert summed(Change(1e-8, 1.0))[1] == tolerance.MOST_SUM_64
