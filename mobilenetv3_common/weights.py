"""The names and layouts that frameworks give to the same weights, and files of them (read in ``weights_file``).

The canonical form is torch's. In Paddle BatchNorm's statistics are ``_mean`` and ``_variance``, not ``running_mean`` and
``running_var``; the matrices of linear layers are transposed; and there is no counter ``num_batches_tracked``. Conversion is
strict: equal key sets, equal shapes, nothing skipped.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.mindspore_checkpoint import write_ckpt
from mobilenetv3_common.torch_file import torch_for
from mobilenetv3_common.weights_file import FORMATS, State, read_state

__all__ = [
    "CLASSIFIER", "COUNTER", "FORMATS", "MINDSPORE_STATISTICS", "PADDLE_STATISTICS", "TORCH_STATISTICS", "Entry",
    "State", "as_paddle", "as_torch", "canonical_state", "check_fit", "in_canonical", "is_paddle_state", "is_statistic",
    "other_classifier", "own_state", "paddle_entries", "read_state", "with_counters", "write_state",
]  # fmt: skip

COUNTER = "num_batches_tracked"
CLASSIFIER = "classifier.3"  # MobileNetV3's last layer
TORCH_STATISTICS = ("running_mean", "running_var")
PADDLE_STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}  # Paddle's names -> the canonical ones, torch's
MINDSPORE_STATISTICS = {"moving_mean": "running_mean", "moving_variance": "running_var"}


def is_statistic(name: str) -> bool:
    """Whether a name, in either framework's naming, is that of a running mean or variance of BatchNorm."""
    return name.rpartition(".")[2] in (*TORCH_STATISTICS, *PADDLE_STATISTICS, *MINDSPORE_STATISTICS)


