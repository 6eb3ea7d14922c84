"""Weights between torch and Paddle: strict, bijective, and read without running code.

The two frameworks differ in three ways: BatchNorm's statistics are called ``running_mean``/``running_var`` in torch and
``_mean``/``_variance`` in Paddle; the weights of linear layers are transposed; torch counts ``num_batches_tracked``,
which a BatchNorm with a fixed momentum never reads and Paddle does not have.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.safe_pickle import load_arrays

State = dict[str, np.ndarray]
FORMATS = (".pth", ".pt", ".pdparams", ".safetensors")
COUNTER = "num_batches_tracked"


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
    """

    def __init__(self, layer: Any) -> None:
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
            self.entries.append(Entry(renamed.get(paddle_name, paddle_name), paddle_name, shape, transposed))
        self.counters = [f"{prefix}{COUNTER}" for prefix in norms]

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
            UserError: as :meth:`to_paddle`.
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
        counters = set() if paddle_layout else set(self.counters)
        missing = [k for k in expected if k not in shapes]
        extra = [k for k in shapes if k not in expected and k not in counters]
        wrong = [k for k in expected if k in shapes and tuple(shapes[k]) != tuple(expected[k])]
        if not (missing or extra or wrong):
            return
        parts = []
        if missing:
            parts.append(f"{len(missing)} missing key(s), first {missing[0]}")
        if extra:
            parts.append(f"{len(extra)} unexpected key(s), first {extra[0]}")
        if wrong:
            first = wrong[0]
            parts.append(f"{len(wrong)} wrong shape(s), first {first}: {tuple(shapes[first])}, expected {tuple(expected[first])}")
        hint = "; are they another model's, or of another width or class count?" if len(missing) + len(wrong) > 4 else ""
        raise UserError(f"{source} do not fit the model: {'; '.join(parts)}{hint}")


def _turned(array: np.ndarray, transposed: bool) -> np.ndarray:
    return np.ascontiguousarray(array.T) if transposed else array


def is_paddle_state(state: Mapping[str, Any]) -> bool:
    """Whether a state carries Paddle's names for BatchNorm statistics."""
    return any(name.endswith(("._mean", "._variance")) for name in state)


def read_state(path: str | os.PathLike) -> State:
    """Read a weights file; nothing in it is executed.

    ``.pth`` and ``.pt`` go through ``torch.load(weights_only=True)``, ``.safetensors`` through safetensors, and
    ``.pdparams`` through :mod:`mobilenetv3_common.safe_pickle` (``paddle.load`` would run code from a crafted file).

    Returns:
        name -> array, in the file's own naming and layout.

    Raises:
        UserError: the file is missing, damaged, of another kind, or holds something other than named arrays.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise UserError(f"no such weights file: {path}")
    if path.suffix == ".pdparams":
        with open(path, "rb") as file:
            content = load_arrays(file, str(path))
        if isinstance(content, dict):
            content.pop("StructuredToParameterName@@", None)
    elif path.suffix == ".safetensors":
        content = _read_safetensors(path)
    else:
        content = _read_torch(path)
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = content["model"]  # a training checkpoint of torchvision's reference script
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(k, str) and isinstance(v, np.ndarray) and v.dtype != object for k, v in content.items())
    ):
        raise UserError(f"{path} does not hold a dictionary of named arrays: give a file of weights alone")
    return dict(content)


def _read_safetensors(path: Path) -> State:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}") from error


def _read_torch(path: Path) -> Any:
    import torch

    def as_arrays(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.numpy()
        return {k: as_arrays(v) for k, v in value.items()} if isinstance(value, dict) else value

    try:
        return as_arrays(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} is not read: it is no weights file, or holds more than weights, which could run code") from error
    except Exception as error:  # torch raises RuntimeError, EOFError, KeyError ... for damaged archives
        reason = (str(error).splitlines() or ["it ends too early"])[0]
        raise UserError(f"{path} is damaged: {type(error).__name__}: {reason}") from error


def write_state(path: str | os.PathLike, state: State) -> None:
    """Write a weights file of the kind its suffix says, whole or not at all.

    Raises:
        UserError: an unknown suffix, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    if path.suffix == ".safetensors":
        from safetensors.numpy import save

        with atomic_open(path) as file:
            file.write(save({k: np.array(v, order="C") for k, v in state.items()}))
        return
    with atomic_open(path) as file:
        if path.suffix == ".pdparams":
            pickle.dump(state, file, protocol=4)
        else:
            import torch

            torch.save({k: torch.tensor(v) for k, v in state.items()}, file)


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
