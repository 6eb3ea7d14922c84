"""``bench --mutants``, ``--source-faults`` and ``--rewrites``: the measures that edit the port's source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from alignment.faults import edits_of
from alignment.project import Project
from bench import mutants, mutants_page, source_faults
from bench.edited import Attempt, root_of
from bench.mutants import Sample
from mobilenetv3_common.counted import numbered
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open


def run_mutants(project: Path, sample: Sample, jobs: int, resume: bool, result_dir: Path) -> int:
    """Make mutants, run them, and write mutants.jsonl (as it goes), mutants.json and mutants.html; returns 0.

    Raises:
        UserError: a number is below 1, there is no such project or package, or the sound project does not pass.
    """
    for flag, value in (("count", sample.count), ("jobs", jobs)):
        if value < 1:
            raise UserError(f"--{flag} must be at least 1, found {value}")
    if not project.is_file():
        raise UserError(f"{project} is not a project file: give a Python file that defines PROJECT")
    log = mutants.Log(result_dir / "mutants.jsonl", resume)
    found = mutants.run(project, sample, log, jobs)
    about = {"project": project.name} | asdict(sample)
    mutants.write(result_dir / "mutants.json", found, about)
    files = sorted({m.mutation.file for m in found})
    sources = {file: (root_of(project) / file).read_text(encoding="utf-8") for file in files}
    said = f"{sample.count} mutants of {', '.join(sample.packages)}, seed {sample.seed}"
    said += f", survivors given to: {sample.suite}" if sample.suite else ""
    with atomic_open(result_dir / "mutants.html", "w") as out:
        out.write(mutants_page.render(found, sources, said))
    print(f"\n{mutants.table(found)}\nresults: {result_dir / 'mutants.html'}, mutants.json, mutants.jsonl")
    return 0


def run_source_faults(file: Path, project: Project, name: str | None, steps: Sequence[int], jobs: int, result_dir: Path) -> int:
    """Every fault, or one, as an edit of the source; 0 where enough are found and no hint is false.

    Args:
        file: the project's.
        project: which lists them.
        name: of one fault; those that ``steps`` owe where None.
        steps: of the guide; a fault is run through all of them, in order, until one fails.
        jobs: attempts at a time.
        result_dir: where source_faults.json goes.

    Raises:
        UserError: there is no such fault, or an edit does not fit the source.
    """
    known = edits_of(project).faults
    if name is not None and name not in known:
        raise UserError(f"--inject {name}: no such edit of the source; --inject list names all faults")
    chosen = [known[name]] if name else [fault for fault in known.values() if fault.step in steps]
    if not chosen:
        raise UserError(f"{project.name} lists no edits of its source as faults of {numbered('step', steps)}")

    def progress(number: int, outcome: source_faults.Outcome) -> None:
        verdict = "named" if outcome.named else "located" if outcome.located else "detected" if outcome.detected else "NOT DETECTED"
        said = f"{outcome.place} [{outcome.hint or 'no hint'}]" if outcome.place else outcome.attempt.problem
        print(f"{number:3}/{len(chosen)} {outcome.fault.name}: {verdict}: {said}", flush=True)

    outcomes = source_faults.run_faults(file, chosen, steps, jobs, progress)
    source_faults.write(result_dir / "source_faults.json", outcomes)
    print(f"\n{source_faults.table(outcomes)}\nresults: {result_dir / 'source_faults.json'}")
    return 0 if source_faults.enough(outcomes) else 1


def run_rewrites(file: Path, project: Project, steps: Sequence[int], jobs: int) -> int:
    """Every right rewrite of the source; 0 where no step failed on any."""
    known = edits_of(project).rewrites
    if not known:
        raise UserError(f"{project.name} lists no rewrites of its source")

    def progress(name: str, attempt: Attempt) -> None:
        alarm = f"ALARM ({attempt.outcome}): {attempt.problem}"
        print(f"{name}: {'passes' if attempt.outcome == 'passed' else alarm} in {attempt.seconds:.0f} s", flush=True)

    found = source_faults.run_rewrites(file, list(known.values()), steps, jobs, progress)
    alarms = sum(attempt.outcome != "passed" for attempt in found.values())
    print(f"{alarms} alarms on {len(found)} right rewrites")
    return 1 if alarms else 0
