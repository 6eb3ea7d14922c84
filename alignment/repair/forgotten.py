"""Changes of a function that has forgotten something: a name that nothing reads any more, a function that nothing calls.

What is unused says where the mistake may be: the operand, the call or the line that used it is missing.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from alignment.repair.candidates import maker
from alignment.repair.edits import SourceEdit
from alignment.repair.mirror import Definition
from alignment.repair.region import Region

OPERATIONS = ("-", "+", "*", "/")


def _names(node: ast.AST, kind: type[ast.expr_context]) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)]


def _unread(region: Region) -> list[str]:
    """What the function assigns, or is given, and does not read."""
    read = set(_names(region.function, ast.Load))
    held = [*_names(region.function, ast.Store), *region.arguments()]
    return [name for name in dict.fromkeys(held) if name not in read and not name.startswith("_")]


@maker
def unread_operand(region: Region) -> Iterator[SourceEdit]:
    """``levels / std`` where ``mean`` is not read: ``(levels - mean) / std``."""
    unread = _unread(region)
    for node in region.nodes() if unread else ():
        if isinstance(node, ast.Constant) or (
            isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)
        ):
            parent = region.source.parents.get(node)
            if isinstance(parent, ast.BinOp | ast.Return | ast.Assign) or (isinstance(parent, ast.Call) and node in parent.args):
                text = region.source.text(node)
                yield from (region.source.replaced(node, f"{text} {sign} {name}") for name in unread for sign in OPERATIONS)


@maker
def line_of_the_other(region: Region) -> Iterator[SourceEdit]:
    """Where ``mean`` is not read and ``self._variance.set(variance)`` stands: the line for ``mean``, too."""
    read = Counter(_names(region.function, ast.Load))
    for name in _unread(region):
        for node in region.nodes():
            if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) and not isinstance(node.value, ast.Constant):
                for other in dict.fromkeys(_names(node, ast.Load)):
                    text = re.sub(rf"{re.escape(other)}(?![a-z])", name, region.source.text(node))
                    if read[other] and text != region.source.text(node) and re.search(rf"\b{re.escape(name)}\b", text):
                        yield region.source.before(node, text)


@maker
def uncalled_function(region: Region) -> Iterator[SourceEdit]:
    """A function of the file that nothing in it names, put around an expression, or applied to the modules of a network."""
    tree = region.source.tree
    said = {*_names(tree, ast.Load), *(n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute))}
    unused = [one.name for one in tree.body if isinstance(one, Definition) and one.name not in said and one.name.startswith("_")]
    own = region.function
    for name in unused:
        if isinstance(own, Definition) and own.name == "__init__":
            yield region.source.after(own.body[-1], f"self.apply({name})")
        for node in region.nodes():
            if isinstance(node, ast.Call | ast.BinOp) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
                yield region.source.replaced(node, f"{name}({region.source.text(node)})")


@maker
def condition(region: Region) -> Iterator[SourceEdit]:
    """A condition that is always true or false becomes one that the reference's function has, or the one of a module's mode."""
    tests = [n.test for one in region.theirs for n in ast.walk(one) if isinstance(n, ast.If | ast.IfExp | ast.While)]
    of_mode = ["self.training", "not self.training"] if "self" in region.known else []
    texts = dict.fromkeys([*(ast.unparse(one) for one in tests if not isinstance(one, ast.Constant)), *of_mode])
    for node in region.nodes():
        if isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Constant):
            yield from (region.source.replaced(node.test, text) for text in texts)


@maker
def name_alone(region: Region) -> Iterator[SourceEdit]:
    """``configs[:1] + configs[2:]`` becomes ``configs``; all slices of a statement go together."""
    for node in region.nodes():
        if isinstance(node, ast.BinOp):
            names = set(_names(node, ast.Load))
            if len(names) == 1 and any(isinstance(n, ast.Slice) for n in ast.walk(node)):
                yield region.source.replaced(node, names.pop())
        elif isinstance(node, ast.stmt) and not hasattr(node, "body"):
            slices = [n for n in ast.walk(node) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Slice) and n.slice.step]
            if len(slices) > 1:
                yield region.source.replaced(node, _without(region, node, slices))


def _without(region: Region, node: ast.stmt, slices: list[ast.Subscript]) -> str:
    text, (start, _) = region.source.text(node).encode(), region.source.span(node)
    for one in sorted(slices, key=lambda n: -region.source.span(n)[0]):
        (begin, end), held = region.source.span(one), region.source.text(one.value).encode()
        text = text[: begin - start] + held + text[end - start :]
    return text.decode()
