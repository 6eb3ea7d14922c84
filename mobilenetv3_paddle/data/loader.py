"""Batches over worker processes and ranks."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import paddle
from paddle.base import core
from paddle.io import multiprocess_utils
from paddle.io.dataloader.dataloader_iter import _DataLoaderIterMultiProcess

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import quiet_opencv
from mobilenetv3_common.loader_workers import forked, has_begun, start_worker, supervised
from mobilenetv3_common.preprocess import normalize_batch
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.samples import Samples, collate
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey
from mobilenetv3_paddle.data.dataset import ImageDataset

LOOKS = 0.1  # seconds after which the thread that reads the workers' batches looks whether it is still needed


class _Batches(_DataLoaderIterMultiProcess):
    """Paddle's iterator, whose reading thread ends without a traceback: the loop hears of the error as a queue that was killed."""

    def _init_workers(self) -> None:
        self._timeout = LOOKS  # Paddle's five seconds would pass before the thread sees that its loop has ended

        def fork() -> None:
            _forget(self)
            super(_Batches, self)._init_workers()

        forked(fork, lambda: getattr(self, "_workers", ()))

    def _thread_loop(self, place: Any) -> None:
        try:
            super()._thread_loop(place)
        except Exception as error:
            self.wrong = error
            self._exit_thread_unexpectedly()


def _start_worker(worker_id: int) -> None:
    """As ``start_worker``; it has begun where a new thread, such as the one that sends its batches, can have and free a tensor."""
    try:
        start_worker(worker_id)
        freeing = threading.Thread(target=_free_a_tensor)
        freeing.start()
        freeing.join()
    finally:
        has_begun()


def _free_a_tensor() -> None:
    core.DenseTensor().set(np.zeros(1, np.float32), core.CPUPlace())


def _forget(iterator: Any) -> None:
    core._erase_process_pids(id(iterator))  # type: ignore[attr-defined]


def _stop(iterator: Any) -> None:
    for queue in getattr(iterator, "_indices_queues", ()):
        queue.close()
    if hasattr(iterator, "_thread"):  # else it was not made to the end
        iterator._exit_thread_expectedly()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of the log is not Paddle's own of a worker that has ended, of which the loop says more."""
    return not (record.module == "dataloader_iter" and "exit unexpectedly" in str(record.msg))


logging.getLogger().addFilter(_is_news)


class _Guarded(paddle.io.Dataset):
    """A dataset that hands an error over as a sample.

    Paddle raises a worker's exception in a thread of its own, and the loop over the loader then sees only "Blocking
    queue is killed", or waits for ever; torch re-raises it where the loop is.
    """

    def __init__(self, dataset: Samples) -> None:
        self.dataset = dataset

    def __getitem__(self, key: SampleKey) -> tuple[np.ndarray, int, SampleKey] | Exception:
        try:
            return self.dataset[key]
        except Exception as error:
            return error


def _collate_guarded(samples: list, dataset: Samples, mix_group: int) -> tuple[np.ndarray, ...]:
    errors = [sample for sample in samples if isinstance(sample, Exception)]
    try:
        if errors:
            raise errors[0]
        return collate(samples, dataset, mix_group)
    except UserError as error:
        return (np.frombuffer(b"U" + error.line.encode(errors="surrogateescape"), dtype=np.uint8),)
    except Exception as error:
        return (np.frombuffer(b"E" + f"{type(error).__name__}: {error}".encode(errors="surrogateescape"), dtype=np.uint8),)


def _sound(batch: list[paddle.Tensor]) -> list[paddle.Tensor]:
    """A batch; an error that a worker handed over in its place is raised."""
    if len(batch) == 1:
        text = batch[0].numpy().tobytes().decode(errors="surrogateescape")
        raise UserError(text[1:]) if text[0] == "U" else RuntimeError(f"in a loader's worker: {text[1:]}")
    return batch


class Loader:
    """Batches of one epoch each time it is iterated.

    Raises, in the loop, a bad picture's ``UserError``, and RuntimeError for anything else that went wrong in a worker.

    Args:
        batches: of the workers.
        preset: by which their pictures are still to be normalised, in a thread beside the loop; None where they are.
    """

    def __init__(self, batches: paddle.io.DataLoader, preset: EvalPreset | TrainPreset | None = None) -> None:
        self._batches = batches
        self._preset = preset

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[paddle.Tensor]]:
        return self._received() if self._preset is None else self._normalised(self._preset)

    def _received(self) -> Iterator[list[paddle.Tensor]]:
        if self._batches.num_workers == 0:
            batches = iter(self._batches)
            try:
                yield from map(_sound, batches)
            finally:
                _stop(batches)  # else the thread that reads waits for ever for room, and keeps what it has read
            return
        with contextlib.closing(supervised(_Batches, self._batches, multiprocess_utils, _forget, _stop)) as received:
            yield from map(_sound, received)

    def _normalised(self, preset: EvalPreset | TrainPreset) -> Iterator[list[paddle.Tensor]]:
        """One batch behind the workers' own: while a batch is used, the next is normalised."""
        received = self._received()
        ready: tuple[Future[np.ndarray], list[paddle.Tensor]] | None = None
        wrong: Exception | None = None
        with ThreadPoolExecutor(1, "normalise") as beside:
            while True:
                following = None
                try:
                    pictures, *others = next(received)
                    following = beside.submit(normalize_batch, pictures.numpy(), preset), others
                except StopIteration:
                    pass
                except Exception as error:  # of the batch after the one that is ready, which is good
                    wrong = error
                if ready is not None:
                    yield [paddle.utils.dlpack.from_dlpack(ready[0].result()), *ready[1]]
                if wrong is not None:
                    raise wrong
                if following is None:
                    return
                ready = following


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
    preset = None
    # Not a class derived from it, whose own transforms may normalise.
    if num_workers > 0 and type(dataset) is ImageDataset and dataset.ends_in_normalisation:
        dataset, preset = dataset.unnormalised(), dataset.preset
    return Loader(
        paddle.io.DataLoader(
            _Guarded(dataset),
            batch_sampler=plan,
            num_workers=num_workers,
            collate_fn=functools.partial(_collate_guarded, dataset=dataset, mix_group=mix_group or plan.batch_size),
            worker_init_fn=_start_worker,
            places=paddle.CPUPlace(),
        ),
        preset,
    )
