"""The line of the port that each mistake of a model is to be corrected in, and the lines on the way to it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.grouping import alike_of
from alignment.comparisons.model import known
from alignment.finding import OF_LINES, Finding
from alignment.frameworks.base import Framework, Module
from alignment.kinds import Kind
from alignment.localize.given import Givers
from alignment.localize.hypotheses.tables import SAID as CONSTANTS
from alignment.localize.last_set import by_caller, first_apart, first_made, last_set
from alignment.localize.origin import Origins
from alignment.localize.source import FileLine, callers_of, noting_lines, number_of, source_line
from alignment.localize.syntax import SourceTree, same
from alignment.raised import shown
from alignment.strangers import strangers

DECIDED = ("forward", "backward")  # stages whose mistakes are values


def describe(context: Context, findings: Sequence[Finding]) -> None:
    """Give findings the line of the port to change, the port's own name, and whether the frameworks themselves differ so."""
    model = fresh_port(context)
    known_givers = functools.cache(lambda: givers(context, model))
    for finding in findings:
        if model is not None and finding.stage != "structure":  # there the location may be in one side alone
            finding.own = finding.own or context.paired.own_name(finding.location)
        if not finding.source:
            finding.source, *helpers = _lines(context, model, finding, known_givers)
            finding.via = ", ".join(helpers)
        if model is not None:
            finding.known = finding.known or known.of_statistics(context, model, finding, context.paired.own_path(finding.location))
        if model is not None and finding.layer:
            _where_layer_is(context, model, finding)
    if model is not None:
        _where_decided(context, model, [one for one in findings if one.stage in DECIDED and not one.known], known_givers)
        _where_made(context, model, findings)
        _where_kept(context, model, findings)
        _where_set(context, model, findings)


def _where_layer_is(context: Context, model: Module, finding: Finding) -> None:
    """Give a call that a layer of the framework makes the line that makes the layer; the line that calls it is then on the way."""
    place = source_line(context.port.framework, model, context.paired.as_built(finding.layer), made=True)
    if place and place != finding.source:
        finding.hint = finding.hint.replace(f"{finding.source}: ", f"{place}: ", 1)
        finding.source, finding.via = place, finding.source


def _where_decided(context: Context, model: Module, findings: Sequence[Finding], known_givers: Callable[[], Givers]) -> None:
    """Give values that a block only hands on, or that a constructor gives an attribute, the line that decides them."""
    wrong = {context.paired.own_path(place) for one in findings for place in one.places}
    origins: Origins | None = None
    for finding in (one for one in findings if one.source and not one.via):
        origins = origins or Origins(
            context.port.framework.name, [m for path, (m, *_) in known_givers().layers.items() if path not in wrong]
        )
        own = context.paired.own_path(finding.location)
        with strangers("port"):  # of a source that cannot be read nothing is known
            lines = [f"{shown(file)}:{line}" for file, line in _decided(origins, own, finding, known_givers())]
            if lines and lines[0] != finding.source:
                finding.source, finding.via = lines[0], ", ".join(lines[1:])


def _decided(origins: Origins, own: str, finding: Finding, known_givers: Givers) -> list[FileLine]:
    if own not in known_givers.layers:
        return []
    module, ours, theirs = known_givers.layers[own]
    if finding.kind is not Kind.SETTING and not known_givers.framework.children(module) and callers_of(module):
        wrong = known_givers.wrong(own)
        if wrong or ours.kind != theirs.kind:
            return origins.of_layer(module, {name: ours.settings[name] for name in wrong if name in ours.settings})
    name, _, line = finding.source.rpartition(":")
    file = next((one for kind in type(module).__mro__ if (one := _file_of(kind)) and one.as_posix().endswith(name)), None)
    values = [part for one in finding.arguments for part, _ in otherwise(one["found"], one["expected"])]
    calls = [(one["function"], one["name"]) for one in finding.arguments]
    return origins.of_attribute(module, (file, int(line)), values, calls) if file and line.isdigit() and finding.arguments else []


