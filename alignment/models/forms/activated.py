"""An activation that the port's caller applies once in front of several modules, which apply it themselves in the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erf

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.formulas import ACTIVATIONS, sigmoid
from alignment.frameworks.base import Call, leaves, mapped
from alignment.models.forms.adapter import CallAdapter, MaybeArrays, form

SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of the activations that are looked for
    "Swish": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "GELU": lambda x: (1 + erf(x / np.sqrt(2))) / 2 + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi),
    "ReLU": lambda x: (x > 0).astype(x.dtype),
    "Sigmoid": lambda x: sigmoid(x) * (1 - sigmoid(x)),
    "Tanh": lambda x: 1 - np.tanh(x) ** 2,
    "Softplus": sigmoid,
}


@form
@dataclass(frozen=True)
class Activated(CallAdapter):
    """A module that is given some of its arrays behind an activation.

    Attributes:
        names: of the activation in front of each array; ``""`` where there is none.
    """

    names: tuple[str, ...]

    @classmethod
    def learned(cls, mine: Call, its: Call) -> CallAdapter | None:
        if len(mine.args) != len(its.args) or mine.kwargs.keys() != its.kwargs.keys():
            return None
        both = [leaves((call.args, call.kwargs), np.ndarray) for call in (mine, its)]
        if len(both[0]) != len(both[1]):
            return None
        names = tuple(_applied(a, b) for a, b in zip(*both, strict=True))
        return cls(names) if any(names) else None

    def given(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        names = iter(self.names)

        def behind(array: np.ndarray) -> np.ndarray:
            name = next(names, "")
            return ACTIVATIONS[name](array) if name else array

        return mapped((args, kwargs), np.ndarray, behind)

    def inputs(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        arrays = zip(leaves(call, np.ndarray), self.names, strict=False)
        floating = [(array, name) for array, name in arrays if array.dtype.kind == "f"]
        return [
            gradient * SLOPES[name](array) if gradient is not None and name else gradient
            for gradient, (array, name) in zip(gradients, floating, strict=False)
        ]

    def back(self) -> None:
        """The reference's module would need what stands before the activation."""
        return


def _applied(mine: np.ndarray, its: np.ndarray) -> str:
    """The activation of one array that makes another one; ``""`` where there is none, or they are equal."""
    if mine.shape != its.shape or mine.dtype.kind != "f" or its.dtype.kind != "f" or np.array_equal(mine, its):
        return ""
    rounded = tolerance.FLOAT32_CONSTANT  # what is before it may hold a table in float32
    same = lambda made: relative(distance(made, mine), norm(mine)) <= rounded  # noqa: E731
    return next((name for name in SLOPES if not same(its) and same(ACTIVATIONS[name](its))), "")
