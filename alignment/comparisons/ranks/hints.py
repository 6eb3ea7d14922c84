"""What a difference between ranks looks like: each hypothesis is computed, and has to give what the ranks have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm
from alignment.comparisons.ranks.expected import Expected, RightUpdate, Spread, norm_of, summed
from alignment.comparisons.ranks.plan import RankCase
from alignment.finding import NO_HINT, Hint
from alignment.kinds import Kind
from alignment.project import DataPart
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.sampling import SampleKey, sample_params
from mobilenetv3_common.weights import State

Misses = Mapping[int, Sequence[str]]  # rank -> names of its tensors that are wrong
Candidate = tuple[Kind, str, Callable[[int], State]]  # the last gives what a rank would have


def explains(candidate: Callable[[int], State], found: Sequence[State], wrong: Misses) -> bool:
    """Whether a hypothesis gives every wrong tensor of every rank."""
    for rank, names in wrong.items():
        state = candidate(rank)
        rounding = 1e-13 * max(norm(array) for array in state.values())
        for name in names:
            if name not in found[rank] or name not in state or found[rank][name].shape != state[name].shape:
                return False
            if not distance(found[rank][name], state[name]) <= tolerance.RANKS_EXPLAINED * norm(state[name]) + rounding:
                return False
    return True


def first_that_explains(candidates: Iterator[Candidate], found: Sequence[State], wrong: Misses) -> Hint:
    """The first hypothesis that gives what was found. None of them is the right result, which the wrong tensors do not have."""
    for kind, words, candidate in candidates:
        if explains(candidate, found, wrong):
            return kind, words
    return NO_HINT


# --- gradients -------------------------------------------------------------------------------------------------------------


def gradient_hint(case: RankCase, update: RightUpdate, found: Sequence[State], wrong: Misses) -> Hint:
    """How the ranks' gradients were put together."""
    if not update.shares:
        times, mean = len(found), update.gradients
        scaled: tuple[Candidate, ...] = (
            (Kind.SUM_FOR_MEAN, "added up over the ranks, not averaged", lambda rank: summed([mean], times)),
            (Kind.GRADIENT_SCALED, "divided by the number of ranks once too often", lambda rank: summed([mean], 1 / times)),
        )
        return first_that_explains(iter(scaled), found, wrong)
    hint = first_that_explains(_reductions(case, update), found, wrong)
    return hint if hint[0] is not Kind.UNKNOWN else _weights_hint(update, found, wrong)