def otherwise(found: Any, expected: Any) -> list[tuple[Any, Any]]:
    """What is found and not expected, each with what is expected; of two lists of one length, in these places alone."""
    if isinstance(found, tuple | list) and isinstance(expected, tuple | list) and len(found) == len(expected):
        return [(one, other) for one, other in zip(found, expected, strict=True) if not same(one, other)]
    return [(found, expected)]


def _file_of(kind: type) -> Path | None:
    with contextlib.suppress(OSError, TypeError):
        return Path(inspect.getsourcefile(kind) or "").resolve()
    return None


def _where_made(context: Context, model: Module, findings: Sequence[Finding]) -> None:
    """Give constants that the constructor makes otherwise the line that makes them."""
    modules, framework = context.port.framework.modules(model, every_path=True), context.port.framework
    for finding in (one for one in findings if one.kind is Kind.CONSTANT and one.hint.startswith(CONSTANTS)):
        path, _, name = finding.hint.removeprefix(CONSTANTS).split()[0].rpartition(".")
        own = context.paired.own_path(path)
        tensor = getattr(modules.get(own), name, None)
        with strangers("port"):
            values = framework.array(tensor) if isinstance(tensor, framework.tensor_type) else None
            place = None if values is None else _first_apart(context, values)
            finding.source = f"{shown(place[0])}:{place[1]}" if place else finding.source


def _where_kept(context: Context, model: Module, findings: Sequence[Finding]) -> None:
    """Give what is read from a table of a plain object, and known as no mistake, the line that makes the table otherwise."""
    modules = context.port.framework.modules(model, every_path=True).values()
    for finding in (one for one in findings if one.kind is Kind.UNKNOWN and one.stage == "forward" and one.source and not one.via):
        name, _, line = finding.source.rpartition(":")
        kept = [held for module in modules for held in vars(module).values() if type(held).__module__ == type(module).__module__]
        for held in (one for one in kept if (_file_of(type(one)) or Path()).as_posix().endswith(name) and line.isdigit()):
            source = SourceTree.of(_file_of(type(held)) or Path())
            around = source.class_around(int(line))
            if around is None or around.name != type(held).__name__:
                continue
            tables = [
                getattr(held, one.removeprefix("self."), None) for one in source.names_at(int(line)) if one.startswith("self.")
            ]
            tables = [one for one in tables if isinstance(one, context.port.framework.tensor_type | np.ndarray)]
            if len(tables) == 1:
                values = tables[0] if isinstance(tables[0], np.ndarray) else context.port.framework.array(tables[0])
                with strangers("port"):
                    place = first_apart(_constructors(context), values)
                    if place is not None:
                        finding.source, finding.via = f"{shown(place[0])}:{place[1]}", finding.source
                break


def _constructors(context: Context) -> list[tuple[Framework, Callable[[], Any]]]:
    """Framework and constructor of the port and of the reference."""
    theirs = context.reference.framework, lambda: context.networks.fresh("reference")
    return [(context.port.framework, lambda: _build_port(context)), theirs]


def _first_apart(context: Context, values: np.ndarray) -> FileLine | None:
    """The line of the port that makes a table otherwise, or else the one that first holds its values."""
    sides = _constructors(context)
    with strangers("port"):
        if (place := first_apart(sides, values)) is not None:
            return place
    return first_made(*sides[0], values)


