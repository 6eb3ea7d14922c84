"""What a difference between ranks looks like: the hypotheses about what the ranks have instead of their own.

Of arrays only those tensors and ranks are asked about that are wrong: a mistake may be made on one rank, or in one tensor, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import norm
from alignment.comparisons.ranks.plan import norm_of, summed
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, seen
from mobilenetv3_common.weights import State

Misses = Mapping[int, Sequence[str]]  # rank -> names of its tensors that are wrong


@dataclass(frozen=True)
class WrongTensors:
    """Tensors that some ranks have otherwise than they should.

    Attributes:
        found, right: what each rank has and should have.
        wrong: which of them differ.
        known: what the family's predictions are made of.
    """

    found: Sequence[State]
    right: Sequence[State]
    wrong: Misses
    known: Any = None

    @property
    def observed(self) -> list[Observed]:
        """Each of these ranks, whose tensors are to be explained one by one; nothing where one is missing or of another shape."""
        made = []
        for rank, names in self.wrong.items():
            ours, right = self.found[rank], self.right[rank]
            if any(name not in ours or ours[name].shape != right[name].shape for name in names):
                return []
            noise = tolerance.RANKS_NOISE * max(norm(array) for array in right.values())
            starts = np.cumsum([0, *(right[name].size for name in names)])[:-1]
            given = self.known, rank, names
            made.append(Observed(given, _flat(ours, names), _flat(right, names), tolerance.RANKS_EXPLAINED, noise, starts))
        return made


def _flat(state: State, names: Sequence[str]) -> np.ndarray:
    return np.concatenate([state[name].ravel() for name in names], dtype=np.float64)


def _has(kind: Kind, words: str, state_of: Callable[[Any, int], State | None]) -> Hypothesis:
    """That a rank has the tensors that ``state_of`` gives for what is known and its number; None where it cannot be."""

    def predict(given: tuple[Any, int, Sequence[str]]) -> np.ndarray | None:
        known, rank, names = given
        state = state_of(known, rank)
        return None if state is None or not set(names) <= set(state) else _flat(state, names)

    return Hypothesis(kind, words, predict)


@dataclass
class OfTensors(Family):
    """Hypotheses about wrong tensors."""

    observed: Callable[..., Sequence[Observed]] = lambda tensors: tensors.observed

    def has(self, kind: Kind, words: str, state_of: Callable[[Any, int], State | None]) -> None:
        """Register one hypothesis; its words are its name."""
        self.register(words, lambda tensors: [_has(kind, words, state_of)])

    def of_one(self, kind: Kind, words: str, states_of: Callable[[WrongTensors], Sequence[State]]) -> None:
        """Register that all ranks have what one of them has, for each in turn; its number takes the place of ``{}``."""

        def make(tensors: WrongTensors) -> Hypotheses:
            for rank, state in enumerate(states_of(tensors)):
                yield _has(kind, words.format(rank), lambda _, __, state=state: state)  # type: ignore[misc]

        self.register(words, make)


# --- gradients -------------------------------------------------------------------------------------------------------------


GRADIENTS = OfTensors("ranks_gradients")
GRADIENTS.has(
    Kind.CLIPPED_BY_RANK,
    "each rank clips by the norm of its own gradients before they are averaged",
    lambda made, rank: made.clipped_by_rank(),
)
GRADIENTS.has(
    Kind.CLIPPED_BY_RANK,
    "the average is clipped by the norm of each rank's own gradients",
    lambda made, rank: made.clipped(made.mean, norm_of(made.own[rank])) if made.own else None,
)
GRADIENTS.has(
    Kind.CLIPPING_MISSING, "the gradients are not clipped", lambda made, rank: made.mean if made.clip_norm is not None else None
)
GRADIENTS.has(
    Kind.GRADIENT_NOT_REDUCED,
    "each rank has the gradients of its own pictures: no all-reduce",
    lambda made, rank: made.clipped(made.own[rank]) if made.own else None,
)
GRADIENTS.has(Kind.SUM_FOR_MEAN, "added up over the ranks, not averaged", lambda made, rank: made.scaled(made.ranks))
GRADIENTS.has(
    Kind.GRADIENT_NOT_REDUCED,
    "each rank's own, divided by the number of ranks",
    lambda made, rank: made.clipped(summed([made.own[rank]], 1 / made.ranks)) if made.own else None,
)
GRADIENTS.has(Kind.GRADIENT_SCALED, "divided by the number of ranks once too often", lambda made, rank: made.scaled(1 / made.ranks))
GRADIENTS.of_one(
    Kind.GRADIENT_OF_ONE_RANK,
    "the gradients of rank {}'s pictures",
    lambda tensors: [tensors.known.clipped(own) for own in tensors.known.own],
)
GRADIENTS.has(Kind.LAST_MICRO_BATCH, "the last micro-batch's alone: the earlier ones are lost", lambda made, rank: made.of_part(-1))
GRADIENTS.has(Kind.LAST_MICRO_BATCH, "the first micro-batch's alone: the later ones are lost", lambda made, rank: made.of_part(0))
GRADIENTS.has(
    Kind.SUM_FOR_MEAN,
    "added up over the micro-batches, not averaged",
    lambda made, rank: made.scaled(len(made.shares)) if len(made.shares) > 1 else None,
)
GRADIENTS.has(
    Kind.ACCUMULATION_NOT_REDUCED,
    "the first micro-batch is averaged over the ranks, the later ones stay each rank's own",
    lambda made, rank: made.part_reduced(0, rank),
)
GRADIENTS.has(
    Kind.ACCUMULATION_NOT_REDUCED,
    "the last micro-batch is averaged over the ranks, the earlier ones stay each rank's own",
    lambda made, rank: made.part_reduced(-1, rank),
)


@GRADIENTS
def weighted(tensors: WrongTensors) -> Hypotheses:
    """With which weights the micro-batches of the ranks make up what each rank has."""
    shares, told, predicted = tensors.known.shares, dict[str, list[int]](), dict[int, np.ndarray]()
    for one in tensors.observed if shares else ():
        _, rank, names = one.given
        basis = np.stack([_flat(share, names) for of_ranks in shares for share in of_ranks], axis=1)
        if one.ours.size < 8 * basis.shape[1] or not np.isfinite(one.ours).all():
            return
        weights = np.linalg.lstsq(basis, one.ours, rcond=None)[0]
        predicted[rank] = basis @ weights
        table = np.round(weights, 6).reshape(len(shares), -1) + 0.0  # no minus before a zero
        of_each = [f"rank {q}'s {' and '.join(f'{weight:g}' for weight in table[:, q])}" for q in range(table.shape[1])]
        told.setdefault(", ".join(of_each), []).append(rank)
    words = [f"on rank {' and '.join(map(str, ranks))} the micro-batches count {text} times" for text, ranks in told.items()]
    if words:
        yield Hypothesis(Kind.RANKS_WEIGHTED, f"{'; '.join(words)}, expected 1 each", lambda given: predicted[given[1]])


# --- statistics and averages -----------------------------------------------------------------------------------------------

STATISTICS_OF_RANKS = OfTensors("ranks_statistics")  # after an update: each rank should have its own
STATISTICS_OF_RANKS.of_one(Kind.STATISTICS_OF_ONE_RANK, "rank {}'s statistics", lambda tensors: tensors.right)


def _merged(what: str) -> OfTensors:
    """Before the evaluation all ranks should have the mean; known is what each has of its own."""
    family, one = OfTensors(f"ranks_merged_{what}"), Kind.STATISTICS_OF_ONE_RANK
    family.has(one, f"each rank keeps its own {what}: they are not averaged", lambda own, rank: own[rank])
    family.of_one(one, f"rank {{}}'s {what}, not the mean of the ranks'", lambda tensors: tensors.known)
    family.has(Kind.SUM_FOR_MEAN, f"the {what} are added up, not averaged", lambda own, rank: summed(list(own)))
    return family


MERGED_STATISTICS, MERGED_AVERAGES = _merged("statistics"), _merged("averages")
AVERAGE_OF_RANKS = OfTensors("ranks_average")  # known are the weights and statistics themselves, and the averages an update ago


def _average_kind(tensors: WrongTensors) -> Kind:
    return Kind.MOVING_AVERAGE if len(tensors.wrong) == len(tensors.found) else Kind.AVERAGE_OF_ONE_RANK


@AVERAGE_OF_RANKS
def no_average(tensors: WrongTensors) -> Hypotheses:
    if all(not tensors.found[rank] for rank in tensors.wrong):
        kind = _average_kind(tensors)
        one = kind is Kind.AVERAGE_OF_ONE_RANK
        yield seen(kind, "there is no moving average on these ranks" if one else "no moving average is kept")


@AVERAGE_OF_RANKS
def the_weights_themselves(tensors: WrongTensors) -> Hypotheses:
    yield _has(_average_kind(tensors), "it holds the weights themselves", lambda known, rank: known[0][rank])


@AVERAGE_OF_RANKS
def not_updated(tensors: WrongTensors) -> Hypotheses:
    words = "it has not been updated since the update before"
    yield _has(_average_kind(tensors), words, lambda known, rank: known[1][rank] if known[1] else None)


# --- synchronised statistics -----------------------------------------------------------------------------------------------


SYNCHRONISED = OfTensors("ranks_synchronised")  # of one layer, its tensors by their last names; known is its spread
NOT_SYNCHRONISED = Kind.STATISTICS_NOT_SYNCHRONISED


@SYNCHRONISED
def own_batch(tensors: WrongTensors) -> Hypotheses:
    if any("running_mean" in names for names in tensors.wrong.values()):  # the variance alone would be no other
        words = "each rank normalises with its own batch"
        yield _has(NOT_SYNCHRONISED, words, lambda s, rank: s.running(s.means[rank], s.variances[rank], s.here))


@SYNCHRONISED
def own_variance(_: WrongTensors) -> Hypotheses:
    words = "each rank takes the variance of its own batch"
    yield _has(NOT_SYNCHRONISED, words, lambda s, rank: s.running(s.mean, s.variances[rank], s.here))
    yield _has(NOT_SYNCHRONISED, words, lambda s, rank: s.running(s.mean, s.variances[rank], s.count))


SYNCHRONISED.has(
    NOT_SYNCHRONISED,
    "each rank takes its own batch's variance, about the common mean",
    lambda s, rank: s.running(s.mean, s.about_the_mean(rank), s.count),
)


@SYNCHRONISED
def variances_averaged(_: WrongTensors) -> Hypotheses:
    words = "the ranks' variances are averaged: the spread of their means is left out"
    yield _has(NOT_SYNCHRONISED, words, lambda s, rank: s.running(s.mean, s.variances.mean(0), s.here))
    yield _has(NOT_SYNCHRONISED, words, lambda s, rank: s.running(s.mean, s.variances.mean(0), s.count))


SYNCHRONISED.has(
    Kind.UNBIASED_VARIANCE,
    "the variance's factor n / (n - 1) counts one rank's values",
    lambda s, rank: s.running(s.mean, s.variance, s.here),
)
SYNCHRONISED.of_one(
    Kind.STATISTICS_OF_ONE_RANK,
    "every rank takes the statistics of rank {}'s batch",
    lambda tensors: [
        tensors.known.running(*one, tensors.known.here) for one in zip(tensors.known.means, tensors.known.variances, strict=True)
    ],
)


# --- pictures --------------------------------------------------------------------------------------------------------------

OfRanks = Sequence[np.ndarray]  # by rank: numbers of pictures, (micro-batches, pictures)


def _of_ranks(found: OfRanks, right: OfRanks, wrong: Iterable[int], *_: Any) -> list[Observed]:
    return [Observed(rank, found[rank], right[rank]) for rank in wrong]


PICTURES = Family("ranks_pictures", _of_ranks)


@PICTURES
def pictures_of_one_rank(found: OfRanks, right: OfRanks, *_: Any) -> Hypotheses:
    for source, numbers in enumerate(right):
        words = f"the pictures are those of rank {source}: the batches are not shared out"
        yield Hypothesis(Kind.NOT_SHARDED, words, lambda rank, numbers=numbers: numbers)  # type: ignore[misc]


@PICTURES
def order_of_the_first_epoch(found: OfRanks, right: OfRanks, wrong: Sequence[int], earlier: OfRanks) -> Hypotheses:
    if earlier:
        words = "the order is that of the first epoch: it does not change with the epoch"
        yield Hypothesis(Kind.NOT_RESHUFFLED, words, lambda rank: earlier[rank])


@PICTURES
def seen_twice(found: OfRanks, *_: Any) -> Hypotheses:
    numbers = np.concatenate([array.ravel() for array in found])
    if repeated := numbers.size - np.unique(numbers).size:
        yield seen(Kind.SHARDS_OVERLAP, f"{repeated} of the {numbers.size} pictures of this update are seen more than once")


@PICTURES
def another_order(found: OfRanks, right: OfRanks, wrong: Sequence[int], *_: Any) -> Hypotheses:
    if all(np.array_equal(np.sort(found[rank].ravel()), np.sort(right[rank].ravel())) for rank in wrong):
        yield seen(Kind.ORDER, "the right pictures in another order")


EVALUATED = Family("ranks_evaluated")  # of the numbers that each rank evaluates, and how many there are; about the ranks to blame


def repeating(found: OfRanks) -> list[int]:
    """Ranks that evaluate what they or an earlier one have evaluated already."""
    before = [{*np.concatenate(found[:rank]).tolist()} if rank else set() for rank in range(len(found))]
    return [r for r, own in enumerate(map(np.ndarray.tolist, found)) if len({*own}) < len(own) or before[r] & {*own}]


@EVALUATED
def not_shared_out(found: OfRanks, size: int) -> Hypotheses:
    blamed = repeating(found)
    if blamed and all(np.array_equal(found[rank], found[0]) for rank in blamed):
        words = f"it evaluates rank 0's pictures: {sum(map(len, found))} pictures for {size}"
        yield seen(Kind.NOT_SHARDED, words, blamed)


@EVALUATED
def repeated(found: OfRanks, size: int) -> Hypotheses:
    if blamed := repeating(found):
        yield seen(Kind.PADDING_COUNTED, f"pictures are repeated and counted: {sum(map(len, found))} for {size}", blamed)


@EVALUATED
def left_out(found: OfRanks, size: int) -> Hypotheses:
    if missing := size - len({*np.concatenate(found).tolist()}):
        yield seen(Kind.BATCH_DROPPED, f"{missing} of {size} pictures are left out", [*range(len(found))])


# --- random numbers --------------------------------------------------------------------------------------------------------

AUGMENTED = Family("ranks_augmented", _of_ranks)  # of pixels; with the pixels of a rank, drawn as for another
DROPPED = Family("ranks_dropped", _of_ranks)  # of losses; with the losses of all ranks, with the masks of one


@AUGMENTED
def augmented_as_on_one_rank(found: OfRanks, right: OfRanks, wrong: Sequence[int], drawn: Callable[[int, int], Any]) -> Hypotheses:
    for source in (rank for rank in range(len(right)) if rank not in wrong):
        words = f"the pictures are augmented with the random numbers of rank {source}'s pictures"
        yield Hypothesis(Kind.SAME_SEED, words, lambda rank, q=source: drawn(rank, q))  # type: ignore[misc]


@DROPPED
def masks_of_one_rank(found: OfRanks, right: OfRanks, wrong: Sequence[int], masked: Callable[[int], Any]) -> Hypotheses:
    for source in (rank for rank in range(len(right)) if rank not in wrong):
        words, losses = f"the dropout masks are those of rank {source}", cache(lambda q=source: masked(q))  # type: ignore[misc]
        yield Hypothesis(Kind.SAME_SEED, words, lambda rank, made=losses: made()[rank], rtol=tolerance.RANKS_RTOL)  # type: ignore[misc]


# --- numbers ---------------------------------------------------------------------------------------------------------------

RATES = Family("ranks_rates", _of_ranks)
COUNTS = Family("ranks_counts", _of_ranks)  # of a metric; with each rank's own
FIGURES_OF_RANKS = Family("ranks_figures", _of_ranks)  # of an evaluation: how many of each class; with each rank's own


@RATES
def another_rate(found: OfRanks, right: OfRanks, wrong: Sequence[int]) -> Hypotheses:
    factors = {float(found[rank] / right[rank]) for rank in wrong}
    if len(factors) == 1:
        yield seen(Kind.LR_SCALED, f"{factors.pop():.6g} x the learning rate")


@COUNTS
def counts_not_added_up(found: OfRanks, right: OfRanks, wrong: Sequence[int], own: OfRanks) -> Hypotheses:
    yield Hypothesis(Kind.RANKS_NOT_MERGED, "each rank keeps its own counts: they are not added up", lambda rank: own[rank])


@FIGURES_OF_RANKS
def own_pictures_alone(found: OfRanks, right: OfRanks, wrong: Sequence[int], own: OfRanks) -> Hypotheses:
    words = "each rank counts its own pictures only: the counts are not added up"
    yield Hypothesis(Kind.RANKS_NOT_MERGED, words, lambda rank: own[rank])
