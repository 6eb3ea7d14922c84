"""Steps that an earlier run left in its folder, for a run of other steps that goes on with them (``--keep``)."""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from alignment.compare import Quantity
from alignment.comparisons.result import StepResult
from mobilenetv3_common.counted import numbered

INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
SAME = ("project", "model", "port", "reference", "weights", "recipe", "device", "versions", "flags")


@dataclass(frozen=True)
class Kept:
    """What is kept of an earlier run.

    Attributes:
        results: of its steps that are not run again.
        content: of its alignment.json; empty where nothing is kept.
        dropped: why its steps are not kept, in words; empty where they are, or there are none.
    """

    results: list[StepResult] = field(default_factory=list)
    content: Mapping[str, Any] = field(default_factory=dict)
    dropped: str = ""

    def with_(self, results: Sequence[StepResult]) -> list[StepResult]:
        """These results and the kept ones, by step."""
        return sorted([*results, *self.results], key=lambda result: result.step)

    @property
    def sources(self) -> dict[str, dict[str, str]]:
        """The source files of its steps with their digests, by the date of a run."""
        held = self.content.get("sources", {})
        return {result.kept: held[result.kept] for result in self.results if result.kept in held}

    @property
    def functions(self) -> set[str]:
        """The port's functions that its steps ran."""
        return set(self.content.get("coverage", {}).get("functions_run", ()))

    @property
    def failure(self) -> dict[str, Any]:
        """What its alignment.json says of the place of a mistake, where one of the kept steps failed; else nothing."""
        failed = any(result.failed for result in self.results)
        return {name: self.content[name] for name in ("first_divergence", "localization") if failed and name in self.content}


def without_steps(flags: Sequence[str]) -> list[str]:
    """A command's flags but for those that may differ between runs of one alignment: which steps, and ``--keep``."""
    made = [flag for flag in flags if flag != "--keep" and not flag.startswith("--steps=")]
    return [flag for i, flag in enumerate(made) if flag != "--steps" and made[i - 1 : i] != ["--steps"]]


def sources() -> dict[str, str]:
    """The source files that this process loaded, with a digest each; not those of Python, of installed packages, of the engine."""
    others = {Path(sysconfig.get_path(name)).resolve() for name in INSTALLED} | {Path(__file__).resolve().parents[1]}
    files = {Path(name).resolve() for module in list(sys.modules.values()) if (name := getattr(module, "__file__", None))}
    own = [file for file in files if file.suffix == ".py" and not others & set(file.parents)]
    return {_named(file): digest for file in sorted(own) if (digest := _digest(file))}


def _named(file: Path) -> str:
    here = Path.cwd().resolve()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _digest(file: Path) -> str:
    """Of a file's content; empty where it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def kept_of(folder: Path, now: Mapping[str, Any], steps: Collection[int]) -> Kept:
    """The steps that a folder's alignment.json has besides those that were run, where it is of the same models and flags.

    Args:
        folder: of the results.
        now: alignment.json of this run, as far as it is known.
        steps: that were run now.
    """
    try:
        content = json.loads((folder / "alignment.json").read_text(encoding="utf-8"))
        dates = content["sources"].items() if "sources" in content else ()
        changed = {date: [file for file, was in held.items() if _digest(Path(file)) != was] for date, held in dates}
        others = [step for step in content["steps"] if step["step"] not in steps and not step["not_run"]]
        earlier = [_result(step, date := step.get("date") or content["date"], changed.get(date, [])) for step in others]
        differing = [name for name in SAME if content.get(name) != now[name]]
    except (OSError, ValueError, KeyError, TypeError):
        return Kept()  # none, or no longer what a run left
    if not earlier:
        return Kept()
    if differing:
        which = numbered("step", [result.step for result in earlier])
        return Kept(dropped=f"not kept: {which} of the run before, which had other {' and '.join(differing)}")
    return Kept(earlier, content)


def _result(step: Mapping[str, Any], date: str, changed: list[str]) -> StepResult:
    named = {"paddle_error": "port_error", "ref_error": "reference_error"}
    known = {one.name for one in fields(Quantity)}
    rows = [{named.get(name, name): value for name, value in row.items()} for row in step["quantities"]]
    return StepResult(
        step["step"],
        step["name"],
        [Quantity(**{name: value for name, value in row.items() if name in known}) for row in rows],
        step["evidence"],
        step["problems"],
        seconds=step["seconds"],
        covers=step["covers"],
        witnessed=step.get("witnessed", []),
        kept=date,
        changed=changed,
    )
