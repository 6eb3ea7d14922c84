"""Batches over worker processes and ranks."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from mobilenetv3_common.image import quiet_opencv
from mobilenetv3_common.loader_workers import start_worker, supervised
from mobilenetv3_common.samples import Samples, collate
from mobilenetv3_common.sampling import BatchPlan, RunPlan


def _forget(iterator: Any) -> None:
    if getattr(iterator, "_worker_pids_set", False):
        iterator._worker_pids_set = False
        signal_handling._remove_worker_pids(id(iterator))


def _stop(iterator: Any) -> None:
    for queue in getattr(iterator, "_index_queues", ()):
        queue.close()


class Loader(torch.utils.data.DataLoader):
    """A loader whose workers are ended on every way out of a loop, and whose worker's end is one line."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self.num_workers == 0:
            return super().__iter__()
        return supervised(_MultiProcessingDataLoaderIter, self, signal_handling, _forget, _stop)


def build_loader(dataset: Samples, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None) -> Loader:
    """A loader of (images, labels, picture numbers) batches as tensors, in the plan's order.

    Args:
        dataset: what makes a sample.
        plan: the batches of this rank, of one epoch (call its ``set_epoch`` before each) or of a whole run.
        num_workers: worker processes; 0 loads in this process.
        mix_group: samples a mixing group; the batch size by default. N ranks give what one process with the N-fold
            batch gives when both use the same group.
    """
    quiet_opencv()
    return Loader(
        dataset,
        batch_sampler=plan,
        num_workers=num_workers,
        collate_fn=functools.partial(collate, dataset=dataset, mix_group=mix_group or plan.batch_size),
        worker_init_fn=start_worker,
    )
