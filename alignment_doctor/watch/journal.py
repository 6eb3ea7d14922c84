"""Events of a watched run: a line for people, a JSON line, and the file they stand in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

SHOWN = 3  # tensors in the line for people; the file has all


@dataclass(frozen=True)
class Event:
    """A problem, when it was first seen.

    Attributes:
        check: its id.
        update: during or after which it was seen, from 1.
        rank: where.
        cause: what is wrong, in one line.
        where: tensors, modules or updates.
        fix: what to do.
    """

    check: str
    update: int
    rank: int
    cause: str
    where: tuple[str, ...]
    fix: str

    def line(self) -> str:
        """For people."""
        places = ", ".join(self.where[:SHOWN]) + (f" and {len(self.where) - SHOWN} more" if len(self.where) > SHOWN else "")
        at = f"update {self.update}" + (f", rank {self.rank}" if self.rank else "")
        return f"[watch {self.check}] {at}: {self.cause}{f' ({places})' if places else ''}; {self.fix}"


class Journal:
    """A file of JSON lines: one of kind ``looks`` for each check's state, one of kind ``event`` for each event.

    Args:
        path: of the file; None writes nothing.
        say: called with each event's line.
        begun_at: updates done before; what a start that went further wrote about later ones is dropped.

    Raises:
        UserError: the file cannot be written.
    """

    def __init__(self, path: Path | None, say: Callable[[str], None], begun_at: int = 0) -> None:
        self.path, self.say = path, say
        if path is not None:
            kept = [entry for entry in entries(path) if entry["update"] <= begun_at] if begun_at and path.is_file() else []
            with atomic_open(path, "w") as file:
                file.write("".join(json.dumps(entry) + "\n" for entry in kept))

    def event(self, event: Event) -> None:
        self.say(event.line())
        self._append({"kind": "event", **asdict(event)})

    def checks(self, update: int, states: dict[str, tuple[str, str]]) -> None:
        """The verdict of every check and what it measured, at a look."""
        self._append({"kind": "checks", "update": update, "checks": states})

    def _append(self, entry: dict[str, Any]) -> None:
        if self.path is None:
            return
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror or error}; train without the watch, or make room"
            ) from error


def entries(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal; the half of a line that a killed run left is passed over.

    Raises:
        UserError: the file cannot be read, or is no journal.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): give the folder of a run that was trained with --watch") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if entry["kind"] not in ("event", "checks") or not isinstance(entry["update"], int):
                raise ValueError("of another kind")
            found.append(entry)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if number < len(lines) or isinstance(error, RecursionError):
                raise UserError(f"{path}, line {number}, is no entry of a watched run: give what --watch wrote") from error
    return found
