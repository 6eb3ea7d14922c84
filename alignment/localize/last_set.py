"""Where a tensor of a fresh port got its values: the line that makes it, or what initialises it afterwards.

Any line may do that (``self.apply(init)``, ``Normal()(layer.weight)``, ``w[:] = 0``), so the port is built once more; after each
line of its source the tensors are looked at.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from alignment.frameworks.base import Framework, Module
from alignment.localize.hypotheses.arrays import close
from alignment.localize.source import ENGINE, FileLine, callers_of, counting_modules, of_framework
from alignment.localize.syntax import SourceTree
from alignment.strangers import strangers

LARGEST = 1 << 20  # values of an array that is noted
MOST = 4000  # arrays that are noted
FEW = 8  # numbers of a tensor that are looked at
OTHERS = tuple(Path(one) for one in (sysconfig.get_path("stdlib"), np.__file__.rpartition("/")[0]))


def last_set(framework: Framework, build: Callable[[], Any], wanted: Sequence[tuple[int, str]]) -> list[FileLine | None]:
    """File and line for each tensor; None where it is not known.

    Args:
        framework, build: of the port.
        wanted: the number of a module in the order in which they are made, and the port's own name of a tensor in it.
    """
    watch = _Traced(framework, wanted)
    with counting_modules(framework, lambda module, number, _: watch.modules.update({number: module})), watch.tracing():
        build()
    return watch.places


def first_made(framework: Framework, build: Callable[[], Any], values: np.ndarray) -> FileLine | None:
    """The line after which a name of the port's source, or what a function gives, first holds the values; None where none does."""
    watch = _Made(framework, values.astype(np.float64).ravel())
    with watch.tracing():
        build()
    return watch.place


def first_apart(sides: Sequence[tuple[Framework, Callable[[], Any]]], values: np.ndarray) -> FileLine | None:
    """The line of the port from which a table gets other values than the reference's; None where that is not one line alone.

    A name is held to that of the same name in the same function of the reference, in the same call; where there is none, to all
    that the reference's functions hold. What is computed from other values and is the reference's again says nothing of them.

    Args:
        sides: framework and constructor of the port and of the reference.
        values: of the port's table.
    """
    mine, theirs = (_Bindings(framework) for framework, _ in sides)
    for side, (_, build) in zip((mine, theirs), sides, strict=True):
        with side.tracing():
            build()
    named: dict[tuple, list[np.ndarray]] = {}
    for one in theirs.bound:
        named.setdefault((one.function, one.turn, one.name), []).append(one.array)
    held = [part for one in theirs.bound for parts in _parts(one.array) for part in parts]
    apart: dict[tuple[int, str], set[FileLine]] = {}  # a frame's names -> the lines that made them other values
    for one in mine.bound:
        behind = set[FileLine]().union(*(apart.get((one.reader, name), ()) for name in one.reads()))
        others = named.get((one.function, one.turn, one.name), [])
        known = any(_same(one.array, other) for other in others)
        if not others:
            known = any(all(any(_same(part, other) for other in held) for part in parts) for parts in _parts(one.array))
        apart[one.frame, one.name] = set() if known else behind or {one.place}
        for lines in apart.values() if known else ():
            lines -= behind
        if _same(one.array.ravel(), values.ravel()):
            return next(iter(lines), None) if len(lines := apart[one.frame, one.name]) == 1 else None
    return None


def _parts(array: np.ndarray) -> list[list[np.ndarray]]:
    """An array, and what it may have been put together from."""
    few = [axis for axis, size in enumerate(array.shape) if array.ndim > 1 and size <= FEW]
    return [[array], *([np.take(array, place, axis) for place in range(array.shape[axis])] for axis in few)]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and close(one, other)


def by_caller(place: FileLine, module: Module, right: Sequence[Module]) -> FileLine:
    """The line that sets a tensor; of a helper that sets others rightly, given the same but sizes, the line that calls it.

    Args:
        place: the line that sets the tensor.
        module: whose it is.
        right: modules with a tensor of this name that is initialised as it should be.
    """
    lines = _lines(module)
    alike = [one for one in map(_lines, right) if place in lines and one.get(place) == lines[place]]
    outwards = itertools.dropwhile(lambda line: line != place, lines)
    return next((line for line in outwards if not any(line in one for one in alike)), place)


def _lines(module: Module) -> dict[FileLine, dict[str, Any]]:
    """The lines that led to a module, and what the names there held but for numbers."""
    found = {}
    for one in callers_of(module):
        numbers = [name for name, value in one.held.items() if type(value) in (int, float)]
        found[one.file, one.line] = {name: value for name, value in one.held.items() if name not in numbers}
    return found


