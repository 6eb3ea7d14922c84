"""Several ranks: what has to be equal on all of them, and what must not be."""

from __future__ import annotations

import numpy as np

from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from alignment_doctor.watch.look import Look, Seen

CLOSE = 1e-5  # relative; processors may differ in the last bits


def _apart(look: Look, figure: str) -> list[str]:
    """Ranks whose figures differ from rank 0's, with the first tensors."""
    first = look.ranks[0][figure]
    places = []
    for rank, own in enumerate(look.ranks[1:], 1):
        differs = np.flatnonzero(~np.isclose(own[figure], first, rtol=CLOSE, atol=1e-12, equal_nan=True))
        names = look.names[figure]
        places += [f"{names[n]} on rank {rank}" for n in differs[:1]]
        if len(differs) > 1:
            places.append(f"{len(differs) - 1} more on rank {rank}")
    return places


def _judged(seen: Seen, figure: str, problem: str, sound: str) -> Outcome:
    if not seen.look.ranks:
        return not_applicable("one rank")
    return judged(_apart(seen.look, figure), problem, sound)


@check(
    "watch.rank_start",
    "003 ranks",
    measures="the weights of all ranks before their first update",
    fix="begin from one seed or one file on every rank, or broadcast rank 0's weights",
)
def start(seen: Seen) -> Outcome:
    first = next((look for look in seen.looks if look.update == seen.settings.begun_at + 1 and look.ranks), None)
    if first is None:
        return not_applicable("one rank" if seen.settings.world_size == 1 else "the first update was not seen")
    return judged(_apart(first, "before"), "the ranks begin with different weights", "the ranks begin alike")


@check(
    "watch.rank_gradients",
    "001 module 5",
    "003 ranks",
    measures="the gradients of all ranks before the update",
    fix="train through the wrapper (DistributedDataParallel, DataParallel), not the model inside; let the last pass synchronise",
)
def gradients(seen: Seen) -> Outcome:
    return _judged(seen, "gradients", "the gradients are not averaged over the ranks", "the gradients are equal")


@check(
    "watch.rank_weights",
    "003 ranks",
    measures="the weights of all ranks after the update",
    fix="look for what one rank alone does: an optimizer or a rate of its own, a load, a clipping with its own norm",
)
def weights(seen: Seen) -> Outcome:
    first, look = seen.looks[0], seen.look
    started_apart = first.ranks and first.update == seen.settings.begun_at + 1 and _apart(first, "before")
    if started_apart or (look.ranks and (_apart(look, "gradients") or _apart(look, "rate"))):
        return not_applicable("the ranks began with different weights, or have different gradients or rates")
    return _judged(seen, "after", "the weights of the ranks drift apart", "the weights are equal")


@check(
    "watch.rank_statistics",
    "001 module 2",
    "003 ranks",
    measures="statistics of normalisation on all ranks, where they are computed together",
    fix="use synchronised normalisation for every such layer, with all ranks in its group",
)
def statistics(seen: Seen) -> Outcome:
    if seen.look.ranks and not seen.settings.shared_statistics:
        return not_applicable("each rank has statistics of its own pictures")
    return _judged(seen, "statistics", "the statistics of the ranks drift apart", "the statistics are equal")


@check(
    "watch.rank_rate",
    "002 hp.01",
    "003 ranks",
    measures="the learning rate of all ranks",
    fix="step the schedule on every rank alike",
)
def rate(seen: Seen) -> Outcome:
    return _judged(seen, "rate", "the learning rates of the ranks differ", "the learning rates are equal")


@check(
    "watch.rank_data",
    "002 dp.05",
    "003 ranks",
    measures="the pictures of all ranks in the same update",
    fix="give each rank its share: DistributedSampler in torch, DistributedBatchSampler in Paddle",
)
def data(seen: Seen) -> Outcome:
    look = seen.look
    if not look.ranks:
        return not_applicable("one rank")
    shown = [tuple(own["data"].tolist()) for own in look.ranks]
    if not np.isfinite(shown).all():
        return not_applicable("the pictures were not seen")
    where = [f"ranks {shown.index(one)} and {rank}" for rank, one in enumerate(shown) if shown.index(one) < rank]
    return found("ranks train on the same pictures", where) if where else nothing("each rank has other pictures")
