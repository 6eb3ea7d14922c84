"""Every operation of every policy, with every magnitude: the port against the reference and against the independent part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import arrays_of, measured_sides, only, part
from alignment.comparisons.data.transformed import differ, difference
from alignment.draws import MagnitudeTable
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.localize.hypotheses.augmentations import OPERATION, Operated
from alignment.localize.hypotheses.hypothesis import Observed
from alignment.localize.hypotheses.pictures import in_every_case
from alignment.project import DataPart
from alignment.tolerance import PICTURE_RTOL
from mobilenetv3_common import sampling
from mobilenetv3_common.presets import AUTO_AUGMENT_POLICIES, TrainPreset
from mobilenetv3_common.sampling import SampleParams

SIDE = 48  # pixels of the picture


class EveryOperation:
    """Each operation with every magnitude of every bin of every policy, in both directions where it has a sign.

    Args:
        context: whose picture and magnitudes, and whose reference predicts what a mistake would give.
        whom: whom the port is compared with.
    """

    def __init__(self, context: Context, whom: Sequence[str]) -> None:
        with Image.open(context.material.index("val").path(0)) as image:
            self.picture = image.convert("RGB").resize((SIDE, SIDE))
        found: dict[str, set[float]] = {}
        for table in _tables(context).values():
            for name, (values, signed) in table.items():
                found.setdefault(name, set()).update(values or [0.0], [-value for value in values] if signed else [])
        self.magnitudes = {name: sorted(values) for name, values in found.items()}
        self.whom, self.right = whom, part(context.reference)

    def _made(self, data: DataPart, name: str, magnitude: float) -> np.ndarray:
        """The picture after one operation and nothing else, normalised."""
        params = SampleParams((0, 0, SIDE, SIDE), False, ((name, magnitude),), None)
        return np.asarray(data.train_transform(self.picture, TrainPreset(SIDE), params))

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        made: dict[str, np.ndarray] = {}
        for prefix, side in measured_sides(context, role).items():
            for name, magnitudes in self.magnitudes.items():
                made |= {f"{prefix}{name}/{magnitude}": self._made(part(side), name, magnitude) for magnitude in magnitudes}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows, right = [], {who: arrays_of(only(reference, who)) for who in self.whom}
        for name, magnitudes in self.magnitudes.items():
            row = Quantity(f"operations.{name}", [len(magnitudes), 3, SIDE, SIDE])
            for magnitude in magnitudes:
                for who in self.whom:
                    key = f"{name}/{magnitude}"
                    one = judge_equal("", arrays_of(port)[key], right[who][key])
                    if not one.passed and row.passed:
                        row.fail(f"by {magnitude:g}, against the {who}: {one.reason}")
            rows.append(row)
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        ours, right = arrays_of(port), arrays_of(reference)
        for name, magnitudes in self.magnitudes.items():
            keys = {magnitude: f"{name}/{magnitude}" for magnitude in magnitudes}
            wrong = [key for key in keys.values() if differ(ours[key], right[key])]
            if wrong:
                made = lambda other, size: self._made(self.right, other, size)  # noqa: E731
                given = {magnitude: Operated(name, magnitude, made) for magnitude in magnitudes}
                cases = [Observed(given[m], ours[key], right[key], PICTURE_RTOL) for m, key in keys.items()]
                hint = in_every_case(OPERATION, cases)
                hint = hint if hint[0] else (Kind.OPERATION, f"{name} is computed otherwise")
                return difference(f"apply_op:{name}", ours[wrong[0]], right[wrong[0]], hint)
        return None


def _tables(context: Context) -> dict[str, MagnitudeTable]:
    """The magnitudes of each policy: the independent ones, or else the project's own."""
    other = context.project.independent
    if other is not None and other.draws is not None:
        return {policy: other.draws.magnitudes(policy, SIDE, SIDE) for policy in AUTO_AUGMENT_POLICIES}
    return {policy: sampling.policy_table(policy, SIDE, SIDE) for policy in AUTO_AUGMENT_POLICIES}
