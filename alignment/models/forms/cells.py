"""A recurrent cell that returns its output beside its state, where the other side's returns the state alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment.frameworks.base import Call
from alignment.models.forms.adapter import CallAdapter, MaybeArrays, Owned, form


@form
@dataclass(frozen=True)
class RepeatedState(CallAdapter):
    """A cell of a framework whose cells return ``(h, (h, c))`` or ``(h, h)``: in common terms the state alone."""

    @classmethod
    def told(cls, layer: Owned, call: Call) -> CallAdapter | None:
        return cls() if _repeats(layer) else None

    @classmethod
    def told_back(cls, layer: Owned, other: Owned, args: tuple, kwargs: dict[str, Any]) -> CallAdapter | None:
        both = _repeats(layer), _repeats(other)
        return None if both[0] == both[1] else _ReferenceInPlace(both[0])

    def outputs(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return arrays[1:]

    def cotangents(self, arrays: MaybeArrays) -> list[np.ndarray | None]:
        return [None, *arrays]


@dataclass(frozen=True)
class _ReferenceInPlace(CallAdapter):
    """A cell of the reference's in the place of the port's; ``added``: whether the port's returns the output, too."""

    added: bool

    def returned(self, output: Any) -> Any:
        if not self.added:
            return output[1]
        return (output[0] if isinstance(output, tuple | list) else output), output

    def cotangents(self, arrays: MaybeArrays) -> list[np.ndarray | None]:
        if not self.added:
            return [None, *arrays]
        first, *state = arrays
        both = [one for one in (first, state[0]) if one is not None]
        return [sum(both[1:], both[0]) if both else None, *state[1:]]


def _repeats(layer: Owned) -> bool:
    framework, module = layer
    return framework.layer(module).kind in framework.repeating
