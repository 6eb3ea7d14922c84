"""Small changes of a source text, each of which a person might have made by mistake.

Own operators, on the positions that ``ast`` gives, so that the rest of the text stays as it is. No library has all of
these (cosmic-ray leaves arguments, statements, names and defaults alone, mutmut deletes no statements and swaps no names), and each
brings a runner of its own that knows test suites alone.

Left alone: docstrings and other free-standing strings, annotations, imports, ``__all__``, assertions and the ``strict`` of ``zip``,
what is printed, logged or warned of, and what an exception is raised with.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OPERATORS = ("constant", "operator", "condition", "argument", "statement", "name", "default", "return")
_BINARY: dict[type, tuple[str, tuple[str, ...]]] = {
    ast.Add: (r"\+", ("-",)),
    ast.Sub: (r"-", ("+",)),
    ast.Mult: (r"\*(?!\*)", ("/",)),
    ast.Div: (r"/(?!/)", ("*",)),
    ast.FloorDiv: (r"//", ("*", "%")),
    ast.Mod: (r"%", ("*",)),
    ast.Pow: (r"\*\*", ("*",)),
    ast.BitAnd: (r"&", ("|",)),
    ast.BitOr: (r"\|", ("&",)),
    ast.MatMult: (r"@", ("*",)),
}
_COMPARISONS: dict[type, tuple[str, tuple[str, ...]]] = {
    ast.Lt: (r"<", ("<=", ">")),
    ast.LtE: (r"<=", ("<", ">=")),
    ast.Gt: (r">", (">=", "<")),
    ast.GtE: (r">=", (">", "<=")),
    ast.Eq: (r"==", ("!=",)),
    ast.NotEq: (r"!=", ("==",)),
    ast.Is: (r"is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: (r"in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_TALK = {"print", "warn", "warning", "info", "debug", "error", "exception", "log"}


@dataclass(frozen=True)
class Mutation:
    """One change of one file.

    Attributes:
        file: relative to the project's folder.
        line: its number, from 1.
        operator: one of ``OPERATORS``.
        start, end: bytes of the UTF-8 text that are replaced.
        new: what stands there instead.
        scope: the class and function that it is in, e.g. ``"Net.forward"``; ``""`` at the module's level.
        text: the line, stripped.
        change: in words, e.g. ``"2 -> 3"``.
        number: of the changes with this file, scope, line and wording, from 1.
    """

    file: str
    line: int
    operator: str
    start: int
    end: int
    new: str
    scope: str
    text: str
    change: str
    number: int = 1

    @property
    def key(self) -> str:
        """The same however many lines stand before it."""
        return " | ".join([self.file, self.scope, self.text, self.change, str(self.number)])

    def applied(self, source: str) -> str:
        """The text of the file with the change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def mutations(file: str, source: str) -> list[Mutation]:
    """Every change, in the order of the text; a few may give no program, which ``drawn`` leaves out.

    Args:
        file: its name, relative to the project's folder.
        source: its text.
    """
    tree = ast.parse(source)
    finder = _Finder(file, source)
    finder.visit(tree)
    counts: dict[str, int] = {}
    found = []
    for one in sorted(finder.found, key=lambda m: (m.start, m.end, m.operator, m.new)):
        counts[one.key] = counts.get(one.key, 0) + 1
        found.append(Mutation(**{**vars(one), "number": counts[one.key]}))
    return found


def drawn(found: Iterable[Mutation], sources: Mapping[str, str], count: int, seed: int) -> list[Mutation]:
    """A sample of the changes, each file by its share of them, at most one change of a place.

    A larger count with the same seed gives these and more.

    Args:
        found: from ``mutations``.
        sources: texts of their files by name.
        count: at most.
        seed: which ones.
    """
    rng = random.Random(seed)
    by_file: dict[str, dict[tuple, list[Mutation]]] = {}
    for one in found:
        by_file.setdefault(one.file, {}).setdefault((one.start, one.end, one.operator), []).append(one)
    ordered = []
    for places in by_file.values():
        chosen = [rng.choice(changes) for changes in places.values()]
        rng.shuffle(chosen)
        offset = rng.random()
        ordered += [((rank + offset) / len(chosen), one) for rank, one in enumerate(chosen)]
    in_order = (one for _, one in sorted(ordered, key=lambda pair: (pair[0], pair[1].key)))
    return list(itertools.islice((one for one in in_order if _is_another_program(one, sources[one.file])), count))


