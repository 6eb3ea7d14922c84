"""Weights between torch and Paddle, strict and bijective, for any Paddle layer named as its torch module is.

The two frameworks differ in three ways: BatchNorm's statistics are called ``running_mean``/``running_var`` in torch and
``_mean``/``_variance`` in Paddle; the weights of linear layers are transposed; torch counts ``num_batches_tracked``,
which a BatchNorm with a fixed momentum never reads and Paddle does not have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mobilenetv3_common.weights import COUNTER, State, check_fit, is_paddle_state, read_state


@dataclass(frozen=True)
class Entry:
    """One tensor under both names; ``shape`` is torch's."""

    torch_name: str
    paddle_name: str
    shape: tuple[int, ...]
    transposed: bool


class NameMap:
    """Which torch tensor is which Paddle tensor, read off a Paddle layer: every linear weight is transposed.

    Args:
        layer: a Paddle layer whose sublayers are named as the torch module's submodules are.
        names: Paddle path -> torch path of the modules, or whole parts, that are called otherwise.
    """

    def __init__(self, layer: Any, names: Mapping[str, str] | None = None) -> None:
        from paddle import nn

        linear, norms = set(), []
        for name, sublayer in layer.named_sublayers(include_self=True):
            prefix = f"{name}." if name else ""
            if isinstance(sublayer, nn.Linear):
                linear.add(f"{prefix}weight")
            if hasattr(sublayer, "_mean") and hasattr(sublayer, "_variance"):
                norms.append(prefix)
        renamed = {f"{p}_mean": f"{p}running_mean" for p in norms} | {f"{p}_variance": f"{p}running_var" for p in norms}
        self.entries: list[Entry] = []
        for paddle_name, tensor in layer.state_dict().items():
            transposed = paddle_name in linear
            shape = tuple(tensor.shape)[::-1] if transposed else tuple(tensor.shape)
            torch_name = _moved(renamed.get(paddle_name, paddle_name), names or {})
            self.entries.append(Entry(torch_name, paddle_name, shape, transposed))
        self.counters = [_moved(f"{prefix}{COUNTER}", names or {}) for prefix in norms]

    def to_paddle(self, state: Mapping[str, np.ndarray], source: str = "the weights") -> State:
        """Torch's names and layout to Paddle's.

        Raises:
            UserError: a key is missing or too many, or a shape differs; ``source`` names the weights in the message.
        """
        self._check({k: v.shape for k, v in state.items()}, source, paddle_layout=False)
        return {e.paddle_name: _turned(state[e.torch_name], e.transposed) for e in self.entries}

    def to_torch(self, state: Mapping[str, np.ndarray], source: str = "the weights") -> State:
        """Paddle's names and layout to torch's, without the counters.

        Raises:
            UserError: as ``to_paddle``.
        """
        self._check({k: v.shape for k, v in state.items()}, source, paddle_layout=True)
        return {e.torch_name: _turned(state[e.paddle_name], e.transposed) for e in self.entries}

    def with_counters(self, state: State) -> State:
        """A torch state with every counter that ``load_state_dict(strict=True)`` wants, 0."""
        return state | {name: np.zeros((), dtype=np.int64) for name in self.counters}

    def _check(self, shapes: dict[str, tuple], source: str, paddle_layout: bool) -> None:
        expected = {
            e.paddle_name if paddle_layout else e.torch_name: e.shape[::-1] if paddle_layout and e.transposed else e.shape
            for e in self.entries
        }
        check_fit(shapes, expected, source, allowed=() if paddle_layout else self.counters)


def _moved(name: str, names: Mapping[str, str]) -> str:
    """A tensor's name with its longest known parent replaced by what the other side calls that."""
    parent, _, rest = name.rpartition(".")
    while parent not in names:
        if not parent:
            return name
        parent, _, last = parent.rpartition(".")
        rest = f"{last}.{rest}"
    return f"{names[parent]}.{rest}" if names[parent] else rest


def copy_to_paddle(module: Any, layer: Any, names: Mapping[str, str] | None = None) -> None:
    """Give a Paddle layer the weights and statistics of a torch module, in place.

    Args:
        module: ``torch.nn.Module``.
        layer: ``paddle.nn.Layer``.
        names: Paddle path -> torch path of the modules, or whole parts, that are called otherwise.

    Raises:
        UserError: a tensor is missing on either side, or has another shape.
    """
    state = {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
    arrays = NameMap(layer, names).to_paddle(state, "the torch module's weights")
    for name, tensor in layer.state_dict().items():
        tensor.set_value(arrays[name].astype(tensor.numpy().dtype))


def _turned(array: np.ndarray, transposed: bool) -> np.ndarray:
    return np.ascontiguousarray(array.T) if transposed else array


def load_torch_state(path: str | os.PathLike, names: NameMap) -> State:
    """Read a weights file of either framework as a torch state that fits the model, without counters.

    Raises:
        UserError: the file cannot be read or does not fit.
    """
    state = read_state(path)
    if is_paddle_state(state):
        return names.to_torch(state, str(path))
    names.to_paddle(state, str(path))
    return {e.torch_name: state[e.torch_name] for e in names.entries}
