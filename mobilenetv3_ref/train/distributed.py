"""Ranks: who this process is, and sums over all of them."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from mobilenetv3_common.errors import UserError, naming_lost_ranks
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

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cuda" if self.device == "gpu" else "cpu")

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on this rank's device."""
        return tensor.to(self.torch_device, non_blocking=True)

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Sum numbers over all ranks, in float64."""
        array = np.asarray(values, dtype=np.float64)
        if self.world_size > 1:
            tensor = torch.from_numpy(array.copy()).to(self.torch_device)
            dist.all_reduce(tensor)
            array = tensor.cpu().numpy()
        return array


@contextlib.contextmanager
def started(device: str = "auto", timeout: float = 1800.0, deterministic: bool = False) -> Iterator[Ranks]:
    """Choose the device, and join the other ranks where ``torchrun`` has started this process.

    Args:
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``.
        timeout: seconds that a rank waits for the others in a collective operation.
        deterministic: whether a GPU computes by kernels that repeat to the last bit alone.

    Raises:
        UserError: ``device`` is gpu and there is none.
        RankError: inside the block, another rank did not answer in time, or has ended.
    """
    found = torch.cuda.is_available()
    if device == "gpu" and not found:
        raise UserError("--device gpu: this torch finds no GPU; install a CUDA build on a GPU machine or use --device cpu")
    chosen = "gpu" if found and device != "cpu" else "cpu"
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        with repeating(deterministic):
            yield Ranks(device=chosen)
        return
    if chosen == "gpu":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with naming_lost_ranks(timeout), repeating(deterministic):
        dist.init_process_group("nccl" if chosen == "gpu" else "gloo", timeout=datetime.timedelta(seconds=timeout))
        yield Ranks(dist.get_rank(), dist.get_world_size(), chosen)
        dist.barrier()  # nobody leaves before all are done; the command then ends without destructors (exit_on_user_error)


@contextlib.contextmanager
def repeating(deterministic: bool) -> Iterator[None]:
    """Inside the block, where asked for, operations repeat to the last bit, and one that cannot raises an error."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first matrix is multiplied
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


def average_statistics(model: torch.nn.Module, ranks: Ranks) -> None:
    """Replace BatchNorm's running statistics on every rank by their mean over the ranks.

    Each rank's are those of its own samples; evaluating or saving one rank's would forget the others'. Running averages
    are linear, so the mean of the ranks' is the average that a run keeps whenever this is called.
    """
    if ranks.world_size == 1:
        return
    for name, buffer in model.named_buffers():
        if is_statistic(name):
            dist.all_reduce(buffer)
            buffer.div_(ranks.world_size)
