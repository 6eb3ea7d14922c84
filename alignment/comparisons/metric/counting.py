"""How right answers are added up: ``TopKAccuracy`` over batches, padding and the parts of several ranks, and its shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement, listed
from alignment.comparisons.context import Context
from alignment.comparisons.metric.mistakes import KS, MERGED, PADDED, UPDATED
from alignment.comparisons.metric.right_answers import oracle, part
from alignment.finding import NO_HINT, Finding
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Observed, confirmed
from mobilenetv3_common.sampling import BatchPlan

SHARES = "shares"


@dataclass(frozen=True)
class Feed:
    """How a metric is fed.

    Attributes:
        logits, labels: (N, classes) and (N,).
        parts: samples of each batch of each rank; the parts of several ranks are merged.
        mask: bool (N,), False for padding; None where there is none.
    """

    logits: np.ndarray
    labels: np.ndarray
    parts: Sequence[Sequence[Sequence[int]]]
    mask: np.ndarray | None = None

    @property
    def place(self) -> str:
        return "merge" if len(self.parts) > 1 else "update"

    def counts(self, samples: Sequence[int], heeded: bool = True) -> np.ndarray:
        """Right answers of each k, and samples; int (len(KS) + 1,). ``heeded`` leaves padding out."""
        chosen = [n for n in samples if self.mask is None or not heeded or self.mask[n]]
        right = oracle(self.logits, self.labels)[chosen].sum(0) if chosen else np.zeros(len(KS), int)
        return np.array([*right, len(chosen)])

    @property
    def truth(self) -> np.ndarray:
        return self.counts([n for rank in self.parts for batch in rank for n in batch])


def fed(logits: np.ndarray, labels: np.ndarray, size: int, world: int = 1) -> Feed:
    """Batches of ``size``, shared out over ``world`` ranks."""
    plans = [BatchPlan(len(labels), size, rank=rank, world_size=world) for rank in range(world)]
    return Feed(logits, labels, [[[key.sample for key in keys] for keys in plan] for plan in plans])


def feeds(logits: np.ndarray, labels: np.ndarray) -> dict[str, Feed]:
    """Batches of 1, of 5 with a short last one, and of all; two and three ranks; padding that must not count."""
    made = {f"batch_size{size}": fed(logits, labels, size) for size in (1, 5, len(labels))}
    made |= {f"ranks{world}": fed(logits, labels, 5, world) for world in (2, 3)}
    # Three padding rows that repeat a correctly named picture, and all rows but that one.
    right = int(oracle(logits, labels)[:, 0].argmax())
    padded, numbers = np.concatenate([logits, np.repeat(logits[right : right + 1], 3, 0)]), np.append(labels, [labels[right]] * 3)
    every = [[[*range(len(numbers))]]]
    made["padding"] = Feed(padded, numbers, every, np.arange(len(numbers)) < len(labels))
    made["mostly_padding"] = Feed(padded, numbers, every, np.arange(len(numbers)) == right)
    return made


@listed(2)
class Counting:
    """The counts of both sides after each way of feeding, and the shares after all samples at once.

    Args:
        logits, labels: (N, classes) and (N,).
    """

    def __init__(self, logits: np.ndarray, labels: np.ndarray) -> None:
        self.ways, self.whole = feeds(logits, labels), f"batch_size{len(labels)}"

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray | Mapping[str, float]]:
        metric, tensor = part(context.sides[role]), context.sides[role].framework.tensor
        made: dict[str, np.ndarray | Mapping[str, float]] = {}
        for name, feed in self.ways.items():
            ranks = []
            for batches in feed.parts:
                ranks.append(metric.TopKAccuracy(KS))
                for chosen in batches:
                    extra = () if feed.mask is None else (tensor(feed.mask[chosen]),)
                    ranks[-1].update(tensor(feed.logits[chosen]), tensor(feed.labels[chosen]), *extra)
            total = metric.TopKAccuracy(KS) if len(ranks) > 1 else ranks[0]
            for one in ranks if len(ranks) > 1 else ():
                total.merge(one)
            made[name] = np.array([*total.correct, total.count])
            if name == self.whole:
                made[SHARES] = {key: float(share) for key, share in total.compute().items()}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        for name, feed in self.ways.items():
            ours, theirs = np.asarray(port[name]), np.asarray(reference[name])
            rows += [judge_equal(f"{name}.counts", ours, theirs), judge_equal(f"{name}.counts.sorted", ours, feed.truth)]
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        wrong = [name for name, feed in self.ways.items() if not np.array_equal(np.asarray(port[name]), feed.truth)]
        if not wrong:
            return self._explain_shares(port)
        # What is wrong without padding, and on one rank, is the mistake; the others have it, too.
        first = min(wrong, key=lambda name: (self.ways[name].place == "merge", self.ways[name].mask is not None))
        place, padded = self.ways[first].place, self.ways[first].mask is not None
        alike = [n for n, feed in self.ways.items() if (feed.place, feed.mask is not None) == (place, padded)]
        ours, truth = np.asarray(port[first]), self.ways[first].truth
        measured = f"{ours[:-1].tolist()} right of {ours[-1]}, expected {truth[:-1].tolist()} of {truth[-1]}"
        family = MERGED if place == "merge" else PADDED if padded else UPDATED
        observed = [Observed(self.ways[name], np.asarray(port[name]), self.ways[name].truth) for name in alike]
        hint = next((one.hint for one in confirmed(family.hypotheses(), observed)), NO_HINT)
        return Finding("metric", f"TopKAccuracy.{place}", *hint, measured)

    def _explain_shares(self, port: Measurement) -> Finding | None:
        """What ``compute`` makes of right counts."""
        ours, truth = dict(_named(port[SHARES])), self.ways[self.whole].truth
        right = {f"top{k}": float(correct / truth[-1]) for k, correct in zip(KS, truth, strict=False)}
        if all(ours.get(name) == value for name, value in right.items()):
            return None
        hint = NO_HINT
        ratios = {ours[name] / value for name, value in right.items() if name in ours and value}
        if len(ratios) == 1 and set(right) <= set(ours):
            hint = Kind.SCALED, f"every share is {ratios.pop():.6g} times the right one"
        elif list(ours.values()) == [*right.values()][::-1]:
            hint = Kind.COUNT, "the shares of the values of k are exchanged"
        return Finding("metric", "TopKAccuracy.compute", *hint, f"{ours}, expected {right}")


def _named(value: object) -> Mapping[str, float]:
    assert isinstance(value, Mapping)
    return value
