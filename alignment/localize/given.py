"""Where the value of a layer's argument is given: in the line that makes it, or by a caller, through the blocks around it."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alignment.frameworks._settings import UPSCALED, argument_of
from alignment.frameworks.base import Framework, Layer, Module
from alignment.localize.source import Caller, FileLine, Span, callers_of, source_place
from alignment.localize.syntax import SourceTree, argument_in, default_of, equal, parameters_of, same, unpacks

Position = tuple[Path, int, int, str]


@dataclass(frozen=True)
class GivenValue:
    """A value in the source.

    Attributes:
        file: where it stands.
        node: the value; or the call that leaves it to a default.
        argument: which the call leaves out; ``""`` where the node is the value.
        default: the value that the function then has.
    """

    file: Path
    node: ast.expr
    argument: str = ""
    default: GivenValue | None = None

    @property
    def place(self) -> Position:
        """What tells one from another."""
        return self.file, self.node.lineno, self.node.col_offset, self.argument


def changes_of(framework: str, module: Module, ours: Layer, theirs: Layer) -> dict[str, Any]:
    """The settings in which a layer differs from the reference's of the same kind, with the values that it should have."""
    if ours.kind != theirs.kind:
        return {}
    found = {
        name: value for name, value in theirs.settings.items() if name in ours.settings and not same(ours.settings[name], value)
    }
    if ours.kind == "dropout":
        found |= {name: value for name, value in UPSCALED.get(framework, {}).items() if getattr(module, name, value) != value}
    return found


class Givers:
    """Which caller gives a layer of the port what makes its settings wrong.

    Args:
        framework, model: the port.
        right: by the port's own path of a layer, the reference's in its place.
    """

    def __init__(self, framework: Framework, model: Module, right: Mapping[str, Layer]) -> None:
        self.framework = framework
        self.model = model
        modules = framework.modules(model, every_path=True)
        self.layers = {path: (modules[path], framework.layer(modules[path]), right[path]) for path in right if path in modules}
        self._wrong: dict[str, dict[str, Any]] = {}
        self._followed: dict[tuple[str, str], tuple[GivenValue | None, list[_HandedOn]]] = {}

    def wrong(self, path: str) -> dict[str, Any]:
        """The settings in which a layer differs, and what they should be."""
        if path not in self._wrong:
            self._wrong[path] = changes_of(self.framework.name, *self.layers[path]) if path in self.layers else {}
        return self._wrong[path]

    def of(self, path: str) -> GivenValue | None:
        """The value that a caller gives; None where the layer's own line does, or it is not known.

        A value that another layer has, too, and rightly, is not the wrong one.
        """
        origins = [self._origin(path, name) for name in self.wrong(path)]
        first = origins[0] if origins else None
        if first is None or any(one is None or one.place != first.place for one in origins):
            return None
        kept = [
            (other, name)
            for other, (_, layer, _) in self.layers.items()
            for name in layer.settings
            if name not in self.wrong(other)
        ]
        shared = [one for one in (self._origin(*one) for one in kept) if one is not None]
        if any(one.place == first.place for one in shared):
            return None
        if first.default is None or any(_is_default(one, first.default) for one in shared):
            return first
        return first if held_by_all(self._through.get(first.place, [])) else first.default  # else a name that is not handed on

    def lines(self, path: str) -> list[FileLine]:
        """The lines that give a layer what makes its settings wrong, the one to change first, and then those that hand it on.

        The line to change is the outermost whose call makes no layer that needs another value of the same argument.
        """
        found = [
            list(dict.fromkeys((one.given.file, one.given.node.lineno) for one in reversed(self._to_change(path, name))))
            for name in self.wrong(path)
        ]
        return found[0] if found and all(one == found[0] for one in found) else []

    def handed(self, path: str) -> tuple[GivenValue, list[tuple[Caller, Any]]] | None:
        """The value to change in the call of a helper, and, for each time the call is made, what it should be then.

        None where the layer's own line is the one to change, or it is not known.
        """
        links = [self._to_change(path, name) for name in self.wrong(path)]
        if not links or any(len(one) < 2 or one[-1].given.place != links[0][-1].given.place for one in links):
            return None
        given = links[0][-1].given
        return given, self._through[given.place]

    def calls(self, given: GivenValue) -> list[tuple[Caller, Any]]:
        """The calls that are made where a value is given, and what each should hand on."""
        return self._through.get(given.place, [])

    def _to_change(self, path: str, setting: str) -> list[_HandedOn]:
        links = self._links(path, setting)
        while len(links) > 1 and not all(same(one, self._needs[links[-1].key][0]) for one in self._needs[links[-1].key]):
            links = links[:-1]
        return links

    @functools.cached_property
    def _needs(self) -> dict[tuple, list[Any]]:
        """What the layers that are made in one call need of an argument of it."""
        found: dict[tuple, list[Any]] = {}
        for link, needed in self._handed_on():
            found.setdefault(link.key, []).append(needed)
        return found

    @functools.cached_property
    def _through(self) -> dict[Position, list[tuple[Caller, Any]]]:
        """By the place of a value in the source: the calls that are made there, and the value that each should hand on."""
        found: dict[Position, list[tuple[Caller, Any]]] = {}
        for link, needed in self._handed_on():
            found.setdefault(link.given.place, []).append((link.caller, needed))
        return found

    def _handed_on(self) -> Iterator[tuple[_HandedOn, Any]]:
        """Each call that hands on a value to a layer, with what the layer should be given."""
        for path, (_, ours, theirs) in self.layers.items():
            for name, value in theirs.settings.items() if ours.kind == theirs.kind else ():
                argument = argument_of(self.framework.name, name, value)
                links = self._links(path, name) if name in ours.settings else ()
                yield from ((link, argument[1]) for link in links if argument is not None)

    @functools.cached_property
    def _right(self) -> dict[tuple[FileLine | None, type], str]:
        alike = [path for path, (_, ours, theirs) in self.layers.items() if ours.kind == theirs.kind and not self.wrong(path)]
        made = functools.partial(source_place, self.framework, self.model, made=True)
        return {(made(path), type(self.layers[path][0])): path for path in alike}

    def right_at(self, line: FileLine, kind: type) -> str:
        """A layer of a class that a line makes and that agrees with the reference; ``""`` where there is none."""
        return self._right.get((line, kind), "")

    def beside(self, path: str) -> list[tuple[Caller, Layer, Layer]]:
        """The layers that the same call makes, each with its caller, as it is and as the reference's in its place is."""
        first = callers_of(self.layers[path][0])[:1] if path in self.layers else ()
        made = [(callers_of(module)[:1], layer, right) for module, layer, right in self.layers.values()] if first else []
        return [(one[0], layer, right) for one, layer, right in made if one and _call_of(one[0]) == _call_of(first[0])]

    def _origin(self, path: str, setting: str) -> GivenValue | None:
        return self._followed_to(path, setting)[0]

    def _links(self, path: str, setting: str) -> list[_HandedOn]:
        return self._followed_to(path, setting)[1]

    def _followed_to(self, path: str, setting: str) -> tuple[GivenValue | None, list[_HandedOn]]:
        if (path, setting) not in self._followed:
            module, layer, _ = self.layers[path]
            argument = argument_of(self.framework.name, setting, layer.settings.get(setting))
            names, links = names_of(type(module)), list[_HandedOn]()
            known = argument is not None and argument[0] in names
            origin = _followed(callers_of(module), names, *argument, links) if known and argument else None
            self._followed[path, setting] = origin, links
        return self._followed[path, setting]