def _is_another_program(mutation: Mutation, source: str) -> bool:
    text = mutation.applied(source)
    try:
        compile(text, mutation.file, "exec")
    except (SyntaxError, ValueError):
        return False
    return text != source


class _Finder(ast.NodeVisitor):
    """Walks a tree and notes the changes that its nodes allow."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.data, self.found = file, source.encode(), list[Mutation]()
        self.lines = source.splitlines()
        self.begins = [0]
        for line in self.data.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))
        self.scopes: list[str] = []
        self.names: list[list[str]] = []  # of the functions around: arguments and what is assigned, in order
        self.fields: list[list[str]] = []  # of the classes around: what self has

    # --- text --------------------------------------------------------------------------------------------------------------

    def _span(self, node: ast.AST) -> tuple[int, int]:
        at: ast.expr = node  # type: ignore[assignment]  # whatever has a position
        assert at.end_lineno is not None and at.end_col_offset is not None
        return self.begins[at.lineno - 1] + at.col_offset, self.begins[at.end_lineno - 1] + at.end_col_offset

    def _text(self, start: int, end: int) -> str:
        return self.data[start:end].decode()

    def _note(self, operator: str, start: int, end: int, new: str, change: str = "") -> None:
        line = self.data.count(b"\n", 0, start) + 1
        change = change or f"{_short(self._text(start, end))} -> {_short(new)}"
        scope = ".".join(self.scopes)
        self.found.append(Mutation(self.file, line, operator, start, end, new, scope, self.lines[line - 1].strip(), change))

    # --- what is left alone ------------------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None: ...
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...

    def visit_Raise(self, node: ast.Raise) -> None:
        self._delete(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_arg(self, node: ast.arg) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _talks(node.value):
            return
        if isinstance(node.value, ast.Call):
            self._delete(node)
        self.visit(node.value)

    # --- statements --------------------------------------------------------------------------------------------------------

    def _delete(self, node: ast.stmt) -> None:
        start, end = self._span(node)
        self._note("statement", start, end, "pass", f"delete: {_short(self._text(start, end))}")

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            return
        if self.scopes:
            self._delete(node)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._delete(node)
        known = _BINARY.get(type(node.op))
        if known:
            self._swap(node.target, node.value, known[0] + "=", tuple(f"{new}=" for new in known[1]))
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._note("return", *self._span(node.value), "None", f"return {_short(self._text(*self._span(node.value)))} -> None")
        self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        fields = [
            attribute.attr
            for attribute in ast.walk(node)
            if isinstance(attribute, ast.Attribute) and isinstance(attribute.value, ast.Name) and attribute.value.id == "self"
            and isinstance(attribute.ctx, ast.Store)
        ]  # fmt: skip
        self.scopes.append(node.name)
        self.fields.append(list(dict.fromkeys(fields)))
        for child in node.body:
            self.visit(child)
        self.scopes.pop()
        self.fields.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = node.args
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            for new in _constants(default):
                self._note("default", *self._span(default), new)
        self.scopes.append(node.name)
        self.names.append(_names(node))
        for child in node.body:
            self.visit(child)
        self.scopes.pop()
        self.names.pop()

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    # --- conditions and operators ------------------------------------------------------------------------------------------

    def _negate(self, test: ast.expr) -> None:
        start, end = self._span(test)
        self._note(
            "condition", start, end, f"(not ({self._text(start, end)}))", f"if {_short(self._text(start, end))} -> if not ..."
        )

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def _swap(self, left: ast.expr, right: ast.expr, pattern: str, others: tuple[str, ...]) -> None:
        """Other operators between two operands."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), self.data[begin:end].decode("latin-1"))
        match = re.search(pattern, gap)
        for new in others if match else ():
            assert match is not None
            line = " ".join(self._text(*self._span(left)).split()), " ".join(self._text(*self._span(right)).split())
            change = f"{_short(line[0])} {match[0]} {_short(line[1])} -> {new}"
            self._note("operator", begin + match.start(), begin + match.end(), new, change)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if known := _BINARY.get(type(node.op)):
            self._swap(node.left, node.right, *known)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            if known := _COMPARISONS.get(type(operator)):
                self._swap(left, right, *known)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._swap(left, right, rf"\b{old}\b", (new,))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
            start, end = self._span(node)
            for new in (
                self._text(*self._span(node.operand)),
                *(f"-{text}" for text in _constants(node.operand) if text[0] != "-"),
            ):
                self._note("constant", start, end, new)
            return
        start, end = self._span(node)
        self._note("operator", start, end, f"({self._text(*self._span(node.operand))})")
        self.generic_visit(node)

    # --- constants, arguments, names ---------------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> None:
        for new in _constants(node):
            self._note("constant", *self._span(node), new)

    def visit_Call(self, node: ast.Call) -> None:
        if _talks(node):
            return
        given = [*node.args, *node.keywords]
        if len(given) == 1 and isinstance(given[0], ast.GeneratorExp):  # its brackets are the call's
            self.visit(given[0])
            return
        spans = sorted(self._span(one) for one in given)
        for number, (start, end) in enumerate(spans):
            if self.data[start:].startswith(b"strict="):  # of zip: a check, as an assertion is
                continue
            before = spans[number - 1][1] if number else start
            after = spans[1][0] if not number and len(spans) > 1 else end
            self._note("argument", before, after, "", f"drop the argument {_short(self._text(start, end))}")
        for one, next_one in zip(node.args, node.args[1:], strict=False):
            (a, b), (c, d) = self._span(one), self._span(next_one)
            first, second = self._text(a, b), self._text(c, d)
            if first != second and not isinstance(one, ast.Starred) and not isinstance(next_one, ast.Starred):
                change = f"swap the arguments {_short(first)} and {_short(second)}"
                self._note("argument", a, d, second + self._text(b, c) + first, change)
        if not isinstance(node.func, ast.Name):
            self.visit(node.func)
        for child in given:
            if not (isinstance(child, ast.keyword) and child.arg == "strict"):
                self.visit(child)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and self.names:
            self._rename(node, node.id, self.names[-1], "")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            if isinstance(node.ctx, ast.Load) and self.fields:
                self._rename(node, node.attr, self.fields[-1], "self.")
            return
        self.visit(node.value)

    def _rename(self, node: ast.AST, name: str, names: list[str], before: str) -> None:
        """The next name of the same scope in its place."""
        if name in names and len(names) > 1:
            other = names[(names.index(name) + 1) % len(names)]
            self._note("name", *self._span(node), before + other)


def _names(function: ast.FunctionDef) -> list[str]:
    """Arguments and assigned names of a function, in order, ``self`` and the like left out."""
    arguments = function.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
    return [name for name in dict.fromkeys(names) if name not in ("self", "cls", "_")]


def _constants(node: ast.AST) -> list[str]:
    """Other constants in the place of one: a number one more, twice and negative; the other truth value; another text."""
    if not isinstance(node, ast.Constant):
        return []
    value = node.value
    if isinstance(value, bool):
        return [str(not value)]
    if isinstance(value, (int, float)):
        return [repr(new) for new in dict.fromkeys([value + 1, value * 2, -value]) if new != value]
    if isinstance(value, str):
        return [repr(value + "_other"), '""'] if value else ['"other"']
    return []


def _talks(node: ast.AST) -> bool:
    """Whether a call tells a person something."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    owner = function.value.id if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) else ""
    return name == "print" or (name in _TALK and owner in ("log", "logger", "logging", "warnings"))


def _short(text: str) -> str:
    """A text in one line of at most 60 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
