"""The protocol behind which a framework stands here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mobilenetv3_common.parts import Ranks

Tensor = Any
SAMPLED = 64  # elements of a tensor that are looked at


@dataclass(frozen=True)
class Held:
    """What an optimizer holds.

    Attributes:
        rates: ``id`` of a parameter -> its learning rate.
        state: tensors of state, of all parameters.
    """

    rates: dict[int, float]
    state: int


class Probe(Protocol):
    """Cheap figures of many tensors at once: one wait for the device each."""

    def norms(self, tensors: Sequence[Tensor]) -> np.ndarray:
        """The L2 norm of each tensor, float64 (count,); not finite where an element is not."""

    def samples(self, tensors: Sequence[Tensor]) -> list[np.ndarray]:
        """At most ``SAMPLED`` elements of each tensor, always the same ones, exactly, as float64."""

    def numbers(self, scalars: Sequence[Tensor]) -> np.ndarray:
        """Scalars as float64 (count,)."""

    def detached(self, tensor: Tensor) -> Tensor:
        """The same values without graph, in memory of their own."""

    def held(self, optimizer: Any) -> Held:
        """The parameters and the state of an optimizer."""

    def ranks(self) -> Ranks | None:
        """The processes that compute together; None where there is one."""

    def device_mib(self) -> float:
        """Memory that the framework has allocated on a GPU, in MiB; 0 on a CPU."""
