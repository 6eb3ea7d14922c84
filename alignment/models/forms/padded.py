"""A convolution that pads by itself, for one that is given what a layer of its own has padded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment.frameworks.base import leaves, mapped
from alignment.models.forms.adapter import CallAdapter, Owned, form

KINDS = {"conv", "conv_transpose"}
MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # numpy's


@form
@dataclass(frozen=True)
class Padded(CallAdapter):
    """The reference's convolution in the place of the port's, which pads less, and is given its input with that much around it.

    Attributes:
        widths: at each end of each axis of a map.
    """

    widths: tuple[int, ...]

    @classmethod
    def told_back(cls, layer: Owned, other: Owned, args: tuple, kwargs: dict[str, Any]) -> CallAdapter | None:
        arrays, padded = leaves((args, kwargs), np.ndarray), [_padding(*side) for side in (layer, other)]
        if len(arrays) != 1 or not all(padded) or len(padded[0]) != len(padded[1]):
            return None
        found = cls(tuple(its - mine for mine, its in zip(*padded, strict=True)))
        inner = arrays[0][found.inside]
        if min(found.widths) < 0 or not any(found.widths) or arrays[0].ndim != len(found.widths) + 2 or not inner.size:
            return None
        mode: Any = MODES[str(other[0].layer(other[1]).settings.get("padding_mode", "zeros"))]
        return found if np.array_equal(np.pad(inner, found.around, mode), arrays[0]) else None

    @property
    def inside(self) -> tuple[slice, ...]:
        """Of an array, what is not around it."""
        return slice(None), slice(None), *(slice(width, -width or None) for width in self.widths)

    @property
    def around(self) -> tuple[tuple[int, int], ...]:
        """As ``numpy.pad`` takes it."""
        return (0, 0), (0, 0), *((width, width) for width in self.widths)

    def given(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return mapped((args, kwargs), np.ndarray, lambda array: array[self.inside])

    def inputs(self, gradients: Any, call: Any) -> list[np.ndarray | None]:
        return [None if array is None else np.pad(array, self.around) for array in gradients]


def _padding(framework: Any, module: Any) -> tuple[int, ...]:
    """How much a convolution pads at each end of each axis; a transposed one as the plain one of the same sizes does.

    Nothing for other layers, and where the ends differ or the sizes do.
    """
    layer = framework.layer(module)
    kernel = next((entry.shape[2:] for entry in framework.entries(module) if len(entry.shape) > 2), ())
    given, spread = layer.settings.get("padding"), layer.settings.get("dilation", (1,) * len(kernel))
    if layer.kind not in KINDS or not isinstance(given, tuple) or not len(given) == len(kernel) == len(spread):
        return ()
    if layer.kind == "conv":
        return given
    if {*layer.settings["stride"]} != {1}:
        return ()
    return tuple(step * (size - 1) - less for size, step, less in zip(kernel, spread, given, strict=True))
