"""A batch whose every sample is ignored: the mean over no sample is no number, where a 0 would hide that nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement, listed
from alignment.comparisons.context import Context
from alignment.comparisons.loss.cases import LossCase, value_and_gradient
from alignment.comparisons.loss.losses import LOCATION
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.strangers import strangers

IGNORED = LossCase("all_ignored", np.array([[0.5, -1.0, 2.0], [0.0, 1.0, -0.5]]), np.array([-100, -100]))


@listed(2)
class NothingCounts:
    """What each side gives of it in words: ``"nan"``, a number, or that it raises. The step's own cases are not looked at."""

    def __init__(self, *cases: object) -> None: ...

    def measure(self, context: Context, role: str) -> dict[str, str]:
        value = np.zeros(0)
        with strangers(role) as raised:
            value = value_and_gradient(context.sides[role], IGNORED)[0]
        return {"loss": "raises" if raised.error is not None else f"{float(value):g}"}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        return [judge_equal("all_ignored.loss", *(np.array(str(side["loss"])) for side in (port, reference)))]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        ours, theirs = str(port["loss"]), str(reference["loss"])
        if ours == theirs:
            return None
        words = f"{'it ' if ours == 'raises' else ''}{ours} where all samples are ignored, expected {theirs}"
        return Finding("loss", LOCATION, Kind.IGNORE_INDEX, words, f"case {IGNORED.name}: {ours}, expected {theirs}")
