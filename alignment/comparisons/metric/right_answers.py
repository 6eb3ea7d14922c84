"""Which samples count as right: ``top_k_correct`` on real, tied, NaN and infinite logits, against a plain stable sort."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.project import MetricPart, Side

KS = (1, 5)
Cases = Mapping[str, tuple[np.ndarray, np.ndarray]]  # name -> logits (N, classes) and labels (N,)
Rule = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


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


class RightAnswers:
    """The right answers of both sides, each case by itself.

    Args:
        cases: the logits and labels that both sides are given.
    """

    def __init__(self, cases: Cases) -> None:
        self.cases = cases
        self.truth = {case: oracle(*given) for case, given in cases.items()}

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
        met: dict[Hint, list[str]] = {}
        with np.errstate(invalid="ignore"):
            for hint, rule in rules().items():
                made = {case: np.stack([rule(x, y, k) for k in KS], 1) for case, (x, y) in self.cases.items()}
                met[hint] = [case for case in self.cases if _same(_array(port, case), made[case])]
        for needed in ([*self.cases], wrong if len(wrong) > 1 else []):
            for hint, explained in met.items():
                if needed and set(needed) <= set(explained):
                    return hint
        return NO_HINT


def _array(measured: Measurement, case: str) -> np.ndarray:
    return np.asarray(measured[case])


def _same(ours: np.ndarray, right: np.ndarray) -> bool:
    return ours.shape == right.shape and np.array_equal(ours.astype(bool), right)


def rules() -> dict[Hint, Rule]:
    """Other ways of counting, by what mistake they are: of logits (N, classes), labels (N,) and k, bool (N,)."""

    def own(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return logits[np.arange(len(labels)), labels][:, None]

    def others(labels: np.ndarray, classes: int) -> np.ndarray:
        return np.arange(classes)[None] != labels[:, None]

    def earlier(labels: np.ndarray, classes: int) -> np.ndarray:
        return np.arange(classes)[None] < labels[:, None]

    def ranked(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        mine = own(logits, labels)
        return ((logits > mine) | ((logits == mine) & earlier(labels, logits.shape[1]))).sum(1)

    def last(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Ranks with the later class first among equals."""
        mine = own(logits, labels)
        later = np.arange(logits.shape[1])[None] > labels[:, None]
        return ((logits > mine) | ((logits == mine) & later)).sum(1)

    nan = lambda logits: np.isnan(logits).any(1)  # noqa: E731
    shifted = lambda step: lambda x, y, k: (ranked(x, (y + step) % x.shape[1]) < k) & ~nan(x)  # noqa: E731
    return {
        (Kind.ALWAYS_WRONG, "no answer counts as right"): lambda x, y, k: np.zeros(len(y), bool),
        (Kind.ALWAYS_RIGHT, "every answer counts as right"): lambda x, y, k: np.ones(len(y), bool),
        (Kind.TIES_RIGHT, "equal logits count as right"): lambda x, y, k: ((x > own(x, y)).sum(1) < k) & ~nan(x),
        (Kind.TIES_RIGHT, "equal logits count as right, and so does a row with NaN"): lambda x, y, k: (x > own(x, y)).sum(1) < k,
        (Kind.TIES_WRONG, "equal logits count as wrong"): lambda x, y, k: (
            (((x >= own(x, y)) & others(y, x.shape[1])).sum(1) < k) & ~nan(x)
        ),
        (Kind.TIES_WRONG, "the label's own logit counts as ahead of it: >= for >"): lambda x, y, k: (
            ((x >= own(x, y)).sum(1) < k) & ~nan(x)
        ),
        (Kind.TIES_WRONG, "the last of equal logits ranks first"): lambda x, y, k: (last(x, y) < k) & ~nan(x),
        (Kind.NAN_RIGHT, "a row with NaN counts as right"): lambda x, y, k: ranked(x, y) < k,
        (Kind.NAN_RIGHT, "a row counts as right as long as not all of its logits are NaN"): lambda x, y, k: (
            (ranked(x, y) < k) & ~np.isnan(x).all(1)
        ),
        (Kind.SMALLEST, "the smallest logits win"): lambda x, y, k: (
            (((x < own(x, y)) | ((x == own(x, y)) & earlier(y, x.shape[1]))).sum(1) < k) & ~nan(x)
        ),
        (Kind.K_OFF_BY_ONE, "k is off by one: top-k asks for the first k - 1"): lambda x, y, k: (
            (ranked(x, y) < (k if k == 1 else k - 1)) & ~nan(x)
        ),
        (Kind.K_OFF_BY_ONE, "k is off by one: every k asks for the first k - 1"): lambda x, y, k: (ranked(x, y) < k - 1) & ~nan(x),
        (Kind.K_OFF_BY_ONE, "k is off by one: top-k asks for the first k + 1"): lambda x, y, k: (ranked(x, y) <= k) & ~nan(x),
        (Kind.SAME_K, f"every k is taken for {KS[0]}"): lambda x, y, k: (ranked(x, y) < KS[0]) & ~nan(x),
        (Kind.SAME_K, f"every k is taken for {KS[-1]}"): lambda x, y, k: (ranked(x, y) < KS[-1]) & ~nan(x),
        (Kind.K_OFF_BY_ONE, "the label must be at place k exactly"): lambda x, y, k: (ranked(x, y) == k - 1) & ~nan(x),
        (Kind.LABEL_OFF_BY_ONE, "labels are off by one"): shifted(1),
        (Kind.LABEL_OFF_BY_ONE, "labels are off by one, downwards"): shifted(-1),
        (Kind.INVERTED, "right and wrong are exchanged"): lambda x, y, k: ~((ranked(x, y) < k) & ~nan(x)),
    }
