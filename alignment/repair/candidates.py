"""Small changes of a function, the likely ones first: each undoes the mistake that it is named after.

A maker is given a function and yields edits of it. What the finding says (its numbers, its line) and what the reference's function
holds (its numbers, its names) decides which of them come first. No candidate is a correction before it was tried.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from alignment.repair.edits import Fix, SourceEdit
from alignment.repair.mirror import Definition, Mirror, key
from alignment.repair.source import PortFile

NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)", re.I)
LETTERS = 3  # of a word that says nothing: the, not
EXPECTED = re.compile(r"expected \(?(-?[\w.]*\w)")
# Functions that are taken for each other.
FAMILIES = tuple(
    family.split()
    for family in (
        "max min mean sum median prod amax amin",
        "relu relu6 hardswish silu swish gelu elu leaky_relu tanh sigmoid hardsigmoid softplus",
        "ReLU ReLU6 Hardswish Silu Swish GELU ELU LeakyReLU Tanh Sigmoid Hardsigmoid",
        "floor round ceil int", "all any", "tril triu", "softmax log_softmax", "adaptive_avg_pool2d adaptive_max_pool2d",
        "avg_pool2d max_pool2d", "exp expm1", "log log1p log2 log10", "AdaptiveAvgPool2D AdaptiveMaxPool2D", "hflip vflip",
        "argmax argmin", "Adam AdamW", "clip_grad_norm_ clip_grad_value_", "zeros_like ones_like", "sqrt rsqrt", "split chunk",
        "Brightness Color Contrast Sharpness", "equalize autocontrast", "NEAREST BILINEAR BICUBIC LANCZOS BOX HAMMING",
    )
)  # fmt: skip
OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult), ast.Sub: (ast.Add,), ast.Mult: (ast.Div, ast.Add), ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.Gt, ast.NotEq), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt, ast.NotEq),
    ast.GtE: (ast.Gt, ast.LtE, ast.NotEq), ast.Eq: (ast.NotEq, ast.GtE, ast.LtE), ast.NotEq: (ast.Eq,),
}  # fmt: skip


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
        said = [float(one) for one in NUMBER.findall(self.words)]
        constants = [n.value for f in self.theirs for n in ast.walk(f) if isinstance(n, ast.Constant)]
        held = [float(value) for value in constants if isinstance(value, int | float) and not isinstance(value, bool)]
        object.__setattr__(self, "numbers", tuple(dict.fromkeys([*said, *held])))

    @property
    def lines(self) -> frozenset[int]:
        """Those of the smallest statement that covers the blamed one; none where it is not known."""
        covering = [n for n in ast.walk(self.function) if isinstance(n, ast.stmt) and _covers(n, self.line)]
        small = [n for n in covering if not isinstance(n, Definition)]
        return frozenset(range(small[-1].lineno, (small[-1].end_lineno or 0) + 1) if small else ())

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
        near = [node for node in found if self.line and _covers(node, self.line)]
        yield from near
        yield from (node for node in found if not (self.line and _covers(node, self.line)))


Makes = Callable[[Region], Iterator[SourceEdit]]
MAKERS: dict[str, Makes] = {}
# What a finding is called or says -> what undoes that.
UNDOES = {
    "sign": "sign other_way invert", "arguments_exchanged": "swapped exchanged transposed reversed order axes",
    "statements_exchanged": "order early before", "slice_left_out": "reversed dropped", "name_alone": "reversed missing swapped",
    "operand_left_out": "scaled doubled twice extra off_by_one percent recipe", "call_left_out": "twice extra scaled detached",
    "other_function": "interpolation activation operation pooling other sum_for_mean", "neighbour": "interpolation channels",
    "constant": "off_by_one axis ignored", "one_more_or_less": "off_by_one", "override_left_out": "label order seed reversed",
    "statement_left_out": "extra twice cleared early frozen", "argument_forgotten": "missing recipe seed ignored by_default",
    "layer_not_called": "missing not_called", "line_of_the_other": "missing frozen", "unread_operand": "missing mean not_divided",
    "unused_name": "missing activation initialisation", "uncalled_function": "missing initialisation activation",
    "namesake": "recipe", "names_exchanged": "swapped exchanged",
}  # fmt: skip
FIRST_OF_ALL = ("as_the_reference", "number")  # in all functions, before the rest


def maker(function: Makes) -> Makes:
    """Register what makes candidates, under the function's name."""
    MAKERS[function.__name__] = function
    return function


