"""The parts of a training run as the loop sees them, whichever framework made them.

A part belongs to its framework. These protocols say what code without a framework may ask of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Own = Any  # an object that the framework made and gets back; nothing here looks inside it


class Tensor(Protocol):
    """A tensor on the CPU or a GPU."""

    @property
    def shape(self) -> Sequence[int]:
        """Length of each axis."""

    def __len__(self) -> int:
        """Length of the first axis."""

    def __add__(self, other: Any) -> Any:
        """The sum, on the same device; nothing waits for it."""

    def __radd__(self, other: Any) -> Any:
        """The same with a number on the left."""

    def __float__(self) -> float:
        """The value of a scalar; waits for the device."""

    def tolist(self) -> Any:
        """The values as nested lists of numbers; waits for the device."""

    def numpy(self) -> np.ndarray:
        """The values as an array, for a tensor on the CPU."""


Batch = tuple[Tensor, Tensor]  # images (N, 3, H, W), and labels (N,) or class probabilities (N, classes)


class Network(Protocol):
    """A model."""

    def __call__(self, images: Any) -> Any:
        """Logits (N, classes) of normalised pictures (N, 3, H, W)."""

    def train(self) -> Any:
        """Set it, and every layer in it, to training mode."""

    def eval(self) -> Any:
        """Set it, and every layer in it, to evaluation mode."""


class Ranks(Protocol):
    """This process among the others."""

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    def world_size(self) -> int:
        """Number of processes."""

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"gpu"``."""

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone writes files and logs."""

    def place(self, tensor: Any) -> Any:
        """The tensor on this rank's device."""

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Sums over all ranks, float64 of the shape of ``values``. Every rank has to call it."""


class Precision(Protocol):
    """How a step computes; what it does inside the step is between it and the framework."""

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled, so that an infinite gradient means a smaller scale and not a diverged run."""

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Forward passes inside the block compute so."""

    def prepare(self, model: Any, optimizer: Own) -> None:
        """Turn the weights into half precision where it has to, and give the optimizer float32 masters, in place."""

    def state(self) -> dict[str, float]:
        """The scaler's state as numbers; empty where nothing is scaled."""

    def load(self, state: dict[str, float]) -> None:
        """The reverse of ``state``."""


class Schedule(Protocol):
    """A learning-rate schedule, attached to its optimizer."""

    def step(self) -> Any:
        """Go on by one unit, an update or an epoch; the optimizer has the new rate from then on."""


class MovingAverage(Protocol):
    """A moving average of a model's weights.

    Attributes:
        decay: share of the old average at the next update.
    """

    decay: float

    def update(self) -> None:
        """Take the model's present weights in; nothing where no average is kept."""

    def applied(self) -> contextlib.AbstractContextManager[None]:
        """The model has the averaged weights inside the block, where there are any."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The averaged weights, float32 under the framework's names; empty where there are none."""

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse of ``arrays``, to the last bit."""


class Guard(Protocol):
    """Watches the logits and gradients of one update for NaN and infinity."""

    def watch(self, logits: Any) -> None:
        """Note whether logits (N, classes) are finite; does not wait for the device."""

    def healthy(self, model: Any, gradients: bool = True) -> bool:
        """Whether all logits, and the model's gradients where asked for, are finite; waits for the device."""


@dataclass(frozen=True)
class Judgement:
    """What a model makes of one batch of N pictures.

    Attributes:
        right: bool (N, 2), whether the label is among the one and the five largest logits.
        labels: int64 (N,), the true classes.
        predicted: int64 (N,), the classes of the largest logits.
        confidence: float (N,), probability of the predicted class, 0..1.
        loss: mean cross-entropy over the pictures that count, without label smoothing; NaN where a logit is not finite.
    """

    right: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    loss: float
