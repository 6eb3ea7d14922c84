"""The source of a port as a tree: the calls in it, and from which constant or parameter a value in it comes."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alignment.frameworks._call_names import ALIASES
from alignment.localize.source import Caller, Span
from alignment.tolerance import BASE_FLOOR_32

Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Loop = (ast.For, ast.comprehension)
Entry = (ast.Attribute, ast.Subscript)  # of a configuration
ARITHMETIC = {"add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "div": ast.Div, "pow": ast.Pow, "matmul": ast.MatMult}
UNKNOWN = object()  # a value that the source does not show
DEEP = 5  # names behind names


def parameters_of(function: Any, source: SourceTree) -> list[str]:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    names += [rest_of(function)] if rest_of(function) else []
    return names[1:] if isinstance(source.parents.get(function), ast.ClassDef) else names


def rest_of(function: Any) -> str:
    """The name under which a function takes all other named arguments, ``**options``; ``""`` for none."""
    rest = function.args.kwarg if isinstance(function, Function) else None
    return rest.arg if rest else ""


def rest_given(call: ast.Call, source: SourceTree) -> ast.expr | None:
    """What a call hands on unpacked, where that is all that the function around it takes besides: ``Layer(**options)``."""
    unpacked = [one.value for one in call.keywords if one.arg is None]
    rest = rest_of(source.function(call))
    alone = len(unpacked) == 1 and not any(isinstance(one, ast.Starred) for one in call.args)
    return unpacked[0] if alone and rest and getattr(unpacked[0], "id", "") == rest else None


@dataclass(frozen=True)
class SourceTree:
    """One file of the port as a tree."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    calls: dict[Span, ast.Call]

    @staticmethod
    def of(file: Path) -> SourceTree:
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
        found = [
            self.configured(one, value) if isinstance(one, ast.Attribute | ast.Subscript) else one for one in plain_leaves(node)
        ]
        held = [one for one in found if one is not None and (value is UNKNOWN or _is(one, caller.held, value))]
        leaves = {one.id if isinstance(one, ast.Name) else one: one for one in held}
        leaf = next(iter(leaves.values())) if len(leaves) == 1 else None
        if not isinstance(leaf, ast.Name) or not isinstance(function, Function) or depth > DEEP:
            return leaf if isinstance(leaf, ast.Constant) else None
        bound = [one for one in ast.walk(function) if leaf.id in bound_names(one)]
        given = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        if leaf.id in given or len(bound) != 1:
            return leaf.id if leaf.id in given and not bound else None
        if isinstance(bound[0], Loop):
            return self._of_loop(bound[0], leaf.id, function, caller, value, depth)
        plain = isinstance(bound[0], ast.Assign) and isinstance(bound[0].targets[0], ast.Name)
        return self.traced(bound[0].value, function, caller, value, depth + 1) if plain else None  # type: ignore[attr-defined]

    def configured(self, node: ast.Attribute | ast.Subscript, value: Any) -> ast.Constant | None:
        """The only constant that the file gives to a configuration's entry, ``c.eps`` or ``c["eps"]``.

        Where the value is known, and stands nowhere else, that may be the default of a function's parameter of this name.
        """
        key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        found = [(held, default) for name, held, default in self._entries if name == key and isinstance(key, str)]
        found = [(held, default) for held, default in found if value is UNKNOWN or _is(held, {}, value)]
        given = [held for held, default in found if not default] or [held for held, _ in found if value is not UNKNOWN]
        return given[0] if len(given) == 1 else None

    @functools.cached_property
    def _entries(self) -> list[tuple[Any, ast.Constant, bool]]:
        """Constants that the file gives a name: in a class, to an attribute, in a dictionary, as an argument or its default."""
        found: list[tuple[Any, ast.expr | None, bool]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                found += [(name, node.value, False) for name in bound_names(node)]
            elif isinstance(node, ast.Dict):
                found += [(getattr(one, "value", None), held, False) for one, held in zip(node.keys, node.values, strict=True)]
            elif isinstance(node, ast.keyword):
                found.append((node.arg, node.value, False))
            elif isinstance(node, ast.FunctionDef):
                found += [(one, default_of(node, one), True) for one in parameters_of(node, self)]
        return [(name, held, default) for name, held, default in found if isinstance(held, ast.Constant)]

    def behind(self, nodes: Sequence[ast.AST], function: ast.AST | None) -> list[str]:
        """The parameters of the function around some expressions on which they depend, through its other names."""
        if not isinstance(function, ast.FunctionDef):
            return []
        given, seen, waiting = parameters_of(function, self), set[str](), list(nodes)
        for node in waiting:  # grows meanwhile
            for name in [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one.id not in seen]:
                seen.add(name)
                makers = [one for one in ast.walk(function) if name in bound_names(one)]
                made = [one.iter if isinstance(one, Loop) else one.value for one in makers]  # type: ignore[attr-defined]
                waiting += [one for one in made if one is not None]
        return [name for name in given if name in seen]

    def class_around(self, line: int) -> ast.ClassDef | None:
        """The innermost class in which a line stands."""
        around = [one for one in self.parents if isinstance(one, ast.ClassDef) and one.lineno <= line <= (one.end_lineno or 0)]
        return max(around, key=lambda one: one.lineno, default=None)

    def given_at(self, line: int, function: str, name: str) -> list[ast.expr] | None:
        """What the calls of a function in a line may be given for an argument, or an operator as an operand; None: no such call."""
        at = [node for node in self.parents if isinstance(node, ast.expr) and node.lineno <= line <= (node.end_lineno or 0)]
        symbol = ARITHMETIC.get(ALIASES.get(function.strip("_"), ""))
        found: list[ast.expr] = []
        for node in at:
            if isinstance(node, ast.BinOp) and symbol and isinstance(node.op, symbol):
                found += [node.left, node.right]
            elif isinstance(node, ast.Call) and function in (getattr(node.func, "attr", ""), getattr(node.func, "id", "")):
                named = [one.value for one in node.keywords if one.arg == name]
                found += named or ([node] if unpacks(node) else node.args)
        return found or None

    def attributes_at(self, line: int, given: Sequence[ast.expr] | None = None) -> list[str]:
        """The attributes of ``self`` that the expressions of a line read, also through names that the function gives them.

        With ``given`` those alone that some expressions hand on as they are.
        """
        at = [node for node in self.parents if isinstance(node, ast.expr) and node.lineno <= line <= (node.end_lineno or 0)]
        function, seen, parts = self.function(at[0]) if at else None, set[str](), plain_leaves if given is not None else ast.walk
        at = at if given is None else [part for one in given for part in plain_leaves(one)]
        for node in at:  # grows meanwhile
            if isinstance(node, ast.Name) and function is not None and node.id not in seen:
                seen.add(node.id)
                makers = [one for one in ast.walk(function) if isinstance(one, ast.Assign) and node.id in bound_names(one)]
                at += [part for one in makers if len(makers) == 1 for part in parts(one.value) if isinstance(part, ast.expr)]
        return list(dict.fromkeys(one.attr for one in at if isinstance(one, ast.Attribute) and is_own(one)))

    def differences_behind(self, line: int) -> list[ast.BinOp]:
        """The differences of positions, each along an axis of its own, from which what stands in a line may come, in this file."""
        functions = {one.name: one for one in self.parents if isinstance(one, ast.FunctionDef)}
        at: list[ast.AST] = [node for node in self.parents if isinstance(node, ast.expr) and node.lineno == line]
        seen, found = set[tuple[ast.AST | None, str]](), list[ast.BinOp]()
        for node in at:  # grows meanwhile
            for one in ast.walk(node):
                if (
                    isinstance(one, ast.BinOp)
                    and isinstance(one.op, ast.Sub)
                    and self._widened(one.left)
                    and self._widened(one.right)
                ):
                    found.append(one)
                called = (
                    functions.get(getattr(one.func, "id", getattr(one.func, "attr", ""))) if isinstance(one, ast.Call) else None
                )
                if called is not None and (called, "") not in seen:
                    seen.add((called, ""))
                    at.append(called)
                within = self.function(one)
                if isinstance(one, ast.Name) and within is not None and (within, one.id) not in seen:
                    seen.add((within, one.id))
                    at += self._held_by(one, within)
        return list(dict.fromkeys(found))

    def _widened(self, node: ast.expr) -> bool:
        """Whether an expression, or the name that stands for it, is given a further axis."""
        within = self.function(node)
        parts = [node, *(self._held_by(node, within) if isinstance(node, ast.Name) and within is not None else ())]
        inside = [one for part in parts for one in ast.walk(part)]
        indices = [part for one in inside if isinstance(one, ast.Subscript) for part in ast.walk(one.slice)]
        return any(isinstance(one, ast.Constant) and one.value is None for one in indices) or any(
            isinstance(one, ast.Attribute) and one.attr in ("unsqueeze", "expand_dims", "newaxis", "reshape", "view")
            for one in inside
        )

    def _held_by(self, name: ast.Name, within: ast.AST) -> list[ast.expr]:
        """What a name is given in a function."""
        makers = [one for one in ast.walk(within) if isinstance(one, ast.Assign) and name.id in bound_names(one)]
        return [one.value for one in makers]

    def shared(self, lines: set[int], others: set[int]) -> int | None:
        """The line of the only statement of a function from which all of some lines in it compute, and none of others."""
        behind = [[self._statements_behind(line) for line in some] for some in (lines, others)]
        common = set.intersection(*behind[0]).difference(*behind[1])
        return common.pop().lineno if len(common) == 1 else None

    def handed_on(self, lines: set[int]) -> tuple[str, int] | None:
        """The name that each of some lines gives a value, and the line behind them that gives this value another name."""
        nodes = [node for node in self.parents if isinstance(node, ast.Assign)]
        makers = [node for node in nodes if any(node.lineno <= line <= (node.end_lineno or 0) for line in lines)]
        names, within = {tuple(bound_names(one)) for one in makers}, {self.function(one) for one in makers}
        if len(makers) < len(lines) or len(names) != 1 or len(within) != 1 or len(name := next(iter(names))) != 1:
            return None
        behind = [node for node in nodes if node.lineno > max(lines) and self.function(node) in within]
        places = [one.lineno for one in behind if isinstance(one.value, ast.Name) and one.value.id == name[0]]
        return (name[0], places[0]) if len(places) == 1 else None

    def names_at(self, line: int) -> set[str]:
        """The names that the statement in a line reads, attributes of ``self`` as such."""
        at = [node for node in self.parents if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)]
        plain = [one for one in at if not any(isinstance(child, ast.stmt) for child in ast.iter_child_nodes(one))]
        read = [one for node in plain for one in ast.walk(node) if isinstance(getattr(one, "ctx", None), ast.Load)]
        own = {f"self.{one.attr}" for one in read if isinstance(one, ast.Attribute) and is_own(one)}
        return {one.id for one in read if isinstance(one, ast.Name)} | own

    def _statements_behind(self, line: int) -> set[ast.stmt]:
        """The statements of its function that give a value to names from which what stands in a line computes."""
        at = [node for node in self.parents if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)]
        waiting: list[ast.AST] = [one for one in at if not any(isinstance(child, ast.stmt) for child in ast.iter_child_nodes(one))]
        within = self.function(waiting[0]) if waiting else None
        bound = [node for node in ast.walk(within) if isinstance(node, ast.stmt) and bound_names(node)] if within else []
        found = set[ast.stmt]()
        for node in waiting:  # grows meanwhile
            used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
            new = [one for one in bound if one not in found and one is not node and used.intersection(bound_names(one))]
            found.update(new)
            waiting += new
        return found

    def conditions(self, node: ast.AST) -> list[ast.expr]:
        """The conditions inside its function on which it depends whether a node is run."""
        found, above = list[ast.expr](), self.parents.get(node)
        while above is not None and not isinstance(above, (*Function, ast.ClassDef)):
            if isinstance(above, ast.If | ast.IfExp):
                found.append(above.test)
            above = self.parents.get(above)
        return found

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
                made = [one for one in ast.walk(where) if isinstance(one, ast.Assign | ast.AnnAssign) and name in bound_names(one)]
                if len(made) == 1 and made[0].value is not None:
                    node = made[0].value
                    break
        return node if isinstance(node, ast.Tuple | ast.List) else None


