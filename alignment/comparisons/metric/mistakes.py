"""Other ways of counting right answers, each a hypothesis about a port's metric, as closed formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family

KS = (1, 5)
Rule = Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # logits (N, classes), labels (N,) and k -> which count, bool (N,)
RIGHT = Family("right_answers")  # of one case: a pair of logits and labels; a prediction is bool (N, len(KS))


def _add(kind: Kind, words: str, rule: Rule) -> None:
    def predict(given: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.stack([rule(*given, k) for k in KS], 1)

    RIGHT.add(kind, words, predict)


def _own(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return logits[np.arange(len(labels)), labels][:, None]


def _others(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.arange(classes)[None] != labels[:, None]


def _earlier(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.arange(classes)[None] < labels[:, None]


def _ranked(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    mine = _own(logits, labels)
    return ((logits > mine) | ((logits == mine) & _earlier(labels, logits.shape[1]))).sum(1)


def _last(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Ranks with the later class first among equals."""
    mine = _own(logits, labels)
    later = np.arange(logits.shape[1])[None] > labels[:, None]
    return ((logits > mine) | ((logits == mine) & later)).sum(1)


def _nan(logits: np.ndarray) -> np.ndarray:
    return np.isnan(logits).any(1)


def _shifted(step: int) -> Rule:
    return lambda x, y, k: (_ranked(x, (y + step) % x.shape[1]) < k) & ~_nan(x)


_add(Kind.ALWAYS_WRONG, "no answer counts as right", lambda x, y, k: np.zeros(len(y), bool))
_add(Kind.ALWAYS_RIGHT, "every answer counts as right", lambda x, y, k: np.ones(len(y), bool))
_add(Kind.TIES_RIGHT, "equal logits count as right", lambda x, y, k: ((x > _own(x, y)).sum(1) < k) & ~_nan(x))
_add(Kind.TIES_RIGHT, "equal logits count as right, and so does a row with NaN", lambda x, y, k: (x > _own(x, y)).sum(1) < k)
_add(
    Kind.TIES_WRONG,
    "equal logits count as wrong",
    lambda x, y, k: (((x >= _own(x, y)) & _others(y, x.shape[1])).sum(1) < k) & ~_nan(x),
)
_add(
    Kind.TIES_WRONG,
    "the label's own logit counts as ahead of it: >= for >",
    lambda x, y, k: ((x >= _own(x, y)).sum(1) < k) & ~_nan(x),
)
_add(Kind.TIES_WRONG, "the last of equal logits ranks first", lambda x, y, k: (_last(x, y) < k) & ~_nan(x))
_add(Kind.NAN_RIGHT, "a row with NaN counts as right", lambda x, y, k: _ranked(x, y) < k)
_add(
    Kind.NAN_RIGHT,
    "a row counts as right as long as not all of its logits are NaN",
    lambda x, y, k: (_ranked(x, y) < k) & ~np.isnan(x).all(1),
)
_add(
    Kind.SMALLEST,
    "the smallest logits win",
    lambda x, y, k: (((x < _own(x, y)) | ((x == _own(x, y)) & _earlier(y, x.shape[1]))).sum(1) < k) & ~_nan(x),
)
_add(
    Kind.K_OFF_BY_ONE,
    "k is off by one: top-k asks for the first k - 1",
    lambda x, y, k: (_ranked(x, y) < (k if k == 1 else k - 1)) & ~_nan(x),
)
_add(Kind.K_OFF_BY_ONE, "k is off by one: every k asks for the first k - 1", lambda x, y, k: (_ranked(x, y) < k - 1) & ~_nan(x))
_add(Kind.K_OFF_BY_ONE, "k is off by one: top-k asks for the first k + 1", lambda x, y, k: (_ranked(x, y) <= k) & ~_nan(x))
_add(Kind.SAME_K, f"every k is taken for {KS[0]}", lambda x, y, k: (_ranked(x, y) < KS[0]) & ~_nan(x))
_add(Kind.SAME_K, f"every k is taken for {KS[-1]}", lambda x, y, k: (_ranked(x, y) < KS[-1]) & ~_nan(x))
_add(Kind.K_OFF_BY_ONE, "the label must be at place k exactly", lambda x, y, k: (_ranked(x, y) == k - 1) & ~_nan(x))
_add(Kind.LABEL_OFF_BY_ONE, "labels are off by one", _shifted(1))
_add(Kind.LABEL_OFF_BY_ONE, "labels are off by one, downwards", _shifted(-1))
_add(Kind.INVERTED, "right and wrong are exchanged", lambda x, y, k: ~((_ranked(x, y) < k) & ~_nan(x)))


