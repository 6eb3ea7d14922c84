"""File names and labels of many pictures in a few arrays: a list of a million strings takes 150 MB in every process.

Workers that are forked share the arrays; of Python's own objects each reference that they count copies a page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

Item = TypeVar("Item")
_AT_ONCE = 4096  # entries that are made Python objects at a time


class _Column(Sequence, Generic[Item]):
    """Entries that are made when they are asked for; equal to any sequence of the same entries."""

    def some(self, start: int, stop: int) -> list[Item]:
        """Entries ``start`` to ``stop`` - 1, both within the column."""
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, place: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(place, slice):
            return tuple(self[number] for number in range(*place.indices(len(self))))
        number = int(place) + (len(self) if place < 0 else 0)
        if not 0 <= number < len(self):
            raise IndexError(f"entry {place} of {len(self)}")
        return self.some(number, number + 1)[0]

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self.some(start, min(start + _AT_ONCE, len(self)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self[:3]))

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 3 else ""
        return f"{type(self).__name__}({', '.join(map(repr, self[:3]))}{more}; {len(self)} entries)"


class Names(_Column[str]):
    """Texts, one after another in one array.

    Args:
        text: uint8, the bytes of all; those that are no UTF-8 stand for themselves, as in Python's file names.
        ends: int64 (N,), where each ends in ``text``.
    """

    def __init__(self, text: np.ndarray, ends: np.ndarray) -> None:
        self.text, self.ends = text, ends

    def __len__(self) -> int:
        return len(self.ends)

    def some(self, start: int, stop: int) -> list[str]:
        first = int(self.ends[start - 1]) if start else 0
        ends = (self.ends[start:stop] - first).tolist()
        text = self.text[first : first + ends[-1]].tobytes()
        whole = text.decode(errors="surrogateescape")
        if len(whole) == len(text):  # one character a byte
            return [whole[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        return [text[a:b].decode(errors="surrogateescape") for a, b in zip([0, *ends], ends, strict=False)]


class Labels(_Column[int]):
    """Class numbers.

    Args:
        numbers: int32 (N,).
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numbers, dtype=dtype or np.int64)

    def some(self, start: int, stop: int) -> list[int]:
        return self.numbers[start:stop].tolist()


class Builder:
    """Columns that grow by one picture at a time, at little more memory than they have in the end."""

    def __init__(self) -> None:
        self._text, self._ends, self.labels = bytearray(), array("q"), array("i")

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, name: str, label: int) -> None:
        self._text += name.encode(errors="surrogateescape")
        self._ends.append(len(self._text))
        self.labels.append(label)

    def extend(self, names: Iterable[str], label: int) -> None:
        for name in names:
            self.add(name, label)

    def arrays(self) -> dict[str, np.ndarray]:
        """``text``, ``ends`` and ``labels``, as ``Names`` and ``Labels`` take them."""
        return {
            "text": np.frombuffer(self._text, dtype=np.uint8),
            "ends": np.array(self._ends, dtype=np.int64),
            "labels": np.array(self.labels, dtype=np.int32),
        }