def _reductions(case: RankCase, update: RightUpdate) -> Iterator[Candidate]:
    shares, clip_norm = update.shares, case.config.clip_norm
    ranks, parts = len(shares[0]), len(shares)
    mean = update.mean_gradient()
    own = [summed([of_ranks[rank] for of_ranks in shares], ranks) for rank in range(ranks)]

    def clipped(state: State, size: float | None = None) -> State:
        if clip_norm is None:
            return state
        return summed([state], min(1.0, clip_norm / ((norm_of(state) if size is None else size) + 1e-6)))

    if clip_norm is not None:
        local = [clipped(state) for state in own]
        by_rank = Kind.CLIPPED_BY_RANK
        yield (
            by_rank,
            "each rank clips by the norm of its own gradients before they are averaged",
            lambda r: summed(local, 1 / ranks),
        )
        yield by_rank, "the average is clipped by the norm of each rank's own gradients", lambda r: clipped(mean, norm_of(own[r]))
        yield Kind.CLIPPING_MISSING, "the gradients are not clipped", lambda r: mean
    yield Kind.GRADIENT_NOT_REDUCED, "each rank has the gradients of its own pictures: no all-reduce", lambda r: clipped(own[r])
    yield Kind.SUM_FOR_MEAN, "added up over the ranks, not averaged", lambda r: clipped(summed([mean], ranks))
    yield (
        Kind.GRADIENT_NOT_REDUCED,
        "each rank's own, divided by the number of ranks",
        lambda r: clipped(summed([own[r]], 1 / ranks)),
    )
    yield Kind.GRADIENT_SCALED, "divided by the number of ranks once too often", lambda r: clipped(summed([mean], 1 / ranks))
    for source in range(ranks):
        yield Kind.GRADIENT_OF_ONE_RANK, f"the gradients of rank {source}'s pictures", lambda r, q=source: clipped(own[q])  # type: ignore[misc]
    if parts == 1:
        return
    reduced = [summed(of_ranks) for of_ranks in shares]
    local_parts = [[summed([of_ranks[rank]], ranks) for rank in range(ranks)] for of_ranks in shares]
    last, first = Kind.LAST_MICRO_BATCH, "the first micro-batch's alone: the later ones are lost"
    yield last, "the last micro-batch's alone: the earlier ones are lost", lambda r: clipped(reduced[-1])
    yield last, first, lambda r: clipped(reduced[0])
    yield Kind.SUM_FOR_MEAN, "added up over the micro-batches, not averaged", lambda r: clipped(summed([mean], parts))
    only = Kind.ACCUMULATION_NOT_REDUCED
    yield (
        only,
        "the first micro-batch is averaged over the ranks, the later ones stay each rank's own",
        lambda r: clipped(summed([reduced[0], *(part[r] for part in local_parts[1:])])),
    )
    yield (
        only,
        "the last micro-batch is averaged over the ranks, the earlier ones stay each rank's own",
        lambda r: clipped(summed([reduced[-1], *(part[r] for part in local_parts[:-1])])),
    )


def _weights_hint(update: RightUpdate, found: Sequence[State], wrong: Misses) -> Hint:
    """With which weights the micro-batches of the ranks make up what each rank has."""
    told: dict[str, list[int]] = {}
    for rank, names in wrong.items():
        if not all(name in found[rank] for name in names):
            return NO_HINT
        columns = [np.concatenate([share[name].ravel() for name in names]) for of_ranks in update.shares for share in of_ranks]
        target = np.concatenate([found[rank][name].ravel() for name in names])
        if target.size < 8 * len(columns) or not np.isfinite(target).all():
            return NO_HINT
        basis = np.stack(columns, axis=1)
        weights = np.linalg.lstsq(basis, target, rcond=None)[0]
        if not norm(basis @ weights - target) <= tolerance.RANKS_EXPLAINED * norm(target):
            return NO_HINT
        table = np.round(weights, 6).reshape(len(update.shares), -1) + 0.0  # no minus before a zero
        of_ranks = [f"rank {q}'s {' and '.join(f'{weight:g}' for weight in table[:, q])}" for q in range(table.shape[1])]
        told.setdefault(", ".join(of_ranks), []).append(rank)
    words = [f"on rank {' and '.join(map(str, ranks))} the micro-batches count {text} times" for text, ranks in told.items()]
    return Kind.RANKS_WEIGHTED, f"{'; '.join(words)}, expected 1 each"


# --- statistics and averages -----------------------------------------------------------------------------------------------


def statistics_hint(right: Sequence[State], found: Sequence[State], wrong: Misses) -> Hint:
    """Whose statistics the ranks have after an update, where each should have its own."""
    one = Kind.STATISTICS_OF_ONE_RANK
    candidates: list[Candidate] = [(one, f"rank {q}'s statistics", lambda rank, q=q: right[q]) for q in range(len(right))]  # type: ignore[misc]
    return first_that_explains(iter(candidates), found, wrong)


