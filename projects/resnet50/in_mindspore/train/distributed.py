"""Ranks: one process alone. (MindSpore's collective operations on a CPU need a scheduler process; they are not used here.)"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from mindspore import Tensor, nn

from mobilenetv3_common.errors import UserError


@dataclass(frozen=True)
class Ranks:
    """This process among the others.

    Attributes:
        rank, world_size: 0 and 1.
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
        """The numbers in float64: there is one rank."""
        return np.asarray(values, dtype=np.float64)


@contextlib.contextmanager
def started(device: str = "auto", timeout: float = 1800.0, deterministic: bool = False) -> Iterator[Ranks]:
    """Choose the device.

    Raises:
        UserError: ``device`` is gpu.
    """
    if device == "gpu":
        raise UserError("--device gpu: MindSpore is run on CPUs alone here; use --device cpu")
    yield Ranks()


def average_statistics(model: nn.Cell, ranks: Ranks) -> None:
    """Nothing: the statistics of one rank are their own mean."""
