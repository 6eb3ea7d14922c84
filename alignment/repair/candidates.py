"""Small changes of a function, the likely ones first: each undoes the mistake that it is named after.

A maker is given a function and yields edits of it. What the finding says (its numbers, its line) and what the reference's function
holds (its numbers, its names) decides which of them come first. No candidate is a correction before it was tried.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alignment.repair.edits import Fix, SourceEdit
from alignment.repair.evidence import EXPECTED, weight
from alignment.repair.mirror import Definition, Mirror, key, names_read
from alignment.repair.region import NUMBER, Region, covers, is_zero, numbers_of, vain
from alignment.repair.source import PortFile

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


# What is read of an array, and never of settings.
OF_ARRAYS = frozenset(
    ("dtype", "ndim", "shape", "size", "T", "mean", "sum", "reshape", "view", "astype", "detach", "transpose", "permute", "squeeze")
)
Makes = Callable[[Region], Iterator[SourceEdit]]
MAKERS: dict[str, Makes] = {}


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
        weight: how likely it is the right one, beside others.
    """

    kind: str
    fix: Fix
    weight: float = 0.0


def proposed(region: Region, place: int = 0) -> list[Candidate]:
    """What the makers make of a function.

    Args:
        region: the function.
        place: how many functions are likelier to hold the mistake.
    """
    made = {name: list(make(region)) for name, make in MAKERS.items()}
    return [Candidate(name, (edit,), weight(region, place, name, edit, len(some))) for name, some in made.items() for edit in some]


def distinct(proposals: Iterable[tuple[Candidate, Region]]) -> Iterator[Candidate]:
    """Those that are another program, each program once."""
    seen = dict[Path, set[str]]()
    for one, region in proposals:
        (edit,) = one.fix
        programs = seen.setdefault(edit.file, {ast.dump(region.source.tree)})
        tree = _program(region, edit)
        if tree is not None and (text := ast.dump(tree)) not in programs:
            programs.add(text)
            yield one


