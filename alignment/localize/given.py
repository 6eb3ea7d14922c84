"""Where the value of a layer's argument is given: in the line that makes it, or by a caller, through the blocks around it."""

from __future__ import annotations

import ast
import functools
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alignment.frameworks._settings import UPSCALED, argument_of
from alignment.frameworks.base import Framework, Layer, Module
from alignment.localize.source import Caller, FileLine, Span, callers_of, source_place
from alignment.tolerance import BASE_FLOOR_32

Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Loop = (ast.For, ast.comprehension)
DEEP = 5  # names behind names
Position = tuple[Path, int, int, str]


@dataclass(frozen=True)
class GivenValue:
    """A value in the source.

    Attributes:
        file: where it stands.
        node: the value; or the call that leaves it to a default.
        argument: which the call leaves out; ``""`` where the node is the value.
    """

    file: Path
    node: ast.expr
    argument: str = ""

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
        shared = (self._origin(*one) for one in kept)
        return None if any(one is not None and one.place == first.place for one in shared) else first

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
            names, links = _names_of(type(module)), list[_HandedOn]()
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


def _names_of(kind: type) -> list[str]:
    """The arguments of a constructor, without ``self``."""
    try:
        return list(inspect.signature(kind.__init__).parameters)[1:]  # type: ignore[misc]
    except (TypeError, ValueError):
        return []


def _followed(callers: Sequence[Caller], names: list[str], argument: str, value: Any, links: list[_HandedOn]) -> GivenValue | None:
    """From call to call, as long as a function only hands on what it is given; the calls are added to ``links``."""
    place = 0
    while place < len(callers):
        caller = callers[place]
        source = _Source.of(caller.file)
        call = source.calls.get(caller.span)
        if call is None or any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
            return None
        held = next((one.value for one in call.keywords if one.arg == argument), None)
        at = names.index(argument)
        held = held or (call.args[at] if at < len(call.args) else None)
        here = GivenValue(caller.file, call, argument) if held is None else GivenValue(caller.file, held)
        links.append(_HandedOn(here, caller, (argument, *((one.file, one.span, repr(one.held)) for one in callers[place:]))))
        if held is None:
            return here if place else None
        function = source.function(call)
        found = source.traced(held, function, caller, value)
        if isinstance(found, ast.Constant):
            return GivenValue(caller.file, found) if place or not call.lineno <= found.lineno <= (call.end_lineno or 0) else None
        if found is None or isinstance(function, ast.Lambda):
            return here if place else None
        names, argument = _parameters(function, source), found
        while place < len(callers) and callers[place].function.startswith("<"):  # a comprehension
            place += 1
        place += 1
    return None


def _parameters(function: Any, source: _Source) -> list[str]:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return names[1:] if isinstance(source.parents.get(function), ast.ClassDef) else names


