"""The documents as tests see them: every command that a page tells its reader to run, and what the page says it prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "README_zh.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:python|bash|make|pip|torchrun|curl|mnv3 audit|scripts/\S+\.sh) \S")
PLACEHOLDER = re.compile(r"\b(?:NAME|FILE|DIR|CONFIG|PROJECT)\b|\.\.\.")  # `--inject NAME` is a form, not a command


@dataclass(frozen=True)
class Command:
    """A command of a page.

    Attributes:
        document: the page, relative to the project.
        text: the command, without the comment behind it.
        shown: the lines of the block in which the page shows what it prints; empty where it shows nothing.
    """

    document: str
    text: str
    shown: tuple[str, ...] = ()


def commands(document: Path) -> list[Command]:
    """Every command of a document, in order: lines of code blocks, and code within sentences.

    A block of the same section that has no command is what the command before it prints.
    """
    found: list[Command] = []
    name = str(document.relative_to(ROOT))
    section = 0  # where the present section's commands begin
    for language, lines in _parts(document.read_text()):
        if language is None:
            for paragraph in re.split(r"^(?=#)", "\n".join(lines), flags=re.M):
                section = len(found) if paragraph.startswith("#") else section
                spans = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", paragraph)]
                found += [Command(name, span) for span in spans if COMMAND.match(span) and not PLACEHOLDER.search(span)]
        elif language in ("", "bash"):
            told = [line.split("  #")[0].strip() for line in lines if COMMAND.match(line)]
            if told:
                found += [Command(name, line) for line in told]
            elif len(found) > section and not found[-1].shown:
                found[-1] = Command(name, found[-1].text, tuple(lines))
    return found


def code(document: Path, language: str) -> list[str]:
    """The blocks of one language."""
    return ["\n".join(lines) for of, lines in _parts(document.read_text()) if of == language]


def _parts(text: str) -> list[tuple[str | None, list[str]]]:
    """Prose (None) and code blocks (their language) in turn."""
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            parts.append((line.strip()[3:], []) if parts[-1][0] is None else (None, []))
        else:
            parts[-1][1].append(line)
    return parts


def without_figures(line: str) -> str:
    """A line with every number replaced, rules and gaps made one long: what must be the same on every machine.

    Whether final accuracies agree within the guide's threshold or within the spread of the seeds is the processor's rounding.
    """
    line = line.replace("undecided", "yes").replace("<= ", "<=")  # a table that is wide saves the blank
    return re.sub(r"\s+", " ", re.sub(r"-{3,}", "---", re.sub(r"\d[\d.,]*(?:e[+-]\d+)?", "#", line))).strip()