def merged_hint(own: Sequence[State], found: Sequence[State], wrong: Misses, what: str) -> Hint:
    """Whose statistics or averages the ranks have where all should have the mean."""
    one = Kind.STATISTICS_OF_ONE_RANK
    candidates: list[Candidate] = [(one, f"each rank keeps its own {what}: they are not averaged", lambda rank: own[rank])]
    for source in range(len(own)):
        candidates.append((one, f"rank {source}'s {what}, not the mean of the ranks'", lambda rank, q=source: own[q]))  # type: ignore[misc]
    candidates.append((Kind.SUM_FOR_MEAN, f"the {what} are added up, not averaged", lambda rank: summed(list(own))))
    return first_that_explains(iter(candidates), found, wrong)


def average_hint(expected: Expected, number: int, found: Sequence[State], wrong: Misses) -> Hint:
    """What a wrong moving average is instead."""
    kind = Kind.MOVING_AVERAGE if len(wrong) == len(found) else Kind.AVERAGE_OF_ONE_RANK
    if all(not found[rank] for rank in wrong):
        return (
            kind,
            "there is no moving average on these ranks" if kind is Kind.AVERAGE_OF_ONE_RANK else "no moving average is kept",
        )
    now = expected.updates[number]
    candidates: list[Candidate] = [
        (kind, "it holds the weights themselves", lambda rank: {**now.weights, **now.statistics[rank]}),
    ]
    if number:
        earlier = expected.updates[number - 1].averages
        candidates.append((kind, "it has not been updated since the update before", lambda rank: earlier[rank]))
    return first_that_explains(iter(candidates), found, wrong)


def synchronised_hint(expected: Expected, found: Sequence[State], wrong: Misses) -> tuple[str, Hint]:
    """The first BatchNorm, in the order of computation, whose statistics are wrong, and whose they are.

    Returns:
        Its path, ``""`` where it cannot be said; and the hint.
    """
    bad = {name.rpartition(".")[0] for names in wrong.values() for name in names}
    layer = next((path for path in expected.spreads if path in bad), "")
    if not layer:
        return "", NO_HINT
    spread, own = (
        expected.spreads[layer],
        {rank: [n for n in names if n.rpartition(".")[0] == layer] for rank, names in wrong.items()},
    )
    ranks = len(spread.means)
    here = spread.count // ranks

    def running(mean: np.ndarray, variance: np.ndarray, count: int, spread: Spread = spread) -> State:
        kept = {
            n: expected.start[f"{layer}.{n}"].astype(np.float64) * (1 - spread.momentum) for n in ("running_mean", "running_var")
        }
        taken = {"running_mean": mean, "running_var": variance * (count / (count - 1))}
        return {f"{layer}.{name}": kept[name] + taken[name] * spread.momentum for name in kept}

    no, one = Kind.STATISTICS_NOT_SYNCHRONISED, Kind.STATISTICS_OF_ONE_RANK
    candidates: list[Candidate] = [
        (no, "each rank normalises with its own batch", lambda r: running(spread.means[r], spread.variances[r], here)),
        (no, "each rank takes the variance of its own batch", lambda r: running(spread.mean, spread.variances[r], here)),
        (no, "each rank takes the variance of its own batch", lambda r: running(spread.mean, spread.variances[r], spread.count)),
    ]
    around = (spread.variances + spread.means**2) - 2 * spread.means * spread.mean + spread.mean**2  # about the common mean
    candidates.append(
        (
            no,
            "each rank takes its own batch's variance, about the common mean",
            lambda r: running(spread.mean, around[r], spread.count),
        )
    )
    for count in (here, spread.count):
        words = "the ranks' variances are averaged: the spread of their means is left out"
        candidates.append((no, words, lambda r, c=count: running(spread.mean, spread.variances.mean(0), c)))  # type: ignore[misc]
    words = "the variance's factor n / (n - 1) counts one rank's values"
    candidates.append((Kind.UNBIASED_VARIANCE, words, lambda r: running(spread.mean, spread.variance, here)))
    for q in range(ranks):
        words = f"every rank takes the statistics of rank {q}'s batch"
        candidates.append((one, words, lambda r, q=q: running(spread.means[q], spread.variances[q], here)))  # type: ignore[misc]
    return layer, first_that_explains(iter(candidates), found, {rank: names for rank, names in own.items() if names})


