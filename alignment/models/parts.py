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
        """A layer, or the equal parts of one that no tensor can hold, since each lies in one of its own.

        Their outputs stand side by side (queries, keys, values), or are added up (a layer on what two others gave, joined).
        """
        whole = max(entries, key=lambda entry: math.prod(entry.shape))
        outputs, size = leaves(self.calls[path].output, np.ndarray), math.prod(whole.shape)
        alike = [mine for mine in self.entries.values() if mine.role == whole.role]
        own = Counter(math.prod(mine.shape) for mine in self.own.values() if mine.role == whole.role)
        layers = Counter(plain(mine.shape) for mine in alike if mine.canonical not in self.own)
        theirs = [one for one in self.theirs if one.role == whole.role]
        spare = layers - Counter(plain(one.shape) for one in theirs), own - Counter(math.prod(one.shape) for one in theirs)
        wholly = any(one % size == 0 and one // size <= MOST_PARTS for one in own) or _is_held(whole, layers)
        if not outputs or outputs[0].ndim < 2 or wholly:
            return [(path, entries)]
        channels = 1 if len(whole.shape) > 2 else -1
        rows = [
            (count, plain((whole.shape[0] // count, *whole.shape[1:])), size // count) for count in range(2, MOST_PARTS + 1)
            if all(one.shape and one.shape[0] % count == 0 for one in entries) and outputs[0].shape[channels] % count == 0
        ]  # fmt: skip
        columns = range(2, MOST_PARTS + 1) if len(whole.shape) == 2 else ()
        side_by_side = [(count, (whole.shape[0], whole.shape[1] // count)) for count in columns if whole.shape[1] % count == 0]
        for in_layers, in_own in (spare, (layers, own)):  # at first without those that hold a tensor of their own shape
            for count, part, numbers in rows:
                if in_layers[part] >= count or in_own[numbers] >= count:
                    return self._rows(path, entries, count, channels)
            for count, part in side_by_side:
                if part[1] > 1 and in_layers[part] >= count:
                    return self._columns(path, entries, whole, count)
        return [(path, entries)]

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

    def _columns(self, path: str, entries: Sequence[Entry], whole: Entry, count: int) -> list[tuple[str, list[Entry]]]:
        """Parts of a linear layer, of which the first has the bias."""
        given = next(iter(leaves(self.calls[path].args, np.ndarray)), None)
        if given is None or given.shape[-1] != whole.shape[1]:
            return [(path, list(entries))]
        found: list[tuple[str, list[Entry]]] = []
        inputs, weights = (np.split(one, count, axis=-1) for one in (given, self.state[whole.canonical]))
        for number, (value, weight) in enumerate(zip(inputs, weights, strict=True)):
            part, others = f"{path}[{number}]", [entry for entry in entries if entry is not whole and number == 0]
            name = f"{part}.{whole.canonical.rpartition('.')[2]}"
            names = {entry.canonical: f"{part}.{entry.canonical.rpartition('.')[2]}" for entry in others}
            self.calls[part] = Call((value,), {}, value @ weight.T + sum(self.state[entry.canonical] for entry in others))
            self.state |= {name: weight, **{new: self.state[one] for one, new in names.items()}}
            self.wholes |= {name: Whole(whole.canonical, count, True), **{new: Whole(one, 1) for one, new in names.items()}}
            held = [replace(entry, canonical=names[entry.canonical]) for entry in others]
            found.append((part, [replace(whole, canonical=name, shape=weight.shape), *held]))
        return found


def _is_held(whole: Entry, layers: Mapping[Sizes, int]) -> bool:
    """Whether a layer of the framework may hold a tensor, by itself or behind others."""
    rows, *rest = plain(whole.shape) or (0,)
    return any(len(shape) == len(rest) + 1 and shape[0] % rows == 0 and shape[1:] == (*rest,) for shape in layers)
