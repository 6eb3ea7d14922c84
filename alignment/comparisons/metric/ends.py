"""The ends of a metric: one picture, none, and a metric that nobody tells the values of k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement, Value, listed
from alignment.comparisons.context import Context
from alignment.comparisons.metric.mistakes import KS
from alignment.comparisons.metric.right_answers import oracle, part
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.strangers import strangers

RAISES, NO_DEFAULT = "raises", "has no default"
RAISED, NO_SHARE = -1.0, -2.0  # in the place of a share where there was an error, or NaN
PLACES = {"one_picture": "compute", "no_picture": "compute", "by_default": "__init__"}


@listed(3)
class Ends:
    """Shares of one picture, of none, and of all with the default values of k: both sides give the same, or both raise an error.

    Args:
        logits, labels: (N, classes) and (N,).
    """

    def __init__(self, logits: np.ndarray, labels: np.ndarray) -> None:
        right = int(oracle(logits, labels)[:, 0].argmax())
        self.all, self.one = (logits, labels), (logits[right : right + 1], labels[right : right + 1])

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        side = context.sides[role]

        def asked(given: tuple[np.ndarray, ...], *ks: Any) -> Value:
            try:
                metric = part(side).TopKAccuracy(*ks)
            except TypeError:
                return NO_DEFAULT
            with strangers("port"):  # each framework has its own
                if given:
                    metric.update(*(side.framework.tensor(array) for array in given))
                return {name: float(share) for name, share in metric.compute().items()}
            return RAISES

        return {"by_default": asked(self.all), "one_picture": asked(self.one, KS), "no_picture": asked((), KS)}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        if reference["by_default"] != NO_DEFAULT:
            ours, theirs = _shares(port["by_default"]), _shares(reference["by_default"])
            for name in sorted({*ours} | {*theirs}):
                rows.append(judge_equal(f"by_default.{name}", *(np.array(side.get(name, np.nan)) for side in (ours, theirs))))
        return [*rows, *(judge_equal(name, _array(port[name]), _array(reference[name])) for name in ("one_picture", "no_picture"))]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for what, place in PLACES.items():
            ours, theirs = port[what], reference[what]
            if theirs != NO_DEFAULT and not _alike(ours, theirs):
                kind = Kind.RAISES if isinstance(ours, str) != isinstance(theirs, str) else Kind.COUNT
                words = f"with {WORDS[what]} it {_said(ours)}; the reference {_said(theirs)}"
                return Finding("metric", f"TopKAccuracy.{place}", kind, words, words)
        return None


WORDS = {"one_picture": "one picture", "no_picture": "no picture", "by_default": "no values of k"}


def _shares(value: Value) -> Mapping[str, float]:
    return value if isinstance(value, Mapping) else {}


def _array(value: Value) -> np.ndarray:
    """The shares of each k."""
    if not isinstance(value, Mapping):
        return np.array([RAISED] * len(KS))
    return np.nan_to_num(np.array([value.get(f"top{k}", np.nan) for k in KS], dtype=np.float64), nan=NO_SHARE)


def _alike(ours: Value, theirs: Value) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return isinstance(ours, str) and isinstance(theirs, str) and ours == theirs
    ours, theirs = _shares(ours), _shares(theirs)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[n], theirs[n], equal_nan=True) for n in ours)


def _said(value: Value) -> str:
    return value if isinstance(value, str) else f"gives {dict(_shares(value))}"