# --- counting -------------------------------------------------------------------------------------------------------------


class Fed(Protocol):
    """How a metric is fed: see ``alignment.comparisons.metric.counting.Feed``."""

    @property
    def parts(self) -> Sequence[Sequence[Sequence[int]]]:
        """Samples of each batch of each rank."""

    @property
    def truth(self) -> np.ndarray:
        """Right answers of each k, and samples."""

    def counts(self, samples: Sequence[int], heeded: bool = True) -> np.ndarray:
        """The same of some samples, without padding where it is heeded."""


UPDATED = Family("counting_batches")  # of one way of feeding; a prediction is right answers of each k, and samples
PADDED = Family("counting_padding")
MERGED = Family("counting_ranks")


def _joined(samples: Sequence[Sequence[int]]) -> list[int]:
    return [n for some in samples for n in some]


def _batches(feed: Fed) -> Sequence[Sequence[int]]:
    return feed.parts[0]


def _everything(feed: Fed) -> np.ndarray:
    """Padding counted, too."""
    return feed.counts(_joined(_batches(feed)), heeded=False)


def _mixed(right: np.ndarray, samples: int) -> np.ndarray:
    """Right answers of one count, and the samples of another."""
    return np.array([*right[:-1], samples])


def _full(feed: Fed) -> np.ndarray:
    return feed.counts(_joined([batch for batch in _batches(feed) if len(batch) == len(_batches(feed)[0])]))


def _samples(feed: Fed) -> int:
    return int(feed.truth[-1])


PADDED.add(Kind.PADDING_COUNTED, "padding counts as samples and as right answers", _everything)
PADDED.add(Kind.PADDING_COUNTED, "padding counts as samples", lambda f: _mixed(f.truth, int(_everything(f)[-1])))
PADDED.add(Kind.PADDING_COUNTED, "padding counts as right answers", lambda f: _mixed(_everything(f), _samples(f)))

UPDATED.add(Kind.LAST_BATCH_FORGOTTEN, "the last, short batch is not counted", _full)
UPDATED.add(Kind.COUNT, "each batch takes the place of those before it", lambda f: f.counts(_batches(f)[-1]))
UPDATED.add(
    Kind.COUNT,
    "right answers of each batch take the place of those before it",
    lambda f: _mixed(f.counts(_batches(f)[-1]), _samples(f)),
)
UPDATED.add(
    Kind.COUNT,
    "samples of each batch take the place of those before it",
    lambda f: _mixed(f.truth, len(_batches(f)[-1])),
)
UPDATED.add(Kind.COUNT, "the first batch alone is counted", lambda f: f.counts(_batches(f)[0]))
UPDATED.add(
    Kind.COUNT,
    "every batch counts as a full one",
    lambda f: _mixed(f.truth, len(_batches(f)[0]) * len(_batches(f))),
)
UPDATED.add(Kind.COUNT, "batches are counted, expected samples", lambda f: _mixed(f.truth, len(_batches(f))))


def _part(place: int) -> Callable[[Fed], np.ndarray]:
    return lambda feed: feed.counts(_joined(feed.parts[place]))


def _nothing(feed: Fed) -> np.ndarray:
    return np.zeros(len(KS) + 1, int)


def _merged_in_part(kept: Callable[[Fed], np.ndarray], words: str) -> None:
    MERGED.add(
        Kind.RANKS_NOT_MERGED,
        f"right answers are added up, samples are not{words}",
        lambda f: _mixed(f.truth, int(kept(f)[-1])),
    )
    MERGED.add(
        Kind.RANKS_NOT_MERGED,
        f"samples are added up, right answers are not{words}",
        lambda f: _mixed(kept(f), _samples(f)),
    )


MERGED.add(Kind.RANKS_NOT_MERGED, "the first part alone is counted", _part(0))
MERGED.add(Kind.RANKS_NOT_MERGED, "the last part alone is counted", _part(-1))
MERGED.add(Kind.RANKS_NOT_MERGED, "no part is counted", _nothing)
_merged_in_part(_nothing, "")
_merged_in_part(_part(0), ": those of the first part stay")
_merged_in_part(_part(-1), ": those of the last part stay")