@functools.lru_cache(16)
def _read(content: bytes) -> SourceTree:
    tree = ast.parse(content)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return SourceTree(tree, parents, {(n.lineno, n.end_lineno, n.col_offset, n.end_col_offset): n for n in calls})


def plain_leaves(node: ast.AST) -> Iterator[ast.expr]:
    """Names and constants that an expression hands on as they are: by a choice, in a list, in lists put together."""
    if isinstance(node, ast.Name | ast.Constant | ast.Attribute | ast.Subscript):
        yield node
    elif isinstance(node, ast.IfExp | ast.BoolOp | ast.List | ast.Tuple | ast.BinOp):
        parts = {"IfExp": ("body", "orelse"), "BoolOp": ("values",), "BinOp": ("left", "right")}.get(type(node).__name__, ("elts",))
        for one in (part for name in parts for part in _listed(getattr(node, name))):
            if not isinstance(node, ast.BinOp) or isinstance(one, ast.List | ast.Tuple | ast.BinOp):  # of numbers it computes
                yield from plain_leaves(one)


def class_trees(kind: type, base: type) -> Iterator[tuple[Path, ast.ClassDef]]:
    """A class and those between it and its framework's ``base``, as far as their sources can be read, each with its file."""
    for one in kind.__mro__[: kind.__mro__.index(base)] if issubclass(kind, base) else ():  # a node of a file is of another class
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            file = Path(inspect.getsourcefile(one) or "").resolve()
            lines, first = inspect.getsourcelines(one)
            owner = SourceTree.of(file).class_around(first + len(lines) - 1)
            while owner is not None and owner.name != one.__name__:  # one inside it that ends with it
                owner = SourceTree.of(file).class_around(owner.lineno - 1)
            if owner is not None:
                yield file, owner


