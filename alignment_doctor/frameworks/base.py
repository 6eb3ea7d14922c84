"""The protocol behind which a framework stands here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mobilenetv3_common.loader_workers import newest
from mobilenetv3_common.parts import Ranks

Tensor = Any
SAMPLED = 64  # elements of a tensor that are looked at


@dataclass(frozen=True)
class Group:
    """The processes of a framework's own group; a ``mobilenetv3_common.parts.Ranks``.

    Attributes:
        rank, world_size: this process among the others.
        device: ``"cpu"`` or ``"gpu"``.
        add: numbers of this rank to their sums over all ranks, float64 of the same shape.
    """

    rank: int
    world_size: int
    device: str
    add: Callable[[np.ndarray], np.ndarray]

    @property
    def first(self) -> bool:
        return self.rank == 0

    def place(self, tensor: Tensor) -> Tensor:
        """The tensor where it is: a watched loop places its own."""
        return tensor

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        return self.add(np.asarray(values, dtype=np.float64))


Fullness = Callable[[], tuple[int, int] | None]  # batches that are ready, and room for how many; None without worker processes


class NotedLoader:
    """Notes the iterator of a framework's DataLoader, which tells nobody how full its queue is.

    Args:
        loader: the framework's class.
        queue: of an iterator with worker processes: batches that are ready, and room for how many.
    """

    def __init__(self, loader: Any, queue: Callable[[Any], tuple[int, int]]) -> None:
        self.loader, self.queue = loader, queue
        self.last: Any = None

    def __enter__(self) -> Fullness:
        self.own = self.loader.__iter__

        def begin(loader: Any) -> Any:
            self.last = self.own(loader)
            return self.last

        self.loader.__iter__ = begin
        return self.fullness

    def __exit__(self, *_error: object) -> None:
        self.loader.__iter__ = self.own
        self.last = None

    def fullness(self) -> tuple[int, int] | None:
        try:
            return self.queue(newest() if self.last is None else self.last)
        except (AttributeError, NotImplementedError):  # no workers, or a system or version that does not tell it
            return None


@dataclass(frozen=True)
class Held:
    """What an optimizer holds.

    Attributes:
        rates: ``id`` of a parameter -> its learning rate.
        state: tensors of state, of all parameters.
        own_steps: whether it chooses the length of its steps (L-BFGS).
    """

    rates: dict[int, float]
    state: int
    own_steps: bool = False


@dataclass(frozen=True)
class Treated:
    """What an optimizer does with a parameter.

    Attributes:
        factor: of the learning rate, for this parameter.
        decay: weight decay.
    """

    factor: float
    decay: float


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
        """The parameters and the state of an optimizer.

        Raises:
            UserError: it is none of the framework's.
        """

    def treated(self, optimizer: Any) -> dict[int, Treated]:
        """``id`` of each parameter that an optimizer holds -> what it does with it."""

    def watchable(self, model: Any) -> Any:
        """The model whose calls can be watched: what is inside of a compiled one.

        Raises:
            UserError: nobody can watch it.
        """

    def compiling(self) -> bool:
        """Whether a compiler follows the computation at present, so that nothing can be looked at."""

    def noting_dropout(self) -> contextlib.AbstractContextManager[list[str]]:
        """Inside the block, a list of what dropped elements at random."""

    def noting_layers(self, note: Callable[[Any], None]) -> Callable[[], None]:
        """Call ``note`` with each layer before it computes, until what is returned is called."""

    def own_parameters(self, layer: Any) -> list[tuple[str, Tensor]]:
        """The parameters that a layer holds itself, by name."""

    def unscaled(self, scaler: Any, optimizer: Any) -> bool:
        """Whether a loss scaler has divided the gradients of an optimizer by its scale since the last update."""

    def ranks(self) -> Ranks | None:
        """The processes that compute together; None where there is one."""

    def wait(self) -> None:
        """Until the device has computed everything."""

    def profiled(self, trace: Path) -> contextlib.AbstractContextManager[None]:
        """Inside the block the framework's own profiler runs; it then writes a Chrome trace."""

    def loader(self) -> contextlib.AbstractContextManager[Fullness]:
        """Inside the block, how full the queue of the loader is that began there last."""

    def device_mib(self) -> float:
        """Memory that the framework has allocated on a GPU, in MiB; 0 on a CPU."""
