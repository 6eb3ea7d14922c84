"""Which value of one dump is which of another: by the paths of modules, by a map of names, and by order where all shapes agree."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alignment.dumps.others.recording import MADE, DumpOfOthers, Recorded

Key = tuple[str, int, str, str]


@dataclass
class DumpPairs:
    """What belongs together.

    Attributes:
        values: the port's and the reference's, in the reference's order of computation (the port's, where the reference has none).
        alone: titles of the reference's values that have no counterpart, and of the port's.
        by_order: modules that were paired by their order: ``"port's path: reference's path"``.
        ordered: whether the order is that of the computation.
    """

    values: list[tuple[Recorded, Recorded]]
    alone: tuple[list[str], list[str]]
    by_order: list[str] = field(default_factory=list)
    ordered: bool = True


def paired(port: DumpOfOthers, reference: DumpOfOthers, names: Mapping[str, str]) -> DumpPairs:
    """Pair two dumps.

    Args:
        port, reference: the dumps.
        names: of the port's modules in the reference, where they are others.
    """
    renamed = _by_order(port, reference, names)
    known = {**names, **renamed}
    ours = {_key(one, known): one for one in port.values}
    theirs = {_key(one, {}): one for one in reference.values}
    keys = [key for key in theirs if key in ours]
    if not reference.ordered and port.ordered:
        keys = [key for key in ours if key in theirs]
    alone = (
        [one.title for key, one in theirs.items() if key not in ours],
        [one.title for key, one in ours.items() if key not in theirs],
    )
    by_order = [f"{mine}: {right}" for mine, right in renamed.items()]
    return DumpPairs([(ours[key], theirs[key]) for key in keys], alone, by_order, reference.ordered or port.ordered)


def plain(path: str) -> str:
    """A path whatever its parts are separated by: file names have dots, dashes, or lines below."""
    return re.sub(r"[^0-9a-z]+", ".", path.lower()).strip(".")


def named(path: str, names: Mapping[str, str]) -> str:
    """A port's path in the reference: the longest of the map's that it begins with counts."""
    for own in sorted(names, key=len, reverse=True):
        if path == own or path.startswith(f"{own}."):
            return names[own] + path.removeprefix(own)
    return path


def _key(one: Recorded, names: Mapping[str, str]) -> Key:
    return plain(named(one.path, names)), one.call, one.role, one.name


def _by_order(port: DumpOfOthers, reference: DumpOfOthers, names: Mapping[str, str]) -> dict[str, str]:
    """Modules without a counterpart by name, paired one by one where there are as many, and all shapes agree in turn."""
    if not (port.ordered and reference.ordered):
        return {}
    held = {_key(one, {})[0] for one in reference.values}, {_key(one, names)[0] for one in port.values}
    left = _outputs(port, names, held[0]), _outputs(reference, {}, held[1])
    if not left[0] or len(left[0]) != len(left[1]):
        return {}
    shapes = [[_shape(one) for one in side] for side in left]
    if shapes[0] != shapes[1] or () in shapes[0]:
        return {}
    found: dict[str, str] = {}
    for mine, right in zip(*left, strict=True):
        if found.setdefault(mine.path, right.path) != right.path:
            return {}
    return found if len(set(found.values())) == len(found) else {}


def _outputs(one: DumpOfOthers, names: Mapping[str, str], other: set[str]) -> Sequence[Recorded]:
    made = [value for value in one.values if value.role == MADE and value.name == "0"]
    return [value for value in made if _key(value, names)[0] not in other]


def _shape(one: Recorded) -> tuple[int, ...]:
    if one.value.shape is not None:
        return one.value.shape
    return one.value.load().shape if one.value.load is not None else ()
