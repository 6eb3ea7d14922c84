"""Ranks: who this process is, and sums over all of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from mobilenetv3_common.errors import RankError, UserError, naming_lost_ranks
from mobilenetv3_common.run_control import undisturbed
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
            meet()
            dist.all_reduce(tensor)
            array = tensor.numpy()
        return array


@contextlib.contextmanager
def started(device: str = "auto", timeout: float = 1800.0, deterministic: bool = False) -> Iterator[Ranks]:
    """Choose the device, and join the other ranks where ``paddle.distributed.launch`` has started this process.

    Args:
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``.
        timeout: seconds that a rank waits for the others in a collective operation.
        deterministic: whether a GPU computes by kernels that repeat to the last bit alone.

    Raises:
        UserError: ``device`` is gpu and there is none.
        RankError: inside the block, another rank did not answer in time, or has ended.
    """
    found = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    if device == "gpu" and not found:
        raise UserError("--device gpu: this Paddle finds no GPU; install paddlepaddle-gpu on a GPU machine or use --device cpu")
    chosen = "gpu" if found and device != "cpu" else "cpu"
    os.environ["PADDLE_PG_TIMEOUT"] = str(int(timeout * 1000))  # NCCL's; for gloo see meet
    environment = dist.ParallelEnv()
    with naming_lost_ranks(timeout), repeating(deterministic and chosen == "gpu"):
        if environment.world_size > 1:
            paddle.set_device(f"gpu:{environment.device_id}" if chosen == "gpu" else "cpu")
            dist.init_parallel_env()
        else:
            paddle.set_device(chosen)
        yield Ranks(dist.get_rank(), dist.get_world_size(), chosen)


@contextlib.contextmanager
def repeating(deterministic: bool) -> Iterator[None]:
    """Inside the block, where asked for, operations on a GPU repeat to the last bit."""
    names = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic") if deterministic else ()
    before = paddle.get_flags(list(names)) if names else {}  # a Paddle without CUDA does not know them
    paddle.set_flags(dict.fromkeys(names, 1))
    try:
        yield
    finally:
        paddle.set_flags(before)


_meetings = 0


def meet() -> None:
    """Wait on a CPU until every rank is here; every rank has to call it before each collective operation.

    Paddle's gloo gives a rank 30 seconds to answer, whatever is set, which a slow checkpoint, an uneven evaluation or a
    machine that pauses exceed. The ranks wait at Paddle's own store instead, as long as ``started`` was told.

    Raises:
        RankError: a rank did not come in time.
    """
    global _meetings
    if dist.get_world_size() == 1 or paddle.get_device() != "cpu":
        return
    store, timeout = paddle.base.core.create_or_get_global_tcp_store(), float(os.environ["PADDLE_PG_TIMEOUT"]) / 1000
    _meetings += 1
    begun, pause = time.monotonic(), 0.0002
    came = _met(store, 1)
    while came < _meetings * dist.get_world_size():
        if time.monotonic() - begun > timeout:
            raise RankError(f"another rank did not come within {timeout:g} s: its own log says why, --rank-timeout gives it longer")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        came = _met(store, 0)


def _met(store: Any, more: int) -> int:
    with undisturbed():
        return store.add("mobilenetv3/met", more)


def average_statistics(model: paddle.nn.Layer, ranks: Ranks) -> None:
    """Replace BatchNorm's running statistics on every rank by their mean over the ranks.

    Each rank's are those of its own samples; evaluating or saving one rank's would forget the others'. Running averages
    are linear, so the mean of the ranks' is the average that a run keeps whenever this is called.
    """
    if ranks.world_size == 1:
        return
    meet()
    for name, buffer in model.state_dict().items():
        if is_statistic(name):
            dist.all_reduce(buffer)
            buffer.set_value(buffer / ranks.world_size)
