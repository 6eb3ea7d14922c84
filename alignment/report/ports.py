"""Several ports of one reference: one table of their runs, and one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alignment.flags import shown
from alignment.report.table import times
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.terminal import paint
from mobilenetv3_common.terminal import verdict as verdict_word

FILE = "ports.json"
COLUMNS = ("float32 / floor", "exact mode", "seconds", "verdict")


def write(folder: Path, ports: Sequence[str]) -> int:
    """Print the table of runs whose ``alignment.json`` lie in ``folder / port``, and write ``ports.json``.

    Returns:
        The exit status: 1 where a port failed.
    """
    runs = {name: json.loads((folder / name / "alignment.json").read_text(encoding="utf-8")) for name in ports}
    passed = all(run["passed"] for run in runs.values())
    rows = {name: [row(step) for step in run["steps"]] for name, run in runs.items()}
    kept = ("passed", "reference", "first_divergence")
    found = {name: {**{key: run[key] for key in kept}, "steps": rows[name]} for name, run in runs.items()}
    with atomic_open(folder / FILE, "w") as file:
        json.dump({"passed": passed, "model": next(iter(runs.values()))["model"], "ports": found}, file, indent=1)
        file.write("\n")
    print(table(rows))
    for name, run in runs.items():
        first = run["first_divergence"]
        if first is not None:
            print(paint(f"{name}: first divergence: {first['location']}: {first['hint']}", "red"))
    print(f"results: {shown(folder / FILE)}, and those of each port in a folder of its name")
    return 0 if passed else 1


def row(step: Mapping[str, Any]) -> dict[str, Any]:
    """One step of one port in a few figures, from its part of ``alignment.json``."""
    compared = step["quantities"]
    counted = [q for q in compared if q["paddle_error"] is not None and q["ref_error"] and not q["flips"] and not q["noise"]]
    ratios = [q["paddle_error"] / q["ref_error"] for q in counted]
    exact = [q["float64_diff"] for q in compared if q["float64_diff"] is not None and not q["noise"]]
    return {
        "step": step["step"],
        "name": step["name"],
        "compared": len(compared),
        "float32_ratio": max(ratios, default=None),
        "exact": max(exact, default=None),
        "seconds": step["seconds"],
        "passed": step["passed"],
    }


def table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One line a step, the ports side by side; of a step that a port has not run, ``-``."""
    names = dict.fromkeys((one["step"], one["name"]) for steps in rows.values() for one in steps)
    lines = [["", *(text for port in rows for text in (port, "", "", ""))], ["step", *COLUMNS * len(rows)]]
    for number, name in sorted(names, key=lambda one: one[0]):
        cells = [f"{number} {name}"]
        for steps in rows.values():
            cells += _cells(next((one for one in steps if (one["step"], one["name"]) == (number, name)), None))
        lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(2, ["-" * wide for wide in widths])
    return "\n".join("  ".join(_painted(cell, wide) for cell, wide in zip(line, widths, strict=True)).rstrip() for line in lines)


def _cells(one: Mapping[str, Any] | None) -> tuple[str, ...]:
    if one is None or one["passed"] is None:
        return ("-", "-", "-", "not run")
    found = one["float32_ratio"]
    ratio = "-" if found is None else times(found)
    exact = "-" if one["exact"] is None else "0" if one["exact"] == 0 else f"{one['exact']:.1e}"
    return (ratio, exact, f"{one['seconds']:.1f}", "passed" if one["passed"] else "FAILED")


def _painted(cell: str, wide: int) -> str:
    return verdict_word(cell) + " " * (wide - len(cell))
