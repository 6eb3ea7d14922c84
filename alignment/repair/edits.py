"""Corrections as edits of the port's files: what they make of a file, and one unified diff of them."""

from __future__ import annotations

import ast
import contextlib
import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alignment.repair.kept import kept, usual_quote


@dataclass(frozen=True)
class SourceEdit:
    """A piece of a file that becomes another one.

    Attributes:
        file: the port's source.
        start, end: of the piece, in bytes.
        text: what stands there afterwards.
        line: number of the line, from 1.
    """

    file: Path
    start: int
    end: int
    text: str
    line: int


Fix = tuple[SourceEdit, ...]  # of one mistake; empty where no correction is known


def applied(fixes: Sequence[Fix]) -> dict[Path, bytes]:
    """The files that corrections change, as they become."""
    edits = {(edit.file, edit.start): edit for fix in fixes for edit in fix}
    found: dict[Path, bytes] = {}
    for edit in sorted(edits.values(), key=lambda one: (str(one.file), -one.start)):
        content = found.get(edit.file) or edit.file.read_bytes()
        found[edit.file] = content[: edit.start] + _text(content, edit).encode() + content[edit.end :]
    return found


def _text(content: bytes, edit: SourceEdit) -> str:
    """What stands there then; what is not changed is as it was written."""

    def tree(text: str) -> str:
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.dump(ast.parse(content[: edit.start] + text.encode() + content[edit.end :]))
        return ""

    right, old = tree(edit.text), content[edit.start : edit.end].decode()
    return kept(old, edit.text, lambda text: tree(text) == right, usual_quote(content.decode())) if right else edit.text


def base(fixes: Sequence[Fix]) -> Path:
    """The folder to which the paths of their diff are relative: the working folder; where files are not in it, their own."""
    files = {edit.file for fix in fixes for edit in fix}
    inside = all(file.is_relative_to(Path.cwd()) for file in files)
    return Path.cwd() if inside else Path(os.path.commonpath([file.parent for file in files]))


def diff(fixes: Sequence[Fix], context: int = 3) -> str:
    """One unified diff of corrections, which ``git apply`` and ``patch -p1`` take in the folder ``base``; ``""`` for none."""
    lines: list[str] = []
    for file, content in applied(fixes).items():
        name = file.relative_to(base(fixes))
        before, after = (text.decode().splitlines(keepends=True) for text in (file.read_bytes(), content))
        for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=context):
            lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)
