"""What ranks have instead of their own is named: each mistake on plain arrays, and none where no mistake gives what was found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from alignment.comparisons.ranks import mistakes
from alignment.comparisons.ranks.expected import Reduction, Spread
from alignment.comparisons.ranks.mistakes import WrongTensors
from alignment.comparisons.ranks.plan import norm_of, summed
from alignment.finding import NO_HINT
from alignment.kinds import Kind

RNG = np.random.default_rng(0)


def state(*, start=0.0):
    return {"a": start + RNG.normal(size=(5, 6)), "b": start + RNG.normal(size=40)}


def reduction(clip_norm=None, parts=2):
    shares = [[state() for _ in range(2)] for _ in range(parts)]
    mean = summed([share for part in shares for share in part])
    return Reduction(2, mean, shares, clip_norm if clip_norm is None else clip_norm * norm_of(mean))


def of_every(found, right, known=None, ranks=(0, 1)):
    return WrongTensors(found, right, {rank: ["a", "b"] for rank in ranks}, known)


def clipped(of, limit):
    return summed([of], min(1.0, limit / (norm_of(of) + 1e-6)))


PLAIN, CLIPPED = reduction(), reduction(0.25)
OWN = [summed([part[rank] for part in PLAIN.shares], 2) for rank in range(2)]
OWN_CLIPPED = [summed([part[rank] for part in CLIPPED.shares], 2) for rank in range(2)]
AVERAGED = [summed(list(part)) for part in PLAIN.shares]
LOCAL = [[summed([part[rank]], 2) for rank in range(2)] for part in PLAIN.shares]
SHARES = [share for part in PLAIN.shares for share in part]
LIMIT = CLIPPED.clip_norm
ALONE = [clipped(own, LIMIT) for own in OWN_CLIPPED]

# What the ranks have, the kind, and a part of its words.
GRADIENTS = {
    "clips alone": (CLIPPED, [summed(ALONE, 0.5)] * 2, Kind.CLIPPED_BY_RANK, "each rank clips"),
    "clips by its norm": (
        CLIPPED,
        [summed([CLIPPED.mean], LIMIT / (norm_of(own) + 1e-6)) for own in OWN_CLIPPED],
        Kind.CLIPPED_BY_RANK,
        "the average is clipped",
    ),
    "not clipped": (CLIPPED, [CLIPPED.mean] * 2, Kind.CLIPPING_MISSING, "not clipped"),
    "own": (PLAIN, OWN, Kind.GRADIENT_NOT_REDUCED, "no all-reduce"),
    "sum": (PLAIN, [summed([PLAIN.mean], 2)] * 2, Kind.SUM_FOR_MEAN, "added up over the ranks"),
    "own divided": (PLAIN, [summed([own], 0.5) for own in OWN], Kind.GRADIENT_NOT_REDUCED, "divided by the number of ranks"),
    "divided": (PLAIN, [summed([PLAIN.mean], 0.5)] * 2, Kind.GRADIENT_SCALED, "once too often"),
    "rank 1": (PLAIN, [OWN[1]] * 2, Kind.GRADIENT_OF_ONE_RANK, "of rank 1's pictures"),
    "last": (PLAIN, [AVERAGED[1]] * 2, Kind.LAST_MICRO_BATCH, "the last micro-batch's alone"),
    "first": (PLAIN, [AVERAGED[0]] * 2, Kind.LAST_MICRO_BATCH, "the first micro-batch's alone"),
    "first reduced": (PLAIN, [summed([AVERAGED[0], LOCAL[1][r]]) for r in range(2)], Kind.ACCUMULATION_NOT_REDUCED, "the first"),
    "last reduced": (PLAIN, [summed([AVERAGED[1], LOCAL[0][r]]) for r in range(2)], Kind.ACCUMULATION_NOT_REDUCED, "the last"),
    "weighted": (
        PLAIN,
        [summed([summed([one], w) for one, w in zip(SHARES, (3, 1, 1, 0.5), strict=True)])] * 2,
        Kind.RANKS_WEIGHTED,
        "on rank 0 and 1 the micro-batches count rank 0's 3 and 1, rank 1's 1 and 0.5 times, expected 1 each",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GRADIENTS)
def test_how_gradients_were_put_together(case):
    made, found, kind, words = GRADIENTS[case]
    right = made.clipped(made.mean)
    hint = mistakes.GRADIENTS.hint(of_every(found, [right] * 2, made))
    assert hint[0] is kind and words in hint[1]


def test_three_micro_batches_added_up_are_no_sum_over_the_ranks():
    made = reduction(parts=3)
    kind, words = mistakes.GRADIENTS.hint(of_every([summed([made.mean], 3)] * 2, [made.mean] * 2, made))
    assert (kind, words) == (Kind.SUM_FOR_MEAN, "added up over the micro-batches, not averaged")


def test_without_shares_the_whole_alone_is_known():
    made = Reduction(2, state(), [], None)
    named = [mistakes.GRADIENTS.hint(of_every([summed([made.mean], f)] * 2, [made.mean] * 2, made))[0] for f in (2, 0.5, 3)]
    assert named == [Kind.SUM_FOR_MEAN, Kind.GRADIENT_SCALED, Kind.UNKNOWN]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_hypothesis_must_explain_every_wrong_tensor_of_every_wrong_rank(rank):
    right = [PLAIN.mean] * 2
    assert mistakes.GRADIENTS.hint(of_every(OWN, right, PLAIN, [rank]))[0] is Kind.GRADIENT_NOT_REDUCED
    other = {**OWN[rank], "b": OWN[rank]["b"] * 1.001}
    assert mistakes.GRADIENTS.hint(of_every([other] * 2, right, PLAIN, [rank]))[0] is not Kind.GRADIENT_NOT_REDUCED


NOISY = {name: array + 0.1 * RNG.normal(size=array.shape) for name, array in PLAIN.mean.items()}


@pytest.mark.parametrize("change", [{}, {"b": np.zeros(3)}, {"b": np.full(40, np.nan)}])
def test_what_no_mistake_gives_has_no_name(change):
    assert mistakes.GRADIENTS.hint(of_every([NOISY | change] * 2, [PLAIN.mean] * 2, PLAIN)) == NO_HINT
    assert mistakes.GRADIENTS.hint(of_every([{"a": NOISY["a"]}] * 2, [PLAIN.mean] * 2, PLAIN)) == NO_HINT


def test_whose_statistics_and_averages_they_are():
    own = [state(), state()]
    assert mistakes.STATISTICS_OF_RANKS.hint(of_every([own[0]] * 2, own, ranks=[1])) == (
        Kind.STATISTICS_OF_ONE_RANK,
        "rank 0's statistics",
    )
    mean = summed(own, 0.5)
    for family, what in ((mistakes.MERGED_STATISTICS, "statistics"), (mistakes.MERGED_AVERAGES, "averages")):
        for found, kind, words in (
            (own, Kind.STATISTICS_OF_ONE_RANK, f"each rank keeps its own {what}: they are not averaged"),
            ([own[1]] * 2, Kind.STATISTICS_OF_ONE_RANK, f"rank 1's {what}, not the mean of the ranks'"),
            ([summed(own)] * 2, Kind.SUM_FOR_MEAN, f"the {what} are added up, not averaged"),
            ([summed(own, 0.7)] * 2, *NO_HINT),
        ):
            assert family.hint(of_every(found, [mean] * 2, own)) == (kind, words)


def test_what_a_moving_average_holds_instead():
    weights, earlier, right = ([state(), state()] for _ in range(3))
    known, one = (weights, earlier), Kind.AVERAGE_OF_ONE_RANK
    named = lambda found, ranks, known=known: mistakes.AVERAGE_OF_RANKS.hint(of_every(found, right, known, ranks))  # noqa: E731
    assert named([{}, {}], [0, 1]) == (Kind.MOVING_AVERAGE, "no moving average is kept")
    assert named([right[0], {}], [1]) == (one, "there is no moving average on these ranks")
    assert named(weights, [0, 1]) == (Kind.MOVING_AVERAGE, "it holds the weights themselves")
    assert named(earlier, [1]) == (one, "it has not been updated since the update before")
    assert named(earlier, [1], (weights, [])) == NO_HINT


def spread():
    batches = RNG.normal(size=(2, 12, 4)) * [[[1.0]], [[2.0]]] + [[[0.0]], [[1.5]]]
    start = {"running_mean": RNG.normal(size=4), "running_var": 1 + RNG.random(4)}
    both = batches.reshape(-1, 4)
    return batches, Spread(batches.mean(1), batches.var(1), both.mean(0), both.var(0), 24, 0.25, start)


def test_whose_batch_a_synchronised_layer_takes():
    batches, s = spread()
    after = lambda mean, var: {n: 0.75 * s.start[n] + 0.25 * v for n, v in (("running_mean", mean), ("running_var", var))}  # noqa: E731
    right, no = after(s.mean, batches.reshape(-1, 4).var(0, ddof=1)), Kind.STATISTICS_NOT_SYNCHRONISED
    unbiased = batches.var(1, ddof=1)
    for found, kind, words in (
        ([after(s.means[r], unbiased[r]) for r in range(2)], no, "each rank normalises with its own batch"),
        ([after(s.mean, unbiased[r]) for r in range(2)], no, "each rank takes the variance of its own batch"),
        ([after(s.mean, s.variances[r] * 24 / 23) for r in range(2)], no, "each rank takes the variance of its own batch"),
        ([after(s.mean, ((batches[r] - s.mean) ** 2).mean(0) * 24 / 23) for r in range(2)], no, "each rank takes its own batch's"),
        ([after(s.mean, unbiased.mean(0))] * 2, no, "the ranks' variances are averaged"),
        ([after(s.mean, s.variances.mean(0) * 24 / 23)] * 2, no, "the ranks' variances are averaged"),
        ([after(s.mean, s.variance * 12 / 11)] * 2, Kind.UNBIASED_VARIANCE, "counts one rank's values"),
        ([after(s.means[0], unbiased[0])] * 2, Kind.STATISTICS_OF_ONE_RANK, "of rank 0's batch"),
        ([after(s.mean, s.variance * 2)] * 2, *NO_HINT),
    ):
        names = {rank: [n for n in right if not np.allclose(found[rank][n], right[n])] for rank in range(2)}
        wrong = {rank: of_rank for rank, of_rank in names.items() if of_rank}
        hint = mistakes.SYNCHRONISED.hint(WrongTensors(found, [right] * 2, wrong, s))
        assert hint[0] is kind and words in hint[1], hint


def test_which_pictures_ranks_see():
    right, earlier = ([np.array(rows) for rows in both] for both in (([[0, 1]], [[2, 3]]), ([[2, 1]], [[3, 0]])))
    named = lambda found, wrong=(0, 1), earlier=earlier: mistakes.PICTURES.hint(found, right, wrong, earlier)[0]  # noqa: E731
    assert named([right[0]] * 2, [1]) is Kind.NOT_SHARDED
    assert named(earlier) is Kind.NOT_RESHUFFLED
    assert named([np.array([[0, 3]]), right[1]], [0]) is Kind.SHARDS_OVERLAP
    assert named([right[0][:, ::-1], right[1][:, ::-1]]) is Kind.ORDER
    assert named(right[::-1]) is Kind.UNKNOWN
    assert named([np.array([[4, 5]]), np.array([[6, 7]])], earlier=[]) is Kind.UNKNOWN


def test_what_is_evaluated_twice_or_never():
    named = lambda *found, size: next(mistakes.EVALUATED.confirmed(found, size), None)  # noqa: E731
    assert named(np.arange(4), np.arange(4, 7), size=7) is None
    twice = named(np.arange(4), np.arange(3, 7), size=7)
    assert (twice.kind, twice.about) == (Kind.PADDING_COUNTED, [1])
    same = named(np.arange(4), np.arange(4), size=4)
    assert (same.kind, same.about) == (Kind.NOT_SHARDED, [1])
    less = named(np.arange(4), np.arange(4, 6), size=7)
    assert (less.hint, less.about) == ((Kind.BATCH_DROPPED, "1 of 7 pictures are left out"), [0, 1])


def test_whose_random_numbers_a_rank_takes():
    right = [RNG.normal(size=(2, 3)) for _ in range(3)]
    swapped = {(rank, source): RNG.normal(size=(2, 3)) for rank in range(3) for source in range(3)}
    drawn = lambda rank, source: swapped[rank, source]  # noqa: E731
    found = [right[0], swapped[1, 0], right[2]]
    words = "the pictures are augmented with the random numbers of rank 0's pictures"
    assert mistakes.AUGMENTED.hint(found, right, [1], drawn) == (Kind.SAME_SEED, words)
    assert mistakes.AUGMENTED.hint([right[0], swapped[0, 1], right[2]], right, [1], drawn) == NO_HINT
    losses, masked = np.array([1.0, 2.0, 3.0]), lambda source: [1.0, 2.5 + source, 3.0]
    assert mistakes.DROPPED.hint([1.0, 4.5, 3.0], losses, [1], masked) == (Kind.SAME_SEED, "the dropout masks are those of rank 2")
    assert mistakes.DROPPED.hint([1.0, 4.5001, 3.0], losses, [1], masked) == NO_HINT


def test_rates_and_counts_of_ranks():
    assert mistakes.RATES.hint(np.array([0.1, 0.2]), np.array([0.1, 0.1]), [1]) == (Kind.LR_SCALED, "2 x the learning rate")
    assert mistakes.RATES.hint(np.array([0.3, 0.2]), np.array([0.1, 0.1]), [0, 1]) == NO_HINT
    own, right = [np.array([1, 3]), np.array([2, 5])], [np.array([3, 8])] * 2
    for family in (mistakes.COUNTS, mistakes.FIGURES_OF_RANKS):
        assert family.hint(own, right, [0, 1], own)[0] is Kind.RANKS_NOT_MERGED
        assert family.hint([own[0], np.array([9, 9])], right, [0, 1], own) == NO_HINT


def test_what_is_known_may_be_given_later():
    wrong = of_every(OWN, [PLAIN.mean] * 2)
    assert mistakes.GRADIENTS.hint(dataclasses.replace(wrong, known=PLAIN))[0] is Kind.GRADIENT_NOT_REDUCED
