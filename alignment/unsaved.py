"""Buffers that no file of weights holds (tables of rotary positions, non-persistent masks): each side's constructor computes them.

Two frameworks compute a sine in float32 to within a rounding, which exact mode, where all else agrees to 1e-13, would report of
every sound port. So a table of the port that is the reference's but for float32's rounding has the reference's values there. One
that differs by more keeps its own, and is found by what the module computes with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, without_masked
from alignment.frameworks.base import Framework, Module

Tables = dict[str, dict[str, np.ndarray]]  # path of a module -> name of its buffer -> values


def tables_of(framework: Framework, model: Module) -> Tables:
    """The floating tables of a model that was just built."""
    found: Tables = {}
    for path, module in framework.modules(model).items():
        arrays = {name: framework.array(tensor) for name, tensor in framework.unsaved(module).items()}
        if floating := {name: array for name, array in arrays.items() if array.dtype.kind == "f"}:
            found[path] = floating
    return found


def share(framework: Framework, port: Module, paths: Mapping[str, str], tables: Tables) -> list[str]:
    """Give the port's tables the reference's values where rounding alone tells the two apart.

    Args:
        framework, port: whose tables are changed, in place.
        paths: the reference's path of a module -> the port's.
        tables: of the reference.

    Returns:
        The tables that were changed, by the port's paths.
    """
    modules, changed = framework.modules(port), []
    for path, arrays in tables.items():
        module = modules.get(paths.get(path, ""))
        for name, tensor in ({} if module is None else framework.unsaved(module)).items():
            mine = framework.array(tensor)
            for right in arrays.values():
                if mine.dtype.kind == "f" and mine.shape == right.shape and _rounded(mine, right):
                    framework.assign(tensor, right)
                    changed.append(f"{paths[path]}.{name}" if paths[path] else name)
                    break
    return changed


def _rounded(mine: np.ndarray, right: np.ndarray) -> bool:
    a, b = without_masked(mine, right.astype(mine.dtype))
    with np.errstate(invalid="ignore"):
        return 0 < distance(a, b) <= tolerance.BASE_FLOOR_32 * norm(b)
