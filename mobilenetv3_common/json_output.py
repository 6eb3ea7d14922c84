"""Figures of a command as JSON and CSV: ``--json`` prints, ``--json-file FILE`` and ``--csv FILE`` write, in every command."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open


@dataclass(frozen=True)
class Outputs:
    """Where the figures of a command go.

    Attributes:
        printed: as JSON on standard output; what people read goes to standard error then.
        json_file, csv_file: files that are written; None for none.
    """

    printed: bool = False
    json_file: Path | None = None
    csv_file: Path | None = None

    @contextlib.contextmanager
    def for_people(self) -> Iterator[None]:
        """Inside the block what is printed is for people: on standard error where standard output is JSON's."""
        with contextlib.redirect_stdout(sys.stderr) if self.printed else contextlib.nullcontext():
            yield

    def write(self, figures: Any, head: Sequence[str] = (), rows: Sequence[Sequence[Any]] = (), indent: int | None = 1) -> None:
        """Print and write what was asked for, each file whole or not at all.

        Args:
            figures: values as JSON has them.
            head, rows: of the CSV file.
            indent: of the JSON text.
        """
        text = json.dumps(figures, indent=indent)
        if self.printed:
            print(text)
        if self.json_file is not None:
            with atomic_open(self.json_file, "w") as file:
                file.write(f"{text}\n")
        if self.csv_file is not None:
            with atomic_open(self.csv_file, "w") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(head)
                writer.writerows(rows)


def add_output_flags(parser: argparse.ArgumentParser, what: str, rows: str = "") -> None:
    """The flags.

    Args:
        parser: of the command.
        what: the figures, in words.
        rows: what is a row of ``--csv``; the command has no such flag where empty.
    """
    parser.add_argument(
        "--json", nargs="?", const=True, metavar="FILE",
        help=f"print {what} as JSON, all else goes to standard error (with FILE, the earlier spelling: as --json-file FILE)",
    )  # fmt: skip
    parser.add_argument("--json-file", metavar="FILE", help=f"write {what} here, as JSON")
    if rows:
        parser.add_argument("--csv", metavar="FILE", help=f"write a table here: {rows}")


def outputs_of(flags: dict[str, Any], table: bool = False) -> Outputs:
    """Take the flags out of those of a command, before its work begins; ``table``: ``--csv`` is among them.

    Raises:
        UserError: a file cannot be written.
    """
    printed, file = flags.pop("json", None), flags.pop("json_file", None)
    csv_file = flags.pop("csv", None) if table else None
    if isinstance(printed, str):
        if file is not None and file != printed:
            raise UserError(f"--json {printed} and --json-file {file}: give one file")
        printed, file = None, printed
    return Outputs(bool(printed), writable(file, "--json-file"), writable(csv_file, "--csv"))


def writable(path: str | Path | None, flag: str) -> Path | None:
    """A file to be written, refused before the work begins where its folder is not there.

    Raises:
        UserError: it cannot be written.
    """
    if path is None:
        return None
    if not Path(path).parent.is_dir():
        raise UserError(f"cannot write {path}: there is no folder {Path(path).parent}; {flag} needs one that exists")
    if Path(path).is_dir():
        raise UserError(f"{flag} {path} is a folder: give a file name")
    if Path(path).exists() and not Path(path).is_file():
        raise UserError(f"{flag} {path} is a pipe or a device: give a file name")
    return Path(path)