@dataclass(frozen=True)
class _Source:
    """One file of the port as a tree."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    calls: dict[Span, ast.Call]

    @staticmethod
    def of(file: Path) -> _Source:
        return _read(file.read_bytes())

    def function(self, node: ast.AST) -> ast.AST | None:
        """The function in which a node stands."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, Function):
            above = self.parents.get(above)
        return above

    def traced(
        self, node: ast.expr, function: ast.AST | None, caller: Caller, value: Any, depth: int = 0
    ) -> ast.Constant | str | None:
        """The constant from which a value comes; the name of the function's parameter; None where it is computed, or not known."""
        held = [one for one in _leaves(node) if _is(one, caller.held, value)]
        leaves = {one.id if isinstance(one, ast.Name) else one: one for one in held}
        leaf = next(iter(leaves.values())) if len(leaves) == 1 else None
        if not isinstance(leaf, ast.Name) or not isinstance(function, Function) or depth > DEEP:
            return leaf if isinstance(leaf, ast.Constant) else None
        bound = [one for one in ast.walk(function) if leaf.id in _bound(one)]
        given = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        if leaf.id in given or len(bound) != 1:
            return leaf.id if leaf.id in given and not bound else None
        if isinstance(bound[0], Loop):
            return self._of_loop(bound[0], leaf.id, function, caller, value, depth)
        plain = isinstance(bound[0], ast.Assign) and isinstance(bound[0].targets[0], ast.Name)
        return self.traced(bound[0].value, function, caller, value, depth + 1) if plain else None  # type: ignore[attr-defined]

    def _of_loop(self, loop: Any, name: str, function: Any, caller: Caller, value: Any, depth: int) -> ast.Constant | str | None:
        """The value in the only row of a table that holds what the loop's names held."""
        target, rows = loop.target, loop.iter
        if (
            isinstance(rows, ast.Call)
            and getattr(rows.func, "id", "") == "enumerate"
            and isinstance(target, ast.Tuple)
            and rows.args
        ):
            target, rows = target.elts[-1], rows.args[0]
        table = self._table(rows, function)
        if table is None:
            return self.traced(rows, function, caller, value, depth + 1) if isinstance(target, ast.Name) else None
        names = [getattr(one, "id", "") for one in target.elts] if isinstance(target, ast.Tuple) else []
        found = []
        for row in table.elts:
            parts = dict(zip(names, row.elts, strict=False)) if names and isinstance(row, ast.Tuple | ast.List) else {name: row}
            constants = {one: part for one, part in parts.items() if isinstance(part, ast.Constant)}
            if name in constants and all(
                one in caller.held and equal(caller.held[one], part.value) for one, part in constants.items()
            ):
                found.append(constants[name])
        return found[0] if len(found) == 1 else None

    def _table(self, node: ast.expr, function: ast.AST) -> ast.Tuple | ast.List | None:
        """The rows that a loop runs over, where they are written down: there, or under the name that stands there."""
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            for where in (function, self.tree):
                made = [one for one in ast.walk(where) if isinstance(one, ast.Assign | ast.AnnAssign) and name in _bound(one)]
                if len(made) == 1 and made[0].value is not None:
                    node = made[0].value
                    break
        return node if isinstance(node, ast.Tuple | ast.List) else None


@functools.lru_cache(16)
def _read(content: bytes) -> _Source:
    tree = ast.parse(content)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return _Source(tree, parents, {(n.lineno, n.end_lineno, n.col_offset, n.end_col_offset): n for n in calls})


def _leaves(node: ast.AST) -> Iterator[ast.expr]:
    """Names and constants that an expression hands on as they are: by a choice, in a list, in lists put together."""
    if isinstance(node, ast.Name | ast.Constant):
        yield node
    elif isinstance(node, ast.IfExp | ast.BoolOp | ast.List | ast.Tuple | ast.BinOp):
        parts = {"IfExp": ("body", "orelse"), "BoolOp": ("values",), "BinOp": ("left", "right")}.get(type(node).__name__, ("elts",))
        for one in (part for name in parts for part in _listed(getattr(node, name))):
            if not isinstance(node, ast.BinOp) or isinstance(one, ast.List | ast.Tuple | ast.BinOp):  # of numbers it computes
                yield from _leaves(one)


def _listed(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held]


def _bound(node: ast.AST) -> list[str]:
    """Names that a statement, or a loop, gives a value; attributes by their last name."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.For | ast.comprehension):
        return []
    targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [part for one in targets for part in ast.walk(one) if isinstance(getattr(part, "ctx", None), ast.Store)]
    return [getattr(part, "id", getattr(part, "attr", "")) for part in parts]


def _is(node: ast.expr, held: Mapping[str, Any], value: Any) -> bool:
    known = node.value if isinstance(node, ast.Constant) else held.get(node.id, ...) if isinstance(node, ast.Name) else ...
    return equal(known, value)


def equal(one: Any, other: Any) -> bool:
    """Whether two values say the same of a layer: 2 and (2, 2) do, 1 and True do not."""
    if isinstance(other, tuple | list) and other and all(part == other[0] for part in other) and not isinstance(one, tuple | list):
        other = other[0]
    return isinstance(one, bool) is isinstance(other, bool) and same(one, other)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=BASE_FLOOR_32)
    return bool(a == b)
