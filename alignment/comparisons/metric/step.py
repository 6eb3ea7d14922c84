"""Step 3, metric: top-1 and top-5 on real pictures, with ties, NaN, a short last batch, padding and several ranks."""

from __future__ import annotations

import numpy as np

from alignment.comparisons.comparison import compare, listed_in
from alignment.comparisons.context import Context
from alignment.comparisons.metric.end_to_end import EndToEnd
from alignment.comparisons.metric.mistakes import KS
from alignment.comparisons.result import StepResult


def run(context: Context) -> StepResult:
    """Compare counts of right answers of both sides with each other and with a plain numpy sort."""
    result = StepResult(3, "metric")
    whole = compare(context, result, EndToEnd())
    logits, labels = np.asarray(whole.reference["logits"]), np.asarray(whole.port["labels"])
    for k in KS:
        ours, theirs = np.asarray(whole.port[f"top{k}"]), np.asarray(whole.reference[f"top{k}"])
        result.record(f"acc_top{k}", ours, theirs)
        # Given weights may name every picture rightly; the made-up cases have right and wrong answers then, too.
        shows = 0 < float(theirs) < 1 or not context.material.weights.calibrated
        result.require(f"top{k}", round(float(theirs), 4), shows, "strictly between 0 and 1")
    result.require("pictures", len(labels), len(labels) >= 4, "4 or more")
    for comparison in listed_in(__package__, logits, labels):
        compare(context, result, comparison)
    return result
