"""A run whose normalisation layers are frozen, with a schedule by epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alignment.compare import Quantity, distance, judge_all_close, judge_equal, norm, relative
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, start_run, updates_of
from alignment.comparisons.run.mistakes import is_running
from alignment.comparisons.run.recipe import topics
from alignment.comparisons.run.states import after_updates, judge_states, part, under
from alignment.comparisons.update.mistakes import RateCase
from alignment.comparisons.update.rates import expected_rates, judge_rates
from alignment.comparisons.update.schedules import rate_finding
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.weights import State

UPDATES = 5  # two an epoch: the learning rate moves twice


@dataclass(frozen=True)
class Freezing:
    """What a run by the short recipe trains, what stays to the last bit, what the rest became, and the learning rates."""

    ground: Ground

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        made = self._run(context, role, self.ground.weights)
        if role == "reference":
            made |= under("moved", part(self._run(context, role, self.ground.moved), "last"))
        return made

    def _run(self, context: Context, role: str, weights: State) -> dict[str, Value]:
        framework = context.sides[role].framework
        run = start_run(context, role, self.ground.short, "64", weights)
        described = framework.described(run.model)
        trainable = sorted(entry.canonical for entry, t in described if entry.role == "parameter" and framework.trainable(t))
        updates = list(updates_of(context, role, run, UPDATES))
        rates = np.array([update.rate for update in updates])
        made = {"trainable": np.array(trainable), "rates": rates, "updates_per_epoch": np.array(run.updates_per_epoch)}
        return {**made, **under("last", updates[-1].state)}

    def kept(self, reference: Measurement) -> list[str]:
        """Tensors that stay as they were in the reference's run."""
        last = part(reference, "last")
        return [n for n, array in self.ground.weights.items() if array.dtype.kind == "f" and np.array_equal(last[n], array)]

    def _schedule(self, reference: Measurement) -> np.ndarray:
        """Learning rates by the closed formula."""
        return expected_rates(*self._made(reference))[:UPDATES]

    def _made(self, reference: Measurement):  # type: ignore[no-untyped-def]  # what the schedule's formulas take
        short = self.ground.short
        return short, int(np.asarray(reference["updates_per_epoch"])), short.batch_size * short.accumulate

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        names = self.kept(reference)
        rows = [judge_equal("freezing.trainable", np.asarray(port["trainable"]), np.asarray(reference["trainable"]))]
        ours = part(port, "last")
        if names:
            last, start = ({n: state[n] for n in names if n in state} for state in (ours, self.ground.weights))
            rows += judge_all_close("freezing.kept", last, start, 0.0)
        states = ours, part(reference, "last"), part(reference, "moved")
        rows += judge_states("freezing.weights", *({n: a for n, a in state.items() if n not in names} for state in states))
        own, other = (np.asarray(side["rates"]) for side in (port, reference))
        return [*rows, judge_rates("freezing.learning_rates", own, other, self._schedule(reference))]

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what shows that there was something to compare."""
        names = self.kept(reference)
        result.evidence["freezing.kept"] = f"{len(names)} of {len(self.ground.weights)} tensors"
        result.cover(*(["freezing"] if names else []), *(topic for topic in topics(self.ground.short) if topic != "freezing"))

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        ours, theirs = (np.asarray(side["trainable"]).tolist() for side in (port, reference))
        if ours != theirs:
            extra, missing = [n for n in ours if n not in theirs], [n for n in theirs if n not in ours]
            name, count = (extra or missing)[0], len(extra or missing)
            kind, words = (
                (Kind.NOT_FROZEN, "is trained, expected frozen") if extra else (Kind.FROZEN, "is frozen, expected trained")
            )
            return Finding("train", f"freeze_bn: {name}", kind, f"{name} {words}", f"{count} of {len(theirs)} parameters")
        last, start, kept = part(port, "last"), self.ground.weights, self.kept(reference)
        if moved := [n for n in kept if n in last and not np.array_equal(last[n], start[n])]:
            words = f"{moved[0]} moves, expected frozen"
            if all(map(is_running, moved)):
                words = "the running statistics of frozen layers move: they are in training mode"
            size = relative(distance(last[moved[0]], start[moved[0]]), norm(start[moved[0]]))
            measured = f"{len(moved)} of {len(kept)} tensors move, the first by {size:.1e}"
            return Finding("train", f"freeze_bn: {moved[0]}", Kind.NOT_FROZEN, words, measured)
        own, other, made = np.asarray(port["rates"]), np.asarray(reference["rates"]), self._made(reference)
        return (
            rate_finding("train", "schedule", RateCase(own, other, *made))
            or rate_finding("train", "training.update", RateCase(other, self._schedule(reference), *made))
            or after_updates("freeze_bn: update", UPDATES, last, part(reference, "last"))
        )
