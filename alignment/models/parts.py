"""Layers in parts, each of which is looked for by itself: where one tensor of the one side lies in several of the other side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alignment.frameworks.base import Call, leaves
from alignment.models.layouts import Sizes
from alignment.models.links import plain
from mobilenetv3_common.weights import Entry

MOST_PARTS = 8  # of one tensor
IN_PROJECTION = "in_proj_"
OUT_PROJECTION = ".out_proj"  # of an attention of PyTorch


@dataclass(frozen=True)
class Whole:
    """What a tensor is a part of.

    Attributes:
        name: of the whole tensor.
        count: how many parts it has.
        columns: whether they lie side by side, and what they give is added up.
    """

    name: str
    count: int
    columns: bool = False


@dataclass(frozen=True)
class Division:
    """How a layer lies in parts.

    Attributes:
        sizes: rows, or columns, of each part.
        columns: whether what the parts give is added up.
        equal: whether all have one size.
    """

    sizes: tuple[int, ...]
    columns: bool = False
    equal: bool = False


class Parts:
    """The layers of a side, which may be taken apart.

    Args:
        calls, state: what each layer got and gave, and its tensors; parts are added to both.
        held: the tensors of the other side in modules of somebody's own, and all.
        theirs: all of this side.
    """

    def __init__(
        self,
        calls: dict[str, Call],
        state: dict[str, np.ndarray],
        held: tuple[Mapping[str, Entry], Mapping[str, Entry]],
        theirs: Sequence[Entry],
    ) -> None:
        self.calls, self.state = calls, state
        self.own, self.entries = held
        self.theirs = theirs
        self.wholes: dict[str, Whole] = {}  # tensor of a part -> what it is a part of

    def projected(self, path: str) -> bool:
        """Let an attention of PyTorch, which calls no layer inside it, be the two that it consists of; False for all else."""
        call, weight = self.calls.get(path), self.state.get(f"{path}.{IN_PROJECTION}weight")
        given = leaves(call.args, np.ndarray)[:3] if call is not None else []
        if call is None or weight is None or len(given) < 3 or not all(np.array_equal(given[0], one) for one in given[1:]):
            return False
        projected = given[0] @ weight.T + self.state.get(f"{path}.{IN_PROJECTION}bias", 0.0)
        self.calls[path] = Call((given[0],), {}, projected)
        self.calls[f"{path}{OUT_PROJECTION}"] = Call((), {}, leaves(call.output, np.ndarray)[0])
        return True

    def divided(self, path: str, entries: list[Entry]) -> list[tuple[str, list[Entry]]]:
        """A layer, or the parts of one that no tensor can hold, since each lies in one of its own."""
        whole, channels = _largest(entries), self._channels(path, entries)
        numbers = math.prod(whole.shape)
        wholly = any(one % numbers == 0 and one // numbers <= MOST_PARTS for one in self._numbers(whole.role))
        if channels is None or wholly or _is_held(whole, *self._layers(whole.role)):
            return [(path, entries)]
        found = self.divisions(path, entries)
        return self.divide(path, entries, found[0]) if found else [(path, entries)]

    def divisions(self, path: str, entries: Sequence[Entry]) -> list[Division]:
        """How a layer may lie in several tensors, the likeliest first.

        The outputs of its parts stand side by side (queries, keys, values), or are added up (a layer on two joined values).
        """
        whole, channels = _largest(entries), self._channels(path, entries)
        if channels is None:
            return []
        width = leaves(self.calls[path].output, np.ndarray)[0].shape[channels]
        kernel, (layers, wanted), own = plain(whole.shape), self._layers(whole.role), self._numbers(whole.role)
        spare = layers - wanted
        spare_own = own - Counter(math.prod(one.shape) for one in self.theirs if one.role == whole.role)
        rows = [
            count for count in range(2, MOST_PARTS + 1)
            if width % count == 0 and all(one.shape and one.shape[0] % count == 0 for one in entries)
        ]  # fmt: skip
        columns = range(2, MOST_PARTS + 1) if len(kernel) == 2 else ()
        found = []
        for in_layers, in_own in (
            (spare, spare_own),
            (layers, own),
        ):  # at first without those that hold a tensor of their own shape
            for count in rows:
                part = plain((whole.shape[0] // count, *whole.shape[1:]))
                if in_layers[part] >= count or in_own[math.prod(part)] >= count:
                    found.append(Division((whole.shape[0] // count,) * count, equal=True))
            for count in (one for one in columns if kernel[1] % one == 0 and kernel[1] > one):
                if in_layers[kernel[0], kernel[1] // count] >= count:
                    found.append(Division((kernel[1] // count,) * count, columns=True, equal=True))
        shapes = [plain(one.shape) for one in self.entries.values() if one.role == whole.role and one.canonical not in self.own]
        widths = _widths(kernel, shapes, spare)
        found[:0] = [Division(tuple(widths), columns=True)] if widths else []
        return list(dict.fromkeys(found))

    def divide(self, path: str, entries: Sequence[Entry], division: Division) -> list[tuple[str, list[Entry]]]:
        """The parts of a layer, whose calls and tensors are known from then on."""
        channels = self._channels(path, entries)
        assert channels is not None
        if division.columns:
            return self._columns(path, entries, division.sizes, channels)
        return self._rows(path, entries, len(division.sizes), channels)

    def _channels(self, path: str, entries: Sequence[Entry]) -> int | None:
        """The axis of a layer's output that has its rows; None where it gives no such array."""
        outputs = leaves(self.calls[path].output, np.ndarray)
        return None if not outputs or outputs[0].ndim < 2 else 1 if len(_largest(entries).shape) > 2 else -1

    def _layers(self, role: str) -> tuple[Counter[Sizes], Counter[Sizes]]:
        """How many tensors of each shape, without ones, the other side's layers hold, and this side has."""
        held = [one for name, one in self.entries.items() if one.role == role and name not in self.own]
        return Counter(plain(one.shape) for one in held), Counter(plain(one.shape) for one in self.theirs if one.role == role)

    def _numbers(self, role: str) -> Counter[int]:
        """How many tensors of each size modules of somebody's own hold."""
        return Counter(math.prod(one.shape) for one in self.own.values() if one.role == role)

    def _rows(self, path: str, entries: Sequence[Entry], count: int, channels: int) -> list[tuple[str, list[Entry]]]:
        found = []
        output = leaves(self.calls[path].output, np.ndarray)[0]
        for number, given in enumerate(np.split(output, count, axis=channels)):
            part = f"{path}[{number}]"
            names = {one.canonical: f"{part}.{one.canonical.rpartition('.')[2].removeprefix(IN_PROJECTION)}" for one in entries}
            self.calls[part] = replace(self.calls[path], output=given)
            self.state |= {name: np.split(self.state[one], count)[number] for one, name in names.items()}
            self.wholes |= {name: Whole(one, count) for one, name in names.items()}
            shapes = [(entry.shape[0] // count, *entry.shape[1:]) for entry in entries]
            pairs = zip(entries, shapes, strict=True)
            found.append((part, [replace(entry, canonical=names[entry.canonical], shape=shape) for entry, shape in pairs]))
        return found

    def _columns(self, path: str, entries: Sequence[Entry], widths: Sequence[int], channels: int) -> list[tuple[str, list[Entry]]]:
        """Parts of a linear layer, or of a convolution by 1 x 1, of which the first has the bias."""
        given, whole = next(iter(leaves(self.calls[path].args, np.ndarray)), None), _largest(entries)
        if given is None or given.shape[channels] != whole.shape[1]:
            return [(path, list(entries))]
        found: list[tuple[str, list[Entry]]] = []
        ends = np.cumsum(widths)[:-1]
        inputs, weights = np.split(given, ends, axis=channels), np.split(self.state[whole.canonical], ends, axis=1)
        for number, (value, weight) in enumerate(zip(inputs, weights, strict=True)):
            part, others = f"{path}[{number}]", [entry for entry in entries if entry is not whole and number == 0]
            name = f"{part}.{whole.canonical.rpartition('.')[2]}"
            names = {entry.canonical: f"{part}.{entry.canonical.rpartition('.')[2]}" for entry in others}
            made = np.moveaxis(value, channels, -1) @ weight.reshape(weight.shape[:2]).T
            made = np.moveaxis(made + sum(self.state[entry.canonical] for entry in others), -1, channels)
            self.calls[part] = Call((value,), {}, made)
            self.state |= {name: weight, **{new: self.state[one] for one, new in names.items()}}
            self.wholes |= {name: Whole(whole.canonical, len(widths), True)} | {new: Whole(one, 1) for one, new in names.items()}
            held = [replace(entry, canonical=names[entry.canonical]) for entry in others]
            found.append((part, [replace(whole, canonical=name, shape=weight.shape), *held]))
        return found


def _largest(entries: Sequence[Entry]) -> Entry:
    return max(entries, key=lambda entry: math.prod(entry.shape))


def _widths(kernel: Sizes, shapes: Sequence[Sizes], spare: Mapping[Sizes, int]) -> list[int]:
    """How many columns of a matrix, or of a kernel by 1 x 1, each of some layers has that nothing else needs; empty where none do.

    Args:
        kernel: shape of the whole, without ones.
        shapes: of the other side's tensors, in their order, without ones.
        spare: how many of each shape are left over.
    """
    fit = [shape for shape in shapes if len(kernel) == len(shape) == 2 and shape[0] == kernel[0] and spare.get(shape, 0)]
    runs = (fit[first:last] for first in range(len(fit)) for last in range(first + 2, min(len(fit), first + MOST_PARTS) + 1))
    return next(([width for _, width in run] for run in runs if sum(width for _, width in run) == kernel[1]), [])


def _is_held(whole: Entry, layers: Mapping[Sizes, int], wanted: Mapping[Sizes, int]) -> bool:
    """Whether a layer of the framework may hold a tensor, by itself or behind others.

    Args:
        whole: the tensor.
        layers, wanted: how many tensors of each shape, without ones, the other side's layers hold, and this side has.
    """
    rows, *rest = plain(whole.shape) or (0,)
    held = [shape for shape in layers if len(shape) == len(rest) + 1 and shape[0] % rows == 0 and shape[1:] == (*rest,)]
    return any(layers[shape] > (wanted.get(shape, 0) if shape[0] > rows else 0) for shape in held)