@dataclass(frozen=True)
class _HandedOn:
    """A call that hands on the value of an argument.

    Attributes:
        given: the value in it, or the call where it leaves the argument to a default.
        caller: the call as it was made.
        key: tells the call, and when it was made, from others: the argument, and all lines that led to it.
    """

    given: GivenValue
    caller: Caller
    key: tuple


def _call_of(caller: Caller) -> tuple[Path, int, Span]:
    return caller.file, caller.line, caller.span


def held_by_all(made: Sequence[tuple[Caller, Any]]) -> list[str]:
    """Names of the function around a call that hold, whenever it is made, the value that it should be given then."""
    names = made[0][0].held if made else {}
    return [name for name in names if all(name in one.held and equal(one.held[name], value) for one, value in made)]


def names_of(kind: type) -> list[str]:
    """The arguments of a constructor, without ``self``."""
    try:
        return list(inspect.signature(kind.__init__).parameters)[1:]  # type: ignore[misc]
    except (TypeError, ValueError):
        return []


def _is_default(given: GivenValue, default: GivenValue) -> bool:
    return given.default is not None and given.default.place == default.place


def _followed(callers: Sequence[Caller], names: list[str], argument: str, value: Any, links: list[_HandedOn]) -> GivenValue | None:
    """From call to call, as long as a function only hands on what it is given; the calls are added to ``links``."""
    place, function = 0, None
    while place < len(callers):
        caller = callers[place]
        source, called = SourceTree.of(caller.file), function
        call = source.calls.get(caller.span)
        if call is None or unpacks(call):
            return None
        held = argument_in(call, argument, names)
        default = default_of(called, argument)
        left = GivenValue(callers[place - 1].file, default) if default is not None else None
        here = GivenValue(caller.file, call, argument, left) if held is None else GivenValue(caller.file, held)
        links.append(_HandedOn(here, caller, (argument, *((one.file, one.span, repr(one.held)) for one in callers[place:]))))
        if held is None:
            return here if place else None
        function = source.function(call)
        found = source.traced(held, function, caller, value)
        if isinstance(found, ast.Constant):
            return GivenValue(caller.file, found) if place or not call.lineno <= found.lineno <= (call.end_lineno or 0) else None
        if found is None or isinstance(function, ast.Lambda):
            return here if place else None
        names, argument = parameters_of(function, source), found
        place = outer(callers, place)
    return None


def outer(callers: Sequence[Caller], place: int) -> int:
    """The place of the call of the function in which a call stands; a comprehension is part of its function."""
    while place < len(callers) and callers[place].function.startswith("<"):
        place += 1
    return place + 1
