"""The line that decides a value which is wrong in some modules, while the same lines make other modules that have it right.

A block hands on what it is given: the call ``Block(8, dilation=1)`` decides, not the line of the block that makes the
convolution, which makes those of the other blocks, too. The search goes from a line to the one that calls it, as long as sound
modules pass through the same line, or the line only hands the value on.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alignment.frameworks._settings import argument_of
from alignment.frameworks.base import Module
from alignment.localize.given import names_of, outer
from alignment.localize.source import Caller, FileLine, callers_of
from alignment.localize.syntax import (
    UNKNOWN,
    SourceTree,
    argument_in,
    assigned,
    default_of,
    equal,
    parameters_of,
    plain_leaves,
    rest_given,
    rest_of,
    unpacks,
)

NOWHERE = (None, None, None, None)
PLAIN = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript)
Handed = tuple[str, str]  # a function, and one of its arguments
Chosen = tuple[ast.expr, Any]  # an expression and what it was, where that is known


class Origins:
    """Lines that decide values of the port.

    Args:
        framework: the port's name of it.
        right: the modules of the port in which nothing is wrong, as far as it was found.
    """

    def __init__(self, framework: str, right: Sequence[Module]) -> None:
        self.framework = framework
        self.right = right

    def of_layer(self, module: Module, wrong: dict[str, Any]) -> list[FileLine]:
        """Where it is decided that a layer is of this class, or has these settings.

        Args:
            module: the layer.
            wrong: the settings, with the values that it has; empty where its class is wrong.

        Returns:
            The line to change, then those that hand the value on from it; nothing where it is not known.
        """
        trail = callers_of(module)
        source = SourceTree.of(trail[0].file) if trail else None
        call = source.calls.get(trail[0].span) if source else None
        if source is None or call is None:
            return []
        others = [made for one in self.right if (made := callers_of(one)) and _same_call(made[0], trail[0])]
        chosen: list[Chosen] = [(call.func, UNKNOWN), *((one, UNKNOWN) for one in source.conditions(call))]
        if wrong:
            arguments = [argument_of(self.framework, name, value) for name, value in wrong.items()]
            names = names_of(type(module))
            if unpacks(call) or any(one is None or one[0] not in names for one in arguments):
                return []
            given = [(argument_in(call, one[0], names), one[1]) for one in arguments if one]
            chosen = _deciding([(node, value) for node, value in given if node is not None])
        elif not others:
            return []
        return _Climb(trail, others, [(trail[0].file, trail[0].line)]).climb(chosen, 0)

    def of_attribute(self, module: Module, place: FileLine, values: Sequence[Any], calls: Sequence[Handed] = ()) -> list[FileLine]:
        """Where an attribute gets a value that is wrong in a line of its class.

        Args:
            module: that has the attribute.
            place: the line that uses it, or the one that sets it.
            values: that are wrong there, as far as they are known.
            calls: functions of the line, and their arguments, that have these values, where that is known.

        Returns:
            As ``of_layer``; nothing where the line itself holds the value.
        """
        source = SourceTree.of(place[0])
        owner = source.class_around(place[1])
        if owner is None or owner.name not in [kind.__name__ for kind in type(module).__mro__]:
            return []
        parts = [source.given_at(place[1], *one) for one in calls]
        given = [one for some in parts for one in some or ()] if all(parts) and parts else None
        if any(isinstance(one, ast.Constant) and _says(one.value, values) for some in given or () for one in plain_leaves(some)):
            return []
        others = [callers_of(one) for one in self.right if type(one) is type(module)]
        held_by = assigned(owner)
        sets = [name for name, held in held_by.items() if any(one.lineno <= place[1] <= (one.end_lineno or 0) for one in held)]
        names, lines = [name for _, name in calls if name in sets][:1] or sets, [place]
        if not sets:
            names = [one for one in source.attributes_at(place[1]) if one in held_by]
            handed = source.attributes_at(place[1], given) if given is not None else names
            saying = [one for one in names if one in handed and _says(getattr(module, one, UNKNOWN), values)]
            names = saying or (names if others else [])
            lines = [(place[0], held.lineno) for name in names for held in held_by[name]] + lines
        if len(names) != 1 or len(held_by[names[0]]) != 1:
            return []
        held = held_by[names[0]][0]
        conditions = [(one, UNKNOWN) for one in source.conditions(held)]
        return _Climb(callers_of(module), others, lines).climb([(held, getattr(module, names[0], UNKNOWN)), *conditions], -1)


class _Climb:
    """From call to call outwards.

    Args:
        trail: the calls that led to the module that is wrong, the innermost first.
        others: those of the modules that are right.
        lines: so far, the outermost first.
    """

    def __init__(self, trail: Sequence[Caller], others: Sequence[Sequence[Caller]], lines: list[FileLine]) -> None:
        self.trail, self.others, self.lines = trail, others, lines
        self.unpacked = ""  # the name under which a value stands in arguments that are handed on unpacked: ``Layer(**options)``

    def climb(self, chosen: Sequence[Chosen], place: int) -> list[FileLine]:
        """The line that decides, and those behind it; nothing where it is not known.

        Args:
            chosen: the expressions on which the value depends, in the first of the lines.
            place: of the call of the trail in which they stand; -1 for the module's own constructor.
        """
        while chosen:
            source = SourceTree.of(self.lines[0][0])
            function, (node, value) = source.function(chosen[0][0]), chosen[0]
            plain = len(chosen) == 1 and isinstance(node, PLAIN)
            caller = self.trail[place] if place >= 0 else Caller(*self.lines[0], "", NOWHERE, {})
            constant = source.traced(node, function, caller, value) if plain else None
            if isinstance(constant, ast.Constant):
                others = [one[place] if place >= 0 else caller for one in self.others]
                alike = [one for one in others if source.traced(node, function, one, _value(node, one)) is constant]
                return [] if alike else self._with((self.lines[0][0], constant.lineno))
            if not plain and not self.others:
                return self.lines  # computed here, for all alike
            handing = [one for one, _ in chosen if not plain or not _is_entry(one)]
            names = source.behind(handing, function)
            place = outer(self.trail, place) if place >= 0 else 0
            if not names or place >= len(self.trail):
                break
            chosen = self._outwards(names, parameters_of(function, source), function, place)
            if plain and len(chosen) == 1 and chosen[0][1] is UNKNOWN:
                chosen = [(chosen[0][0], value)]
        return [] if self.others else self.lines

    def _outwards(self, names: Sequence[str], every: list[str], function: Any, place: int) -> list[Chosen]:
        """What the next call gives the parameters: nothing where the search ends there."""
        names = [self.unpacked if one == rest_of(function) else one for one in names]
        caller, given = self.trail[place], _Handed.of(self.trail[place], every, function)
        if given is None:
            return []
        passing = [one for one in self.others if place < len(one) and _same_call(one[place], caller)]
        beside = [_Handed.of(one[place], every, function) for one in self.others if place < len(one)] if not passing else []
        entering = [one for one in beside if one is not None]
        differing = [name for name in names if not any(given.like(other, name) for other in entering)]
        if not differing:  # then what this call alone gives
            differing = [name for name in names if not given.left(name) and all(one.left(name) for one in entering)]
        if not passing and len(differing) == 1:
            names = differing
        left = given.default(names[0]) if len(names) == 1 and given.left(names[0]) else None
        if not passing and left is not None and not any(one.left(names[0]) for one in entering):
            self.lines = self._with((self.lines[0][0], left.lineno))
        else:
            self.lines = self._with((caller.file, caller.line))
        self.others = passing
        if not passing and len(names) > 1:
            return []
        held = {name: node for name in names if (node := given.node(name)) is not None}
        self.unpacked = next((name for name, node in held.items() if node is given.rest), "")
        return [(node, _value(node, caller)) for node in held.values()]

    def _with(self, line: FileLine) -> list[FileLine]:
        return self.lines if line == self.lines[0] else [line, *self.lines]


@dataclass(frozen=True)
class _Handed:
    """What a call gives the function's parameters."""

    caller: Caller
    call: ast.Call
    every: list[str]
    function: Any
    rest: ast.expr | None = None  # the arguments of the function around the call that it hands on unpacked

    @staticmethod
    def of(caller: Caller, every: list[str], function: Any) -> _Handed | None:
        source = SourceTree.of(caller.file)
        call = source.calls.get(caller.span)
        rest = rest_given(call, source) if call else None
        return None if call is None or (unpacks(call) and rest is None) else _Handed(caller, call, every, function, rest)

    def node(self, name: str) -> ast.expr | None:
        return argument_in(self.call, name, self.every) or self.rest

    def left(self, name: str) -> bool:
        """Whether the call leaves the parameter to its default."""
        return self.node(name) is None

    def default(self, name: str) -> ast.expr | None:
        return default_of(self.function, name)

    def like(self, other: _Handed, name: str) -> bool:
        """Whether another call gives the parameter the same, as far as the source shows it."""
        mine, theirs = (one.node(name) or one.default(name) for one in (self, other))
        if mine is None or theirs is None:
            return mine is theirs
        values = _value(mine, self.caller), _value(theirs, other.caller)
        return equal(*values) if UNKNOWN not in values else ast.unparse(mine) == ast.unparse(theirs)


