"""Colour and progress for people at a terminal; a pipe, a file and a log get plain text; and nobody gets what is no text.

Names come from files: of tensors, classes, pictures, members of archives. A name can hold a sequence that clears the screen, sets
its title, or turns the reading direction, so that another text is shown than is there. ``escaped_output`` is the one place where
every command's output goes through.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

OUTPUT = "standard output"  # its name in an error
WIDEST = 100  # columns of a line that is broken for a terminal
SOURCE = " " * 7  # how far in lines of a source stand
_CODES = {"green": "32", "red": "31", "bold": "1"}
_OF_VERDICTS = {"passed": "green", "PASSED": "green", "FAILED": "red"}


def coloured(stream: TextIO) -> bool:
    """Whether a stream shows colour: a terminal, unless NO_COLOR (no-color.org) is set or it is a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """A text in a colour (``green``, ``red``) or ``bold`` where the stream (default: standard output) shows it."""
    return f"\033[{_CODES[colour]}m{text}\033[0m" if coloured(stream or sys.stdout) else text


def verdict(word: str, stream: TextIO | None = None) -> str:
    """A verdict in its colour; other words as they are."""
    return paint(word, _OF_VERDICTS[word], stream) if word in _OF_VERDICTS else word


def printable(name: str | os.PathLike) -> str:
    """A name for people: what is no UTF-8, moves the cursor, turns the reading direction or does not print is escaped."""
    text = os.fspath(name)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def all_printable(names: Iterable[str]) -> list[str]:
    """``printable`` of many names, quickly where there is nothing to escape."""
    given = list(names)
    return given if "".join(given).isprintable() else [printable(name) for name in given]


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_OWN = re.compile(r"(\x1b\[[\d;]*m|\r)")  # what colour and progress need


class Escaped:
    """A stream that writes text alone: other characters are escaped, lines and tabs stay. It is the stream in all else.

    Args:
        stream: what is written to; where it is a terminal, colour and the way back to the beginning of the line are let through.
        name: of the stream, for the error where it cannot be written, as on a full disk; messages, which have no name, are then
            lost, and the command goes on.
    """

    def __init__(self, stream: TextIO, name: str = "") -> None:
        self.stream, self.name = stream, name
        self._terminal = stream.isatty()
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with self._named():
            self.stream.write(text if _PLAIN.fullmatch(text) else self._as_text(text))
        return len(text)

    def flush(self) -> None:
        with self._named():
            self.stream.flush()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            if self.name:
                error.filename = self.name
                raise

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def _as_text(self, text: str) -> str:
        parts = _OWN.split(text) if self._terminal else [text]
        made = "".join(part if number % 2 else _escaped_lines(part) for number, part in enumerate(parts))
        return made.encode(self._encoding, "backslashreplace").decode(self._encoding)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stream)


def _escaped_lines(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text)


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Inside the block, standard output and standard error write text alone."""
    before = sys.stdout, sys.stderr
    try:
        sys.stdout, sys.stderr = _as_escaped(before[0], OUTPUT), _as_escaped(before[1], "")
        yield
    finally:
        sys.stdout, sys.stderr = before


def _as_escaped(stream: Any, name: str) -> Any:
    if stream is None or isinstance(stream, Escaped) or getattr(stream, "closed", False):  # of a process without a terminal
        return stream
    return Escaped(stream, name)


def for_terminal(text: str) -> str:
    """A line for people at a terminal, broken at 100 columns, or fewer where the terminal is narrower, and set in by two more.

    A command is broken before its flags, so that it can still be copied whole. A line of a source, which stands further in than
    words do, stays whole.
    """
    wide = max(20, min(WIDEST, shutil.get_terminal_size().columns))
    spread = "".join(c + "\0" * (unicodedata.east_asian_width(c) in "WF") for c in text)  # two columns each
    if len(_OWN.sub("", spread)) <= wide or text.startswith(SOURCE):
        return text
    before, python, command = text.partition("python ")
    if before == "next: " and " --" in command:
        return f"{before}{python}{command}".replace(" --", " \\\n  --")
    further = " " * (len(text) - len(text.lstrip(" ")) + 2)
    return textwrap.fill(spread, wide, subsequent_indent=further, break_long_words=False, break_on_hyphens=False).replace("\0", "")


def show(text: str, stream: TextIO | None = None) -> None:
    """Print lines, on a terminal as ``for_terminal`` breaks them."""
    target = stream or sys.stdout
    print("\n".join(map(for_terminal, text.split("\n"))) if target.isatty() else text, file=target, flush=True)


class Progress:
    """How far a long task is, and about how long it still takes; shown on a terminal alone.

    As a context manager it shows itself from the first ``expect`` on and takes itself away at the end. Threads may share it.

    Args:
        label: what the line begins with.
        stream: where it is shown; standard output where None.
    """

    def __init__(self, label: str = "", stream: TextIO | None = None) -> None:
        self.label, self._stream, self._bar = label, stream or sys.stdout, None

    _bar: Any

    def expect(self, units: float) -> None:
        """Work is added to what is to be done."""
        if not self.label or not self._stream.isatty():
            return
        if self._bar is None:
            from tqdm import tqdm

            wide = shutil.get_terminal_size().columns  # 80 where the terminal does not say
            form = "{desc} {percentage:3.0f} % |{bar:20}| {elapsed}, about {remaining} left"
            self._bar = tqdm(total=0, desc=self.label, file=self._stream, leave=False, ncols=wide, bar_format=form, mininterval=0.5)
        self._bar.total += units
        self._bar.refresh()

    def done(self, units: float = 1) -> None:
        """Some of it has been done."""
        if self._bar is not None:
            self._bar.update(min(units, self._bar.total - self._bar.n))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