def _where_set(context: Context, model: Module, findings: Sequence[Finding]) -> None:
    """Give what is initialised otherwise the line that does it: of those that read alike, the first."""
    fresh: dict[tuple, list[Finding]] = {}
    for one in (one for one in findings if one.stage == "initialisation" and not one.known):
        fresh.setdefault(alike_of(one), []).append(one)
    framework, own_name = context.port.framework, lambda place: context.paired.own_name(place) or place
    modules, wanted = framework.modules(model, every_path=True), list[tuple[list[Finding], str, str]]()
    for alike in fresh.values():
        path, _, name = own_name(alike[0].location).rpartition(".")
        if path in modules and number_of(modules[path]) is not None:
            wanted.append((alike, path, name))
    wrong = {own_name(place) for one in findings if one.stage == "initialisation" for place in one.places}
    asked = [(path, name) for path in dict.fromkeys(path for _, path, _ in wanted) for name in framework.own_tensors(modules[path])]
    with strangers("port"):
        numbers = [(number_of(modules[path]) or 0, name) for path, name in asked]
        places = dict(zip(asked, last_set(framework, lambda: _build_port(context), numbers), strict=True)) if wanted else {}
        for alike, path, name in wanted:
            finding, place = alike[0], places.get((path, name))
            having = [one for at, one in modules.items() if f"{at}.{name}" not in wrong]
            place = (
                by_caller(place, modules[path], [one for one in having if name in framework.own_tensors(one)]) if place else None
            )
            finding.source = f"{shown(place[0])}:{place[1]}" if place else finding.source
            held = {f"{path}.{one}" if path else one: places[at, one] for at, one in places if at == path}
            mine = [held[one] for one in dict.fromkeys(own_name(one.location) for one in alike) if one in held]
            if (
                place
                and place in mine
                and (line := _behind_all(mine, [at for one, at in held.items() if one not in wrong])) is not None
            ):
                finding.source, finding.via = f"{shown(place[0])}:{line}", finding.source


def _behind_all(wrong: Sequence[FileLine | None], right: Sequence[FileLine | None]) -> int | None:
    """The line that gives a name a value from which all of some lines compute, and none of others; None where that is not sure."""
    lines = [{at[1] for at in some if at and wrong[0] and at[0] == wrong[0][0]} for some in (wrong, right)]
    return SourceTree.of(wrong[0][0]).shared(*lines) if wrong[0] and None not in wrong and len(lines[0]) > 1 else None


def fresh_port(context: Context) -> Module | None:
    """The port as it is built, its modules known by its own paths; None where it cannot be."""
    with strangers("port"), noting_lines(context.port.framework):  # the finding says where
        return _build_port(context)
    return None


def _build_port(context: Context) -> Module:
    return context.spec.port(**{**context.spec.options, **context.options})


def givers(context: Context, port: Module) -> Givers:
    """Which caller gives a layer of the port what makes its settings wrong."""
    theirs, paths = context.reference.framework, context.paired.matched.matching.paths
    right = theirs.modules(context.networks.described, every_path=True)
    layers = {context.paired.own_path(place): theirs.layer(module) for place, module in right.items() if place in paths}
    return Givers(context.port.framework, port, layers)


def _lines(context: Context, model: Module | None, finding: Finding, known_givers: Callable[[], Givers]) -> list[str]:
    """``file.py:12`` of the port, as far as it is known, else ``""``; and the lines of helpers between it and the layer.

    For a layer it is where the class above it assigns it, or where a caller gives the setting that is wrong; for a module that has
    others inside, its own forward; for a layer that is missing, where the layer beside it is made.
    """
    if model is None or finding.known or ":" in finding.location:
        return [""]
    if finding.stage not in OF_LINES:
        return [""]
    place = finding.location
    if place.endswith(".forward") and place.rpartition(".")[0] == type(model).__name__:
        place = ""
    if finding.kind is Kind.LAYER_MISSING and (beside := _beside(context, place)):
        return [source_line(context.port.framework, model, context.paired.own_path(beside), made=True)]
    made, own = finding.stage in ("structure", "weights", "initialisation"), context.paired.own_path(place)
    lines = [] if made else [f"{shown(file)}:{line}" for file, line in known_givers().lines(own)]
    if not made and (given := known_givers().of(own)) is not None:
        first = f"{shown(given.file)}:{given.node.lineno}"
        return [first, *(line for line in lines if line != first)]
    return lines if len(lines) > 1 else [source_line(context.port.framework, model, own, made=made)]


def _beside(context: Context, place: str) -> str:
    """The reference's path of a layer that the port has in the same module, before a place or else behind it; ``""`` if none."""
    theirs, paths = context.reference.framework, context.paired.matched.matching.paths
    parent, _, name = place.rpartition(".")
    modules = theirs.modules(context.networks.described, every_path=True)
    names = [child for child, _ in theirs.children(modules[parent])] if parent in modules else []
    at = names.index(name) if name in names else 0
    held = [f"{parent}.{one}" if parent else one for one in [*names[:at][::-1], *names[at:]]]
    return next((one for one in held if one in paths), "")