def _value(node: ast.expr, caller: Caller) -> Any:
    """What an expression was, as far as it is a constant, a name, or an entry of a configuration."""
    if _is_entry(node):
        node = SourceTree.of(caller.file).configured(node, UNKNOWN) or node  # type: ignore[arg-type]
    return node.value if isinstance(node, ast.Constant) else caller.held.get(getattr(node, "id", ""), UNKNOWN)


def _is_entry(node: ast.expr) -> bool:
    """Whether an expression is an entry of a configuration: ``c.eps``, ``c["eps"]``, not ``TABLE[name]``."""
    return isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant))


def _same_call(one: Caller, other: Caller) -> bool:
    return (one.file, one.span) == (other.file, other.span)


def _deciding(given: Sequence[Chosen]) -> list[Chosen]:
    """The one name that is handed on, where what else is given is computed with it; else all."""
    names = {node.id: (node, value) for node, value in given if isinstance(node, ast.Name)}
    inside = [{one.id for one in ast.walk(node) if isinstance(one, ast.Name)} for node, _ in given]
    single = next(iter(names), "") if len(names) == 1 else ""
    return [names[single]] if single and all(single in one for one in inside) else list(given)


def _says(held: Any, values: Sequence[Any]) -> bool:
    """Whether an attribute is one of some values, or a part of one."""
    parts = [part for one in values for part in (one if isinstance(one, tuple | list) else [one])]
    return isinstance(held, bool | int | float | str) and any(equal(part, held) for part in parts)
