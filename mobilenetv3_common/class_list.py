"""Lists of class names as others write them: a name a line, or an ID and a name in any order, matched by the ID."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mobilenetv3_common.errors import UserError

LONGEST = 1 << 23  # characters: the names of 30,000 classes take a tenth
_BETWEEN = r"(?:\s*(?:->|=>|[:=,;|.)]|-(?=\s))(?!\d)\s*|\s+)"  # 1.5 l is no ID
_FIRST = re.compile(rf"""["'(\[#]?(\d{{1,6}})["')\]]?(?:{_BETWEEN})(\S.*)""")
_LAST = re.compile(r"(\S.*?)\s*(?:->|=>|[:=,;|\s])\s*[(\[]?(\d{1,6})[)\]]?")
_WORDNET = re.compile(r"(n\d{8})\b[\s:,;]*(.*)")
WRONG = 10  # one of so many IDs may be out of place: the list is then one of IDs with a mistake, and no list of names


def read_class_list(path: str | Path, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of a file, in the order of the classes.

    Lines are names; or ``ID name``, ``ID: name``, ``ID,name`` or ``name ID`` with IDs from 0 (or from 1), also as a Python or
    JSON dictionary; or WordNet's IDs (``n01440764 tench``), whose order is that of ImageNet's classes; or begin with the names in
    ``known``. The lines may then be in any order.

    Args:
        path: UTF-8 text.
        known: the names that the model's own file gives its classes, in their order.

    Raises:
        UserError: the file cannot be read, or its IDs have a gap or are there twice.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read class names {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(text) > LONGEST:
        raise UserError(f"cannot read class names {path}: longer than {LONGEST} characters, it is no list of names")
    if (verbatim := _listed(text)) is not None:
        return _by_known(verbatim, known) or verbatim
    return in_order(_lines(text), str(path), known)


def text_of(names: Sequence[str]) -> str:
    """The content of a file that ``read_class_list`` reads as these names: a name a line, or JSON where lines look like IDs."""
    lines = "".join(f"{name}\n" for name in names)
    try:
        kept = _listed(lines) is None and in_order(_lines(lines), "") == tuple(names)
    except UserError:
        kept = False
    return lines if kept else json.dumps(list(names), ensure_ascii=False) + "\n"


def _listed(text: str) -> tuple[str, ...] | None:
    """The names of a JSON list, which are in the order of the classes whatever they look like."""
    try:
        content = json.loads(text) if text.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, list) or not content or not all(isinstance(name, str) for name in content):
        return None
    return tuple(content)


def in_order(lines: Sequence[str], where: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of lines, in the order of the classes; arguments and errors as of ``read_class_list``."""
    if (found := _by_known(lines, known)) or (found := _by_wordnet(lines)):
        return found
    for pattern, number, name in ((_FIRST, 1, 2), (_LAST, 2, 1)):
        rows = [pattern.fullmatch(line) for line in lines]
        if len(rows) > 2 and rows[0] is None and all(rows[1:]):  # a heading: id,name
            rows = rows[1:]
        if rows and all(rows):
            pairs = [(int(row[number]), row[name]) for row in rows if row]
            if found := _by_number(pairs, where):
                return found
    return tuple(lines)


def _lines(text: str) -> list[str]:
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        content = None
        for read in (json.loads, ast.literal_eval):
            try:
                content = read(stripped)
                break
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
        if isinstance(content, dict) and content:
            texts = {key: value[-1] if isinstance(value, list | tuple) and value else value for key, value in content.items()}
            return [f"{key}: {' '.join(str(value).split())}" for key, value in texts.items()]
        if isinstance(content, list) and content and all(isinstance(name, str) for name in content):
            return [" ".join(name.split()) for name in content]
    return [line.strip() for line in text.splitlines() if line.strip()]


def _by_known(lines: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The lines in the order of ``known`` where each begins with another of these names; empty where they do not."""
    if not known or len(lines) != len(known) or len(set(known)) != len(known):
        return ()
    place = {name: number for number, name in enumerate(known)}
    found: dict[int, str] = {}
    whole: dict[int, str] = {}
    for line in lines:
        words = line.split()
        starts = [(line, "")] + [(line[: m.start()], line[m.end() :]) for m in re.finditer(r"[\s:,;=|]+", line)]
        fitting = [(start, rest) for start, rest in starts if start in place]
        if not words or not fitting:
            return ()
        start, rest = max(fitting, key=lambda pair: len(pair[0]))
        if place[start] in found:
            return ()
        found[place[start]] = rest or start
        whole[place[start]] = line
    distinct = 2 * len(set(found.values())) > len(found) or len(found) == 1
    return tuple((found if distinct else whole)[number] for number in range(len(known)))


def _by_wordnet(lines: Sequence[str]) -> tuple[str, ...]:
    rows = [_WORDNET.fullmatch(line) for line in lines]
    if not rows or not all(row and row[2] for row in rows):
        return ()
    pairs = {row[1]: row[2] for row in rows if row}
    return tuple(pairs[wnid] for wnid in sorted(pairs)) if len(pairs) == len(lines) else ()


def _by_number(pairs: Sequence[tuple[int, str]], where: str) -> tuple[str, ...]:
    """The names by their IDs; empty where the numbers are part of the names (``1 euro``, ``2 euro``)."""
    count, ids = len(pairs), [number for number, _ in pairs]
    if count > 1 and 2 * len({name for _, name in pairs}) <= count:
        return ()
    for first in (0, 1):
        if sorted(ids) == list(range(first, first + count)):
            return tuple(name for _, name in sorted(pairs))
    inside = {number for number in ids if 0 <= number <= count}
    if count >= 5 and len(inside) >= count - max(1, count // WRONG):
        twice = sorted(number for number, times in Counter(ids).items() if times > 1)
        gap = next(number for number in range(min(inside), count + 2) if number not in inside)
        said = f"ID {twice[0]} is there twice" if twice else f"there is no ID {gap}"
        raise UserError(f"{where}: {said} among {count} lines of an ID and a name: give every class one line")
    return ()
