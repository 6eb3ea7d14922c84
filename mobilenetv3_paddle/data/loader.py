"""Batches over worker processes and ranks."""

from __future__ import annotations

import atexit
import functools
import signal
from collections.abc import Iterator

import numpy as np
import paddle

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import quiet_opencv
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.run_control import shield_worker
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey, mix_groups, mix_params
from mobilenetv3_paddle.data.dataset import ImageDataset
from mobilenetv3_paddle.data.mixing import mix_batch


def collate(
    samples: list[tuple[np.ndarray, int, SampleKey]], dataset: ImageDataset, mix_group: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stack samples into a batch and mix it where the preset says so.

    Returns:
        images float32 (N, 3, H, W); labels int64 (N,), or float32 (N, classes) where mixed; picture numbers int64 (N,).
    """
    images = np.stack([pixels for pixels, _, _ in samples])
    labels = np.array([label for _, label, _ in samples], dtype=np.int64)
    keys = [key for _, _, key in samples]
    numbers = np.array([key.sample for key in keys], dtype=np.int64)
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
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return images, labels, numbers


@atexit.register
def _let_workers_go() -> None:
    """At exit Python ends workers that still run, and Paddle's SIGCHLD handler would take that for a crash and raise."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _start_worker(worker_id: int) -> None:
    shield_worker()
    quiet_opencv()


class _Guarded(paddle.io.Dataset):
    """A dataset that hands an error over as a sample.

    Paddle raises a worker's exception in a thread of its own, and the loop over the loader then sees only "Blocking
    queue is killed", or waits for ever; torch re-raises it where the loop is.
    """

    def __init__(self, dataset: ImageDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: SampleKey) -> tuple[np.ndarray, int, SampleKey] | Exception:
        try:
            return self.dataset[key]
        except Exception as error:
            return error


def _collate_guarded(samples: list, dataset: ImageDataset, mix_group: int) -> tuple[np.ndarray, ...]:
    errors = [sample for sample in samples if isinstance(sample, Exception)]
    try:
        if errors:
            raise errors[0]
        return collate(samples, dataset, mix_group)
    except UserError as error:
        return (np.frombuffer(b"U" + error.line.encode(), dtype=np.uint8),)
    except Exception as error:
        return (np.frombuffer(b"E" + f"{type(error).__name__}: {error}".encode(), dtype=np.uint8),)


class Loader:
    """Batches of one epoch each time it is iterated.

    Raises, in the loop, a bad picture's ``UserError``, and RuntimeError for anything else that went wrong in a worker.
    """

    def __init__(self, batches: paddle.io.DataLoader) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[paddle.Tensor]]:
        for batch in self._batches:
            if len(batch) == 1:
                text = batch[0].numpy().tobytes().decode()
                raise UserError(text[1:]) if text[0] == "U" else RuntimeError(f"in a loader's worker: {text[1:]}")
            yield batch


def build_loader(dataset: ImageDataset, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None) -> Loader:
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
        paddle.io.DataLoader(
            _Guarded(dataset),
            batch_sampler=plan,
            num_workers=num_workers,
            collate_fn=functools.partial(_collate_guarded, dataset=dataset, mix_group=mix_group or plan.batch_size),
            worker_init_fn=_start_worker,
            places=paddle.CPUPlace(),
        )
    )
