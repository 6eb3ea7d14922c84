"""A function of the port in which the mistake may be, with what is known of it."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from alignment.repair.edits import SourceEdit
from alignment.repair.mirror import Definition, bound_by
from alignment.repair.source import PortFile

NAME = re.compile(r"[A-Za-z_]\w*")
LINE = re.compile(r"\.py:\d+(-\d+)?")
MISSING = re.compile(r"(\w+) is missing|(\w+) is not called")
NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)", re.I)


@dataclass(frozen=True)
class Region:
    """A function in which the mistake may be.

    Attributes:
        source: the port's file.
        function: in it; or another node, e.g. an entry of a table.
        line: that is to blame; 0 where it is not known.
        words: of the finding.
        theirs: what the reference has in its place, which may be of several functions.
        languages: names of the frameworks, the port's first.
        named: whether the finding names the function; else it is one of those that could be meant.
    """

    source: PortFile
    function: ast.AST
    line: int = 0
    words: str = ""
    theirs: tuple[Definition, ...] = ()
    languages: tuple[str, str] = ("", "")
    named: bool = True
    numbers: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        said = numbers_of(self.words)
        constants = [n.value for f in self.theirs for n in ast.walk(f) if isinstance(n, ast.Constant)]
        held = [float(value) for value in constants if isinstance(value, int | float) and not isinstance(value, bool)]
        object.__setattr__(self, "numbers", tuple(dict.fromkeys([*said, *held])))

    @functools.cached_property
    def known(self) -> frozenset[str]:
        """Names that the function can read: those that it reads, its own, and those that are known outside."""
        return self.outside | {n.id for n in ast.walk(self.function) if isinstance(n, ast.Name)} | bound_by(self.function)

    @functools.cached_property
    def outside(self) -> frozenset[str]:
        """Names of what is around the function, the file's, Python's."""
        found, around = {*dir(builtins), "__file__"}, self.source.parents.get(self.function)
        while around is not None:
            for one in around.body if isinstance(around, ast.ClassDef | ast.Module) else [around]:
                found |= {one.name} if isinstance(one, ast.ClassDef | Definition) and one is not around else bound_by(one)
            around = self.source.parents.get(around)
        return frozenset(found)

    def unbound(self, edit: SourceEdit, tree: ast.Module) -> bool:
        """Whether a change leaves a name of the function's own that is still read, and that nothing in it binds any more.

        Args:
            edit: within the function.
            tree: of the file after it.
        """
        bound = [n for n in ast.walk(self.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        touched = {n.id for n in bound if edit.start <= self.source.span(n)[0] < edit.end}
        touched -= self.outside
        where = (getattr(self.function, "name", ""), getattr(self.function, "lineno", 0))
        functions = (n for n in ast.walk(tree) if isinstance(n, Definition) and (n.name, n.lineno) == where)
        after = next(functions, None) if touched else None
        if after is None:
            return False
        read = {n.id for n in ast.walk(after) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        return bool(touched & read - bound_by(after))

    @functools.cached_property
    def lines(self) -> frozenset[int]:
        """Those of the smallest statement that covers the blamed one; none where it is not known."""
        covering = [n for n in ast.walk(self.function) if isinstance(n, ast.stmt) and covers(n, self.line)]
        small = [n for n in covering if not isinstance(n, Definition)]
        return frozenset(range(small[-1].lineno, (small[-1].end_lineno or 0) + 1) if small else ())

    @functools.cached_property
    def lacking(self) -> frozenset[str]:
        """The reference's statements that say nothing of its framework, and of which the function has none to the letter."""
        words = _words(self.source.tree)
        theirs = [n for one in self.theirs for n in ast.walk(one) if isinstance(n, ast.stmt) and not hasattr(n, "body")]
        held = {ast.dump(n) for n in ast.walk(self.function) if isinstance(n, ast.stmt)}
        return frozenset(ast.dump(n) for n in theirs if _words(n) <= words) - held

    def restores(self, edit: SourceEdit) -> bool:
        """Whether a change makes a statement of the function one of the reference's that it lacks, to the letter."""
        text = textwrap.dedent(edit.text.strip("\n")).encode()  # a statement more
        for start, end in map(self.source.span, self.statements) if self.lacking else ():
            if start <= edit.start and edit.end <= end:
                content = self.source.content
                text = content[start : edit.start] + edit.text.encode() + content[edit.end : end]
        with contextlib.suppress(SyntaxError, ValueError):
            return bool(self.lacking) and any(ast.dump(one) in self.lacking for one in ast.parse(text).body)
        return False

    @functools.cached_property
    def lacking_calls(self) -> frozenset[str]:
        """The reference's calls that say nothing of its framework, and of which the function has none to the letter."""
        words = _words(self.source.tree)
        theirs = [n for one in self.theirs for n in ast.walk(one) if isinstance(n, ast.Call) and len(n.args) + len(n.keywords) > 1]
        return frozenset(ast.dump(n) for n in theirs if _words(n) <= words) - _calls(self.function)

    def restores_call(self, edit: SourceEdit) -> bool:
        """Whether a change makes a call of the function one of the reference's that it lacks, to the letter."""
        for start, end in map(self.source.span, self.statements) if self.lacking_calls else ():
            if start <= edit.start and edit.end <= end:
                content = self.source.content
                text = content[start : edit.start] + edit.text.encode() + content[edit.end : end]
                with contextlib.suppress(SyntaxError, ValueError):
                    return bool(_calls(ast.parse(textwrap.dedent(text.decode()))) & self.lacking_calls)
        return False

    @functools.cached_property
    def missing(self) -> frozenset[str]:
        """The calls that the finding says are missing, ``self.act(`` without the arguments."""
        found = {name for some in MISSING.findall(self.words) for name in some if name}
        return frozenset(f"{name}(" for name in found)

    def calls_what_is_missing(self, edit: SourceEdit) -> bool:
        """Whether a change calls what the finding says is not called."""
        before = self.source.content[edit.start : edit.end].decode()
        return any(edit.text.count(one) > before.count(one) for one in self.missing)

    def undoes_what_is_vain(self, edit: SourceEdit) -> bool:
        """Whether a change takes out code without any effect: a product with zero, a condition that is always true."""
        old = [n for start, end, n in self._vain if edit.start <= start and end <= edit.end]
        with contextlib.suppress(SyntaxError, ValueError):
            return bool(old) and not any(vain(n) for n in ast.walk(ast.parse(textwrap.dedent(edit.text))))
        return False

    @functools.cached_property
    def _vain(self) -> list[tuple[int, int, ast.AST]]:
        found = [n for n in ast.walk(self.function) if vain(n)]
        return [(*self.source.span(getattr(n, "test", n)), n) for n in found]

    def row_of(self, edit: SourceEdit) -> frozenset[float]:
        """The numbers of the row of a table in which a change is, besides the one that it changes; none elsewhere."""
        for start, end, row in self._rows:
            if start <= edit.start and edit.end <= end:
                held = [n for n in row.elts if self.source.span(n) != (edit.start, edit.end)]
                values = [n.value for n in held if isinstance(n, ast.Constant)]
                return frozenset(float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool))
        return frozenset()

    @functools.cached_property
    def _rows(self) -> list[tuple[int, int, ast.Tuple | ast.List]]:
        rows = [n for n in ast.walk(self.function) if isinstance(n, ast.Tuple | ast.List) and len(n.elts) > 2]
        rows = [n for n in rows if sum(isinstance(one, ast.Constant) for one in n.elts) > len(n.elts) / 2]
        return [(*self.source.span(n), n) for n in rows]

    def puts_in_order(self, edit: SourceEdit) -> bool:
        """Whether the calls of the function come more nearly in the order of the reference's after a change."""
        if not isinstance(self.function, Definition) or not self._order:
            return False
        start, end = self.source.span(self.function)
        content = self.source.content
        text = content[start : edit.start] + edit.text.encode() + content[edit.end : end]
        return _disorder(_names_in_order(text), self._order) < self._own_disorder

    @functools.cached_property
    def _own_disorder(self) -> int:
        return _disorder(_names_in_order(self.source.text(self.function).encode()), self._order)

    @functools.cached_property
    def _order(self) -> list[str]:
        return [name for one in self.theirs[:1] for name in _names_in_order(ast.unparse(one).encode())]

    def leaves_out_alone(self, edit: SourceEdit) -> bool:
        """Whether a change leaves out a call or an attribute that the file has nowhere else, nor the reference's function."""
        before, after = (set(NAME.findall(text)) for text in (self.source.content[edit.start : edit.end].decode(), edit.text))
        gone = before - after
        return bool(gone) and after <= before and any(self._often.get(name) == 1 for name in gone - self._theirs_say)

    @functools.cached_property
    def _often(self) -> Counter[str]:
        return Counter(NAME.findall(self.source.content.decode()))

    @functools.cached_property
    def _theirs_say(self) -> set[str]:
        return {name for one in self.theirs for name in NAME.findall(ast.unparse(one))}

    @functools.cached_property
    def statements(self) -> list[ast.stmt]:
        """Those of the function that hold no others."""
        return [n for n in ast.walk(self.function) if isinstance(n, ast.stmt) and not hasattr(n, "body")]

    def arguments(self) -> list[str]:
        """What the function is given, but for ``self``."""
        given = self.function.args if isinstance(self.function, Definition | ast.Lambda) else None
        return [one.arg for one in given.args if one.arg != "self"] if given else []

    def nodes(self) -> Iterator[ast.AST]:
        """Of the function's body, those of the blamed line first."""
        body: list[ast.AST] = [self.function]
        if isinstance(self.function, Definition):
            given = self.function.args
            body = [*self.function.body, *given.defaults, *(one for one in given.kw_defaults if one is not None)]
        found = [node for statement in body for node in ast.walk(statement)]
        near = [node for node in found if self.line and covers(node, self.line)]
        yield from near
        yield from (node for node in found if not (self.line and covers(node, self.line)))


