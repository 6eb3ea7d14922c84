"""Ranks: who this process is, and sums over all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.distributed as dist

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import is_statistic


@dataclass(frozen=True)
class Ranks:
    """This process among the others.

    Attributes:
        rank, world_size: 0 and 1 without a launcher.
        device: ``"cpu"`` or ``"gpu"``.
    """

    rank: int = 0
    world_size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        return self.rank == 0

    def place(self, tensor: paddle.Tensor) -> paddle.Tensor:
        """The tensor on this rank's device."""
        return tensor.cuda(blocking=False) if self.device == "gpu" else tensor

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Sum numbers over all ranks, in float64."""
        array = np.asarray(values, dtype=np.float64)
        if self.world_size > 1:
            tensor = paddle.to_tensor(array)
            dist.all_reduce(tensor)
            array = tensor.numpy()
        return array


@contextlib.contextmanager
def started(device: str = "auto") -> Iterator[Ranks]:
    """Choose the device, and join the other ranks where ``paddle.distributed.launch`` has started this process.

    Raises:
        UserError: ``device`` is gpu and there is none.
    """
    found = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    if device == "gpu" and not found:
        raise UserError("--device gpu: this Paddle finds no GPU; install paddlepaddle-gpu on a GPU machine or use --device cpu")
    chosen = "gpu" if found and device != "cpu" else "cpu"
    environment = dist.ParallelEnv()
    if environment.world_size > 1:
        paddle.set_device(f"gpu:{environment.device_id}" if chosen == "gpu" else "cpu")
        dist.init_parallel_env()
    else:
        paddle.set_device(chosen)
    yield Ranks(dist.get_rank(), dist.get_world_size(), chosen)


def average_statistics(model: paddle.nn.Layer, ranks: Ranks) -> None:
    """Replace BatchNorm's running statistics on every rank by their mean over the ranks.

    Each rank's are those of its own samples; evaluating or saving one rank's would forget the others'. Running averages
    are linear, so the mean of the ranks' is the average that a run keeps whenever this is called.
    """
    if ranks.world_size == 1:
        return
    for name, buffer in model.state_dict().items():
        if is_statistic(name):
            dist.all_reduce(buffer)
            buffer.set_value(buffer / ranks.world_size)
