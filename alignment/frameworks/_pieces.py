"""Tensors that the other side holds otherwise: parts of a packed one, sums, other shapes and orders of the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import einops
import numpy as np

from alignment.frameworks._passes import Module
from alignment.frameworks._paths import noted
from mobilenetv3_common.weights import Entry


@dataclass(frozen=True)
class Piece(Entry):
    """A part of a tensor, or a whole one in another shape, under the name by which the engine knows it.

    Attributes:
        whole: shape of the whole tensor in the canonical layout, before ``transposed`` is undone.
        groups: its rows lie in so many equal groups, of which each holds rows of every part.
        start, stop: of this part's rows in a group.
        added: whether its values are added to those of another tensor that goes by the same name; it is then filled with zeros.
        channels_last: whether a matrix holds kernels (outputs, inputs, *kernel) with the inputs behind the kernel's axes.
        turned: whether a matrix lies transposed there: one slice of a tensor of three axes.
    """

    whole: tuple[int, ...] = ()
    groups: int = 1
    start: int = 0
    stop: int = 0
    added: bool = False
    channels_last: bool = False
    turned: bool = False

    @property
    def own_shape(self) -> tuple[int, ...]:
        return self.whole[::-1] if self.transposed else self.whole

    @property
    def partial(self) -> bool:
        """Whether the tensor holds more than this."""
        return self.whole != () and self.groups * (self.stop - self.start) < self.whole[0]

    @property
    def label(self) -> str:
        """The own name, and which part of it is meant, for people."""
        if self.shape == self.whole:
            return self.own
        return f"{self.own}[rows {self.start}:{self.stop}{f' of each of {self.groups} groups' if self.groups > 1 else ''}]"

    def _rows(self, array: np.ndarray) -> np.ndarray:
        """The part's rows of the whole tensor, as (groups, rows of a group, ...); a view where ``array`` allows one."""
        rows = array.reshape(self.groups, -1, *self.whole[1:]) if self.whole else array.reshape(1, 1)
        return rows[:, self.start : self.stop]

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(self._rows(array.T if self.transposed else array))
        if self.turned:
            return np.asarray(rows.reshape(self.shape[::-1]).T, order="C")
        if not self.channels_last:
            return rows.reshape(self.shape)
        if len(self.whole) > len(self.shape):
            return np.moveaxis(rows.reshape(self.whole), 1, -1).reshape(self.shape)
        outputs, inputs, *kernel = self.shape
        return np.ascontiguousarray(np.moveaxis(rows.reshape(outputs, *kernel, inputs), -1, 1))

    def to_own(self, array: np.ndarray) -> np.ndarray:
        return self.into(array, None)

    def onto(self, array: np.ndarray, found: np.ndarray | None) -> np.ndarray:
        return self.to_canonical(array) + found if self.added and found is not None else self.to_canonical(array)

    def into(self, values: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        given = np.zeros(self.whole, values.dtype) if own is None else np.array(own.T if self.transposed else own, order="C")
        place = self._rows(given)
        if self.channels_last and len(self.whole) > len(self.shape):
            outputs, inputs, *kernel = self.whole
            values = np.moveaxis(values.reshape(outputs, *kernel, inputs), -1, 1)
        elif self.channels_last:
            values = np.moveaxis(values, 1, -1)
        elif self.turned:
            values = values.T
        place[...] = 0 if self.added else values.reshape(place.shape)
        return np.asarray(given.T, order="C") if self.transposed else given


@dataclass(frozen=True)
class Arranged(Piece):
    """A tensor, or a part of one, whose axes lie otherwise: split, joined, in another order.

    Attributes:
        layout: from the whole tensor to the canonical values, in the words of einops: ``"tap in out -> out in tap"``, or to as many
            parts, ``"in (h part d) -> part (h d) in, h=4"``.
        place: of this part; None where the layout has none.
    """

    layout: str = ""
    place: int | None = None

    @property
    def partial(self) -> bool:
        return self.place is not None

    @property
    def label(self) -> str:
        return f"{self.own}[{self.layout}{'' if self.place is None else f', part {self.place}'}]"

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        parts = arranged(array.T if self.transposed else array, self.layout)
        return np.asarray(parts if self.place is None else parts[self.place], order="C")

    def into(self, values: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        if self.place is not None:
            whole = np.zeros(self.whole, values.dtype) if own is None else np.array(own.T if self.transposed else own)
            parts = np.array(arranged(whole, self.layout))
            parts[self.place] = values
            values = parts
        given = arranged(values, turned_back(self.layout))
        return np.asarray(given.T if self.transposed else given, order="C")


@dataclass(frozen=True)
class Columns(Piece):
    """Columns of a matrix, or input channels of kernels: ``start`` and ``stop`` are of the second axis of the whole tensor."""

    @property
    def partial(self) -> bool:
        return self.stop - self.start < self.whole[1]

    @property
    def label(self) -> str:
        return f"{self.own}[columns {self.start}:{self.stop}]"

    def to_canonical(self, array: np.ndarray) -> np.ndarray:
        whole = (array.T if self.transposed else array).reshape(self.whole)
        return np.asarray(whole[:, self.start : self.stop].reshape(self.shape), order="C")

    def into(self, values: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        shape = self.own_shape if own is None else own.shape
        given = (
            np.zeros(self.whole, values.dtype) if own is None else np.array(own.T if self.transposed else own).reshape(self.whole)
        )
        place = given[:, self.start : self.stop]
        place[...] = values.reshape(place.shape)
        return np.asarray((given.T if self.transposed else given).reshape(shape), order="C")


def arranged(array: np.ndarray, layout: str) -> np.ndarray:
    """An array with its axes split, joined and ordered as a layout says: an einops pattern, and behind it sizes, ``", h=4"``.

    Raises:
        ValueError: the layout is none, or does not fit the array.
    """
    pattern, *sizes = layout.split(",")
    known = {name.strip(): int(size) for name, _, size in (one.partition("=") for one in sizes)}
    try:
        return einops.rearrange(array, pattern, **known)
    except einops.EinopsError as error:
        raise ValueError(str(error)) from error


def turned_back(layout: str) -> str:
    """The layout that undoes another one."""
    pattern, comma, sizes = layout.partition(",")
    left, _, right = pattern.partition("->")
    return f"{right.strip()} -> {left.strip()}{comma}{sizes}"


Pieces = Mapping[str, Sequence[Piece]]


def pieces_of(model: Module) -> Pieces:
    """A model's own names of tensors -> the pieces in which the engine knows them, where ``call_tensors`` has given it some."""
    return noted(model, "tensors_in_reference", {})


def leave_out(model: Module, names: Sequence[str]) -> None:
    """From now on the engine does not know these own tensors of a module, which are those of another module under a second name."""
    model.tensors_left_out = tuple(names)


def left_out(model: Module) -> Sequence[str]:
    """Names of a module's own tensors that the engine does not know."""
    return noted(model, "tensors_left_out", ())


def call_tensors(model: Module, pieces: Pieces) -> None:
    """From now on the engine knows tensors of a model in pieces: own name -> pieces; none of one that it leaves as it is."""
    model.tensors_in_reference = {name: tuple(parts) for name, parts in pieces.items()}