def _names_in_order(text: bytes) -> list[str]:
    """Names of a text that are called, each once, in the order in which they are written."""
    return list(dict.fromkeys(re.findall(r"(\w+)\(", text.decode())))


def _disorder(ours: list[str], theirs: list[str]) -> int:
    """How many pairs of names that both have come in another order."""
    places = {name: number for number, name in enumerate(theirs)}
    common = [places[name] for name in ours if name in places]
    return sum(a > b for a, b in itertools.combinations(common, 2))


def _calls(tree: ast.AST) -> set[str]:
    return {ast.dump(n) for n in ast.walk(tree) if isinstance(n, ast.Call)}


def _words(tree: ast.AST) -> set[str]:
    """What a tree calls things: names, attributes and arguments."""
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)
    }
    return found | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg | ast.keyword) and n.arg}


def is_zero(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, bool) and node.value == 0


def vain(node: ast.AST) -> bool:
    """Whether code has no effect, which nobody writes on purpose: a product with zero, or a condition that is a constant."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult) and (is_zero(node.left) or is_zero(node.right))
    return isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Constant)


def numbers_of(words: str) -> list[float]:
    """The numbers of a finding, but for those of lines."""
    return [float(one) for one in NUMBER.findall(LINE.sub("", words))]


def covers(node: ast.AST, line: int) -> bool:
    return bool(line) and getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)
