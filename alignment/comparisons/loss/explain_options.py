"""Class weights and distillation: what else a loss that is right without them makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.loss.explain import HINT_RTOL, LOCATION, RTOL, Tried, cast, material, targets
from alignment.comparisons.loss.loss import (
    ALPHA,
    TEMPERATURE,
    distilled_cases,
    distils,
    takes_weights,
    value_and_gradient,
    weighted_cases,
)
from alignment.finding import Finding
from alignment.formulas import log_softmax
from alignment.kinds import Kind


def options(context: Context) -> Finding | None:
    """Class weights and distillation, where both sides have them; the loss without them was looked at before."""
    logits, labels = material()
    wanted = weighted_cases(logits, labels, context.seed) if takes_weights(context) else []
    wanted += distilled_cases(context, logits, labels) if distils(context) else []
    for case in (cast(case, np.float64) for case in wanted):
        location = LOCATION if case.teacher is None else "DistillationLoss"
        try:
            ours = value_and_gradient(context.port, case)
        except Exception as error:
            return Finding("loss", location, Kind.RAISES, f"raises {type(error).__name__}", f"case {case.name}: {error}")
        one = Tried(case, ours, value_and_gradient(context.reference, case))
        if what := one.wrong(RTOL):
            words = _weight_hint(one) if case.teacher is None else _distillation_hint(one)
            kind = Kind.CLASS_WEIGHTS if case.teacher is None else Kind.DISTILLATION
            shown = f"{float(one.ours[0]):.6g}, expected {float(one.right[0]):.6g}"
            return Finding("loss", location, kind, words, f"case {case.name}, {what}: {shown}; right without")
    return None


def _weight_hint(one: Tried) -> str:
    """Which other use of class weights gives the port's value."""
    case, plain = one.case, replace(one.case, weight=None)
    assert case.weight is not None
    target, kept = targets(plain)
    logs, hard = log_softmax(case.logits), case.labels.dtype.kind != "f"
    own = case.weight[np.where(kept, case.labels, 0)] if hard else np.ones(len(kept))
    weighed = -(target * case.weight * logs).sum(1)[kept]
    of_label = -(target * logs).sum(1)[kept] * own[kept]
    guesses = {
        "class weights are left out": -(target * logs).sum(1)[kept].mean(),
        "the mean is over the samples, expected over the weights of their classes": weighed.mean(),
        "smoothing takes the label's weight for every class, expected each class's own": of_label.sum() / own[kept].sum(),
        "the mean is over the weights of the classes, expected over the samples for soft labels": (
            weighed.sum() / (target * case.weight).sum(1)[kept].sum()
        ),
        "the sum is not divided": weighed.sum(),
    }
    return _met(one, guesses) or "class weights are used otherwise"


def _distillation_hint(one: Tried) -> str:
    """Which other distillation gives the port's value."""
    if one.case.by_default:  # with both given it was right
        return "another default of the temperature or of the divergence's share"
    case, teacher = one.case, np.asarray(one.case.teacher)
    target, kept = targets(case)
    hard = float(-(target * log_softmax(case.logits)).sum(1)[kept].mean())

    def soft(temperature: float, turned: bool = False) -> float:
        ours, theirs = (log_softmax(x / temperature) for x in (case.logits, teacher))
        ours, theirs = (theirs, ours) if turned else (ours, theirs)
        return float((np.exp(theirs) * (theirs - ours)).sum(1).mean())

    part, square, classes = soft(TEMPERATURE), TEMPERATURE**2, case.logits.shape[1]
    guesses = {
        "the divergence is not multiplied by the square of the temperature": hard * (1 - ALPHA) + part * ALPHA,
        "the divergence is multiplied by the temperature, expected by its square": hard * (1 - ALPHA) + part * ALPHA * TEMPERATURE,
        "the logits are not divided by the temperature": hard * (1 - ALPHA) + soft(1.0) * ALPHA * square,
        "the divergence is that of the teacher from the student": hard * (1 - ALPHA) + soft(TEMPERATURE, True) * ALPHA * square,
        "the divergence is a mean over the classes too": hard * (1 - ALPHA) + part * ALPHA * square / classes,
        "the shares of the two parts are exchanged": hard * ALPHA + part * (1 - ALPHA) * square,
        "the labels' part is not weighed by 1 - alpha": hard + part * ALPHA * square,
    }
    return _met(one, guesses) or "distillation is computed otherwise"


def _met(one: Tried, guesses: dict[str, float]) -> str:
    """The guess that gives the port's value, and not the right one; ``""`` where none does."""
    ours, right = float(one.ours[0]), float(one.right[0])
    for words, guess in guesses.items():
        if abs(ours - guess) <= HINT_RTOL * abs(ours) and abs(guess - right) > HINT_RTOL * abs(right):
            return words
    return ""