@dataclass(frozen=True)
class Candidate:
    """A change to be tried.

    Attributes:
        kind: name of what made it.
        fix: the edits.
        told: 0 where it reads as the reference, puts what the finding expects, or a number of the finding's for another one of its;
            1 where it holds another word of the finding's, or its maker undoes what the finding is called; 2 else.
    """

    kind: str
    fix: Fix
    told: int = 2


def candidates(region: Region, makers: Iterable[str], near: bool) -> Iterator[Candidate]:
    """What some makers make of a function, one of each in turn and each once: of the blamed line, or of the other lines."""
    lines, seen = region.lines, set[tuple[int, int, str]]()

    def made(name: str) -> Iterator[tuple[str, SourceEdit]]:
        return ((name, edit) for edit in MAKERS[name](region) if (edit.line in lines) == near)

    for name, edit in filter(None, itertools.chain.from_iterable(itertools.zip_longest(*map(made, makers)))):
        mark = edit.start, edit.end, edit.text
        if mark not in seen and _means_something(region.source, edit):
            seen.add(mark)
            yield Candidate(name, (edit,), _told(region, name, edit))


def _told(region: Region, name: str, edit: SourceEdit) -> int:
    before, said = _words(region.source.content[edit.start : edit.end].decode()), _words(region.words)
    more = (_words(edit.text) - before) & said
    expected = {word for one in EXPECTED.findall(region.words) for word in _words(one)}
    if name == FIRST_OF_ALL[0] or more & expected or (name == "number" and more and before & said):
        return 0
    return 1 if more or any(word in region.words.replace(" ", "_") for word in UNDOES.get(name, "").split()) else 2


def _words(text: str) -> set[str]:
    """The longer words of a text, and its numbers."""
    numbers = {str(float(one)).lstrip("-") for one in NUMBER.findall(text)}
    return numbers | {word for word in re.findall(r"[a-z]+", text.lower()) if len(word) > LETTERS}


def _means_something(source: PortFile, edit: SourceEdit) -> bool:
    """Whether the file is Python afterwards, and another one."""
    if source.content[edit.start : edit.end] == edit.text.encode():
        return False
    try:
        ast.parse(source.content[: edit.start] + edit.text.encode() + source.content[edit.end :])
    except SyntaxError:
        return False
    return True


def _covers(node: ast.AST, line: int) -> bool:
    return bool(line) and getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)


def _plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- what the reference reads ---------------------------------------------------------------------------------------------


@maker
def as_the_reference(region: Region) -> Iterator[SourceEdit]:
    ours = region.function
    if isinstance(ours, Definition):
        for theirs in region.theirs:
            yield from Mirror(region.source, ours, theirs, region.languages).changes()


# --- what the finding says ------------------------------------------------------------------------------------------------