def _program(region: Region, edit: SourceEdit) -> ast.Module | None:
    """The file afterwards; None where it is no Python, or its function reads a name that it cannot know or has lost."""
    content = region.source.content
    try:
        tree = ast.parse(content[: edit.start] + edit.text.encode() + content[edit.end :])
    except SyntaxError:
        return None
    part_of_name = content[: edit.start].endswith(b".")
    known = part_of_name or names_read(edit.text) <= region.known
    return tree if known and not region.unbound(edit, tree) else None


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
    expected, said = EXPECTED.findall(region.words), numbers_of(region.words)
    for node in sorted(region.nodes(), key=lambda one: getattr(one, "value", None) not in said):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            for value in region.numbers:
                if value != node.value and (_counts(value) or not _counts(node.value)):
                    yield region.source.replaced(node, _written(value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield from (region.source.replaced(node, repr(word)) for word in expected if word.isidentifier())
        elif isinstance(node, ast.Assign | ast.keyword) and not isinstance(node.value, ast.Constant):
            yield from (region.source.replaced(node.value, word) for word in expected if NUMBER.fullmatch(word))


def _counts(value: float) -> bool:
    """Whether a number may be a size, an axis or a count, as the whole ones of a source are."""
    return value == int(value) and abs(value) < 1e6


def _written(value: float) -> str:
    return str(int(value)) if _counts(value) else repr(value)


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


@maker
def without_zeros(region: Region) -> Iterator[SourceEdit]:
    """``a * 0 + b`` becomes ``a``: an operand that a zero makes vain comes back."""
    for node in region.nodes():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            for part in (node.left, node.right):
                if isinstance(part, ast.BinOp) and vain(part):
                    kept = part.right if is_zero(part.left) else part.left
                    yield region.source.replaced(node, region.source.text(kept))


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
            method = isinstance(node.func, ast.Attribute) and not (isinstance(node.func.value, ast.Name) and node.args)
            own = [node.func.value] if method and isinstance(node.func, ast.Attribute) else []  # F.relu(x) is no method of F
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
    attributes = [n for n in ast.walk(region.function) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    read = [n.value.id for n in attributes]  # type: ignore[attr-defined]
    arrays = {n.value.id for n in attributes if n.attr in OF_ARRAYS}  # type: ignore[attr-defined]
    bases = [name for name in dict.fromkeys(read) if name in (*region.arguments(), "self") and name not in arrays]
    for node in region.nodes():
        keywords = node.keywords if isinstance(node, ast.Call) else []
        given = [one for one in keywords if one.arg and isinstance(one.value, ast.Constant)]
        for one in given:
            own = [one.arg] if one.arg in region.arguments() else []
            short = (one.arg or "").partition("_")[2]
            for text in [*own, *(f"{base}.{name}" for base in bases for name in (one.arg, short) if name)]:
                yield region.source.replaced(one.value, text)
        for base in bases if len(given) > 1 else ():
            assert isinstance(node, ast.Call)
            all_of_it = [ast.keyword(one.arg, ast.Name(f"{base}.{one.arg}") if one in given else one.value) for one in keywords]
            yield region.source.replaced(node, ast.unparse(ast.Call(node.func, node.args, all_of_it)))


@maker
def unused_setting(region: Region) -> Iterator[SourceEdit]:
    """What the class keeps, or the function holds, and nothing reads, in the place of a number, a name or a truth value."""
    names = [n for n in ast.walk(region.function) if isinstance(n, ast.Name)]
    read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
    held = [*region.arguments(), *(n.id for n in names if isinstance(n.ctx, ast.Store))]
    unused = unread_attributes(region) + [one for one in held if one not in read and not one.startswith("_")]
    for node in region.nodes() if unused else ():
        if isinstance(node, ast.Constant) and not isinstance(node.value, str):
            yield from (region.source.replaced(node, text) for text in dict.fromkeys(unused))


def unread_attributes(region: Region) -> list[str]:
    """What the function's class keeps and nothing in it reads: ``self.use_residual``."""
    around = region.source.parents.get(region.function)
    kept = [n for n in ast.walk(around) if isinstance(n, ast.Attribute) and _of_self(n)] if isinstance(around, ast.ClassDef) else []
    read = {n.attr for n in kept if isinstance(n.ctx, ast.Load)}
    return list(dict.fromkeys(f"self.{n.attr}" for n in kept if isinstance(n.ctx, ast.Store) and n.attr not in read))


@maker
def value_of_the_function(region: Region) -> Iterator[SourceEdit]:
    """``groups=1`` becomes ``groups=width``: what the function holds, for a number or a truth value that a call is given."""
    held = [n.id for n in ast.walk(region.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for node in region.nodes():
        for one in node.keywords if isinstance(node, ast.Call) else ():
            if isinstance(one.value, ast.Constant) and not isinstance(one.value.value, str):
                yield from (region.source.replaced(one.value, name) for name in dict.fromkeys([*region.arguments(), *held]))


@maker
def end_of_a_list(region: Region) -> Iterator[SourceEdit]:
    """``layers.insert(1, x)`` becomes ``layers.append(x)``, and the other way round at the front."""
    for node in region.nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            turned = {("insert", 2): ("append", node.args[1:]), ("append", 1): ("insert", [ast.Constant(0), *node.args])}
            if (other := turned.get((node.func.attr, len(node.args)))) is not None:
                call = ast.Call(ast.Attribute(node.func.value, other[0]), other[1], [])
                yield region.source.replaced(node, ast.unparse(call))


@maker
def less_its_maximum(region: Region) -> Iterator[SourceEdit]:
    """``exp(x)`` becomes ``exp(x - x.amax(-1, keepdim=True))`` where the finding says that it overflows."""
    for node in region.nodes() if "overflow" in region.words else ():
        above = region.source.parents.get(node)
        alone = isinstance(above, ast.Assign) or (isinstance(above, ast.Call) and ast.unparse(above.func).endswith("exp"))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and alone:
            yield region.source.replaced(node, f"{node.id} - {node.id}.amax(-1, keepdim=True)")


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
            and covers(node, region.line or node.lineno)
        ):
            for other in dict.fromkeys(held):
                if other != node.id:
                    yield region.source.replaced(node, other)


@maker
def layer_not_called(region: Region) -> Iterator[SourceEdit]:
    """A layer that the class makes and the function does not call, put around an expression."""
    used = {n.attr for n in ast.walk(region.function) if isinstance(n, ast.Attribute) and _of_self(n)}
    around = region.source.parents.get(region.function)
    kept = [n for n in ast.walk(around) if isinstance(n, ast.Attribute) and _of_self(n)] if isinstance(around, ast.ClassDef) else []
    unused = [one for one in dict.fromkeys(n.attr for n in kept if isinstance(n.ctx, ast.Store)) if one not in used]
    for node in region.nodes() if unused else ():
        value = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id != "self"
        if isinstance(node, ast.Call | ast.BinOp) or value:
            yield from (region.source.replaced(node, f"self.{one}({region.source.text(node)})") for one in unused)


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


@maker
def residual(region: Region) -> Iterator[SourceEdit]:
    """What a function is given, added to what it gives."""
    given = region.arguments()[:1]
    for node in region.nodes():
        if isinstance(node, ast.Return) and node.value is not None:
            text = region.source.text(node.value)
            yield from (region.source.replaced(node.value, f"{text} + {one}") for one in given)
            for flag in unread_attributes(region):
                yield from (region.source.replaced(node.value, f"{text} + {one} if {flag} else {text}") for one in given)


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
    """``planes[::-1]`` becomes ``planes``; also everywhere in the function where the same slice stands."""
    alike: dict[str, list[ast.Subscript]] = {}
    for node in region.nodes():
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            yield region.source.replaced(node, region.source.text(node.value))
            alike.setdefault(ast.unparse(node.slice), []).append(node)
    for nodes in alike.values():
        if len(nodes) > 1:
            yield _all_at_once(region.source, [region.source.replaced(node, region.source.text(node.value)) for node in nodes])


def _all_at_once(source: PortFile, edits: Sequence[SourceEdit]) -> SourceEdit:
    """Several edits as one, with what stands between them."""
    ordered = sorted(edits, key=lambda one: one.start)
    start, end, text = ordered[0].start, ordered[0].end, ordered[0].text
    for one in ordered[1:]:
        if one.start >= end:  # none within another
            text, end = text + source.content[end : one.start].decode() + one.text, one.end
    return SourceEdit(source.file, start, end, text, ordered[0].line)


@maker
def element_left_out(region: Region) -> Iterator[SourceEdit]:
    for node in region.nodes():
        if isinstance(node, ast.Call) and len(node.args) > 1:
            for one in node.args:
                kept = ast.Call(node.func, [a for a in node.args if a is not one], node.keywords)
                yield region.source.replaced(node, ast.unparse(kept))