def assigned(owner: ast.ClassDef) -> dict[str, list[ast.expr]]:
    """What a class gives its attributes, in its methods and by itself."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for name, held in attributes_set(node, node in owner.body):
                found.setdefault(name, []).append(held)
    return found


def is_own(node: ast.expr) -> bool:
    """Whether an expression is ``self.NAME``."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def attributes_set(node: ast.Assign | ast.AnnAssign, of_class: bool) -> Iterator[tuple[str, ast.expr]]:
    """The attributes of ``self`` that a statement sets, or, in the body of a class, the class's, each with what it is given."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        both = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
            both = list(zip(target.elts, node.value.elts, strict=True))
        for one, held in both:
            if held is not None and (is_own(one) or (of_class and isinstance(one, ast.Name))):
                yield getattr(one, "attr", getattr(one, "id", "")), held


def argument_in(call: ast.Call, name: str, names: Sequence[str]) -> ast.expr | None:
    """What a call gives a parameter; None where it leaves it to the default.

    Args:
        call: without arguments that are unpacked.
        name: of the parameter.
        names: of all parameters in their order, without ``self``.
    """
    held = next((one.value for one in call.keywords if one.arg == name), None)
    at = names.index(name) if name in names else len(call.args)
    return held or (call.args[at] if at < len(call.args) else None)


def unpacks(call: ast.Call) -> bool:
    """Whether a call unpacks some of its arguments: ``f(*args)``."""
    return any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)


def default_of(function: ast.AST | None, name: str) -> ast.expr | None:
    """The default of a function's parameter; None where it has none."""
    if not isinstance(function, Function):
        return None
    placed, own = [*function.args.posonlyargs, *function.args.args], function.args
    known = dict(zip([one.arg for one in placed[::-1]], own.defaults[::-1], strict=False))
    return (known | {one.arg: held for one, held in zip(own.kwonlyargs, own.kw_defaults, strict=True) if held}).get(name)


def _listed(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held]


def bound_names(node: ast.AST) -> list[str]:
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
