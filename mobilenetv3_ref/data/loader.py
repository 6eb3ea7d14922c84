"""Batches over worker processes and ranks."""

from __future__ import annotations

import functools

import torch

from mobilenetv3_common.image import quiet_opencv
from mobilenetv3_common.run_control import start_worker
from mobilenetv3_common.samples import Samples, collate
from mobilenetv3_common.sampling import BatchPlan, RunPlan


def build_loader(
    dataset: Samples, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None
) -> torch.utils.data.DataLoader:
    """A loader of (images, labels, picture numbers) batches as tensors, in the plan's order.

    Args:
        dataset: what makes a sample.
        plan: the batches of this rank, of one epoch (call its ``set_epoch`` before each) or of a whole run.
        num_workers: worker processes; 0 loads in this process.
        mix_group: samples a mixing group; the batch size by default. N ranks give what one process with the N-fold
            batch gives when both use the same group.
    """
    quiet_opencv()
    return torch.utils.data.DataLoader(
        dataset,
        batch_sampler=plan,
        num_workers=num_workers,
        collate_fn=functools.partial(collate, dataset=dataset, mix_group=mix_group or plan.batch_size),
        worker_init_fn=start_worker,
    )
