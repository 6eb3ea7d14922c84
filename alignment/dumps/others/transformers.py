"""The trees of transformers' ``model_addition_debugger_context``: nested JSON, with or without files of whole tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alignment.dumps.others.printed import figure, numbers
from alignment.dumps.others.recording import GIVEN, MADE, Dumped, DumpOfOthers, Format, beside, of_kind, table_of
from alignment.dumps.others.tensors import reader
from mobilenetv3_common.errors import UserError

ENDINGS = ("_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json")
TITLE = "transformers' model debugger"
FIGURES = ("mean", "std", "min", "max")
DEEPEST = 200  # modules within modules
LACKS = [
    "outputs of modules that have children, and of the model (the debugger leaves them out): the inputs of the modules behind them "
    "are compared, and the last module's output"
]


def found(place: Path) -> Path | None:
    """The tree of a folder, whole rather than its summary."""
    if place.is_file():
        return place if place.name.endswith("_debug_tree.json") or place.name.endswith(ENDINGS) else None
    for ending in ENDINGS:
        if files := sorted(place.glob(f"*{ending}")):
            if len(files) > 1:
                raise UserError(f"{place} holds the trees of {len(files)} models: name one file, e.g. {files[0]}")
            return files[0]
    return None


def read(flag: str, file: Path) -> DumpOfOthers:
    """The tree of one forward pass.

    Raises:
        UserError: it is damaged.
    """
    tree = table_of(flag, file)
    made = DumpOfOthers(TITLE, file.parent, "torch", lacks=list(LACKS))
    if file.name.endswith(ENDINGS[1]):
        made.lacks.append("the numbers of any tensor: a summary has their mean, deviation and range alone")
    root = str(of_kind(flag, file, tree.get("module_path"), str, "module_path"))
    _TreeReading(flag, file, made, root, _counted(flag, file, tree)).node(tree, 0)
    if any(value.value.printed for value in made.values):
        made.lacks.append("more than the four digits that the debugger prints (use_repr=False writes whole tensors)")
    return made


def _counted(flag: str, file: Path, tree: dict[str, Any]) -> Counter[str]:
    """How often each module was called: the file of a tensor has that of the last call."""
    counts, left = Counter[str](), [tree]
    while left:
        node = of_kind(flag, file, left.pop(), dict, "a module")
        counts[str(node.get("module_path"))] += 1
        left += of_kind(flag, file, node.get("children") or [], list, "children")
    return counts


class _TreeReading:
    def __init__(self, flag: str, file: Path, made: DumpOfOthers, root: str, counts: Counter[str]) -> None:
        self.flag, self.file, self.made, self.root, self.counts = flag, file, made, root, counts
        self.calls = Counter[str]()

    def node(self, node: dict[str, Any], depth: int) -> None:
        """Append a module's inputs, its children, and its outputs."""
        if depth > DEEPEST:
            raise UserError(f"{self.flag} {self.file}: modules lie more than {DEEPEST} within each other: the file is damaged")
        full = str(of_kind(self.flag, self.file, node.get("module_path"), str, "module_path"))
        path = re.sub(rf"^{re.escape(self.root)}(?:\.|$| \(top-level\))", "", full)
        call = self.calls[full]
        self.calls[full] += 1
        last = self.calls[full] == self.counts[full]
        given = node.get("inputs") or {}
        parts = [given.get("args", []), given.get("kwargs", {})] if isinstance(given, dict) else [given]
        self.made.add(path, call, GIVEN, (one for part in parts for one in self._values("", part, last)))
        for child in node.get("children") or []:
            self.node(child, depth + 1)
        self.made.add(path, call, MADE, self._values("", node.get("outputs"), last))

    def _values(self, name: str, held: Any, last: bool) -> Iterator[tuple[str, Dumped]]:
        """Tensors of nested lists and dictionaries, with their places."""
        if isinstance(held, dict) and "shape" in held and "dtype" in held:
            yield name or "0", self._value(held, last)
        elif isinstance(held, list | dict):
            for key, one in enumerate(held) if isinstance(held, list) else held.items():
                yield from self._values(f"{name}.{key}" if name else str(key), one, last)

    def _value(self, held: dict[str, Any], last: bool) -> Dumped:
        sizes = re.findall(r"\d+", str(held["shape"]))
        known = {key: one for key in FIGURES if isinstance(held.get(key), str) and (one := figure(held[key])) is not None}
        value, dtype = held.get("value"), str(held["dtype"]).removeprefix("torch.")
        load = reader(self.flag, beside(self.file.parent, value)) if isinstance(value, str) and last else None
        printed = numbers(map(str, value)) if isinstance(value, list) else ()
        return Dumped(tuple(map(int, sizes)), dtype, load, printed, known)


FORMAT = Format(TITLE, found, read)