# --- pictures --------------------------------------------------------------------------------------------------------------


def pictures_hint(expected: Expected, number: int, found: Sequence[np.ndarray], wrong: Sequence[int]) -> Hint:
    """Which pictures the ranks see instead of their own: arrays of picture numbers (micro-batches, pictures) by rank."""
    right = [np.stack([part[rank] for part in expected.updates[number].labels]) for rank in range(len(found))]
    for source in range(len(found)):
        if all(source != rank and np.array_equal(found[rank], right[source]) for rank in wrong):
            return Kind.NOT_SHARDED, f"the pictures are those of rank {source}: the batches are not shared out"
    earlier = expected.updates[0].labels
    if number and all(np.array_equal(found[rank], np.stack([part[rank] for part in earlier])) for rank in wrong):
        return Kind.NOT_RESHUFFLED, "the order is that of the first epoch: it does not change with the epoch"
    seen = np.concatenate([array.ravel() for array in found])
    repeated = seen.size - np.unique(seen).size
    if repeated:
        return Kind.SHARDS_OVERLAP, f"{repeated} of the {seen.size} pictures of this update are seen more than once"
    if all(np.array_equal(np.sort(found[rank].ravel()), np.sort(right[rank].ravel())) for rank in wrong):
        return Kind.ORDER, "the right pictures in another order"
    return NO_HINT


def pixels_hint(
    data: DataPart,
    case: RankCase,
    index: DatasetIndex,
    update: RightUpdate,
    found: Sequence[Sequence[np.ndarray]],
    wrong: Sequence[int],
) -> Hint:
    """Whether ranks augment their pictures with the random numbers of another rank's pictures.

    Args:
        data: the reference's.
        case: its recipe.
        index: the training pictures.
        update: as it should be.
        found: pixels (N, 3, H, W) of each micro-batch, by rank.
        wrong: ranks whose pixels are wrong.
    """
    preset = case.config.train_preset

    def pixels(sample: int, drawn_for: int) -> np.ndarray:
        image = decode_image(index.path(sample), case.config.image_backend)
        params = sample_params(preset, case.config.seed, SampleKey(update.epoch, drawn_for, 0), image.height, image.width)
        return np.asarray(data.train_transform(image, preset, params))

    for source in range(len(found)):
        same = True
        for rank in wrong:
            for part, of_ranks in enumerate(update.labels):
                pairs = zip(of_ranks[rank], of_ranks[source], strict=True)
                made = np.stack([pixels(int(own), int(other)) for own, other in pairs])
                same = same and source != rank and np.array_equal(found[rank][part], made)
        if same:
            return Kind.SAME_SEED, f"the pictures are augmented with the random numbers of rank {source}'s pictures"
    return NO_HINT


def evaluated_hint(found: Sequence[np.ndarray], size: int) -> tuple[list[int], Hint]:
    """Ranks that evaluate what another evaluates too, or all where pictures are missing; and what that looks like."""
    seen: set[int] = set()
    blamed = []
    for rank, numbers in enumerate(found):
        own = [int(number) for number in numbers]
        if len(set(own)) < len(own) or seen & set(own):
            blamed.append(rank)
        seen |= set(own)
    total = sum(len(numbers) for numbers in found)
    if blamed and all(np.array_equal(found[rank], found[0]) for rank in blamed):
        return blamed, (Kind.NOT_SHARDED, f"it evaluates rank 0's pictures: {total} pictures for {size}")
    if blamed:
        return blamed, (Kind.PADDING_COUNTED, f"pictures are repeated and counted: {total} for {size}")
    missing = size - len(seen)
    return (
        (list(range(len(found))), (Kind.BATCH_DROPPED, f"{missing} of {size} pictures are left out")) if missing else ([], NO_HINT)
    )
