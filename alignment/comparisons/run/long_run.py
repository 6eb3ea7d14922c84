"""A run of six updates: accumulation, a scaled learning rate, warm-up by update, and a moving average every second update."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, judge_all_close, judge_close
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.averages import averaged
from alignment.comparisons.run.checkpoints import saved
from alignment.comparisons.run.engine import Ground, start_run, updates_of
from alignment.comparisons.run.mistakes import TRAINED_RIGHT, is_running
from alignment.comparisons.run.recipe import topics
from alignment.comparisons.run.states import after_updates, judge_states, part, shown, under, unlike
from alignment.comparisons.update.mistakes import RateCase
from alignment.comparisons.update.rates import expected_rates, judge_rates
from alignment.comparisons.update.schedules import rate_finding
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.weights import State

UPDATES = 3  # before the stop of a run that is resumed, and after it


@dataclass(frozen=True)
class LongRun:
    """Weights, statistics, learning rates, losses, right answers and moving average of a run without a stop."""

    ground: Ground

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        made = self._train(context, role, self.ground.weights)
        if role == "reference":
            made |= under("moved", part(self._train(context, role, self.ground.moved), "last"))
        return made

    def _train(
        self, context: Context, role: str, weights: State | None, folder: Path | None = None, resume: Path | None = None
    ) -> dict[str, Value]:
        """Train one side by the long recipe.

        Args:
            context, role: which side.
            weights: to begin with; those of the checkpoint where None.
            folder: for checkpoints, which are then measured, too; none are written where None.
            resume: the folder of the run to go on with, for its second half.
        """
        framework, long = context.sides[role].framework, self.ground.long
        run = start_run(context, role, replace(long, resume=str(resume)) if resume is not None else long, "64", weights)
        made: dict[str, Value] = {"updates_per_epoch": np.array(run.updates_per_epoch)}
        if folder is not None and resume is not None:
            made |= saved(context, role, run, folder, "restored")
        updates, expected = [], State()
        for number, update in enumerate(updates_of(context, role, run, UPDATES if resume is not None else 2 * UPDATES), start=1):
            updates.append(update._replace(state={}))
            last = update.state
            if long.ema_decay and number % long.ema_every == 0:
                expected = averaged(expected, last, long.ema_decay)
            if number == UPDATES and folder is not None and resume is None:
                made |= saved(context, role, run, folder, "stopped")
        with run.average.applied():
            made |= under("average", framework.state(run.model))
        made |= {name: np.array([getattr(update, name) for update in updates]) for name in ("rate", "loss", "right")}
        made |= under("last", last) | under("expected_average", expected or last)
        return made | saved(context, role, run, folder, "end") if folder is not None else made

    def _made(self, reference: Measurement):  # type: ignore[no-untyped-def]  # what the schedule's formulas take
        long = self.ground.long
        return long, int(np.asarray(reference["updates_per_epoch"])), long.batch_size * long.accumulate

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        rows: list[Quantity] = []
        states = [part(port, "last"), part(reference, "last"), part(reference, "moved")]
        for kind in ("weights", "statistics"):
            chosen = ({n: a for n, a in state.items() if is_running(n) == (kind == "statistics")} for state in states)
            rows += judge_states(f"run.{kind}", *chosen)
        own, other = (np.asarray(side["rate"]) for side in (port, reference))
        rows.append(judge_rates("run.learning_rates", own, other, expected_rates(*self._made(reference))[: 2 * UPDATES]))
        for kind, rtol in (("right", 0.0), ("loss", tolerance.EXACT_CURVE[1])):
            rows.append(judge_close(f"run.{kind}", np.asarray(port[kind]), np.asarray(reference[kind]), rtol))
        rows += judge_all_close("run.average", part(port, "average"), part(port, "expected_average"), tolerance.RECOMPUTED_32)
        return rows

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what was compared."""
        result.cover(*topics(self.ground.long))

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        made = self._made(reference)
        own, other = np.asarray(port["rate"]), np.asarray(reference["rate"])
        finding = (
            rate_finding("train", "schedule", RateCase(own, other, *made))
            or rate_finding("train", "training.update", RateCase(other, expected_rates(*made)[: 2 * UPDATES], *made))
            or _right_answers(np.asarray(port["right"]), np.asarray(reference["right"]))
            or after_updates("update", 2 * UPDATES, part(port, "last"), part(reference, "last"))
        )
        average, expected = part(port, "average"), part(port, "expected_average")
        if finding is None and (wrong := unlike(average, expected, tolerance.RECOMPUTED_32)):
            words = f"the average of a run is not that of its weights after every {self.ground.long.ema_every} updates"
            finding = Finding("train", "MovingAverage", Kind.MOVING_AVERAGE, words, shown(wrong, average, expected))
        return finding


def _right_answers(ours: np.ndarray, theirs: np.ndarray) -> Finding | None:
    """What training counts as right at top-1 and top-5, (updates, 2)."""
    if np.array_equal(ours, theirs):
        return None
    first = int(np.argmax((ours != theirs).any(1))) if ours.shape == theirs.shape else 0
    measured = f"update {first}: {tuple(ours[first].tolist())}, expected {tuple(theirs[first].tolist())}"
    return Finding("train", "count_right", *TRAINED_RIGHT.hint(ours, theirs), measured)
