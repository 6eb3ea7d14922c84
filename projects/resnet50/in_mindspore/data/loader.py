"""Batches over worker threads."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import mindspore.dataset
import numpy as np
from mindspore import Tensor

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import quiet_opencv
from mobilenetv3_common.samples import Samples, collate
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey

COLUMNS = ["images", "labels", "numbers"]


class _Batches:
    """The batches of a plan as rows of arrays, by their number; an error is handed over as a row of its own.

    MindSpore raises a worker's exception as a RuntimeError with the whole pipeline's state in its text.
    """

    def __init__(self, dataset: Samples, keys: list[list[SampleKey]], mix_group: int) -> None:
        self.dataset, self.keys, self.mix_group = dataset, keys, mix_group

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, number: int) -> tuple[np.ndarray, ...]:
        try:
            return collate([self.dataset[key] for key in self.keys[number]], self.dataset, self.mix_group)
        except UserError as error:
            return _told("U", error.line)
        except Exception as error:
            return _told("E", f"{type(error).__name__}: {error}")


def _told(kind: str, text: str) -> tuple[np.ndarray, ...]:
    nothing = np.zeros(0, dtype=np.int64)
    return np.frombuffer((kind + text).encode(errors="surrogateescape"), dtype=np.uint8), nothing, nothing


class Loader:
    """Batches of one epoch each time it is iterated.

    Raises, in the loop, a bad picture's ``UserError``, and RuntimeError for anything else that went wrong in a worker.
    """

    def __init__(self, dataset: Samples, plan: BatchPlan | RunPlan, num_workers: int, mix_group: int) -> None:
        self.dataset, self.plan, self.num_workers, self.mix_group = dataset, plan, num_workers, mix_group

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[list[Tensor]]:
        batches = _Batches(self.dataset, list(self.plan), self.mix_group)
        for row in self._rows(batches) if len(batches) else ():
            if row[0].dtype == np.uint8:
                text = row[0].tobytes().decode(errors="surrogateescape")
                raise UserError(text[1:]) if text[0] == "U" else RuntimeError(f"in a loader's worker: {text[1:]}")
            yield [Tensor(array) for array in row]

    def _rows(self, batches: _Batches) -> Iterator[list[np.ndarray]]:
        """A row a batch: by MindSpore's pipeline where there are workers, else in this thread."""
        if self.num_workers == 0:
            return ([*batches[number]] for number in range(len(batches)))
        threads = min(self.num_workers, multiprocessing.cpu_count())  # MindSpore refuses more than there are processors
        rows = mindspore.dataset.GeneratorDataset(
            batches, COLUMNS, shuffle=False, num_parallel_workers=threads, python_multiprocessing=False
        )
        return rows.create_tuple_iterator(num_epochs=1, output_numpy=True)


def build_loader(dataset: Samples, plan: BatchPlan | RunPlan, num_workers: int = 0, mix_group: int | None = None) -> Loader:
    """A loader of (images, labels, picture numbers) batches as tensors, in the plan's order.

    Args:
        dataset: what makes a sample.
        plan: the batches of this rank, of one epoch (call its ``set_epoch`` before each) or of a whole run.
        num_workers: threads of MindSpore's pipeline, at most one a processor; 0 loads in this one.
        mix_group: samples a mixing group; the batch size by default. N ranks give what one process with the N-fold
            batch gives when both use the same group.
    """
    quiet_opencv()
    return Loader(dataset, plan, num_workers, mix_group or plan.batch_size)
