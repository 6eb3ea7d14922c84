"""A run that is stopped, saved, loaded and goes on: against the same run without a stop, and against the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, judge_all_close
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.checkpoints import lost, parts, position, unequal_parts
from alignment.comparisons.run.long_run import UPDATES, LongRun
from alignment.comparisons.run.memory import explain_memory, judge_memory, remembered
from alignment.comparisons.run.states import part, shown, under, unlike
from alignment.comparisons.update.mistakes import RateCase
from alignment.comparisons.update.rates import judge_rates
from alignment.comparisons.update.schedules import rate_finding
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import State


class Resumption(LongRun):
    """A long run with its checkpoints; of the port besides the second half again, from the first half's checkpoint.

    The reference's checkpoints say what has to be kept. What its own resumption gives is compared with nothing.
    """

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        folder = self.ground.folder / role
        made = self._train(context, role, self.ground.weights, folder)
        if role == "reference":
            return made | under("moved", part(self._train(context, role, self.ground.moved), "last"))
        try:
            rest = self._train(context, role, None, folder / "resumed", folder / "stopped")
        except UserError as error:
            return {**made, "refused": error.line}
        # What is restored to the last bit is kept once.
        for name, whole in (("restored", "stopped"), ("end", "end")):
            for key in [key for key in rest if key.startswith(f"{name}.") and not key.endswith(".position")]:
                same = whole + key.removeprefix(name)
                if same in made and np.array_equal(rest[key], made[same]):  # type: ignore[arg-type]
                    rest[key] = made[same]
        return {**made, **{f"resumed.{key}": value for key, value in rest.items()}, **remembered(context, role, self.ground)}

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        rows = super().judge(port, reference)
        if "refused" in port:
            words = f"the port does not go on from its checkpoint: {port['refused']}"
            rows.append(Quantity("resume.loaded", []).fail(words))
        else:
            rows += self._judge_second_half(port)
        # The reference's checkpoints hold what an optimizer must remember; how it is called there is the framework's own matter.
        kept = Quantity("resume.saved", [len(parts(port, "stopped"))])
        for kind in self._not_saved(port, reference):
            kept.fail(f"the port's checkpoint holds no {kind}, the reference's does")
        return [*rows, kept, *judge_memory(port)]

    @staticmethod
    def _not_saved(port: Measurement, reference: Measurement) -> list[str]:
        here, there = parts(port, "stopped"), parts(reference, "stopped")
        return [kind for kind in there if there[kind] and not here[kind]]

    @staticmethod
    def _judge_second_half(port: Measurement) -> list[Quantity]:
        """Hold a resumed run against the same run without a stop."""
        rows: list[Quantity] = []
        wrong = unequal_parts(port, "resumed.restored", "stopped")
        once, again = parts(port, "end"), parts(port, "resumed.end")
        for kind in once:
            if once[kind] or again[kind]:
                made = judge_all_close(f"resume.{kind}", again[kind], once[kind], tolerance.EXACT_RTOL)
                if kind in wrong:
                    made[0].fail("the resumed run does not begin with what was saved")
                rows += made
        expected = np.asarray(port["rate"])[UPDATES:]
        schedule = judge_rates("resume.schedule", np.asarray(port["resumed.rate"]), expected, expected)
        if "schedule" in wrong:
            schedule.fail("the resumed run does not begin where the other one stopped")
        return [*rows, schedule]

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        super().show(result, port, reference)
        result.evidence["resume.optimizer_tensors"] = [len(parts(side, "stopped")["optimizer"]) for side in (port, reference)]
        result.cover("resumed run")

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """The run without a stop; then which part of it is not saved, not restored, or lost after that."""
        if finding := super().explain(port, reference):
            return finding
        for kind in self._not_saved(port, reference):
            words = f"the checkpoint holds no {kind}: a resumed run begins with none"
            measured = f"{len(parts(reference, 'stopped')[kind])} tensors in the reference's"
            return Finding("train", f"resume.{kind}", Kind.STATE_NOT_SAVED, words, measured)
        if "refused" in port:
            words = "the port does not go on from its own checkpoint"
            return Finding("train", "resume", Kind.RAISES, words, str(port["refused"]))
        for kind in unequal_parts(port, "resumed.restored", "stopped"):
            if kind == "schedule":
                return _another_place(position(port, "resumed.restored"), position(port, "stopped"))
            return _not_restored(kind, parts(port, "resumed.restored")[kind], parts(port, "stopped")[kind])
        once, again = parts(port, "end"), parts(port, "resumed.end")
        for kind in ("optimizer", "weights", "statistics", "average"):
            if wrong := unlike(again[kind], once[kind], tolerance.EXACT_RTOL):
                words = f"{UPDATES} updates after the resumption: {shown(wrong, again[kind], once[kind])}"
                return Finding("train", f"resume.{kind}", measured=words)
        rates = RateCase(np.asarray(port["resumed.rate"]), np.asarray(port["rate"])[UPDATES:])
        return rate_finding("train", "resume.schedule", rates) or explain_memory(port)


def _another_place(now: dict[str, Any], then: dict[str, Any]) -> Finding:
    key = next(key for key in now if now[key] != then[key])
    words = f"{key} is {_short(now[key])} after loading, expected {_short(then[key])}"
    hint = f"the place in the schedule is not restored: {words}"
    return Finding("train", "resume.schedule", Kind.STATE_NOT_RESTORED, hint, words)


def _not_restored(kind: str, restored: State, saved: State) -> Finding:
    missing = lost(restored, saved)
    words = f"the {kind} saved in the checkpoint is not restored: {len(missing)} of {len(saved)} tensors"
    if missing and all(name not in restored or not restored[name].any() for name in missing):
        words += ", which begin at zero"
    measured = shown(missing or list(restored), restored, saved)
    return Finding("train", f"resume.{kind}", Kind.STATE_NOT_RESTORED, words, measured)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
