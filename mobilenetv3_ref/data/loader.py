"""Batches over worker processes and ranks."""

from __future__ import annotations

import functools

import torch

from mobilenetv3_common.image import quiet_opencv
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.run_control import shield_worker
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey, mix_groups, mix_params
from mobilenetv3_ref.data.dataset import ImageDataset
from mobilenetv3_ref.data.mixing import mix_batch


def collate(
    samples: list[tuple[torch.Tensor, int, SampleKey]], dataset: ImageDataset, mix_group: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Stack samples into a batch and mix it where the preset says so.

    Returns:
        images float32 (N, 3, H, W); labels int64 (N,), or float32 (N, classes) where mixed; picture numbers int64 (N,).
    """
    images = torch.stack([pixels for pixels, _, _ in samples])
    labels = torch.tensor([label for _, label, _ in samples], dtype=torch.int64)
    keys = [key for _, _, key in samples]
    numbers = torch.tensor([key.sample for key in keys], dtype=torch.int64)
    preset = dataset.preset
    if isinstance(preset, TrainPreset) and preset.mixes:
        parts = [
            mix_batch(
                images[part],
                labels[part],
                mix_params(preset, dataset.seed, keys[0].epoch, group, *images.shape[2:]),
                dataset.index.num_classes,
            )
            for group, part in mix_groups(keys, mix_group)
        ]
        images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return images, labels, numbers


def _start_worker(worker_id: int) -> None:
    shield_worker()
    quiet_opencv()


def build_loader(
    dataset: ImageDataset, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None
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
        worker_init_fn=_start_worker,
    )
