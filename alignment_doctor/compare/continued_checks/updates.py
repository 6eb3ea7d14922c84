"""Each part of an update, computed by both frameworks from equal input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from alignment_doctor.compare.continued import ContinuedSubject, Made
from alignment_doctor.findings import Outcome, check, judged, not_applicable
from mobilenetv3_common.weights import State, is_statistic

SAME_PIXEL = 1e-5  # of a deviation
ABOVE_ROUNDING = 20.0  # times what one ulp of the weights makes
# Where one ulp happens to make less: measured over 6 optimizers, both frameworks and 3 updates (tests/test_doctor_continued.py).
LEAST_LOSS, LEAST_GRADIENT, LEAST_STATISTIC = 1e-5, 1e-3, 1e-5
UPDATE, ULPS = 2e-3, 4.0  # of a tensor's change; and units in the last place of its numbers


def _said(where: list[str], measured: str) -> Outcome:
    return judged(where, measured, measured)


@check(
    "compare.from_pictures",
    "002 phenomenon",
    "001 data 1-4",
    measures="pictures and labels of the updates after the checkpoint, as both frameworks prepare them",
    fix="compare the transforms one by one: decoding, crop, flip, augmentation, normalisation, mixing",
)
def pictures(subject: ContinuedSubject) -> Outcome:
    where, worst = [], 0.0
    for place, (own, other) in enumerate(zip(subject.own, subject.other, strict=True), 1):
        for (a, labels_a), (b, labels_b) in zip(own.pictures, other.pictures, strict=True):
            apart = float(np.abs(a - b).max()) if a.shape == b.shape else float("inf")
            worst = max(worst, apart)
            if apart > SAME_PIXEL:
                where.append(f"update {subject.at + place}: pictures differ by up to {apart:.2g}")
            if labels_a.shape != labels_b.shape or not np.allclose(labels_a, labels_b, rtol=0, atol=1e-6):
                where.append(f"update {subject.at + place}: labels differ")
    return _said(where, f"pixels at most {worst:.1e} of a deviation apart")


@check(
    "compare.from_rate",
    "002 hp.01",
    "000 step 6",
    measures="the learning rate of the updates after the checkpoint",
    fix="compare the schedules: their unit, warm-up, and what they are stepped by",
)
def rate(subject: ContinuedSubject) -> Outcome:
    pairs = [(subject.at + n, a.rate, b.rate) for n, (a, b) in enumerate(zip(subject.own, subject.other, strict=True), 1)]
    where = [f"update {update}: {a:.8g} and {b:.8g}" for update, a, b in pairs if abs(a - b) > 1e-6 * abs(a)]
    return _said(where, ", ".join(f"{a:.6g}" for _, a, _ in pairs))


@check(
    "compare.from_loss",
    "002 phenomenon",
    "002 cg.04",
    measures="the loss on equal weights and pictures",
    fix="the forward pass or the loss differs: align them layer by layer (tools/align.py --localize), then the loss",
)
def loss(subject: ContinuedSubject) -> Outcome:
    return _by_update(subject, lambda made, own: abs(made.loss - own.loss) / max(abs(own.loss), 1e-30), LEAST_LOSS)


@check(
    "compare.from_gradients",
    "002 phenomenon",
    "004 model",
    measures="the gradient of every parameter on equal weights and pictures, against what one ulp of the weights makes of it",
    fix="the backward pass differs though the loss does not: frozen or detached parts, a layer's gradient; align step 5 (backward)",
)
def gradients(subject: ContinuedSubject) -> Outcome:
    names = set(subject.own[0].gradients) ^ set(subject.other[0].gradients)
    if names:
        return judged(sorted(names), f"{len(names)} parameters get a gradient in one framework alone", "")
    floors = _floors(subject)
    where, apart = [], []
    for place, other in enumerate(subject.other):
        beyond, distance = _nearest(subject, place, other.gradients, floors)
        apart.append(distance)
        where += [f"update {subject.at + place + 1}: {name}: {said}" for name, said in beyond]
    return _said(where, f"{_listed(apart)} of their norm apart")


def _floors(subject: ContinuedSubject) -> dict[str, float]:
    """Parameter -> what one ulp of the weights makes of its gradient, relative to its norm: the median over updates and moves.

    Not the largest: where a ReLU's input passes 0 within an ulp, that one is many times what rounding makes.
    """
    runs = [
        {name: _relative(moved.gradients[name], array) for name, array in own.gradients.items()}
        for run in subject.moved
        for own, moved in zip(subject.own, run, strict=True)
    ]
    return {name: float(np.median([run[name] for run in runs])) for name in runs[0]}


def _nearest(
    subject: ContinuedSubject, place: int, gradients: State, floors: dict[str, float]
) -> tuple[list[tuple[str, str]], float]:
    """The distance to what the own framework makes of weights within an ulp, and the parameters that are beyond it, worst first."""
    found: list[tuple[float, list[tuple[str, str]]]] = []
    for own in subject.alike(place):
        apart = {name: _relative(array, own.gradients[name]) for name, array in gradients.items()}
        allowed = {name: max(LEAST_GRADIENT, ABOVE_ROUNDING * floors[name]) for name in apart}
        beyond = sorted((name for name in apart if not apart[name] <= allowed[name]), key=lambda name: -apart[name] / allowed[name])
        found.append(
            (
                _distance(gradients, own.gradients),
                [(name, f"{apart[name]:.1e} of its norm apart, {floors[name]:.0e} is rounding") for name in beyond],
            )
        )
        if not beyond:
            break
    distance, beyond_nearest = min(found, key=lambda one: (len(one[1]) > 0, one[0]))
    return beyond_nearest, distance


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    norm = float(np.linalg.norm(b.astype(np.float64)))
    return float(np.linalg.norm(a.astype(np.float64) - b)) / max(norm, 1e-30)


@check(
    "compare.from_update",
    "002 phenomenon",
    "004 optimizer",
    measures="every weight's change by the optimizer, from equal weights, gradients and state",
    fix="compare the optimizer's formula and settings (momentum, betas, epsilon, weight decay and its groups, clipping)",
)
def step(subject: ContinuedSubject) -> Outcome:
    where, worst = [], 0.0
    for place, (own, other) in enumerate(zip(subject.own, subject.other, strict=True), 1):
        for name in own.gradients:
            after = own.after[name].astype(np.float64)
            apart = float(np.linalg.norm(other.after[name] - after))
            change = float(np.linalg.norm(after - own.before[name]))
            last = float(np.linalg.norm(np.spacing(np.abs(own.after[name]))))
            if apart > UPDATE * change + ULPS * last:
                where.append(f"update {subject.at + place}: {name}: {apart / max(change, 1e-30):.2g} of its change")
            worst = max(worst, apart / max(change, last, 1e-30))
    return _said(where, f"at most {worst:.1e} of a tensor's change apart")


@check(
    "compare.from_statistics",
    "002 api.02",
    "001 module 1",
    measures="running statistics after each update, in deviations of their channel",
    fix="compare momentum (0.1 in torch is 0.9 in Paddle), the variance's bias correction, epsilon and modes of the normalisation",
)
def statistics(subject: ContinuedSubject) -> Outcome:
    if not any(map(is_statistic, subject.own[0].after)):
        return not_applicable("the model has no running statistics")
    return _by_update(subject, _apart_in_deviations, LEAST_STATISTIC)


def _apart_in_deviations(made: Made, own: Made) -> float:
    """The largest difference of a layer's statistics, root of the mean square, over the channels' deviations or variances."""
    found = [0.0]
    for name in filter(is_statistic, own.after):
        layer, _, kind = name.rpartition(".")
        variance = own.after[f"{layer}.running_var"].astype(np.float64)
        unit = np.sqrt(variance + 1e-5) if kind == "running_mean" else variance + 1e-5
        found.append(float(np.sqrt(np.mean(np.square((made.after[name].astype(np.float64) - own.after[name]) / unit)))))
    return max(found)


def _by_update(subject: ContinuedSubject, distance: Callable[[Made, Made], float], least: float) -> Outcome:
    """The other framework's distance from the own one in each update, against what one ulp makes."""
    apart = [distance(other, own) for own, other in zip(subject.own, subject.other, strict=True)]
    floors = [distance(moved, own) for run in subject.moved for own, moved in zip(subject.own, run, strict=True)]
    allowed = max(least, ABOVE_ROUNDING * max(floors))
    where = [
        f"update {subject.at + place}: {one:.1e}" for place, one in enumerate(apart, 1) if not one <= allowed
    ]  # also where it is no number
    return _said(where, f"{_listed(apart)} apart; one ulp of the weights makes up to {max(floors):.1e}")


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1e}" for value in values)


def _distance(a: State, b: State) -> float:
    """L2 norm of the difference of all tensors together over that of ``b``."""
    norm = sum(float(np.square(array.astype(np.float64)).sum()) for array in b.values()) ** 0.5
    apart = sum(float(np.square(a[name].astype(np.float64) - array).sum()) for name, array in b.items()) ** 0.5
    return apart / max(norm, 1e-30)
