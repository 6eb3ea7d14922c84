"""``python -m bench patches``: how many of the known mistakes end with a verified patch of the source?

A mistake is made in the source of a copy. The copy is audited, and what the audit offers as a patch is applied to the copy by
``git apply``; the patched copy is verified by an audit with fresh weights. Each audit and each trial is a child, forked from this
process, which has imported the frameworks and computed nothing. A patch that changes anything but the port's source is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from alignment.faults import SourceFault, edits_of
from alignment.flags import parse_steps
from alignment.project import load_project
from bench.patch_cases import INPUTS, PORT, REFERENCE, Case, functional_cases, layer_cases
from bench.patch_edits import corrector
from bench.patch_rows import Row, table
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

AUDIT_LIMIT = 600.0  # seconds
ENOUGH = 0.85  # share of the mistakes that end with a verified patch


class Known(Protocol):
    """A known mistake, by its name and its kind."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...


K = TypeVar("K", bound=Known)


def sample(cases: Sequence[K], count: int | None, seed: int) -> list[K]:
    """A part of some cases, spread over their kinds: one of each in turn, in a random order; all where ``count`` is None."""
    rng = random.Random(seed)
    kinds: dict[str, list[K]] = defaultdict(list)
    for case in cases:
        kinds[case.kind].append(case)
    piles = [rng.sample(pile, len(pile)) for pile in kinds.values()]
    rng.shuffle(piles)
    ordered = [pile[place] for place in range(max(map(len, piles), default=0)) for pile in piles if place < len(pile)]
    return ordered[:count]


# --- in children ------------------------------------------------------------------------------------------------------------


def audited(folder: str, seed: int, training: bool, search: bool) -> dict[str, Any]:
    """Audit a case's files, in a process that has computed nothing.

    Returns:
        ``passed``, ``mistakes`` (location and kind), ``known`` (a correction of each) and ``candidates`` of each mistake.
    """
    from alignment.audit.command import audited as run
    from alignment.audit.pair import ModelMaker
    from alignment.audit.tried import job_of
    from alignment.flags import audit_parser
    from alignment.repair.search import likely

    os.chdir(folder)
    sys.path.insert(0, folder)
    model = (Path(folder) / "model").read_text()
    sides = f"{PORT}:{model}", f"{REFERENCE}:{model}"
    flags = ["--port", sides[0], "--reference", sides[1], "--input", INPUTS, "--report", "report", "--seed", str(seed)]
    args = audit_parser().parse_args([*flags, *([] if training else ["--eval-only"])])
    found: dict[str, Any] = {"mistakes": [], "known": [], "candidates": [], "job": None}

    def note(args, context, mistakes, known, reasons):  # type: ignore[no-untyped-def]
        found["mistakes"] = [(one.location, str(one.kind)) for one in mistakes]
        found["known"] = known
        if search and not all(known):
            found["candidates"] = [likely(context, one) for one in mistakes]
            found["job"] = job_of(args, context, mistakes)
        return known

    aligned = run(args, flags, ModelMaker("--port", sides[0], {}), ModelMaker("--reference", sides[1], {}), note)
    return found | {"passed": aligned.sections is not None and aligned.sections.passed}


# --- one case ---------------------------------------------------------------------------------------------------------------


def patched(case: Case, name: str, budget: float) -> Row:
    """Audit a mistake, look for its correction, apply it and verify it."""
    from alignment.audit.trial import Trials, answered
    from alignment.repair.search import Outcome, corrections

    start, row = time.monotonic(), Row(case.name, case.kind, name)
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="patched-") as made:
        folder = Path(made).resolve()
        case.write(folder)
        (folder / "model").write_text(case.model)
        found = answered(fork, audited, (str(folder), 0, case.training, True), AUDIT_LIMIT)
        if found is None or found["passed"] or not found["mistakes"]:
            row.problem = "the audit broke off" if found is None else "the audit finds no mistake"
        else:
            row.found = [kind for _, kind in found["mistakes"]]
            fixes, told = found["known"], list[Outcome]()
            if not all(fixes):
                os.chdir(folder)
                fixes = corrections(
                    fixes, found["mistakes"], found["candidates"], Trials(found["job"], "fork"), budget, told.append
                )
            row.by = ", ".join(one.found.kind for one in told if one.found) or "settings"
            _apply(row, case, folder, [fix for fix in fixes if fix])
            count = sum(map(len, found["candidates"]))
            row.problem = row.problem or ("" if row.verified else f"{count} candidates" if not row.written else "")
    row.by = row.by if row.written else ""
    row.seconds = round(time.monotonic() - start, 1)
    return row


