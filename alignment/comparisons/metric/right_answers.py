"""Which samples count as right: ``top_k_correct`` on real, tied, NaN and infinite logits, against a plain stable sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement, listed
from alignment.comparisons.context import Context
from alignment.comparisons.metric.mistakes import KS, RIGHT
from alignment.finding import NO_HINT, Finding, Hint
from alignment.localize.hypotheses.hypothesis import Observed, confirmed
from alignment.project import MetricPart, Side


def part(side: Side) -> MetricPart:
    """The side's metrics; the step is not run where there are none."""
    assert side.metric is not None
    return side.metric


def oracle(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Right answers by a stable sort, class order among equals, NaN rows wrong; bool (N, len(KS))."""
    ranked = np.argsort(-logits, axis=1, kind="stable")
    rank = (ranked == labels[:, None]).argmax(axis=1)
    valid = ~np.isnan(logits).any(axis=1)
    return np.stack([(rank < k) & valid for k in KS], axis=1)


def made_up_cases(logits: np.ndarray, labels: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Logits where accuracies in circulation go wrong: ties, all equal, NaN, infinities, fewer classes than usual."""
    ties = np.round(logits).astype(np.float32)
    ties[np.arange(len(labels)), labels] = np.sort(ties, axis=1)[:, -3]
    broken = logits.copy()
    broken[::2] = np.nan
    # One NaN in a row whose label is the largest of the others: by comparisons alone such a row is right.
    broken[1, labels[1]] = np.nanmax(logits[1]) + 1
    broken[1, (labels[1] + 1) % logits.shape[1]] = np.nan
    infinite = logits.copy()
    infinite[0, labels[0]] = np.inf
    infinite[1, (labels[1] + 1) % logits.shape[1]] = np.inf
    few = logits[:, : max(int(labels.max()) + 1, 6)]
    return {
        "real": (logits, labels),
        "ties": (ties, labels),
        "all_equal": (np.zeros_like(logits), labels),
        "nan": (broken, labels),
        "infinite": (infinite, labels),
        "few_classes": (np.ascontiguousarray(few), labels),
    }


@listed(1)
class RightAnswers:
    """The right answers of both sides, each made-up case by itself.

    Args:
        logits, labels: (N, classes) and (N,).
    """

    def __init__(self, logits: np.ndarray, labels: np.ndarray) -> None:
        self.cases = made_up_cases(logits, labels)
        self.truth = {case: oracle(*given) for case, given in self.cases.items()}

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        side = context.sides[role]
        tensor, counted = side.framework.tensor, part(side).top_k_correct
        return {case: side.framework.array(counted(tensor(x), tensor(y), KS)) for case, (x, y) in self.cases.items()}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        return [
            row
            for case, truth in self.truth.items()
            for row in (
                judge_equal(f"{case}.correct", _array(port, case), _array(reference, case)),
                judge_equal(f"{case}.correct.sorted", _array(port, case), truth),
            )
        ]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        wrong = [case for case, truth in self.truth.items() if not _same(_array(port, case), truth)]
        if not wrong:
            return None
        ours, truth = _array(port, wrong[0]), self.truth[wrong[0]]
        measured = f"{wrong[0]}: {ours.sum(0).tolist()} right of {len(truth)}, expected {truth.sum(0).tolist()}"
        return Finding("metric", "top_k_correct", *self._rule(port, wrong), measured)

    def _rule(self, port: Measurement, wrong: Sequence[str]) -> Hint:
        """The rule that gives the port's answers in every case; else in every case where they are wrong."""
        observed = {case: Observed(self.cases[case], _array(port, case), truth) for case, truth in self.truth.items()}
        for needed in ([*self.cases], wrong if len(wrong) > 1 else []):
            found = next(confirmed(RIGHT.hypotheses(), [observed[case] for case in needed]), None)
            if found is not None:
                return found.hint
        return NO_HINT


def _array(measured: Measurement, case: str) -> np.ndarray:
    return np.asarray(measured[case])


def _same(ours: np.ndarray, right: np.ndarray) -> bool:
    return ours.shape == right.shape and np.array_equal(ours.astype(bool), right)
