"""Cases that take turns, and the table of what they took."""

from __future__ import annotations

import statistics
from collections.abc import Callable


def side_by_side(cases: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Run every case in turn, ``repeats`` times over, so that a slow phase of the machine meets them all."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            found[name].append(case())
    return found


def print_table(found: dict[str, list[float]], unit: str, base: str) -> None:
    """One row a case: median, spread, and the ratio to the base's median."""
    width = max(map(len, found))
    for name, values in found.items():
        ratio = statistics.median(values) / statistics.median(found[base])
        spread = f"{min(values):.4g} to {max(values):.4g}"
        print(f"{name:<{width}}  {statistics.median(values):8.4g} {unit}  ({spread})  {ratio:.2f} x {base}")
