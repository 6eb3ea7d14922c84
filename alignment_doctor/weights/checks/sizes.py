"""Values that are not numbers, constant, or far from what they were."""

from __future__ import annotations

import numpy as np

from alignment_doctor.findings import Outcome, check, judged, not_applicable
from alignment_doctor.weights.subject import Tensor, WeightsSubject

# Norm after over norm before. Measured from the end of the first epoch on, 40 epochs of lite_data (SGD, RMSProp, AdamW) and three
# of digits (AdamW): weights of two or more axes grow by up to 3.3 and shrink to no less than 0.85 of what they were.
EXPLODED, SHRUNK = 20.0, 0.1
FROM_THE_OTHERS = 5.0  # and so far from the median of all tensors


@check(
    "weights.not_finite",
    "002 mp.01",
    "000 step 10",
    measures="NaN and infinity in either state",
    fix="go back to the last sound checkpoint; lower the learning rate, clip gradients, or look for a division by zero",
)
def not_finite(subject: WeightsSubject) -> Outcome:
    where = [
        f"{name} in {side.path.name}: {int((~np.isfinite(array)).sum())} of {array.size}"
        for side in (subject.before, subject.after)
        for name, array in side.state.items()
        if not np.isfinite(array).all()
    ]
    return judged(where, f"{len(where)} tensors", "all values are finite")


@check(
    "weights.constant",
    "002 wi.01",
    measures="weights of two or more axes in the second state that hold one value alone, such as 0",
    fix="initialise the layer at random: units with equal weights stay equal for ever",
)
def constant(subject: WeightsSubject) -> Outcome:
    weights = {n: a for n, a in subject.after.state.items() if a.ndim > 1 and a.size > 1}
    where = [f"{name}: every value is {array.flat[0]:g}" for name, array in weights.items() if np.all(array == array.flat[0])]
    return judged(where, f"{len(where)} weights", f"{len(weights)} weights have different values")


def _growing(subject: WeightsSubject) -> list[tuple[Tensor, float]]:
    """Weights of two or more axes with their growth."""
    return [(t, t.growth) for t in subject.parameters if t.after.ndim > 1 and t.growth is not None]


@check(
    "weights.exploded",
    "002 hp.01",
    "002 mp.01",
    measures=f"weights whose norm has grown {EXPLODED:g}-fold, and {FROM_THE_OTHERS:g} times more than most",
    fix="lower the learning rate of the layer or clip gradients; see whether its input is normalised",
)
def exploded(subject: WeightsSubject) -> Outcome:
    growing = _growing(subject)
    if not growing:
        return not_applicable("no weight has a norm in both states")
    median = float(np.median([growth for _, growth in growing]))
    far = sorted((x for x in growing if x[1] > EXPLODED and x[1] > FROM_THE_OTHERS * min(median, EXPLODED)), key=lambda x: -x[1])
    where = [f"{t.name}: norm {t.norms[0]:.3g}, then {t.norms[1]:.3g}" for t, _ in far]
    return judged(where, f"{len(where)} weights; median growth {median:.2f}", f"largest growth {max(g for _, g in growing):.2f}")


@check(
    "weights.shrunk",
    "000 step 6",
    measures=f"weights whose norm has shrunk to {SHRUNK:g} or less, and {FROM_THE_OTHERS:g} times more than most",
    fix="look at the weight decay of the layer's group: a decay too large, or given twice, pulls weights to 0",
)
def shrunk(subject: WeightsSubject) -> Outcome:
    growing = _growing(subject)
    if not growing:
        return not_applicable("no weight has a norm in both states")
    median = float(np.median([growth for _, growth in growing]))
    few = sorted((x for x in growing if x[1] < SHRUNK and x[1] * FROM_THE_OTHERS < max(median, SHRUNK)), key=lambda x: x[1])
    where = [f"{t.name}: norm {t.norms[0]:.3g}, then {t.norms[1]:.3g}" for t, _ in few]
    return judged(where, f"{len(where)} weights; median growth {median:.2f}", f"smallest growth {min(g for _, g in growing):.2f}")
