"""A run that diverges: it has to stop before its weights are spoilt, and to say where it broke."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, cast, each_update, engine, start_run
from alignment.comparisons.run.states import judge_wrong
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import State

CASES = ("weight", "picture")  # what is not finite


@dataclass(frozen=True)
class Divergence:
    """An update that cannot be made: the words with which a side stops, and the weights that it has changed all the same.

    Attributes:
        ground: what the runs begin from.
        alike: whether both sides call their layers alike, so that the places that they name are compared.
    """

    ground: Ground
    alike: bool

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        made: dict[str, Value] = {}
        for case in CASES:
            words, changed = _stopped(context, self.ground, role, case)
            made |= {f"{case}.words": words, f"{case}.spoilt": np.array(changed)}
        return made

    def wrong(self, port: Measurement, reference: Measurement) -> dict[str, str]:
        """What is wrong in each case, ``""`` for nothing."""
        found = {}
        for case in CASES:
            (ours, ours_spoilt), (theirs, theirs_spoilt) = (_of(side, case) for side in (port, reference))
            words = ""
            if theirs and not ours:
                words = f"the port goes on with a {case} that is not finite, the reference stops"
            elif ours_spoilt and not theirs_spoilt:
                words = f"{len(ours_spoilt)} weights are changed before the run stops, first {ours_spoilt[0]}"
            elif self.alike and ours != theirs:
                words = f"stops with {ours!r}, expected {theirs!r}"
            found[case] = words
        return found

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        return judge_wrong({f"divergence.{case}": words for case, words in self.wrong(port, reference).items()})

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what shows that there was something to compare."""
        for case in CASES:
            stops = bool(_of(reference, case)[0])
            result.require(f"divergence.{case}.stops", stops, stops, "a reference that stops")
        result.cover("diverging run")

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for case, wrong in self.wrong(port, reference).items():
            if wrong:
                words, changed = _of(port, case)
                kind = Kind.NOT_STOPPED if not words or changed else Kind.UNKNOWN
                place = "first_offender" if kind is Kind.UNKNOWN else "Guard"
                return Finding("train", place, kind, wrong if kind else "", f"a {case} that is not finite: {wrong}")
        return None


def _of(measured: Measurement, case: str) -> tuple[str, list[str]]:
    return str(measured[f"{case}.words"]), np.asarray(measured[f"{case}.spoilt"]).tolist()


def _stopped(context: Context, ground: Ground, role: str, case: str) -> tuple[str, list[str]]:
    """The error of one update that cannot be made, ``""`` where the side goes on, and the weights that it has changed."""
    framework, train = context.sides[role].framework, engine(context, role)
    run = start_run(context, role, ground.short, "64", ground.weights)
    parameters = [entry.canonical for entry in framework.entries(run.model) if entry.role == "parameter"]
    if case == "weight":
        context.networks.load(role, run.model, spoilt(ground.weights, parameters[0], np.nan))
    batch = cast(framework, next(each_update(train.micro_batches(run), 1))[0], "float64")
    if case == "picture":
        pixels = framework.array(batch[0][0])
        pixels.flat[0] = np.inf
        batch = (framework.tensor(pixels), batch[0][1]), batch[1]
    before = framework.state(run.model)
    words = ""
    try:
        with framework.precision("float64"):
            train.update(run, [batch])
    except UserError as error:
        words = error.line
    after = framework.state(run.model)
    return words, [n for n in parameters if not np.array_equal(before[n], after[n], equal_nan=True)]


def spoilt(state: State, name: str, value: float) -> State:
    """A state with one element changed."""
    changed = state[name].copy()
    changed.flat[0] = value
    return {**state, name: changed}
