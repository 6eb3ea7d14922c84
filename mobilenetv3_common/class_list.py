"""Lists of class names as others write them: a name a line, or an ID and a name in any order, matched by the ID."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.files import refuse_special
from mobilenetv3_common.yaml_file import read_yaml, value_of

LONGEST = 1 << 23  # characters: the names of 30,000 classes take a tenth
_BETWEEN = r"(?:\s*(?:->|=>|[:=,;|.)\uff1a\uff0c\uff1b\uff5c\u3001]|-(?=\s))(?!\d)\s*|\s+)"  # 1.5 l is no ID
_FIRST = re.compile(rf"""["'(\[#]?(\d{{1,6}})["')\]]?(?:{_BETWEEN})(\S.*)""")
_LAST = re.compile(r"(\S.*?)\s*(?:->|=>|[:=,;|\s\uff1a\uff0c\uff1b\uff5c])\s*[(\[]?(\d{1,6})[)\]]?")
_WORDNET = re.compile(r"(n\d{8})\b[\s:,;]*(.*)")
WRONG = 10  # one of so many IDs may be out of place: the list is then one of IDs with a mistake, and no list of names


def read_class_list(path: str | Path, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of a file, in the order of the classes.

    Lines are names; or ``ID name``, ``ID: name``, ``ID,name`` or ``name ID`` with IDs from 0 (or from 1), also as a Python or
    JSON dictionary, or under ``names:`` in YAML; or WordNet's IDs (``n01440764 tench``), whose order is that of ImageNet's classes;
    or begin with the names in ``known``. The lines may then be in any order. Where ``known`` are numbers, IDs are those.

    Args:
        path: UTF-8 text.
        known: the names that the classes have already, of their folders, in their order.

    Raises:
        UserError: the file cannot be read; its IDs have a gap or are there twice; or a class gets a name that another has already.
    """
    refuse_special(path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(LONGEST + 1)
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read class names {path}: {error}: save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read class names {path}: {error.strerror or error}") from error
    if len(text) > LONGEST:
        raise UserError(f"cannot read class names {path}: longer than {LONGEST} characters, it is no list of names")
    if (verbatim := _listed(text)) is not None:
        return _by_known(verbatim, known) or _beside_known(verbatim, str(path), known, by_line=True)
    return in_order(_under_names(path, text) or _lines(text), str(path), known)


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
    if found := _by_known(lines, known):
        return found
    if found := _by_wordnet(lines, where):
        return _beside_known(found, where, known)
    for pattern, number, name in ((_FIRST, 1, 2), (_LAST, 2, 1)):
        rows = [pattern.fullmatch(line) for line in lines]
        if len(rows) > 2 and rows[0] is None and all(rows[1:]):  # a heading: id,name
            rows = rows[1:]
        if rows and all(rows):
            pairs = [(int(row[number]), _unquoted(row[name])) for row in rows if row]
            if found := _by_number(pairs, where, known, farthest=2 * len(pairs) if pattern is _LAST else None):
                return _beside_known(found, where, known)
    return _beside_known(tuple(lines), where, known, by_line=True)


def _lines(text: str) -> list[str]:
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                if entries := _entries(read(stripped)):
                    return entries
    lines = [line.strip("| \t\r") for line in text.splitlines()]
    lines = [line for line in lines if line and not re.match(r"#\s", line)]  # a comment; #1 is an ID
    items = [re.fullmatch(r"-\s+(\S.*)", line) for line in lines]
    return [item[1] for item in items if item] if all(items) else lines


def _under_names(path: str | Path, text: str) -> list[str]:
    """The lines that stand under ``names:`` in a YAML file, as detectors' data sets have them; empty for other files."""
    content = None
    if re.search(r"^names\s*:", text, re.MULTILINE):
        with contextlib.suppress(UserError):
            content = value_of(read_yaml(path, str(path)), str(path))
    return _entries(content["names"]) if isinstance(content, dict) and "names" in content else []


def _entries(content: Any) -> list[str]:
    """Lines of a list of names, or of a dictionary of IDs and names, also under the key that others keep them under."""
    for key in ("names", "id2label"):
        if isinstance(content, dict) and isinstance(content.get(key), dict | list):
            content = content[key]
    if isinstance(content, dict):
        texts = {key: value[-1] if isinstance(value, list | tuple) and value else value for key, value in content.items()}
        return [f"{key}: {' '.join(str(value).split())}" for key, value in texts.items()]
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return [" ".join(name.split()) for name in content]
    return []


def _unquoted(name: str) -> str:
    found = re.fullmatch(r"""(["'])(.*)\1""", name)
    return found[2] if found else name


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
    if all(rest.isdigit() for rest in found.values()) and not all(map(_is_number, known)):
        return tuple(known)  # name ID
    distinct = 2 * len(set(found.values())) > len(found) or len(found) == 1
    return tuple((found if distinct else whole)[number] for number in range(len(known)))


def _beside_known(found: tuple[str, ...], where: str, known: Sequence[str], by_line: bool = False) -> tuple[str, ...]:
    """The names, in the order of ``known`` where they are the same but for case and spaces.

    Args:
        found: names in the order of the classes.
        where: for the message.
        known: as of ``read_class_list``.
        by_line: their order is that of the lines, which have no IDs.

    Raises:
        UserError: a name is another class's in ``known``; or the lines have no IDs where the classes are 0, 1, 10, 2.
    """
    if known and all(map(_is_number, known)):
        numbers = list(map(int, known))
        if by_line and numbers != sorted(numbers) and tuple(found) != tuple(known):
            raise UserError(
                f"{where}: its lines have no IDs, and the classes are numbers in the order {', '.join(known[:4])}, ...: begin "
                "each line with the number of its class"
            )
        return found
    place = {_plain(name): number for number, name in enumerate(known)}
    names = [_plain(name) for name in found]
    moved = [number for number, name in enumerate(names) if place.get(name, number) != number]
    if not moved or len(place) < len(known):
        return found
    if sorted(names) == sorted(place):
        return tuple(found[names.index(name)] for name in place)
    first, count = moved[0], "" if len(found) == len(known) else f" of {len(found)} (the data has {len(known)})"
    raise UserError(
        f"{where} calls class {first}{count} {shown(found[first])!r}, but that is class {place[names[first]]} by its folder: give "
        f"the names in the classes' order ({', '.join(map(shown, known[:3]))}{', ...' if len(known) > 3 else ''})"
    )


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[_-]", " ", unicodedata.normalize("NFC", name).casefold()).split())


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 7


def _by_wordnet(lines: Sequence[str], where: str) -> tuple[str, ...]:
    rows = [_WORDNET.fullmatch(line) for line in lines]
    if not rows or not all(row and row[2] for row in rows):
        return ()
    pairs = {row[1]: _unquoted(row[2]) for row in rows if row}
    if len(pairs) < len(lines):
        twice = next(name for name, times in Counter(row[1] for row in rows if row).items() if times > 1)
        raise UserError(f"{where}: ID {twice} is there twice: give every class one line")
    return tuple(pairs[wnid] for wnid in sorted(pairs))


def _by_number(pairs: Sequence[tuple[int, str]], where: str, known: Sequence[str], farthest: int | None) -> tuple[str, ...]:
    """The names by their IDs; empty where the numbers are part of the names (``1 euro``, ``2 euro``).

    Args:
        pairs: IDs and names.
        where: for the message.
        known: as of ``read_class_list``; where they are numbers, IDs are those, or count from another first number.
        farthest: numbers above it belong to names (``Porsche 911``); None for no limit.

    Raises:
        UserError: the IDs are not those of the classes, and the lines are not in their order.
    """
    count, ids = len(pairs), [number for number, _ in pairs]
    if count > 1 and 2 * len({name for _, name in pairs}) <= count:
        return ()
    numbers = list(map(int, known)) if known and all(map(_is_number, known)) else list(range(count))
    for shift in (0, 1, -1):
        if sorted(ids) == sorted(number + shift for number in numbers):
            names = dict(pairs)
            return tuple(names[number + shift] for number in numbers)
    inside = {number for number in ids if 0 <= number <= count}
    if count >= 5 and len(inside) >= count - max(1, count // WRONG):
        twice = sorted(number for number, times in Counter(ids).items() if times > 1)
        gap = next(number for number in range(min(inside), count + 2) if number not in inside)
        said = f"ID {twice[0]} is there twice" if twice else f"there is no ID {gap}"
        raise UserError(f"{where}: {said} among {count} lines of an ID and a name: give every class one line")
    if ids != sorted(set(ids)) and (farthest is None or max(ids) <= farthest):
        raise UserError(
            f"{where}: its lines have IDs ({', '.join(map(str, ids[:3]))}{', ...' if count > 3 else ''}) that are not those of "
            f"{count} classes: count them from 0, or give a JSON list of names where the numbers belong to the names"
        )
    return ()