class _Traced:
    """Looks at tensors whenever a line of the port ends."""

    def __init__(self, framework: Framework, wanted: Sequence[tuple[int, str]]) -> None:
        self.framework, self.wanted = framework, wanted
        self.modules: dict[int, Any] = {}
        self.seen: list[bytes | None] = [None] * len(wanted)
        self.places: list[FileLine | None] = [None] * len(wanted)
        self.now: FileLine | None = None
        self._ports: dict[str, bool] = {}

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def trace(self, frame: FrameType, event: str, given: Any) -> Any:
        """What ran since the last event was the line that was noted then."""
        if not self._is_ports(frame):
            return None
        self._look(frame, given)
        at: FrameType | None = frame
        if event == "return":
            at = frame.f_back
            while at is not None and not self._is_ports(at):
                at = at.f_back
        self.now = (Path(at.f_code.co_filename).resolve(), at.f_lineno) if at is not None else None
        return self.trace

    def _is_ports(self, frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        if name not in self._ports:
            file = Path(name)
            own = [one for one in OTHERS if file.is_relative_to(one) and "site-packages" not in file.relative_to(one).parts]
            others = own or of_framework(self.framework, file) or file.is_relative_to(ENGINE)
            self._ports[name] = not others and file.is_file()
        return self._ports[name]

    def _look(self, frame: FrameType, given: Any) -> None:
        for place, (number, name) in enumerate(self.wanted):
            tensor = getattr(self.modules.get(number), name, None)
            held = self._first_numbers(tensor) if isinstance(tensor, self.framework.tensor_type) else None
            if held is not None and held != self.seen[place]:
                self.seen[place], self.places[place] = held, self.now

    def _first_numbers(self, tensor: Any) -> bytes | None:
        with strangers("port"):  # one without memory
            return self.framework.array(tensor.flatten()[:FEW]).tobytes()
        return None


class _Made(_Traced):
    """Looks for values among the names of the port's functions and what these give."""

    def __init__(self, framework: Framework, values: np.ndarray) -> None:
        super().__init__(framework, ())
        self.values = values
        self.place: FileLine | None = None

    def _look(self, frame: FrameType, given: Any) -> None:
        for one in [*frame.f_locals.values(), *self._held(frame), given] if self.place is None else ():
            array: Any = one if isinstance(one, np.ndarray | self.framework.tensor_type) else np.empty(0)
            if math.prod(array.shape) == self.values.size:
                array = array if isinstance(array, np.ndarray) else self.framework.array(array)
                if array.dtype.kind in "iufb" and close(array.astype(np.float64).ravel(), self.values):
                    self.place = self.now

    def _held(self, frame: FrameType) -> list[Any]:
        """What the module whose method runs keeps."""
        owner = frame.f_locals.get("self")
        if not isinstance(owner, self.framework.module_type):
            return []
        held = vars(owner)
        return [*held.values(), *(held.get("_buffers") or {}).values()]


@dataclass(frozen=True)
class _Bound:
    """A name that got an array.

    Attributes:
        place: the line that gave it.
        frame: number of the call of the function whose name it is.
        reader: of that in which the line stands.
        function, turn: the name of the function, and how often it was called before.
        name: ``"self.NAME"`` for an attribute.
        array: the values; of a list of arrays of one shape all of them.
    """

    place: FileLine
    frame: int
    reader: int
    function: str
    turn: int
    name: str
    array: np.ndarray

    def reads(self) -> set[str]:
        """The names that the line reads."""
        with contextlib.suppress(OSError, SyntaxError):
            return SourceTree.of(self.place[0]).names_at(self.place[1])
        return set()


class _Bindings(_Traced):
    """Notes each array that a name of a function gets while a model is built."""

    def __init__(self, framework: Framework) -> None:
        super().__init__(framework, ())
        self.bound: list[_Bound] = []
        self._frames: dict[int, tuple[FrameType, int, str, int]] = {}  # each is kept, so that no other takes its place
        self._held: dict[tuple[int, str], int] = {}
        self._reader = -1

    def trace(self, frame: FrameType, event: str, given: Any) -> Any:
        made = super().trace(frame, event, given)
        if made is not None:
            at: FrameType | None = frame if event != "return" else frame.f_back
            self._reader = -1 if at is None else self._numbered(at)[0]
        return made

    def _look(self, frame: FrameType, given: Any) -> None:
        if self.now is None or len(self.bound) > MOST:
            return
        number, function, turn = self._numbered(frame)
        names = {**frame.f_locals, **{f"self.{name}": value for name, value in _attributes(frame).items()}}
        for name, value in names.items():
            if self._held.get((number, name)) != id(value) and (array := self._array(value)) is not None:
                self.bound.append(_Bound(self.now, number, self._reader, function, turn, name, array))
            self._held[number, name] = id(value)
        if frame.f_back is not None and (array := self._array(given)) is not None:  # what it gives is the call in the line there
            own, caller = frame.f_code.co_name, self._numbered(frame.f_back)[0]
            self.bound += [_Bound(self.now, caller, number, function, turn, name, array) for name in (own, f"self.{own}")]

    def _numbered(self, frame: FrameType) -> tuple[int, str, int]:
        """The number of a call, the name of its function, and how often that was called before."""
        if id(frame) not in self._frames:
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            turn = sum(one[2] == name for one in self._frames.values())
            self._frames[id(frame)] = (frame, len(self._frames), name, turn)
        return self._frames[id(frame)][1:]

    def _array(self, value: Any) -> np.ndarray | None:
        if isinstance(value, list | tuple) and 1 < len(value) <= FEW:
            parts = [self._array(one) for one in value]
            alike = all(one is not None and one.shape == parts[0].shape for one in parts)  # type: ignore[union-attr]
            return np.stack(parts) if alike else None  # type: ignore[arg-type]
        if isinstance(value, self.framework.tensor_type):
            value = self.framework.array(value)
        plain = isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and 1 < value.size <= LARGEST
        return value.copy() if plain else None


def _attributes(frame: FrameType) -> dict[str, Any]:
    """What the object keeps whose method runs."""
    return getattr(frame.f_locals.get("self"), "__dict__", {})