def _apply(row: Row, case: Case, folder: Path, fixes: list) -> None:
    """Write the patch, apply it as a person would, and audit the patched copy with other weights and inputs."""
    from alignment.audit.trial import answered
    from alignment.repair.edits import diff

    os.chdir(folder)
    row.patch = diff(fixes)
    row.written = bool(fixes)
    if not row.written:
        return
    if any(edit.file.name != PORT for fix in fixes for edit in fix):
        row.problem = "it changes what is no source of the port"
        return
    (folder / "fix.diff").write_text(row.patch, encoding="utf-8")
    done = subprocess.run(["git", "apply", "fix.diff"], cwd=folder, capture_output=True, text=True, check=False)
    row.applies = done.returncode == 0
    row.problem = done.stderr.strip()
    if row.applies:
        again = answered(multiprocessing.get_context("fork"), audited, (str(folder), 1, case.training, False), AUDIT_LIMIT)
        row.verified = bool(again and again["passed"])
        row.problem = "" if row.verified else f"still wrong: {again['mistakes']}" if again else "the patched copy cannot be audited"


# --- all --------------------------------------------------------------------------------------------------------------------


Correct = Callable[[Any], Row]  # makes a mistake of a list, and says what came of it


def run(cases: dict[str, list[Any]], file: Path, resume: bool, correct: dict[str, Correct]) -> list[Row]:
    """All cases, each written to a file of JSON lines as it becomes known; those that the file has are not run again."""
    rows: dict[tuple[str, str], Row] = {}
    if resume and file.is_file():
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                row = Row(**json.loads(line))
            except (json.JSONDecodeError, TypeError):  # cut short where the earlier run was killed
                continue
            rows[row.source, row.name] = row
    with atomic_open(file, "w") as out:
        out.writelines(json.dumps(asdict(row)) + "\n" for row in rows.values())
    wanted = [(name, case) for name, some in cases.items() for case in some]
    here = Path.cwd()
    for number, (name, case) in enumerate(wanted, start=1):
        if (name, case.name) in rows:
            continue
        row = rows[name, case.name] = correct[name](case)
        os.chdir(here)
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(row)) + "\n")
        print(f"{number:3}/{len(wanted)} {row.line()}", flush=True)
    return [rows[name, case.name] for name, case in wanted]


def edits_of_steps(file: Path, steps: str | None) -> list[SourceFault]:
    """The mistakes that a project lists as edits of its source, of some steps."""
    known = list(edits_of(load_project(file)).faults.values())
    chosen = parse_steps(steps, sorted({fault.step for fault in known}))
    return [fault for fault in known if fault.step in chosen]


def patches(argv: Sequence[str]) -> int:
    """The command; exit status 0 where at least 85 % end with a verified patch."""
    from bench.flags import patches_parser

    args: argparse.Namespace = patches_parser().parse_args(argv)
    made: dict[str, Callable[[], Sequence[Known]]] = {
        "functional": lambda: list(functional_cases(args.functional)),
        "layers": lambda: list(layer_cases(args.layers)),
        "edits": lambda: edits_of_steps(args.edits, args.steps),
    }
    if unknown := [name for name in args.lists if name not in made]:
        raise UserError(f"{unknown[0]}: there is no such list of mistakes: use {', '.join(made)}")
    if args.steps is not None and "edits" not in args.lists:
        raise UserError("--steps goes with the list edits")
    chosen: dict[str, list[Any]] = {name: sample(made[name](), args.sample, args.seed) for name in args.lists}
    args.result_dir.mkdir(parents=True, exist_ok=True)
    file = (args.result_dir / "patches.jsonl").resolve()
    with contextlib.ExitStack() as stack:
        correct: dict[str, Correct] = {}
        if "edits" in args.lists:
            correct["edits"] = stack.enter_context(corrector(args.edits, args.jobs, args.budget))
        if {"functional", "layers"} & set(args.lists):
            _import_frameworks()
            correct |= {name: functools.partial(patched, name=name, budget=args.budget) for name in ("functional", "layers")}
        rows = run(chosen, file, args.resume, correct)
    print(f"\n{table(rows)}\nresults: {args.result_dir / 'patches.jsonl'}")
    return 0 if sum(row.verified for row in rows) >= ENOUGH * len(rows) else 1


def _import_frameworks() -> None:
    """Once, before anything is forked."""
    import matplotlib.pyplot  # noqa: F401
    import paddle  # noqa: F401
    import torch  # noqa: F401

    import alignment.audit.command
    import alignment.localize  # noqa: F401
