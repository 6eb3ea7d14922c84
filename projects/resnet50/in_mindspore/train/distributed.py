"""Ranks: who this process is among those that ``msrun`` started, and sums over all of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import get_group_size, get_rank, init

from mobilenetv3_common.errors import RankError, UserError, naming_lost_ranks
from mobilenetv3_common.weights import is_statistic
from projects.resnet50.in_mindspore.train.optimizer import trainable


@dataclass(frozen=True)
class Ranks:
    """This process among the others.

    Attributes:
        rank, world_size: 0 and 1 without ``msrun``.
        device: ``"cpu"``.
    """

    rank: int = 0
    world_size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        return self.rank == 0

    def place(self, tensor: Tensor) -> Tensor:
        """The tensor on this rank's device."""
        return tensor

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Sum numbers over all ranks, in float64, in the order of the ranks."""
        array = np.ascontiguousarray(values, dtype=np.float64)
        if self.world_size == 1 or array.size == 0:
            return array
        # AllReduce has no float64 on a CPU, and AllGather silently rounds float64 to float32: the bits travel as int32.
        every = ops.AllGather()(Tensor(array.ravel().view(np.int32))).asnumpy()
        return np.ascontiguousarray(every).view(np.float64).reshape(self.world_size, *array.shape).sum(axis=0)


@contextlib.contextmanager
def started(device: str = "auto", timeout: float = 1800.0, deterministic: bool = False) -> Iterator[Ranks]:
    """Choose the device, and join the other ranks where ``msrun`` has started this process.

    Args:
        device: ``"auto"`` or ``"cpu"``.
        timeout: seconds that a rank waits for the others to come.
        deterministic: nothing on a CPU.

    Raises:
        UserError: ``device`` is gpu.
        RankError: the other ranks cannot be joined, or did not come in time.
    """
    if device == "gpu":
        raise UserError("--device gpu: MindSpore is run on CPUs alone here; use --device cpu")
    if "MS_ROLE" not in os.environ:
        yield Ranks()
        return
    os.environ["MS_TOPO_TIMEOUT"] = str(max(1, int(timeout)))
    with naming_lost_ranks(timeout):
        join()
        yield Ranks(get_rank(), get_group_size())


def join() -> None:
    """Meet the other ranks. ``msrun``'s scheduler stays in here until they end, and exits.

    Raises:
        RankError: in place of MindSpore's RuntimeError of many lines.
    """
    try:
        init()
    except RuntimeError as error:
        reason = " ".join(str(error).partition("\n")[0].split())
        raise RankError(f"the ranks of msrun cannot be joined; use a --master_port that is free: {reason}") from error


def average_gradients(model: nn.Cell, ranks: Ranks) -> None:
    """Replace the gradients on every rank by their mean over the ranks, in float32. Every rank has to call it.

    All gradients travel as one vector: on a CPU each collective operation takes some milliseconds, whatever its size.
    """
    if ranks.world_size == 1:
        return
    held = [parameter for parameter in trainable(model) if parameter._grad is not None]
    own = np.concatenate([parameter._grad.asnumpy().astype(np.float32, copy=False).ravel() for parameter in held])
    mean = ops.AllReduce()(Tensor(own)).asnumpy() / np.float32(ranks.world_size)
    ends = np.cumsum([parameter._grad.size for parameter in held])[:-1]
    for parameter, part in zip(held, np.split(mean, ends), strict=True):
        parameter._grad = Tensor(part.reshape(parameter.shape))


def average_statistics(model: nn.Cell, ranks: Ranks) -> None:
    """Replace BatchNorm's running statistics on every rank by their mean over the ranks."""
    if ranks.world_size == 1:
        return
    held = [parameter for name, parameter in model.parameters_and_names() if is_statistic(name)]
    if held:
        mean = ranks.sum(np.concatenate([parameter.asnumpy().ravel() for parameter in held])) / ranks.world_size
        ends = np.cumsum([parameter.size for parameter in held])[:-1]
        for parameter, part in zip(held, np.split(mean, ends), strict=True):
            parameter.assign_value(Tensor(part.reshape(parameter.shape).astype(np.float32)))
