"""A plain folder of ``.npy`` files, one a tensor: a file is called after the module that returned what is in it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from alignment.dumps.others.recording import GIVEN, MADE, Dumped, DumpOfOthers, Format
from alignment.record import OnDisk, open_record
from mobilenetv3_common.errors import UserError

TITLE = "a folder of .npy files"
ENDING = re.compile(r"^(?:(?P<path>.*?)[._-])?(?P<role>inputs?|outputs?)(?:[._-]?(?P<n>\d+))?$", re.I)
NUMBERED = re.compile(r"^(\d+)[._-](.+)$")
GRADIENT = re.compile(r"^(?:grad|gradient)s?[._-](.+)$|^(.+)[._-](?:grad|gradient)$", re.I)
WEIGHT = re.compile(r"^(?:weights?|params?|parameters?)[._-](.+)$", re.I)
MOST_FILES = 20_000
LACKS = ["which tensor is a module's output and which is another value: files are paired by their names"]


def found(place: Path) -> Path | None:
    """The folder itself, where it or a folder in it holds such files."""
    return place if place.is_dir() and next(place.rglob("*.npy"), None) is not None else None


def read(flag: str, folder: Path) -> DumpOfOthers:
    """Every array, in the order of the numbers that all names begin with, else in the order of names.

    Raises:
        UserError: a file is damaged or no array, or two have one name.
    """
    files = sorted(folder.rglob("*.npy"))
    if len(files) > MOST_FILES:
        raise UserError(f"{flag} {folder}: holds {len(files)} .npy files, more than {MOST_FILES}: name the folder of one dump")
    arrays: dict[str, OnDisk] = {}
    for file in files:
        place = ".".join(file.relative_to(folder).with_suffix("").parts)
        found_in = open_record(file, plain=True)
        alone = list(found_in) == [file.stem]
        for name, array in found_in.items():
            key = place if alone else f"{place}.{name}"
            if key in arrays:
                raise UserError(f"{flag} {folder}: two arrays are called {key}: rename one")
            arrays[key] = array
    ordered = all(NUMBERED.match(name) for name in arrays)
    made = DumpOfOthers(TITLE, folder, ordered=ordered, lacks=list(LACKS))
    if not ordered:
        made.lacks.append("in which order the tensors were computed (begin the files' names with numbers to say it)")
    for name in sorted(arrays, key=_natural):
        _take(made, NUMBERED.sub(r"\2", name) if ordered else name, _value(arrays[name]), set(arrays))
    made.values.sort(key=lambda one: one.path == "" and one.role == MADE)  # what the model returns comes last
    return made


def _take(made: DumpOfOthers, name: str, value: Dumped, names: set[str]) -> None:
    if weight := WEIGHT.match(name):
        made.weights[weight[1]] = value
    elif gradient := GRADIENT.match(name):
        made.gradients[gradient[1] or gradient[2]] = value
    elif (end := ENDING.match(name)) and end["path"] not in names:  # else it is a module that is called so
        role = GIVEN if end["role"].lower().startswith("in") else MADE
        made.add(end["path"] or "", 0, role, [(end["n"] or "0", value)])
    else:
        made.add(name, 0, MADE, [("0", value)])


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Numbers by size, and a module behind those within it."""
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)|[._-]+", name) if part]
    return [*parts, (2, 0, "")]


def _value(array: OnDisk) -> Dumped:
    return Dumped(array.shape, array.dtype.name, lambda: np.asarray(array.whole()))


FORMAT = Format(TITLE, found, read, last=True)
