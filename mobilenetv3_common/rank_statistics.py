"""BatchNorm statistics of several ranks: each rank's own in mid-epoch, their mean from each epoch's end on.

Without synchronised BatchNorm a rank's running statistics, and their moving average, are those of its own samples. They are merged
at one place of every run alike, the end of an epoch. A checkpoint at any other place holds the means, for whoever evaluates it, and
each rank's own beside them: merging there would change what the run computes from then on.
"""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np

from mobilenetv3_common.checkpoint import Checkpoint
from mobilenetv3_common.parts import MovingAverage, Network, Ranks
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training_backend import Arrays, TrainingBackend
from mobilenetv3_common.weights import check_fit, is_statistic

_OWN = re.compile(r"rank(\d+)/(.+)", re.DOTALL)


class Ranked(Protocol):
    """What of a ``Run`` has statistics."""

    @property
    def backend(self) -> TrainingBackend: ...
    @property
    def config(self) -> TrainConfig: ...
    @property
    def ranks(self) -> Ranks: ...
    @property
    def model(self) -> Network: ...
    @property
    def average(self) -> MovingAverage: ...


def statistics_of_ranks(run: Ranked) -> Arrays:
    """The statistics in which ranks differ: ``model/name`` or ``ema/name`` -> float32 (ranks, *shape). Every rank has to call it.

    It changes nothing. It is empty where all ranks have the same: after a merge, with synchronised BatchNorm, on one rank.
    """
    if run.config.sync_bn or run.ranks.world_size == 1:
        return {}
    own = _statistics(run)
    if not own:
        return {}
    flat = np.concatenate([array.ravel() for array in own.values()])
    rows = np.zeros((run.ranks.world_size, flat.size))
    rows[run.ranks.rank] = flat
    rows = run.ranks.sum(rows)
    parts = np.split(rows, np.cumsum([array.size for array in own.values()])[:-1], axis=1)
    return {
        name: part.reshape(-1, *array.shape).astype(array.dtype)
        for (name, array), part in zip(own.items(), parts, strict=True)
        if (part != part[0]).any()
    }


def means(statistics: Arrays) -> Arrays:
    """The mean over the ranks of what ``statistics_of_ranks`` gives; float64 on the way."""
    return {name: rows.mean(0, dtype=np.float64).astype(rows.dtype) for name, rows in statistics.items()}


def merge_statistics(run: Ranked) -> None:
    """Where ranks have BatchNorm statistics of their own: replace them, and those of the moving average, by the ranks' means.

    Every rank has to call it. Running averages and moving averages are linear, so a run goes on as if it had kept the means. To
    merge a second time changes nothing.
    """
    statistics = statistics_of_ranks(run)
    if not statistics:
        return
    run.backend.average_statistics(run.model, run.ranks)
    merged = {name.removeprefix("ema/"): array for name, array in means(statistics).items() if name.startswith("ema/")}
    if merged:
        run.average.load({**run.average.arrays(), **merged})


def add_statistics(checkpoint: Checkpoint, statistics: Arrays) -> None:
    """Put into a checkpoint the means, as the model's and the average's statistics, and every rank's own as ``rankN/...``."""
    checkpoint.arrays |= means(statistics)
    for name, rows in statistics.items():
        checkpoint.arrays |= {f"rank{rank}/{name}": row for rank, row in enumerate(rows)}


def restore_statistics(run: Ranked, checkpoint: Checkpoint, source: str) -> int:
    """Give this rank its own statistics from a checkpoint, after everything else, and after the model is wrapped for several ranks.

    Where the checkpoint is of another number of ranks, each goes on with the means that it holds.

    Returns:
        Of how many ranks the statistics were, where they are not this run's ranks; else 0.

    Raises:
        UserError: a rank's statistics are missing, or do not fit the model.
    """
    held = [(int(found[1]), found[2]) for name in checkpoint.arrays if (found := _OWN.fullmatch(name))]
    if not held:
        return 0
    if (ranks := max(rank for rank, _ in held) + 1) != run.ranks.world_size:
        return ranks
    names = {name for _, name in held}
    wanted = {name: array.shape for name, array in _statistics(run).items() if name in names}
    own: Arrays = {}
    for rank in range(run.ranks.world_size):  # on every rank alike, so that all of them refuse
        theirs = checkpoint.part(f"rank{rank}")
        shapes = {name: array.shape for name, array in theirs.items()}
        check_fit(shapes, wanted, f"the statistics of rank {rank} in checkpoint {source}")
        own = theirs if rank == run.ranks.rank else own
    _put(run, own, source)
    return 0


def _statistics(run: Ranked) -> Arrays:
    kinds = {"model": run.backend.model_arrays(run.model), "ema": run.average.arrays()}
    return {f"{kind}/{name}": array for kind, arrays in kinds.items() for name, array in arrays.items() if is_statistic(name)}


def _put(run: Ranked, own: Arrays, source: str) -> None:
    of_model, of_average = ({n.removeprefix(k): a for n, a in own.items() if n.startswith(k)} for k in ("model/", "ema/"))
    run.backend.load_model_arrays(run.model, {**run.backend.model_arrays(run.model), **of_model}, source)
    if of_average:
        run.average.load({**run.average.arrays(), **of_average})
