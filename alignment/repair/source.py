"""A Python file as text and as tree: where a node stands in its bytes, and what a change of it is."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

from alignment.repair.edits import SourceEdit

LOOSE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda)  # what needs brackets beside an operator
TIGHT = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Attribute, ast.Starred, ast.IfExp)


@dataclass(frozen=True)
class PortFile:
    """One file.

    Attributes:
        file: its path.
        content: its bytes.
        tree: its syntax tree.
        parents: of each node of the tree.
    """

    file: Path
    content: bytes
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(repr=False)
    _starts: list[int] = field(repr=False)

    @classmethod
    def of(cls, file: Path) -> PortFile:
        """Read a file.

        Raises:
            OSError, SyntaxError: it cannot be read, or is no Python.
        """
        content = file.read_bytes()
        tree = ast.parse(content)
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        starts = [0]
        for line in content.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return cls(file, content, tree, parents, starts)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, in bytes."""
        first, last = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]  # type: ignore[attr-defined]
        return first + node.col_offset, last + node.end_col_offset  # type: ignore[attr-defined]

    def text(self, node: ast.AST) -> str:
        """A node as it is written."""
        start, end = self.span(node)
        return self.content[start:end].decode()

    def has_brackets(self, node: ast.expr) -> bool:
        """Whether an operand of an operator stands in brackets of its own, which its span leaves out."""
        start, end = self.span(node)
        return self.content[:start].rstrip().endswith(b"(") and self.content[end:].lstrip().startswith(b")")

    def line_start(self, line: int) -> int:
        """Where a line begins, from 1."""
        return self._starts[min(line - 1, len(self._starts) - 1)]

    def replaced(self, node: ast.AST, text: str) -> SourceEdit:
        """A node that reads otherwise; in brackets where it stands beside an operator and needs them.

        What becomes negative behind a sum's sign turns the sign: ``x - 0.5``, not ``x + -0.5``.
        """
        start, end = self.span(node)
        above = self.parents.get(node)
        if isinstance(node, ast.expr) and isinstance(above, TIGHT) and _loose(text) and not self.has_brackets(node):
            negative = _is_negative(text)
            if negative and isinstance(node, ast.Constant) and isinstance(above, ast.BinOp) and above.right is node:
                sign = self.content[self.span(above.left)[1] : start].decode()
                for old, new in (("+", "-"), ("-", "+")) if isinstance(above.op, ast.Add | ast.Sub) else ():
                    if sign.strip(" )") == old:
                        turned = sign.replace(old, new) + text.removeprefix("-")
                        return SourceEdit(self.file, self.span(above.left)[1], end, turned, node.lineno)
            powered = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Pow) and above.left is node
            text = text if negative and isinstance(above, ast.BinOp) and not powered else f"({text})"
        return SourceEdit(self.file, start, end, text, node.lineno)  # type: ignore[attr-defined]

    def without(self, statement: ast.stmt) -> SourceEdit:
        """A statement that is left out, with its lines."""
        first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
        start, end = self.line_start(first), self.line_start((statement.end_lineno or statement.lineno) + 1)
        return SourceEdit(self.file, start, end, "", statement.lineno)

    def before(self, statement: ast.stmt, text: str) -> SourceEdit:
        """A statement in front of another one."""
        start = self.line_start(statement.lineno)
        return SourceEdit(
            self.file, start, start, f"{' ' * statement.col_offset}{self.indented(statement, text)}\n", statement.lineno
        )

    def after(self, statement: ast.stmt, text: str) -> SourceEdit:
        """A statement behind another one."""
        end = self.span(statement)[1]
        text = f"\n{' ' * statement.col_offset}{self.indented(statement, text)}"
        return SourceEdit(self.file, end, end, text, statement.end_lineno or statement.lineno)

    def indented(self, statement: ast.stmt, text: str) -> str:
        """The lines of a text after its first, as deep as a statement stands."""
        return text.replace("\n", f"\n{' ' * statement.col_offset}")


def _is_negative(text: str) -> bool:
    """Whether a text is a negative number."""
    tree = ast.parse(text, mode="eval").body
    return isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub) and isinstance(tree.operand, ast.Constant)


def _loose(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, LOOSE)
    except SyntaxError:
        return False