@maker
def number(region: Region) -> Iterator[SourceEdit]:
    """A number becomes another that the finding or the reference has; a value, or a word, what the finding expects."""
    expected, said = EXPECTED.findall(region.words), [float(one) for one in NUMBER.findall(region.words)]
    for node in sorted(region.nodes(), key=lambda one: getattr(one, "value", None) not in said):
        if isinstance(node, ast.Constant) and _plain(node.value):
            for value in region.numbers:
                if value != node.value:
                    yield region.source.replaced(node, _written(value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield from (region.source.replaced(node, repr(word)) for word in expected if word.isidentifier())
        elif isinstance(node, ast.Assign | ast.keyword) and not isinstance(node.value, ast.Constant):
            yield from (region.source.replaced(node.value, word) for word in expected if NUMBER.fullmatch(word))


def _written(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e6 else repr(value)


# --- operators ------------------------------------------------------------------------------------------------------------


@maker
def operator(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.BinOp):
            for other in OPERATORS.get(type(node.op), ()):
                yield region.source.replaced(node, ast.unparse(ast.BinOp(node.left, other(), node.right)))
            if isinstance(node.op, ast.FloorDiv):
                yield region.source.replaced(node, f"round({ast.unparse(ast.BinOp(node.left, ast.Div(), node.right))})")
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            for other in OPERATORS.get(type(node.ops[0]), ()):
                yield region.source.replaced(node, ast.unparse(ast.Compare(node.left, [other()], node.comparators)))
        elif isinstance(node, ast.BoolOp):
            for other in OPERATORS.get(type(node.op), ()):
                yield region.source.replaced(node, ast.unparse(ast.BoolOp(other(), node.values)))


@maker
def sign(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            yield region.source.replaced(node, region.source.text(node.operand))
        elif isinstance(node, ast.If | ast.IfExp):
            yield region.source.replaced(node.test, f"not ({region.source.text(node.test)})")
        elif isinstance(node, ast.Call | ast.Name) and isinstance(region.source.parents.get(node), ast.Call | ast.Tuple):
            yield region.source.replaced(node, f"-{region.source.text(node)}")


@maker
def operand_left_out(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else node.values if isinstance(node, ast.BoolOp) else []
        parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else parts
        if len(parts) == 2:
            yield from (region.source.replaced(node, region.source.text(part)) for part in parts)


# --- calls ----------------------------------------------------------------------------------------------------------------


@maker
def other_function(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            name = node.attr if isinstance(node, ast.Attribute) else node.func.id  # type: ignore[attr-defined,union-attr]
            end = region.source.span(node if isinstance(node, ast.Attribute) else node.func)[1]
            for family in FAMILIES:
                for other in family if name in family else ():
                    yield SourceEdit(region.source.file, end - len(name.encode()), end, other, node.lineno)


@maker
def call_left_out(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.Call):
            own = [node.func.value] if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name) else []
            for part in [*own, *node.args[:1]]:
                yield region.source.replaced(node, region.source.text(part))


@maker
def arguments_exchanged(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        parts = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple | ast.List) else []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
            parts = [node.left, node.right]
        elif isinstance(node, ast.BoolOp | ast.IfExp):
            parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
        if 2 <= len(parts) <= 6:
            for a, b in itertools.combinations(range(len(parts)), 2):
                yield _exchanged(region.source, parts[a], parts[b])
        values = [one.value for one in node.keywords] if isinstance(node, ast.Call) else []
        for one, other in itertools.combinations(values, 2):
            yield _exchanged(region.source, one, other)


def _exchanged(source: PortFile, one: ast.AST, other: ast.AST) -> SourceEdit:
    (start, middle), (begin, end) = source.span(one), source.span(other)
    between = source.content[middle:begin].decode()
    return SourceEdit(source.file, start, end, source.text(other) + between + source.text(one), one.lineno)  # type: ignore[attr-defined]


@maker
def argument_left_out(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.Call):
            for one in node.keywords:
                kept = ast.Call(node.func, node.args, [k for k in node.keywords if k is not one])
                yield region.source.replaced(node, ast.unparse(kept))
            kept = ast.Call(node.func, node.args, [k for k in node.keywords if not (k.arg or "").endswith("_attr")])
            if len(kept.keywords) < len(node.keywords) - 1:  # neither weight nor bias
                yield region.source.replaced(node, ast.unparse(kept))


@maker
def namesake(region: Region) -> Iterator[SourceEdit]:
    """``f(alpha=0.99)`` in a function that reads ``config``: ``f(alpha=config.alpha)``; or its own argument of that name."""
    read = [n.value.id for n in ast.walk(region.function) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    bases = [name for name in dict.fromkeys(read) if name in (*region.arguments(), "self")]
    for node in region.nodes():
        for one in node.keywords if isinstance(node, ast.Call) else ():
            if one.arg and isinstance(one.value, ast.Constant):
                own = [one.arg] if one.arg in region.arguments() else []
                yield from (region.source.replaced(one.value, text) for text in [*own, *(f"{base}.{one.arg}" for base in bases)])


@maker
def unused_setting(region: Region) -> Iterator[SourceEdit]:
    """What the class keeps, or the function is given, and nothing reads, in the place of a number, a name or a truth value."""
    around = region.source.parents.get(region.function)
    kept = [n for n in ast.walk(around) if isinstance(n, ast.Attribute) and _of_self(n)] if isinstance(around, ast.ClassDef) else []
    read = {n.attr for n in kept if isinstance(n.ctx, ast.Load)}
    used = {n.id for n in ast.walk(region.function) if isinstance(n, ast.Name)}
    unused = [f"self.{n.attr}" for n in kept if isinstance(n.ctx, ast.Store) and n.attr not in read]
    unused += [one for one in region.arguments() if one not in used]
    for node in region.nodes() if unused else ():
        if isinstance(node, ast.Constant) and not isinstance(node.value, str):
            yield from (region.source.replaced(node, text) for text in dict.fromkeys(unused))


@maker
def constant(region: Region) -> Iterator[SourceEdit]:
    """A truth value turned round; a number one more, one less, of the other sign, one less it; an axis another one."""
    for node in region.nodes():
        if not isinstance(node, ast.Constant):
            continue
        if isinstance(node.value, bool):
            yield region.source.replaced(node, str(not node.value))
        elif isinstance(node.value, int):
            for value in (node.value - 1, node.value + 1, -node.value):
                yield region.source.replaced(node, str(value))
        elif isinstance(node.value, float) and 0 < node.value < 1:
            yield region.source.replaced(node, repr(round(1 - node.value, 12)))


# --- names, statements ----------------------------------------------------------------------------------------------------


@maker
def name(region: Region) -> Iterator[SourceEdit]:
    """A name becomes another of the function's own."""
    held = [node.id for node in ast.walk(region.function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    held += region.arguments()
    for node in region.nodes():
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in held
            and _covers(node, region.line or node.lineno)
        ):
            for other in dict.fromkeys(held):
                if other != node.id:
                    yield region.source.replaced(node, other)


@maker
def layer_not_called(region: Region) -> Iterator[SourceEdit]:
    """A layer that the class makes and the function does not call, put around an expression."""
    used = {n.attr for n in ast.walk(region.function) if isinstance(n, ast.Attribute) and _of_self(n)}
    made = [
        n.attr
        for n in ast.walk(region.source.tree)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and _of_self(n)
    ]
    for node in region.nodes():
        if isinstance(node, ast.Call | ast.BinOp) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            for one in dict.fromkeys(made):
                if one not in used:
                    yield region.source.replaced(node, f"self.{one}({region.source.text(node)})")


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


@maker
def residual(region: Region) -> Iterator[SourceEdit]:
    """What a function is given, added to what it gives."""
    given = region.arguments()[:1]
    for node in region.nodes():
        if isinstance(node, ast.Return) and node.value is not None:
            yield from (region.source.replaced(node.value, f"{region.source.text(node.value)} + {one}") for one in given)


@maker
def statements_exchanged(region: Region) -> Iterator[SourceEdit]:
    for node in [region.function, *region.nodes()]:
        body = getattr(node, "body", None)
        for one, other in itertools.pairwise(body) if isinstance(body, list) else ():
            if key(one) != key(other):
                yield _exchanged(region.source, one, other)


@maker
def statement_left_out(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and not isinstance(getattr(node, "value", None), ast.Constant):
            yield region.source.without(node)


@maker
def override_left_out(region: Region) -> Iterator[SourceEdit]:
    """The method itself, where what its class inherits may be right."""
    around = region.source.parents.get(region.function)
    if isinstance(region.function, Definition) and isinstance(around, ast.ClassDef) and around.bases and len(around.body) > 1:
        yield region.source.without(region.function)


@maker
def slice_left_out(region: Region) -> Iterator[SourceEdit]:
    """``planes[::-1]`` becomes ``planes``."""
    for node in region.nodes():
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield region.source.replaced(node, region.source.text(node.value))


@maker
def element_left_out(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.Call) and len(node.args) > 1:
            for one in node.args:
                kept = ast.Call(node.func, [a for a in node.args if a is not one], node.keywords)
                yield region.source.replaced(node, ast.unparse(kept))
