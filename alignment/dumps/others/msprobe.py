"""Dumps of msProbe (MindStudio Probe): ``dump.json`` of a step and rank, and ``dump_tensor_data/`` where tensors were kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alignment.dumps.others.recording import (
    GIVEN,
    MADE,
    Dumped,
    DumpOfOthers,
    Figure,
    Format,
    beside,
    of_kind,
    plain_shape,
    table_of,
)  # fmt: skip
from alignment.dumps.others.tensors import reader
from mobilenetv3_common.errors import UserError

TITLE = "msProbe"
TABLE, TENSORS = "dump.json", "dump_tensor_data"
KEYS = {"task", "level", "data"}
MODULE = re.compile(
    r"^(?:Module|Cell)\.(?:(?P<path>.+)\.)?(?P<kind>[^.]+)\.(?P<what>forward|backward|parameters_grad)\.(?P<n>\d+)$"
)
FUNCTION = re.compile(r"^(?P<path>[A-Za-z_]+\.[A-Za-z_0-9.]+?)\.(?P<n>\d+)\.(?P<what>forward|backward)$")
FIGURES = {"Max": "max", "Min": "min", "Mean": "mean", "Norm": "norm"}
CANONICAL = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
}
MOST_NESTED = 50
FRAMEWORKS = {"pytorch": "torch", "mindspore": "mindspore"}


def found(place: Path) -> Path | None:
    """The table of a folder of one step and rank, or of the folder above that has but one."""
    if place.is_file():
        return place if place.name == TABLE and _is_table(place) else None
    tables = [file for pattern in ("", "*/", "*/*/") for file in sorted(place.glob(f"{pattern}{TABLE}")) if _is_table(file)]
    if len(tables) > 1:
        names = ", ".join(str(file.parent.relative_to(place)) for file in tables[:4])
        raise UserError(f"{place} holds {len(tables)} dumps of msProbe ({names}): name the folder of one step and rank")
    return tables[0] if tables else None


def _is_table(file: Path) -> bool:
    """Whether a file begins as a table of msProbe does; this project's own has the same name."""
    try:
        with open(file, "rb") as opened:
            return b'"task"' in opened.read(4096) if file.is_file() else False
    except OSError:
        return False


def read(flag: str, file: Path) -> DumpOfOthers:
    """What one step of one rank gave and made.

    Raises:
        UserError: the table is damaged.
    """
    table = table_of(flag, file)
    if not table.keys() >= KEYS:
        raise UserError(f"{flag} {file}: not a table of msProbe: {', '.join(sorted(KEYS - table.keys()))} is missing")
    made = DumpOfOthers(TITLE, file.parent, FRAMEWORKS.get(str(table.get("framework")), ""))
    made.lacks.append("gradients of what modules return")
    if table["task"] != "tensor":
        made.lacks.append(f"the numbers of any tensor: the task {table['task']!s:.30} keeps largest, smallest, mean and norm alone")
    reading = _TableReading(flag, file, made)
    for name, held in of_kind(flag, file, table["data"], dict, "data").items():
        reading.entry(name, of_kind(flag, file, held, dict, name))
    return made


class _TableReading:
    def __init__(self, flag: str, file: Path, made: DumpOfOthers) -> None:
        self.flag, self.file, self.made = flag, file, made

    def entry(self, name: str, held: dict[str, Any]) -> None:
        """One call, or the gradients of one module's parameters; what is of another kind is left out."""
        parts = MODULE.match(name) or FUNCTION.match(name)
        if parts is None:
            return
        path, call = parts["path"] or "", int(parts["n"])
        if parts["what"] == "forward":
            given = [held.get("input_args", held.get("input")), held.get("input_kwargs")]
            self.made.add(path, call, GIVEN, (one for part in given for one in self._values("", part)))
            self.made.add(path, call, MADE, self._values("", held.get("output")))
            self._tensors(self.made.weights, path, held.get("parameters"))
        elif parts["what"] == "parameters_grad":
            self._tensors(self.made.gradients, path, held)

    def _tensors(self, into: dict[str, Dumped], path: str, held: Any) -> None:
        for name, value in self._values("", held):
            last = name.partition(".")[0]
            into[f"{path}.{CANONICAL.get(last, last)}"] = value

    def _values(self, name: str, held: Any, depth: int = 0) -> Iterator[tuple[str, Dumped]]:
        if depth > MOST_NESTED:
            raise UserError(f"{self.flag} {self.file}: values lie more than {MOST_NESTED} within each other: the file is damaged")
        if isinstance(held, dict) and "dtype" in held and "shape" in held:
            yield name or "0", self._value(held)
        elif isinstance(held, list | dict):
            for key, one in enumerate(held) if isinstance(held, list) else held.items():
                yield from self._values(f"{name}.{key}" if name else str(key), one, depth + 1)

    def _value(self, held: dict[str, Any]) -> Dumped:
        known = {ours: Figure(float(held[key])) for key, ours in FIGURES.items() if type(held.get(key)) in (int, float)}
        name = held.get("data_name")
        load = reader(self.flag, beside(self.file.parent / TENSORS, name)) if isinstance(name, str) else None
        dtype = str(held["dtype"]).rpartition(".")[2].lower()
        return Dumped(plain_shape(self.flag, self.file, held["shape"]), dtype, load, (), known)


FORMAT = Format(TITLE, found, read)
