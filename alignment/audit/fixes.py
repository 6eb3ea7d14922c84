"""Corrections of the port's source: where a layer has another setting, or is another activation or pooling than the reference's.

What is changed is the call in which the port makes the layer. The edits are made of what the two layers are, not of the words of a
finding; where several calls could be meant, or an argument is no plain value, there is none.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from alignment.comparisons.context import Context
from alignment.comparisons.lines import fresh_port, givers, otherwise
from alignment.finding import Argument, Finding
from alignment.frameworks._settings import CLASSES, argument_of
from alignment.frameworks.base import Framework, Layer, Module
from alignment.kinds import Kind
from alignment.localize.given import GivenValue, Givers, changes_of, held_by_all, same
from alignment.localize.source import Caller, source_place
from alignment.raised import shown
from alignment.repair.edits import Fix, SourceEdit, diff
from alignment.repair.source import PortFile

AROUND = 2  # lines of the source before and after the one to change
DROPOUTS, PLACES = ("dropout", "dropout2d", "dropout3d"), 2  # functions, and their arguments before the mode in every framework
POOLS = frozenset({"max_pool", "avg_pool"})


class Unknown(Exception):
    """Why no correction of a mistake is known."""


def fixes_of(context: Context, mistakes: Sequence[Finding]) -> tuple[list[Fix], list[str]]:
    """A correction for each mistake; empty ones where it is not known for every place of the mistake, and why it is not."""
    port = fresh_port(context)
    wrong = {context.paired.own_path(place) for one in mistakes for place in one.places} if port is not None else set()
    known = functools.cache(lambda: givers(context, port))
    fixes, reasons = [], []
    for one in mistakes:
        try:
            fixes.append(_fix(context, port, one, known, wrong))
            reasons.append("")
        except Unknown as why:
            fixes.append(())
            reasons.append(str(why))
    return fixes, reasons


def _fix(context: Context, port: Module | None, finding: Finding, known: Callable[[], Givers], wrong: Collection[str]) -> Fix:
    """The correction.

    Args:
        wrong: paths of all of the port's modules that have a mistake.

    Raises:
        Unknown: there is none.
    """
    if port is None:
        raise Unknown("the port cannot be built")
    if finding.stage not in ("forward", "backward"):
        raise Unknown("it is no setting of a layer")
    if finding.kind is Kind.DROPOUT_ON and (edit := _of_dropout(finding.source)) is not None:
        return (edit,)
    framework, theirs = context.port.framework, context.reference.framework
    if finding.arguments:
        if finding.via and (edit := _of_origin(finding)) is not None:
            return (edit,)
        kinds = {own: type(module) for own, module in framework.modules(port, every_path=True).items()}
        of_these = {kinds[own] for own in (context.paired.own_path(place) for place in finding.places) if own in kinds}
        if right_ones := [own for own, kind in kinds.items() if kind in of_these and own not in wrong]:
            raise Unknown(f"{finding.source} runs in {right_ones[0]}, too, which agrees with the reference")
        return _of_arguments(finding.arguments)
    ours, right = framework.modules(port, every_path=True), theirs.modules(context.networks.described, every_path=True)
    edits: dict[tuple[Path, int], SourceEdit] = {}
    for place in finding.places:
        own = context.paired.own_path(place)
        if place not in right or own not in ours:
            raise Unknown("it is no setting of a layer")
        given = known().of(own)
        if given is not None:
            edit = _of_caller(framework.name, given, known().wrong(own), known().calls(given))
        elif (edit := _of_helper(known().handed(own))) is None:
            edit = _of_layer(framework, port, own, ours[own], (framework.layer(ours[own]), theirs.layer(right[place])), known())
        if edits.setdefault((edit.file, edit.start), edit).text != edit.text:
            raise Unknown(f"line {edit.line} makes several layers, which need different corrections")
    return tuple(edits.values())


def _of_layer(
    framework: Framework, port: Module, own: str, module: Module, layers: tuple[Layer, Layer], known: Givers
) -> SourceEdit:
    """The call that makes a layer, as it should be.

    Raises:
        Unknown: it is not known.
    """
    made = source_place(framework, port, own, made=True)
    source = PortFile.of(made[0]) if made else None
    call = _call(source, made[1], [type(module).__name__]) if made and source else None
    if not made or not source or not call:
        raise Unknown("the call that makes the layer is not known" + (f" ({made[0].name}:{made[1]})" if made else ""))
    beside = known.beside(own)
    if not beside and (right := known.right_at(made, type(module))):  # nobody saw the model being made
        raise Unknown(f"line {call.lineno} also makes {right}, which agrees with the reference")
    text = _corrected(framework.name, module, *layers, copy.deepcopy(call), beside)
    if text is None:
        raise Unknown("no setting of a layer that is a plain value in the source explains it")
    return source.replaced(call, text)


def _of_caller(framework: str, given: GivenValue, wrong: Mapping[str, Any], made: Sequence[tuple[Caller, Any]]) -> SourceEdit:
    """The value that a caller gives, as it should be; an argument that it has itself, by the same name, it forgot to hand on.

    Raises:
        Unknown: it is no plain value.
    """
    texts = {_literal(one[1]) for name, value in wrong.items() if (one := argument_of(framework, name, value)) is not None}
    if len(texts) != 1 or not (given.argument or _plain(given.node)):
        raise Unknown("the caller gives it no plain value in the source")
    return _given(given, given.argument if given.argument in held_by_all(made) else texts.pop())


def _of_helper(handed: tuple[GivenValue, list[tuple[Caller, Any]]] | None) -> SourceEdit | None:
    """The call of a helper with the value that all layers need which it makes; None where that is not known."""
    if handed is None:
        return None
    given, made = handed
    node = _needed(made[0][1], None if given.argument else given.node, made)
    return _given(given, ast.unparse(node)) if node is not None else None


def _given(given: GivenValue, text: str) -> SourceEdit:
    """Another text for a value, or one more argument."""
    source = PortFile.of(given.file)
    if given.argument:
        assert isinstance(given.node, ast.Call)
        more = ast.keyword(given.argument, ast.parse(text, mode="eval").body)
        text = ast.unparse(ast.Call(given.node.func, given.node.args, [*given.node.keywords, more]))
    return source.replaced(given.node, text)


def _of_arguments(arguments: Sequence[Argument]) -> Fix:
    """The values that calls of functions are given, as they should be.

    Raises:
        Unknown: one of them is no plain value in its line.
    """
    edits: dict[tuple[Path, int], SourceEdit] = {}
    for one in arguments:
        edit = _of_argument(one)
        known = edits.get((edit.file, edit.start))
        if known is not None and known.start == known.end:  # both are added behind the same argument
            edit = replace(edit, text=known.text if edit.text in known.text else known.text + edit.text)
        edits[edit.file, edit.start] = edit
    return tuple(edits.values())


def _of_origin(finding: Finding) -> SourceEdit | None:
    """The one plain value in the line that decides it, where that is the value that a call is given and should not have."""
    pairs = [part for one in finding.arguments for part in otherwise(one["found"], one["expected"])]
    name, _, line = finding.source.rpartition(":")
    file = _loaded(name) if line.isdigit() else None
    found, expected = pairs[0] if pairs else (None, None)
    if file is None or not all(same(one, found) and same(other, expected) for one, other in pairs):
        return None
    source = PortFile.of(file)
    alike = [node for node in _in_line(source, int(line)) if _plain(node) and _is(ast.literal_eval(node), found)]
    if finding.kind is Kind.SETTING:
        named = _handed_as(finding)
        others = [one.value for one in ast.walk(source.tree) if isinstance(one, ast.keyword) and one.arg not in named]
        alike = [node for node in alike if node not in others]
    return source.replaced(alike[0], _alike(alike[0], expected)) if len(alike) == 1 else None


def _handed_as(finding: Finding) -> set[str]:
    """The names under which a value comes to the attribute that is wrong: its own, and those in the line that sets it."""
    name, _, line = finding.via.rpartition(", ")[2].rpartition(":")
    file = _loaded(name) if line.isdigit() else None
    set_from = _in_line(PortFile.of(file), int(line)) if file else []
    return {one["name"] for one in finding.arguments} | {node.id for node in set_from if isinstance(node, ast.Name)}


def _of_argument(one: Argument) -> SourceEdit:
    name, _, line = one["source"].rpartition(":")
    file = _loaded(name) if line.isdigit() else None
    if file is None:
        raise Unknown("the file is not known")
    source, expected = PortFile.of(file), one["expected"]
    call = _call(source, int(line), [one["function"]])
    given = next((keyword.value for keyword in call.keywords if keyword.arg == one["name"]), None) if call else None
    if given is not None and _plain(given):
        return source.replaced(given, _alike(given, expected))
    if not one["given"] and call and given is None:
        held = [*call.args, *(keyword.value for keyword in call.keywords)]
        end = max((source.span(node)[1] for node in held), default=source.span(call)[1] - 1)
        return SourceEdit(file, end, end, f"{', ' if held else ''}{one['name']}={_literal(expected)}", call.lineno)
    within = call.args if call else _in_line(source, int(line))
    alike = [node for node in within if _plain(node) and _is(ast.literal_eval(node), one["found"])]
    if not one["given"] or given is not None or len(alike) != 1:
        raise Unknown(f"{one['name'] or 'the operand'} of {one['function']} is no plain value in line {line}")
    return source.replaced(alike[0], _alike(alike[0], expected))


def _alike(node: ast.expr, value: Any) -> str:
    """A value as the source writes the one in its place: a whole number, a list or a tuple."""
    now = ast.literal_eval(node)
    if isinstance(value, tuple | list) and isinstance(now, tuple | list):
        return repr(type(now)(value))
    if type(now) in (int, float) and type(value) in (int, float) and math.isfinite(value) and value == int(value):
        return repr(type(now)(value))
    return _literal(value)


def _in_line(source: PortFile, line: int) -> list[ast.expr]:
    """The expressions that begin in a line."""
    return [node for node in ast.walk(source.tree) if isinstance(node, ast.expr) and node.lineno == line]


def _is(value: Any, found: Any) -> bool:
    """Whether a value in the source is what a call was given; True is not 1."""
    return same(value, found) and isinstance(value, bool) is isinstance(found, bool)


def _of_dropout(place: str) -> SourceEdit | None:
    """The only dropout that a method calls as a function in a line, in the mode of its module; None where it is not known."""
    name, _, line = place.rpartition(":")
    if not line.isdigit() or (file := _loaded(name)) is None:
        return None
    source = PortFile.of(file)
    call = _call(source, int(line), DROPOUTS)
    above = source.parents.get(call) if call else None
    while above is not None and not isinstance(above, ast.FunctionDef):
        above = source.parents.get(above)
    if call is None or above is None or [one.arg for one in above.args.args[:1]] != ["self"] or len(call.args) > PLACES:
        return None
    keywords = [one for one in call.keywords if one.arg != "training"]
    keywords.append(ast.keyword("training", ast.parse("self.training", mode="eval").body))
    return source.replaced(call, ast.unparse(ast.Call(call.func, call.args, keywords)))


def _call(source: PortFile, line: int, names: Collection[str]) -> ast.Call | None:
    """The only call in a line of a function or class of these names."""
    found = [
        node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and node.lineno == line and _name(node.func) in names
    ]
    return found[0] if len(found) == 1 else None


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


Beside = Sequence[tuple[Caller, Layer, Layer]]  # the layers that one call makes


def _corrected(framework: str, module: Module, ours: Layer, theirs: Layer, call: ast.Call, beside: Beside) -> str | None:
    """The call as it should be, for every layer that it makes; None where that is not known."""
    if any(one.kind != theirs.kind for _, _, one in beside):
        return None
    if ours.kind != theirs.kind:
        return _of_another_class(framework, module, ours, theirs, call)
    changes = changes_of(framework, module, ours, theirs)
    return _with_arguments(framework, type(module), changes, call, beside) if changes else None


def _of_another_class(framework: str, module: Module, ours: Layer, theirs: Layer, call: ast.Call) -> str | None:
    classes = CLASSES.get(framework, {})
    if ours.kind not in classes or theirs.kind not in classes or (ours.kind in POOLS) != (theirs.kind in POOLS):
        return None
    name = classes[theirs.kind].replace("#", next((c for c in type(module).__name__ if c.isdigit()), "2"))
    function = ast.unparse(call.func)
    function = f"{function.rpartition('.')[0]}.{name}" if "." in function else name
    if theirs.kind in POOLS:
        return f"{function}{ast.unparse(call).removeprefix(ast.unparse(call.func))}"
    given = [argument_of(framework, setting, value) for setting, value in theirs.settings.items()]
    return f"{function}({', '.join(f'{one[0]}={_literal(one[1])}' for one in given if one)})"


def _value(framework: str, setting: str, value: Any, held: ast.expr | None, beside: Beside) -> ast.expr | None:
    """What an argument of a call that makes layers should be."""
    given = [(caller, argument_of(framework, setting, one.settings.get(setting, value))) for caller, _, one in beside]
    return _needed(value, held, [(caller, one[1]) for caller, one in given if one is not None])


def _needed(value: Any, held: ast.expr | None, made: Sequence[tuple[Caller, Any]]) -> ast.expr | None:
    """What an argument should be: ``value``; where the layers of the call need several ones, the only name that holds them.

    A name stays where all layers need one value, unless it holds several: it may be the name that has a wrong value.
    """
    if all(same(one, value) for _, one in made):
        varies = isinstance(held, ast.Name) and len({repr(caller.held.get(held.id)) for caller, _ in made}) > 1
        return ast.parse(_literal(value), mode="eval").body if held is None or varies or _plain(held) else None
    names = held_by_all(made) if held is None or _plain(held) else []
    return ast.Name(names[0]) if len(names) == 1 else None


def _with_arguments(framework: str, kind: type, changes: Mapping[str, Any], call: ast.Call, beside: Beside) -> str | None:
    """The call with other values of some arguments; None where one of them is not known."""
    try:
        parameters = list(inspect.signature(kind.__init__).parameters)[1:]  # type: ignore[misc]
    except (TypeError, ValueError):
        return None
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return None
    for setting, value in changes.items():
        argument = argument_of(framework, setting, value)
        if argument is None or argument[0] not in parameters:
            return None
        name = argument[0]
        place = parameters.index(name)
        given = next((one for one in call.keywords if one.arg == name), None)
        held = given.value if given else call.args[place] if place < len(call.args) else None
        node = _value(framework, setting, argument[1], held, beside)
        if node is None:
            return None
        if given:
            given.value = node
        elif place < len(call.args):
            call.args[place] = node
        else:
            call.keywords.append(ast.keyword(name, node))
    return ast.unparse(call)


def _plain(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, tuple | list):
        return repr(value[0]) if value and all(one == value[0] for one in value) else repr(list(value))
    return repr(value)


# --- as text ----------------------------------------------------------------------------------------------------------------


def cards(fixes: Sequence[Fix], sources: Sequence[str]) -> list[list[str]]:
    """The card of each mistake; where one edit corrects several, or one line holds them, it is shown with the first."""
    made = [card(fix, source) for fix, source in zip(fixes, sources, strict=True)]
    for number, one in enumerate(made):
        first = min(made.index(one), sources.index(sources[number]) if not fixes[number] else number)
        if one and first < number:
            made[number] = [f"{'corrected by the same edit as' if fixes[number] else 'the same line as'} mistake {first + 1}"]
    return made


def card(fix: Fix, source: str) -> list[str]:
    """The port's line with two around it, and the correction as a diff where one is known; nothing where there is no line."""
    lines = [line.rstrip() for line in diff([fix], AROUND).splitlines() if not line.startswith(("---", "+++", "@@"))] if fix else []
    lines = lines or _around(source)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _around(source: str) -> list[str]:
    """The lines of ``file.py:12`` or ``file.py:12-14``, and two before and after."""
    name, _, numbers = source.rpartition(":")
    first, _, last = numbers.partition("-")
    file = _loaded(name) if first.isdigit() else None
    if file is None:
        return []
    lines, marked = file.read_text(encoding="utf-8", errors="replace").splitlines(), range(int(first), int(last or first) + 1)
    rows = range(max(marked.start - AROUND, 1), min(marked.stop - 1 + AROUND, len(lines)) + 1)
    return [f"{'>' if row in marked else ' '} {row:4} {lines[row - 1]}".rstrip() for row in rows]


def _loaded(name: str) -> Path | None:
    """The file of a module that is loaded, by its path as findings have it."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(Path(name).name) and shown(Path(file).resolve()) == name:
            return Path(file)
    return None
