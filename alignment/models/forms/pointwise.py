"""A linear layer for a convolution by 1 x 1: on the last axis of what one side holds without the axes of a map, or last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment.frameworks.base import leaves, mapped
from alignment.models.forms.adapter import CallAdapter, MaybeArrays, Owned, form

KINDS = {"linear", "conv"}


@form
@dataclass(frozen=True)
class Pointwise(CallAdapter):
    """The reference's layer in the place of the port's, which has its channels elsewhere.

    Attributes:
        leading: the other axes of what the port's linear layer is given; None where it is the convolution.
        axes: of the map on which the reference's convolution computes.
    """

    leading: tuple[int, ...] | None
    axes: int = 0

    @classmethod
    def told_back(cls, layer: Owned, other: Owned, args: tuple, kwargs: dict[str, Any]) -> CallAdapter | None:
        kinds = [framework.layer(module).kind for framework, module in (layer, other)]
        arrays = leaves((args, kwargs), np.ndarray)
        if {*kinds} != KINDS or len(arrays) != 1:
            return None
        framework, module = (layer, other)[kinds.index("conv")]
        kernel = next(entry.shape[2:] for entry in framework.entries(module) if len(entry.shape) > 2)
        if {*kernel} != {1}:
            return None
        return cls(None) if kinds[0] == "conv" else cls(arrays[0].shape[:-1], len(kernel))

    def given(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return mapped((args, kwargs), np.ndarray, self._there)

    def returned(self, output: Any) -> Any:
        return mapped(output, np.ndarray, self._back)

    def cotangents(self, arrays: MaybeArrays) -> list[np.ndarray | None]:
        return [None if array is None else self._there(array) for array in arrays]

    def inputs(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        return [None if array is None else self._back(array) for array in gradients]

    def _there(self, array: np.ndarray) -> np.ndarray:
        if self.leading is None:
            return np.moveaxis(array, 1, -1)
        return array.reshape(-1, array.shape[-1], *[1] * self.axes)

    def _back(self, array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array, -1, 1) if self.leading is None else array.reshape(*self.leading, array.shape[1])
