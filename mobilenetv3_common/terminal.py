"""Colour and progress for people at a terminal; a pipe, a file and a log get plain text."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, TextIO

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
