"""Dumps of PaDiff: ``report.json`` with ``tensors/``, and ``params.json`` with ``weights/`` and ``grads/`` beside it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from alignment.dumps.others.recording import MADE, Dumped, DumpOfOthers, Format, beside, of_kind, table_of
from alignment.dumps.others.tensors import reader
from mobilenetv3_common.errors import UserError

TITLE = "PaDiff"
TABLE = "report.json"
PARAMETERS = {"params.json": ("weights", "grads"), "weights.json": ("weights",), "grads.json": ("grads",)}
DEEPEST = 200  # modules within modules
LACKS = ["inputs of modules and of the model", "gradients of what modules return"]
CANONICAL = {"_mean": "running_mean", "_variance": "running_var"}


def found(place: Path) -> Path | None:
    """The table of a folder of one step, or of the folder above that has but one."""
    if place.is_file():
        return place if place.name == TABLE and _is_table(place) else None
    tables = [file for pattern in ("", "*/") for file in sorted(place.glob(f"{pattern}{TABLE}")) if _is_table(file)]
    if len(tables) > 1:
        raise UserError(f"{place} holds {len(tables)} dumps of PaDiff: name the folder of one step, e.g. {tables[0].parent}")
    return tables[0] if tables else None


def _is_table(file: Path) -> bool:
    try:
        with open(file, "rb") as opened:
            return b'"model_name"' in opened.read(4096)
    except OSError:
        return False


def read(flag: str, file: Path) -> DumpOfOthers:
    """What one step made.

    Raises:
        UserError: a table is damaged.
    """
    table = table_of(flag, file)
    framework = str(table.get("framework", ""))
    made = DumpOfOthers(TITLE, file.parent, framework if framework in ("torch", "paddle") else "", lacks=list(LACKS))
    reading = _ReportReading(flag, file, made, str(table.get("model_name", "")))
    for node in of_kind(flag, file, table.get("tree"), list, "tree"):
        reading.node(of_kind(flag, file, node, dict, "a module"), 0)
    for name, groups in PARAMETERS.items():
        beside_it = file.parent / name
        if beside_it.is_file():
            tree = of_kind(flag, beside_it, table_of(flag, beside_it).get("tree"), dict, "tree")
            _ReportReading(flag, beside_it, made, reading.root).parameters(tree, groups, 0)
    return made


class _ReportReading:
    def __init__(self, flag: str, file: Path, made: DumpOfOthers, root: str) -> None:
        self.flag, self.file, self.made, self.root = flag, file, made, root
        self.calls = Counter[str]()

    def node(self, node: dict[str, Any], depth: int) -> None:
        """Append what a module's children and it returned."""
        self._refuse_deep(depth)
        for child in of_kind(self.flag, self.file, node.get("children") or [], list, "children"):
            self.node(of_kind(self.flag, self.file, child, dict, "a module"), depth + 1)
        path = self._path(node)
        call = self.calls[path]
        self.calls[path] += 1
        outputs = of_kind(self.flag, self.file, node.get("fwd_outputs") or [], list, "fwd_outputs")
        self.made.add(path, call, MADE, ((str(n), self._value(one)) for n, one in enumerate(outputs)))

    def parameters(self, node: dict[str, Any], groups: tuple[str, ...], depth: int) -> None:
        """Take in the weights and gradients of a module and of those within it."""
        self._refuse_deep(depth)
        path = self._path(node)
        for group in groups:
            into = self.made.weights if group == "weights" else self.made.gradients
            for name, file in of_kind(self.flag, self.file, node.get(group) or {}, dict, group).items():
                if isinstance(file, str):
                    full = f"{path}.{CANONICAL.get(name, name)}".lstrip(".")
                    into[full] = Dumped(load=reader(self.flag, beside(self.file.parent / group, file)))
        for child in of_kind(self.flag, self.file, node.get("children") or [], list, "children"):
            self.parameters(of_kind(self.flag, self.file, child, dict, "a module"), groups, depth + 1)

    def _path(self, node: dict[str, Any]) -> str:
        route = str(node.get("route") or node.get("name") or "")
        return "" if route == self.root else route.removeprefix(f"{self.root}.")

    def _value(self, held: Any) -> Dumped:
        held = of_kind(self.flag, self.file, held, dict, "an output")
        dtype = str(held.get("dtype", "")).rpartition(".")[2].lower()
        return Dumped(dtype=dtype, load=reader(self.flag, beside(self.file.parent / "tensors", held.get("path"))))

    def _refuse_deep(self, depth: int) -> None:
        if depth > DEEPEST:
            raise UserError(f"{self.flag} {self.file}: modules lie more than {DEEPEST} within each other: the file is damaged")


FORMAT = Format(TITLE, found, read)
