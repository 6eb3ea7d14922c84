"""A data set as lines of text: what two machines compare to know that they have the same pictures with the same labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from alignment_doctor.data.subject import DataSubject
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.terminal import all_printable, printable

HEADER = "# doctor manifest 1: sha256 of the file, class number, split, path; in the order in which training indexes them"
Entry = tuple[str, int, str]  # digest, label, split


def _samples(subject: DataSubject) -> Iterator[tuple[str, int, str, str]]:
    """Digest, label, split and path of each, in the order of the index; what does not print in a path is escaped."""
    digests = subject.rows["digest"].tobytes().hex("\n", 32).split()
    return zip(digests, subject.labels, subject.splits, all_printable(subject.names), strict=True)


def entries(subject: DataSubject) -> list[tuple[str, Entry]]:
    """The samples as (split and path, entry), in the order of the index."""
    return [(f"{split} {name}", (digest, label, split)) for digest, label, split, name in _samples(subject)]


def lines(subject: DataSubject) -> list[str]:
    """One line a sample, in the order of the index."""
    return [f"{digest} {label} {split} {name}" for digest, label, split, name in _samples(subject)]


def digest(subject: DataSubject) -> str:
    """One number for the whole data set: files, labels and order."""
    return hashlib.sha256("\n".join(lines(subject)).encode()).hexdigest()


def write(path: str | Path, subject: DataSubject) -> None:
    """Write the manifest.

    Raises:
        UserError: it cannot be written.
    """
    with atomic_open(path, "w") as file:
        file.write("\n".join([HEADER, *lines(subject)]) + "\n")


def read(path: str | Path) -> list[tuple[str, Entry]]:
    """The samples of a manifest as (split and path, entry), in its order.

    Raises:
        UserError: it is missing or not a manifest.
    """
    if not Path(path).is_file():
        raise UserError(f"cannot read manifest {path}: no such file")
    try:
        text = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read manifest {path}: {getattr(error, 'strerror', None) or error}") from error
    if not text or text[0] != HEADER:
        raise UserError(f"{path} is not a manifest: write one with --write-manifest")
    found = []
    for number, line in enumerate(text[1:], start=2):
        parts = line.split(" ", 3)
        if len(parts) != 4 or len(parts[0]) != 64 or not parts[1].isdigit():
            raise UserError(f"{path}:{number} is not a line of a manifest: {line[:80]!r}")
        found.append((f"{parts[2]} {printable(parts[3])}", (parts[0], int(parts[1]), parts[2])))
    return found


def differences(given: list[tuple[str, Entry]], own: list[tuple[str, Entry]]) -> list[str]:
    """What differs between two manifests, one line each; what is missing first, the order last."""
    there, here = dict(given), dict(own)
    found = [f"{key}: missing here" for key in there if key not in here]
    found += [f"{key}: not in the manifest" for key in here if key not in there]
    common = [key for key in there if key in here]
    found += [f"{key}: other content" for key in common if there[key][0] != here[key][0]]
    found += [f"{key}: label {here[key][1]}, {there[key][1]} in the manifest" for key in common if there[key][1] != here[key][1]]
    order = [key for key, _ in own if key in there]
    if not found and order != [key for key, _ in given]:
        first = next(a for a, (b, _) in zip(order, given, strict=True) if a != b)
        found.append(f"{first}: the order differs from here on, so ranks that count files would share them out otherwise")
    return found
