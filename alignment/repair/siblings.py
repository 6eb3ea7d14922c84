"""Changes that other places of the file and the signatures of what is called speak for.

A call elsewhere in the file gives a keyword that this one has not; a column of a table holds one of two words; the called function
takes an argument of a name that the caller has, too; a name that is imported and that nothing reads was there for something.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from alignment.kinds import Kind
from alignment.repair.candidates import maker, statements_exchanged
from alignment.repair.edits import SourceEdit
from alignment.repair.mirror import Definition
from alignment.repair.region import NUMBER, Region

Spot = tuple[str, str]  # what is called, and a keyword, a position or a column
# "kernel 3x3, expected 5x5", "all values 0.1, expected all values 0"
INSTEAD = re.compile(rf"({NUMBER.pattern})(?:x\d+)?\b[^,;:]*, expected (?:[a-z]+ )*({NUMBER.pattern})", re.I)
ENOUGH = 12  # names of a module, or values of a place, that take one's part


def _place(region: Region, node: ast.AST) -> Spot | None:
    """Where an expression stands, as other expressions may: an argument of a call, a column of a table, a value under a key."""
    parents = region.source.parents
    above = parents.get(node)
    if isinstance(above, ast.keyword) and isinstance(call := parents.get(above), ast.Call):
        return ast.unparse(call.func), above.arg or "**"
    if isinstance(above, ast.Call) and node in above.args:
        return ast.unparse(above.func), str(above.args.index(node))
    if isinstance(above, ast.Tuple) and node in above.elts and isinstance(parents.get(above), ast.Tuple | ast.List):
        return f"row of {len(above.elts)}", str(above.elts.index(node))
    return None


@maker
def as_elsewhere(region: Region) -> Iterator[SourceEdit]:
    """A value becomes one that stands in the same place of another call, or in the same column of a table."""
    held: dict[Spot, dict[str, int]] = {}
    for node in ast.walk(region.source.tree):
        place = _place(region, node) if isinstance(node, ast.expr) else None
        if place is not None:
            held.setdefault(place, {}).setdefault(ast.unparse(node), node.lineno)  # type: ignore[attr-defined]
    known = _readable(region)
    for node in region.nodes():
        place = _place(region, node) if isinstance(node, ast.expr) else None
        others = held.get(place, {}) if place else {}
        near = sorted(others, key=lambda text: abs(others[text] - node.lineno))[: ENOUGH + 1]  # type: ignore[attr-defined]
        for text in near:
            names = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)} if text[:1] != "*" else None
            if names is not None and names <= known and text != ast.unparse(node):
                yield region.source.replaced(node, text)


def _readable(region: Region) -> set[str]:
    """Names that the function can read: its own, and the file's."""
    stored = [n.id for n in ast.walk(region.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    own = {*region.arguments(), *stored, "self"}
    for node in region.source.tree.body:
        own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if isinstance(node, ast.Assign | ast.AnnAssign) else set()
        own |= {node.name} if isinstance(node, Definition | ast.ClassDef) else set()
        own |= set(_imported(node))
    return own


def _imported(node: ast.stmt) -> list[str]:
    return [(a.asname or a.name).partition(".")[0] for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []


@maker
def unused_name(region: Region) -> Iterator[SourceEdit]:
    """A class, a function, a constant or an import of the file that nothing reads, in the place of another name."""
    tree = region.source.tree
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    listed = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    made = [name for node in tree.body for name in _made(node) if name not in read | listed and name != "annotations"]
    for node in region.nodes() if made else ():
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from (region.source.replaced(node, name) for name in made)


def _made(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    own = [t.id for t in targets if isinstance(t, ast.Name)]
    return own + ([node.name] if isinstance(node, ast.ClassDef) else []) + _imported(node)


# --- what is called -------------------------------------------------------------------------------------------------------


def _meant(region: Region, node: ast.expr) -> object:
    """The object that a name of the file stands for, without running anything; None where it is not known."""
    names = ast.unparse(node).split(".")
    found = module_of(region.source.file)
    for name in names:
        found = inspect.getattr_static(found, name, None) if inspect.isclass(found) else getattr(found, name, None)
        if not (inspect.ismodule(found) or inspect.isclass(found) or callable(found)):
            return None
    return found


def module_of(file: Path) -> object:
    """The module that is imported from a file."""
    return next((one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == str(file)), None)


@maker
def argument_forgotten(region: Region) -> Iterator[SourceEdit]:
    """An argument that the called function takes, and that the caller has by this name: a keyword more, or in a value's place."""
    values = _values(region)
    for node in region.nodes():
        if isinstance(node, ast.Call) and not any(isinstance(one, ast.Starred) for one in node.args):
            taken = _parameters(_meant(region, node.func))
            given = dict(zip(taken, node.args, strict=False)) | {one.arg: one.value for one in node.keywords if one.arg}
            for name in taken:
                for text in [text for known, text in values if _namesakes(known, name)]:
                    if name not in given:
                        more = ast.Call(node.func, node.args, [*node.keywords, ast.keyword(name, ast.Name(text))])
                        yield region.source.replaced(node, ast.unparse(more))
                    elif text != ast.unparse(given[name]):
                        yield region.source.replaced(given[name], text)


def _values(region: Region) -> list[tuple[str, str]]:
    """What the function is given and what is read of that anywhere in the file, by name: ``momentum``, ``config.momentum``."""
    bases = [*region.arguments(), "self"]
    found = [(name, name) for name in region.arguments()]
    for node in ast.walk(region.source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bases:
            found.append((node.attr, ast.unparse(node)))
    return list(dict.fromkeys(found))


def _namesakes(one: str, other: str) -> bool:
    return one == other or (min(len(one), len(other)) > 2 and (one.endswith(f"_{other}") or other.endswith(f"_{one}")))


def _parameters(called: object) -> list[str]:
    try:
        taken = inspect.signature(called).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    return [one.name for one in taken if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and one.name != "self"]


@maker
def unread_argument(region: Region) -> Iterator[SourceEdit]:
    """What the function is given and does not read, as one more argument of a call."""
    read = {n.id for n in ast.walk(region.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    unread = [name for name in region.arguments() if name not in read and not name.startswith("_")]
    for node in region.nodes() if unread else ():
        for name, place in itertools.product(unread, range(len(node.args), -1, -1) if isinstance(node, ast.Call) else ()):
            given = [*node.args[:place], ast.Name(name), *node.args[place:]]  # type: ignore[attr-defined]
            yield region.source.replaced(node, ast.unparse(ast.Call(node.func, given, node.keywords)))  # type: ignore[attr-defined]


@maker
def neighbour(region: Region) -> Iterator[SourceEdit]:
    """``Way.FLIP_TOP_BOTTOM`` becomes ``Way.FLIP_LEFT_RIGHT``: another constant of the same module whose name begins alike."""
    for node in region.nodes():
        if isinstance(node, ast.Attribute) and node.attr.isupper():
            module = _meant(region, node.value)
            alike = [name for name in dir(module) if name.isupper() and name != node.attr and _begin_alike(name, node.attr)]
            for name in sorted(alike, key=lambda one: -len(_common(one, node.attr)))[:ENOUGH]:
                yield region.source.replaced(node, f"{ast.unparse(node.value)}.{name}")


def _common(one: str, other: str) -> Sequence[str]:
    return [a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


def _begin_alike(one: str, other: str) -> bool:
    return one.partition("_")[0] == other.partition("_")[0]


# --- how an expression is put together ------------------------------------------------------------------------------------


@maker
def regrouped(region: Region) -> Iterator[SourceEdit]:
    """``f(a) / b`` becomes ``f(a / b)``, ``(a + b).f()`` becomes ``a.f() + b``, and the other way round."""
    for node in region.nodes():
        if isinstance(node, ast.BinOp):
            inside = node.left.right if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mult) else None
            if inside is not None and (own := _only(inside)) is not None:  # a * f(b) / c
                grouped = _with(inside, ast.BinOp(own, node.op, node.right))
                yield region.source.replaced(node, ast.unparse(ast.BinOp(node.left.left, ast.Mult(), grouped)))  # type: ignore[attr-defined]
            if (own := _only(node.left)) is not None:
                yield region.source.replaced(node, ast.unparse(_with(node.left, ast.BinOp(own, node.op, node.right))))
            if (own := _only(node.right)) is not None:
                yield region.source.replaced(node, ast.unparse(_with(node.right, ast.BinOp(node.left, node.op, own))))
        elif isinstance(inner := _only(node), ast.BinOp):
            for made in (
                ast.BinOp(_with(node, inner.left), inner.op, inner.right),
                ast.BinOp(inner.left, inner.op, _with(node, inner.right)),
            ):
                yield region.source.replaced(node, ast.unparse(made))


def _only(node: ast.AST) -> ast.expr | None:
    """What a function of one value is given."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if len(node.args) == 1:
        return node.args[0]
    return node.func.value if not node.args and isinstance(node.func, ast.Attribute) else None


def _with(call: ast.AST, value: ast.expr) -> ast.Call:
    """The same function of another value."""
    assert isinstance(call, ast.Call)
    if call.args:
        return ast.Call(call.func, [value], [])
    assert isinstance(call.func, ast.Attribute)
    return ast.Call(ast.Attribute(value, call.func.attr), [], [])


@maker
def shares_exchanged(region: Region) -> Iterator[SourceEdit]:
    """``mean * (1 - a) + new * a`` becomes ``mean * a + new * (1 - a)``: a share and what is left of it, in one statement."""
    source = region.source
    for statement in [one for one in region.nodes() if isinstance(one, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)]:
        rests = [one for one in ast.walk(statement) if _is_rest(one)]
        for share in dict.fromkeys(ast.unparse(one.right) for one in rests):  # type: ignore[attr-defined]
            here = [one for one in rests if ast.unparse(one.right) == share]  # type: ignore[attr-defined]
            inside = {part for one in here for part in ast.walk(one)}
            alike = [one for one in ast.walk(statement) if one not in inside and isinstance(one, ast.expr)]
            alone = [one for one in alike if ast.unparse(one) == share and not isinstance(getattr(one, "ctx", None), ast.Store)]
            if alone:
                start, end = source.span(statement)
                text = source.content[start:end]
                changes = [(source.span(one), source.text(one.right)) for one in here]  # type: ignore[attr-defined]
                rest = source.text(here[0])
                changes += [(source.span(one), rest if source.has_brackets(one) else f"({rest})") for one in alone]
                for (first, last), new in sorted(changes, reverse=True):
                    text = text[: first - start] + new.encode() + text[last - start :]
                yield SourceEdit(source.file, start, end, text.decode(), statement.lineno)


def _is_rest(node: ast.AST) -> bool:
    """``1 - a``."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and getattr(node.left, "value", None) == 1


@maker
def as_expected(region: Region) -> Iterator[SourceEdit]:
    """The very number that the finding says, where the source holds it, becomes the one that it expects."""
    said = {(float(one), other) for one, other in INSTEAD.findall(region.words)}
    for node in region.nodes() if said else ():
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            for found, expected in said:
                if node.value == found and float(expected) != found:
                    whole = isinstance(node.value, int) and float(expected) == int(float(expected))
                    yield region.source.replaced(node, str(int(float(expected))) if whole else expected)


@maker
def unbiased(region: Region) -> Iterator[SourceEdit]:
    """``variance`` becomes ``variance * count / (count - 1)``, of a count that the function takes from a shape."""
    if "n/(n-1)" not in region.words:
        return
    sizes = [one for one in ast.walk(region.function) if isinstance(one, ast.Assign) and _of_a_shape(one.value)]
    counts = [target.id for one in sizes for target in one.targets if isinstance(target, ast.Name)]
    for node in region.nodes():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and "var" in node.id.lower():
            yield from (region.source.replaced(node, f"{node.id} * {count} / ({count} - 1)") for count in counts)


def _of_a_shape(node: ast.AST) -> bool:
    return any(getattr(one, "attr", getattr(one, "id", "")) in ("shape", "size", "numel", "len") for one in ast.walk(node))


@maker
def activation_moved(region: Region) -> Iterator[SourceEdit]:
    """Where the finding says that an activation stands on the wrong side of a sum: the blamed statement and the next one."""
    if str(Kind.ACTIVATION_ORDER) not in region.words:
        return
    for make in (statements_exchanged, regrouped, _behind):
        yield from (edit for edit in make(region) if edit.line in region.lines)


LACKING = re.compile(r"([\w.]+) (?:is|are) missing (?:(?:after|between) ([\w.]+)(?: and ([\w.]+))?|before ([\w.]+))")


@maker
def layer_where_it_is_missing(region: Region) -> Iterator[SourceEdit]:
    """Where the finding says between which layers one is not called: around the call before it, or what the next one is given."""
    stored = [n for n in ast.walk(region.source.tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    for lacking, *beside in LACKING.findall(region.words):
        layer, before, *after = (name.rpartition(".")[2] for name in (lacking, *beside))
        calls = [node for node in region.nodes() if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        for call in calls if any(one.attr == layer for one in stored) else ():
            base, name = call.func.value, call.func.attr  # type: ignore[attr-defined]
            if not isinstance(base, ast.Name) or base.id != "self" or len(call.args) != 1:
                continue
            given = call if before and name == before else call.args[0] if name in after else None
            if given is not None:
                yield region.source.replaced(given, f"self.{layer}({region.source.text(given)})")


def _behind(region: Region) -> Iterator[SourceEdit]:
    """``y = f(g(y))``, ``return y + x`` becomes ``y = g(y)``, ``return f(y + x)``: the first statement that adds to it."""
    for node in [region.function, *region.nodes()]:
        held = getattr(node, "body", None)
        body: list[Any] = held if isinstance(held, list) else []
        for number, one in enumerate(body):
            inner = _only(one.value) if isinstance(one, ast.Assign) else None
            name = ast.unparse(one.targets[0]) if isinstance(one, ast.Assign) else ""
            behind = (other for other in body[number + 1 :] if _added_to(other, name))
            if inner is None or (other := next(behind, None)) is None:
                continue
            (start, middle), (begin, end) = region.source.span(one), region.source.span(other)
            own = "" if ast.unparse(inner) == name else f"{name} = {region.source.text(inner)}"
            between = region.source.content[middle:begin].decode()
            total = ast.BinOp(other.target, other.op, other.value) if isinstance(other, ast.AugAssign) else other.value
            given = f"{'return' if isinstance(other, ast.Return) else f'{name} ='} {ast.unparse(_with(one.value, total))}"
            text = f"{own}{between if own else between.lstrip()}{given}"
            yield SourceEdit(region.source.file, start, end, text, one.lineno)


def _added_to(node: ast.stmt, name: str) -> bool:
    """Whether a statement gives a name, or returns, the sum of its value and another one."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and ast.unparse(node.target) == name
    value = node.value if isinstance(node, ast.Assign | ast.Return) else None
    kept = isinstance(node, ast.Return) or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
    added = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
    return kept and added and name in (ast.unparse(value.left), ast.unparse(value.right))  # type: ignore[union-attr]


@maker
def one_more_or_less(region: Region) -> Iterator[SourceEdit]:
    """``len(x) - n`` becomes ``len(x) - 1 - n``."""
    for node in region.nodes():
        above = region.source.parents.get(node)
        summed = isinstance(above, ast.Compare | ast.Slice) or isinstance(getattr(above, "op", None), ast.Sub | ast.Add)
        if summed and isinstance(node, ast.Name | ast.Attribute | ast.Call):
            yield from (region.source.replaced(node, f"{region.source.text(node)} {sign} 1") for sign in "-+")


@maker
def names_exchanged(region: Region) -> Iterator[SourceEdit]:
    """``(x - s) / m`` becomes ``(x - m) / s``."""
    for node in region.nodes():
        if isinstance(node, ast.BinOp) and not isinstance(region.source.parents.get(node), ast.BinOp):
            names = dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
            for one, other in itertools.combinations(names, 2):
                turned = {one: other, other: one}
                text = re.sub(r"\b[A-Za-z_]\w*\b", lambda said: turned.get(said[0], said[0]), region.source.text(node))  # noqa: B023
                yield region.source.replaced(node, text)
