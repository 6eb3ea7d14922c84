"""The frameworks' own attention and transformer layers, whose arguments, masks and returned pairs differ.

A layer tells itself what it is: both sides' calls have one common form (``alignment/frameworks/_attention.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment.frameworks.base import Attended, Call, leaves
from alignment.models.forms.adapter import CallAdapter, MaybeArrays, Owned, form


@form
@dataclass(frozen=True)
class AttentionCall(CallAdapter):
    """A call of an attention layer of one side, answered by a layer of the other.

    Attributes:
        call: in the form that both have in common.
        own: what the answering layer is given; None where it is another layer, which is given the call as it is.
        turned: whether only one of the two has sequences that begin with the batch.
    """

    call: Attended
    own: tuple[tuple, dict[str, Any]] | None
    turned: bool

    @classmethod
    def told(cls, layer: Owned, call: Call) -> CallAdapter | None:
        if call.attended is None:
            return None
        framework, module = layer
        known = framework.attention(module)
        turned = known is not None and known.batch_first != call.attended.batch_first
        return cls(call.attended, framework.spoken(module, call.attended), turned)

    @classmethod
    def told_back(cls, layer: Owned, other: Owned, args: tuple, kwargs: dict[str, Any]) -> CallAdapter | None:
        mine, its = layer[0].attention(layer[1]), other[0].attention(other[1])
        call = layer[0].attended(layer[1], args, kwargs)
        own = None if call is None else other[0].spoken(other[1], call)
        if mine is None or its is None or call is None or own is None:
            return None
        return _InPlace(call, own, mine.batch_first != its.batch_first, mine.kind in layer[0].convention.pairs)

    def given(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return (args, kwargs) if self.own is None else self.own

    def outputs(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self._turn(arrays[:1])  # the weights of the attention, one side alone has

    def cotangents(self, arrays: MaybeArrays) -> list[np.ndarray | None]:
        return self._turn(arrays)

    def inputs(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        return self._turn(gradients[: len(self.call.inputs)])  # without what a mask's gradient would be

    def _turn(self, arrays: Sequence[Any]) -> list[Any]:
        """Sequences of one side as the other has them."""
        swapped = [array.swapaxes(0, 1) if array is not None and array.ndim == 3 else array for array in arrays]
        return swapped if self.turned else list(arrays)


@dataclass(frozen=True)
class _InPlace(AttentionCall):
    """A layer of the reference's in the place of the port's; ``pair``: whether the port's returns a pair."""

    pair: bool

    def returned(self, output: Any) -> Any:
        made = self._turn(leaves(output, np.ndarray)[:1])[0]
        return (made, None) if self.pair else made

    def inputs(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        """Sums, where an array of the port's stands for several sequences."""
        found: list[np.ndarray | None] = []
        for array in (one for one in leaves(call, np.ndarray) if one.dtype.kind == "f"):
            same = zip(self.call.inputs, self._turn(gradients), strict=False)
            parts = [g for one, g in same if g is not None and np.shares_memory(one, array)]
            found.append(sum(parts[1:], parts[0]) if parts else None)
        return found
