"""What a child of the fork server does: run steps of a project, as the command would, and say what came out."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from alignment.audit.fixes import fixes_of
from alignment.comparisons import STEPS, lacks, run_step
from alignment.comparisons.checked import check
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.ranks import ranks
from alignment.finding import Finding
from alignment.project import PARTS, Project, load_project
from alignment.repair.candidates import Candidate
from alignment.repair.search import likely
from bench.kept_weights import kept_state, state_file
from mobilenetv3_common.errors import UserError

RANKS = 2  # processes of the step that trains on several


def main(call: dict[str, Any]) -> None:
    """Write what ``run`` would say of a project to a file.

    Args:
        call: ``project`` (its file), ``steps``, ``out`` (a file for the result), ``weights`` (a folder in which the reference's
            weights are kept), ``localize``, ``in_haste`` (a step ends where something has failed), ``suspect`` (a row that is
            compared early then), ``port_alone`` (nothing that the reference runs is edited, so that its training runs may be kept,
            too), ``others`` (models besides the first, on which step 1 is run too), ``seed``, ``repair`` (packages and files in
            which a correction may be looked for), ``changes`` (nothing, or what ``bench.trials.main`` is to try), and ``about``,
            to say besides what the project is made of.

    The result has ``status`` (the command's exit status), ``step`` (the first that failed), ``problem``,
    ``seconds`` of each step, ``not_run`` (why a step, or a part of it, was not run), ``finding`` and ``candidates``. It is written
    before localisation begins, and again after it.
    """
    if call["changes"]:
        from bench import trials  # it takes long, and is seldom needed

        trials.main(call)
        return
    start = time.monotonic()
    found: dict[str, Any] = {"status": 0, "step": None, "problem": "", "seconds": {}, "not_run": {}, "finding": None}
    found["candidates"] = []
    try:
        project = load_project(call["project"])
        first = next(iter(project.models))
        kept = Path(call["weights"]) if call["port_alone"] else None
        settings = {"in_haste": call["in_haste"], "seed": call["seed"], "suspect": call["suspect"]}
        context = _context(project, first, Path(call["weights"]), kept=kept, **settings)
        steps = [number for number in call["steps"] or sorted(STEPS) if not _lacks(number, context)]
        runs = [(first, number) for number in steps]
        if 1 in steps:
            place = steps.index(1) + 1
            runs[place:place] = [(model, 1) for model in call["others"]]
        for model, number in runs:
            at = context if model == first else _context(project, model, Path(call["weights"]), **settings)
            result = ranks.run(at, Path(call["project"]), RANKS) if number == ranks.NUMBER else run_step(number, at)
            name = str(number) if model == first else f"{number} {model}"
            found["seconds"][name] = round(result.seconds, 2)
            if result.not_run:
                found["not_run"][name] = result.not_run
            if result.failed:
                wrong = next((q for q in result.quantities if not q.passed), None)
                problem = f"{wrong.name}: {wrong.reason}" if wrong else (result.problems or ["nothing was compared"])[0]
                found |= {"status": 1, "step": number, "problem": problem if model == first else f"{model}: {problem}"}
                _write(call["out"], found)
                if call["localize"]:
                    finding = locate(at, [result], with_table=False).first
                    found["finding"] = asdict(finding) if finding else None
                    if finding and call["repair"]:
                        found["candidates"] = _candidates(at, finding, call)
                break
        if call["about"] and found["status"] == 0:
            found |= about(project)
            if call["every_model"] and 1 in steps:
                found["others"] = _that_pass(project, Path(call["weights"]))
    except UserError as error:
        found |= {"status": 2, "problem": error.line}
    found["total"] = round(time.monotonic() - start, 2)
    _write(call["out"], found)


def _candidates(context: Context, finding: Finding, call: dict[str, Any]) -> list[tuple[str, list[tuple[str, int, int, str]]]]:
    """Corrections to be tried: what made each, and its edits, with files as they are called in the project's folder."""
    root = Path.cwd().resolve()  # the copy
    wanted = [root / name for name in call["repair"]]
    allowed = lambda file: any(file.is_relative_to(one) for one in wanted)  # noqa: E731
    known = [Candidate("settings", fix) for fix in fixes_of(context, [finding])[0] if fix and all(allowed(e.file) for e in fix)]
    made = [*known, *likely(context, finding, sources=allowed)]
    return [(one.kind, [(str(e.file.relative_to(root)), e.start, e.end, e.text) for e in one.fix]) for one in made]


def _lacks(number: int, context: Context) -> str:
    """Why a step cannot run on a project; ``""`` where it can."""
    return ranks.lacks_ranks(context) if number == ranks.NUMBER else lacks(number, context)


def _that_pass(project: Project, weights: Path) -> list[str]:
    """Models besides the first that pass step 1."""
    return [model for model in list(project.models)[1:] if run_step(1, _context(project, model, weights)).passed]


def _context(project: Project, model: str, weights: Path, **settings: Any) -> Context:
    """A context with the kept weights of the reference; they do not depend on an edit of the port."""
    state = kept_state(weights, model, settings.get("seed", 0))
    context = Context(project, model, given_state=state, **settings)
    check(context)
    if state is None:
        np.savez(state_file(weights, model, settings.get("seed", 0)), **context.material.weights.state)  # type: ignore[arg-type]
    return context


def about(project: Project) -> dict[str, Any]:
    """Which modules the project's parts and port are, and which files were imported: its own by name, the others' modules."""
    parts = {part: getattr(getattr(project.port, part), "__name__", "") for part in PARTS}
    builders = [getattr(spec.port, "__module__", "") for spec in project.models.values()]
    theirs = [getattr(getattr(project.reference, part), "__name__", "") for part in PARTS]
    theirs += [getattr(spec.reference, "__module__", "") for spec in project.models.values()]
    files = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    stdlib, packages = sysconfig.get_paths()["stdlib"], ("site-packages", "dist-packages")
    ours, others = [], []
    for name, file in files:
        if file is None or not os.path.isabs(file):
            continue
        if any(part in packages for part in Path(file).parts):
            others.append(name)
        elif not file.startswith(stdlib):
            ours.append(file)
    return {"parts": parts, "builders": builders, "reference": theirs, "files": ours, "modules": others}


def _write(path: str, found: dict[str, Any]) -> None:
    Path(f"{path}.new").write_text(json.dumps(found))
    os.replace(f"{path}.new", path)