@dataclass(frozen=True)
class Entry:
    """One tensor of a state in a framework's own form and in the canonical one, which is torch's.

    Attributes:
        canonical, own: its names in the two forms.
        shape: its canonical shape.
        transposed: whether its own form is the transpose of the canonical one.
        role: ``"parameter"``, or ``"buffer"`` for statistics and the like.
        flat: whether its own form holds the same numbers in one dimension.
    """

    canonical: str
    own: str
    shape: tuple[int, ...]
    transposed: bool = False
    role: str = "parameter"
    flat: bool = field(default=False, kw_only=True)

    @property
    def own_shape(self) -> tuple[int, ...]:
        if self.flat:
            return (math.prod(self.shape),)
        return self.shape[::-1] if self.transposed else self.shape

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        """The values in the canonical layout, from the own one."""
        if self.flat:
            return array.reshape(self.shape)
        return np.ascontiguousarray(array.T) if self.transposed else array

    def to_own(self, array: np.ndarray) -> np.ndarray:
        """The values in the own layout, from the canonical one."""
        if self.flat:
            return array.reshape(-1)
        return np.ascontiguousarray(array.T) if self.transposed else array

    def onto(self, array: np.ndarray, found: np.ndarray | None) -> np.ndarray:
        """The values in the canonical layout; ``found`` is what another tensor of the same canonical name gave, None for none."""
        return self.to_canonical(array)

    def into(self, values: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        """The own tensor that holds the canonical values; ``own`` has what other entries put into it, None where they did not."""
        return self.to_own(values)


def canonical_state(
    state: Mapping[str, np.ndarray], entries: Sequence[Entry], source: str, counters: Collection[str] = (COUNTER,)
) -> State:
    """A state in the own form, in the canonical one.

    Args:
        state: by own names.
        entries: what it must hold, all of it and nothing else.
        source: names the weights in a message.
        counters: last names of tensors beside running statistics that are left out.

    Raises:
        UserError: a key is missing or too many, or a shape differs.
    """
    kept = _without_counters(state, {entry.own for entry in entries}, counters)
    check_fit({k: v.shape for k, v in kept.items()}, {entry.own: entry.own_shape for entry in entries}, source)
    return in_canonical((entry, kept[entry.own]) for entry in entries)


def in_canonical(pairs: Iterable[tuple[Entry, np.ndarray]]) -> State:
    """The canonical state of entries with their own arrays."""
    found: State = {}
    for entry, array in pairs:
        found[entry.canonical] = entry.onto(array, found.get(entry.canonical))
    return found


def own_state(
    state: Mapping[str, np.ndarray], entries: Sequence[Entry], source: str, counters: Collection[str] = (COUNTER,)
) -> State:
    """A state in the canonical form, in the own one; the reverse of ``canonical_state``.

    Raises:
        UserError: as ``canonical_state``.
    """
    kept = _without_counters(state, {entry.canonical for entry in entries}, counters)
    check_fit({k: v.shape for k, v in kept.items()}, {entry.canonical: entry.shape for entry in entries}, source)
    found: State = {}
    for entry in entries:
        found[entry.own] = entry.into(kept[entry.canonical], found.get(entry.own))
    return found


def _without_counters(state: Mapping[str, np.ndarray], known: Collection[str], counters: Collection[str]) -> State:
    """The state without the counters of layers that have running statistics; another layer's is left, to be refused."""
    parents = {name.rpartition(".")[0] for name in known if name.rpartition(".")[2] in ("running_mean", *PADDLE_STATISTICS)}

    def is_counter(name: str) -> bool:
        parent, _, last = name.rpartition(".")
        return last in counters and parent in parents

    return {name: array for name, array in state.items() if not is_counter(name)}


def with_counters(state: Mapping[str, np.ndarray]) -> State:
    """A canonical state with every counter that torch's ``load_state_dict(strict=True)`` wants, 0."""
    norms = [name.removesuffix("running_mean") for name in state if name.rpartition(".")[2] == "running_mean"]
    return {**state, **{f"{norm}{COUNTER}": np.zeros((), dtype=np.int64) for norm in norms}}


# --- a MobileNetV3's weights without a model: in this network every matrix belongs to a linear layer -----------------------


def paddle_entries(shapes: Mapping[str, tuple[int, ...]]) -> list[Entry]:
    """The entries of a MobileNetV3 from the names and shapes of its state in Paddle."""
    found = []
    for own, shape in shapes.items():
        parent, _, last = own.rpartition(".")
        transposed = last == "weight" and len(shape) == 2
        name = PADDLE_STATISTICS.get(last, last)
        role = "buffer" if last in PADDLE_STATISTICS else "parameter"
        canonical = f"{parent}.{name}" if parent else name
        found.append(Entry(canonical, own, tuple(shape)[::-1] if transposed else tuple(shape), transposed, role))
    return found


def is_paddle_state(state: Mapping[str, Any]) -> bool:
    """Whether a state carries Paddle's names for BatchNorm statistics."""
    return any(name.rpartition(".")[2] in PADDLE_STATISTICS for name in state)


def as_torch(state: Mapping[str, np.ndarray]) -> State:
    """A MobileNetV3's weights under torch's names and in its layout, without counters, from either framework's."""
    if not is_paddle_state(state):
        return {name: array for name, array in state.items() if not name.endswith(COUNTER)}
    return canonical_state(state, paddle_entries({name: array.shape for name, array in state.items()}), "the weights")


def as_paddle(state: Mapping[str, np.ndarray]) -> State:
    """A MobileNetV3's weights under Paddle's names and in its layout, from either framework's."""
    if is_paddle_state(state):
        return dict(state)
    own = {name: own for own, name in PADDLE_STATISTICS.items()}
    shapes = {}
    for name, array in as_torch(state).items():
        parent, _, last = name.rpartition(".")
        turned = last == "weight" and array.ndim == 2
        shapes[f"{parent}.{own.get(last, last)}" if parent else name] = array.shape[::-1] if turned else array.shape
    return own_state(state, paddle_entries(shapes), "the weights")


def check_fit(shapes: Mapping[str, tuple], expected: Mapping[str, tuple], source: str, allowed: Collection[str] = ()) -> None:
    """Equal keys and equal shapes, or nothing.

    Args:
        shapes: what the weights have.
        expected: what the model has.
        source: names the weights in the message.
        allowed: keys that the weights may have beyond the model's.

    Raises:
        UserError: a key is missing or too many, or a shape differs.
    """
    missing = [k for k in expected if k not in shapes]
    extra = [k for k in shapes if k not in expected and k not in allowed]
    wrong = [k for k in expected if k in shapes and tuple(shapes[k]) != tuple(expected[k])]
    if not (missing or extra or wrong):
        return
    parts = []
    if missing:
        parts.append(f"{counted(len(missing), 'missing key')}, first {missing[0]}")
    if extra:
        parts.append(f"{counted(len(extra), 'unexpected key')}, first {extra[0]}")
    if wrong:
        first = wrong[0]
        two = f"{tuple(shapes[first])}, expected {tuple(expected[first])}"
        parts.append(f"{counted(len(wrong), 'wrong shape')}, first {first}: {two}")
    hint = "; are they another model's, or of another width or class count?" if len(missing) + len(wrong) > 4 else ""
    raise UserError(f"{source} do not fit the model: {'; '.join(parts)}{hint}")


def other_classifier(arrays: State, own: State, path: str, reset: bool) -> State:
    """The model's own last layer, where the weights to begin from have another number of classes; else nothing.

    Args:
        arrays: the weights to begin from.
        own: the model's, under the same framework's names.
        path: of the weights, for the message.
        reset: whether a fresh last layer is wanted.

    Raises:
        UserError: the number of classes differs and ``reset`` is false.
    """
    other = [n for n in own if n.startswith(f"{CLASSIFIER}.") and n in arrays and arrays[n].shape != own[n].shape]
    bias = f"{CLASSIFIER}.bias"
    if bias not in other:  # as many classes; of another model or width ``check_fit`` says which tensors do not fit
        return {}
    if not reset:
        raise UserError(
            f"{path} is for {arrays[bias].size} classes, the model has {own[bias].size}: "
            "the data's classes or --num-classes must fit; training may also begin with a fresh last layer, by --reset-classifier"
        )
    return {name: own[name] for name in other}


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
    if path.suffix == ".ckpt":
        write_ckpt(path, state)
        return
    with atomic_open(path) as file:
        if path.suffix == ".pdparams":
            pickle.dump(state, file, protocol=4)
        else:
            torch = torch_for(path)
            torch.save({k: torch.tensor(v) for k, v in state.items()}, file)
