"""Step 4, loss: hard, smoothed and soft labels, ignored samples, extreme logits; values and gradients.

Class weights and distillation are compared where both sides' loss parts have them.
"""

from __future__ import annotations

import numpy as np

from alignment.comparisons.comparison import compare, listed_in
from alignment.comparisons.context import Context
from alignment.comparisons.loss.cases import LossCase, cases, distilled_cases, distils, takes_weights, weighted_cases
from alignment.comparisons.loss.losses import Losses, ModelLoss
from alignment.comparisons.result import StepResult


def run(context: Context) -> StepResult:
    """Compare the loss of the whole model, then each case's loss and its gradient by the logits."""
    result = StepResult(4, "loss")
    model = compare(context, result, ModelLoss())
    made = _cases(context, np.asarray(model.reference["reference32.logits"]), np.asarray(model.reference["labels"]))
    losses, *_ = [compare(context, result, comparison) for comparison in listed_in(__package__, made)]
    for option, taken in (("class weights", takes_weights(context)), ("distillation", distils(context))):
        if taken:
            result.cover(option)
    result.record("model.loss", np.asarray(model.port["port32.loss"]), np.asarray(model.reference["reference32.loss"]))
    values = {}
    for case in made:
        ours, theirs = losses.port.get(f"{case.name}.port32.loss"), np.asarray(losses.reference[f"{case.name}.reference32.loss"])
        result.record(f"{case.name}.loss", None if ours is None else np.asarray(ours), theirs, further=case.extreme)
        values[case.name] = float(theirs)
    _require(result, values)
    return result


def _cases(context: Context, logits: np.ndarray, labels: np.ndarray) -> list[LossCase]:
    if not context.material.weights.calibrated:  # a trained network may be so sure that nothing changes its loss
        logits = np.random.default_rng([context.seed, 5]).standard_normal(logits.shape).astype(np.float32)
    made = cases(logits, labels, context.seed)
    if takes_weights(context):
        made += weighted_cases(logits, labels, context.seed)
    if distils(context):
        made += distilled_cases(context, logits, labels)
    return made


def _require(result: StepResult, values: dict[str, float]) -> None:
    """That the cases show something."""
    result.require("hard_loss", round(values["hard"], 4), values["hard"] > 0.01, "above 0.01")
    result.require("extreme_loss", round(values["gap500"], 2), values["gap500"] > 400, "above 400")
    for option, name in (
        ("smoothing", "smoothed"),
        ("ignoring", "ignored"),
        ("weighting", "weighted_hard"),
        ("distilling", "distilled_hard"),
    ):
        if name in values:
            change = abs(values[name] - values["hard"])
            result.require(f"{option}_changes_loss_by", round(change, 4), change > 1e-4, "above 1e-4")


def plain_losses(seed: int) -> Losses:
    """The plain cases of made-up logits, for a step that uses the loss."""
    rng = np.random.default_rng(1)
    logits, labels = rng.standard_normal((6, 11)).astype(np.float32), rng.integers(0, 11, 6)
    return Losses(cases(logits, labels, seed))
