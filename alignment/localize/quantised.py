"""What hypotheses about a quantised graph are asked of: a quantiser with the right values of what it rounds."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from alignment import tolerance
from alignment.compare import norm, relative
from alignment.models.quantised import Quantiser


@dataclass
class QuantisedTensor:
    """A quantiser with what it is judged by.

    Attributes:
        one: with its right values.
        others: of the same file, each with the title of its layer.
        product: of a bias: the scale of the layer's input times that of its weight; None where one is not known.
        axis: along which the scales of the layer's weight have to lie; None where any may.
    """

    one: Quantiser
    others: list[tuple[str, Quantiser]] = field(default_factory=list)
    product: np.ndarray | None = None
    axis: int | None = None

    @property
    def right(self) -> np.ndarray:
        assert self.one.right is not None
        return self.one.right

    @functools.cached_property
    def made(self) -> np.ndarray:
        """What the file has for the right values."""
        return self.one.value if self.one.levels is not None else self.passed(self.right)

    def passed(self, x: np.ndarray) -> np.ndarray:
        """What an activation becomes by its quantiser, and the node that reads it back."""
        rounded, back = self.one.rounded(x), next(iter(self.back), None)
        if back is None:
            return self.one.read_back(rounded)
        return (rounded + self.one.along(self.one.zero, x.shape) - back[1]) * back[0]

    @property
    def back(self) -> list[tuple[float, int]]:
        """Scale and zero point of the nodes that read an activation back, where they are one number."""
        found = []
        for node in self.one.back:
            scale, *zero = (node.constants.get(name) for name in node.proto.input[1:3])
            if scale is not None and scale.size == 1:
                found.append((float(scale.ravel()[0]), int(zero[0].ravel()[0]) if zero and zero[0] is not None else 0))
        return found

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """How many steps a constant's values are off."""
        return np.abs(self.made - self.right) / np.abs(self.one.along(self.one.scale, self.right.shape))

    @property
    def inside(self) -> np.ndarray:
        """Which of a constant's levels are not at the ends."""
        assert self.one.levels is not None
        low, high = self.one.ends
        return (self.one.levels < high) & (self.one.levels > low + (low == -high - 1))

    @property
    def beyond(self) -> np.ndarray:
        """Which of an activation's values are beyond the ends by more than rounding."""
        (low, high), half = self.one.limits, abs(float(self.one.scale.ravel()[0])) / 2
        return (self.right < low - half) | (self.right > high + half)

    @property
    def lost(self) -> float:
        """Share of the norm that is cut off at the ends."""
        cut = np.clip(self.right, *self.one.limits) if self.one.levels is None else np.where(self.inside, self.right, self.made)
        return relative(norm(self.right - cut), norm(self.right)) if (self.right != cut).any() else 0.0

    @property
    def per_channel_cost(self) -> tuple[float, float]:
        """Signal-to-noise ratio in dB of a weight with the one scale that it has, and with one a channel."""
        axis = 0 if self.axis is None else self.axis
        most = np.abs(np.moveaxis(self.right, axis, 0).reshape(self.right.shape[axis], -1)).max(1)
        steps = np.maximum(most / min(abs(self.one.ends[0]), self.one.ends[1] or 1, 127), tolerance.TINY)
        apart = self.one.along(steps, self.right.shape, axis)
        return snr(self.made, self.right), snr(np.rint(self.right / apart) * apart, self.right)


def snr(made: np.ndarray, right: np.ndarray) -> float:
    """Signal-to-noise ratio in dB."""
    noise = relative(norm(made - right), norm(right))
    return float(-20 * np.log10(noise)) if noise else np.inf
