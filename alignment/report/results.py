"""alignment.json, the records, and the logs in reprod_log's look."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from alignment.comparisons.context import Context
from alignment.comparisons.result import NAMES, StepResult
from alignment.coverage import Coverage
from alignment.finding import Localization
from alignment.record import save_record
from alignment.report import page
from alignment.report.diff_log import diff_log
from alignment.report.environment import commit, machine, versions
from alignment.report.kept import Kept, sources, without_steps
from alignment.report.sections import Sections
from alignment.report.table import passed, verdict
from mobilenetv3_common.files import atomic_open

VERSION = 1  # of alignment.json, which docs/findings.schema.json describes
RECORD_NAMES = {"backward": "losses"}  # the guide calls step 5's record by its content


def first_divergence(localization: Localization) -> dict[str, str] | None:
    """Stage, place and hint of the first mistake; None where all passed."""
    first = localization.first
    if first is None:
        return None
    found = {"stage": first.stage, "location": first.location, "hint": f"{first.hint or 'no known mistake'} ({first.measured})"}
    return found | ({"source": first.source} if first.source else {})


def provenance(command: Sequence[str]) -> dict[str, str]:
    """When, where and by which command a verdict was made; without a command that is known, the rest."""
    made = {"date": f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}", "commit": commit(), **machine()}
    return ({"command": shlex.join(command)} if command else {}) | made


def summary(
    context: Context,
    results: Sequence[StepResult],
    localization: Localization,
    covered: Coverage,
    made: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of alignment.json; ``made`` is from ``provenance``, ``flags`` are the command's."""
    return {
        "findings_version": VERSION,
        **(made or {}),
        "passed": passed(results),
        "project": context.project.name,
        "model": context.model,
        "port": context.port.framework.name,
        "reference": context.reference.framework.name,
        "weights": context.material.weights.name,
        "recipe": context.recipe_name or None,
        "device": context.device,
        "versions": versions(),
        "flags": without_steps(flags),
        "accepted": [vars(one) for one in localization.every if one.accepted],
        "rests_on": [result.name for result in results if result.ran],
        "notes": context.notes(),
        "not_run": {result.name: result.not_run for result in results if result.not_run},
        "coverage": covered.as_json(),
        "steps": [_step(result) for result in results],
        "first_divergence": first_divergence(localization),
        "localization": localization.as_json(),
    }


def _step(result: StepResult) -> dict[str, Any]:
    return {
        **({"date": result.kept} if result.kept else {}),
        **({"changed_since": result.changed} if result.changed else {}),
        "step": result.step,
        "name": result.name,
        "passed": result.passed if result.ran else None,
        "not_run": result.not_run or None,
        "seconds": round(result.seconds, 2),
        "covers": result.covers,
        "witnessed": result.witnessed,
        "evidence": result.evidence,
        "problems": result.problems,
        "quantities": [quantity.as_json() for quantity in result.quantities],
    }


def record_file(context: Context, result: StepResult, role: str, further: bool = False) -> str:
    """The name of a step's record file: ``forward_paddle.npy``, ``forward_ref.npy``, ``forward_more_ref.npy``."""
    side = context.port.framework.name if role == "port" else "ref"
    return f"{RECORD_NAMES.get(result.name, result.name)}{'_more' if further else ''}_{side}.npy"


ALONGSIDE = ("alignment.json", "alignment.png", "report.html", "report.md", "covered.txt")
NAMED_BY = ("project", "model", "port", "reference")  # of alignment.json: results of other ones are another command's


def leave_no_others(directory: Path, context: Context) -> None:
    """Remove what another alignment left in a folder, so that a page never stands beside records that are not its own.

    The steps of one alignment may be run one after another into one folder. Only files of this module's names are removed.
    """
    try:
        held = json.loads((directory / "alignment.json").read_text(encoding="utf-8"))
        theirs = [held[name] for name in NAMED_BY]
    except (OSError, ValueError, LookupError, TypeError):
        return  # there are no results, or none that tell whose they are
    sides = context.port.framework.name, context.reference.framework.name
    if theirs == [context.project.name, context.model, *sides]:
        return
    kept = [str(side) for side in theirs[2:] if str(side).isidentifier()]  # it is part of a path
    steps = [RECORD_NAMES.get(name, name) for name in NAMES.values()]
    records = [f"{step}{more}_{side}.npy" for step in steps for more in ("", "_more") for side in (*kept, "ref")]
    logs = [f"log/{name}_diff.log" for name in NAMES.values()]
    for name in dict.fromkeys([*ALONGSIDE, *records, *logs]):
        (directory / name).unlink(missing_ok=True)


def write_results(
    directory: Path,
    context: Context,
    results: Sequence[StepResult],
    localization: Localization,
    covered: Coverage,
    every: Sequence[int],
    flags: Sequence[str] = (),
    command: Sequence[str] = (),
    sections: Sections | None = None,
    kept: Kept | None = None,
) -> None:
    """Write alignment.json, report.html, both records and the log of every step; each file whole or not at all.

    With the sections of an audit, alignment.json has them, too, and covered.txt lists what was compared. Steps that are kept
    are among the results; their records and logs are there already.
    """
    leave_no_others(directory, context)
    (directory / "log").mkdir(parents=True, exist_ok=True)
    for result in results:
        if not result.ran or result.kept:
            continue
        for role, arrays in result.records.items() if result.step else ():
            save_record(directory / record_file(context, result, role), arrays)
            if result.further[role]:
                save_record(directory / record_file(context, result, role, further=True), result.further[role])
        with atomic_open(directory / "log" / f"{result.name}_diff.log", "w") as file:
            file.write(diff_log(result))
    made = provenance(command)
    with atomic_open(directory / "alignment.json", "w") as file:
        said = summary(context, results, localization, covered, made, flags)
        if kept is not None:
            said |= {"sources": kept.sources | {made["date"]: sources()}} | (kept.failure if localization.first is None else {})
        json.dump(said | sections.as_json() if sections else said, file, indent=1, allow_nan=True)
        file.write("\n")
    if sections is not None:
        with atomic_open(directory / "covered.txt", "w") as file:
            file.write(covered.text())
    about = {
        **{name: value for name, value in made.items() if value},
        "flags": " ".join(flags) or "(none)",
        "weights": context.material.weights.name,
        "device": context.device,
        "seed": context.seed,
    }
    said_in_one_line = sections.verdict if sections else verdict(context, results, every)
    with atomic_open(directory / "report.html", "w") as file:
        file.write(page.render(context, said_in_one_line, about | versions(), results, localization, covered, sections))


def print_json(args: Any, folder: Path) -> None:
    """A folder's alignment.json on standard output and into the file of ``--json-file``, where either was asked for."""
    text = (folder / "alignment.json").read_text(encoding="utf-8")
    if args.json:
        print(text, end="")
    if args.json_file:
        with atomic_open(args.json_file, "w") as file:
            file.write(text)
