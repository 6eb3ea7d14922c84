"""How much of a port do the steps see? Mutants of its source, and what became of each.

A mutant is killed where a step fails and survives where none does. A person may declare one equivalent, in
``equivalent_mutants.yaml`` beside the project's file, with the reason; it is then not run and does not count:

    - file: net/model.py
      in: Net.forward             # class and function; "" at the module's level
      line: "x = x.reshape([-1])" # as it stands in the source, without its indentation
      change: "-1 -> 1"           # as the report words it
      number: 1                   # where the same change is possible more than once in such lines (default: 1)
      reason: the batch has one sample there
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from alignment.project import load_project
from bench.attempt import about
from bench.edited import Attempt, Task, Workshop, make_copy, root_of
from bench.mutation import Mutation, drawn, mutations
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.yaml_file import read_yaml, value_of

EQUIVALENT = "equivalent_mutants.yaml"
FIELDS = {"file", "in", "line", "change", "number", "reason"}
ALL_STEPS = (1, 2, 3, 4, 5, 6, 7)
PART_STEPS = {"data": (2,), "metric": (3, 7), "loss": (4,), "train": (5, 7, 6)}  # 7: on two ranks, quicker than 6
MODEL_STEPS = (1, 5, 7, 6)
OUTCOMES = {"failed": "killed", "passed": "survived", "timed out": "timed out", "refused": "stopped", "raised": "stopped"}
SUITE_LIMIT = 1800  # seconds


@dataclass
class Mutant:
    """One mutation and what became of it.

    Attributes:
        package: as it was asked for.
        outcome: ``"killed"`` (a step failed), ``"survived"``, ``"timed out"``, ``"stopped"`` (the command refused the port, or
            broke off, without a verdict), ``"equivalent"`` or ``"killed by the suite"``.
        step: that killed it.
        finding: what localisation said of it; None where it was not asked for.
        problem: what failed first, or why there is no verdict.
        reason: why it is equivalent.
        seconds: wall time.
    """

    package: str
    mutation: Mutation
    outcome: str
    step: int | None = None
    finding: dict[str, Any] | None = None
    problem: str = ""
    reason: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {"key": self.mutation.key} | asdict(self)

    @classmethod
    def of_json(cls, row: dict[str, Any]) -> Mutant:
        fields = {name: value for name, value in row.items() if name != "key"}
        return cls(**{**fields, "mutation": Mutation(**row["mutation"])})

    def line(self) -> str:
        """One line for a person."""
        m = self.mutation
        what = f"{self.finding['location']} [{self.finding['kind'] or 'no hint'}]" if self.finding else self.problem
        if self.step is not None:
            what = f"step {self.step}: {what}"
        return f"{m.file}:{m.line}: {m.operator}: {m.change}: {self.outcome}" + (
            f" ({self.reason or what})" if self.reason or what else ""
        )


def sources_of(root: Path, package: str) -> dict[str, str]:
    """The Python files of a package, a module or a folder, by name.

    Raises:
        UserError: there is none.
    """
    place = root.joinpath(*package.split(".")) if "/" not in package and not package.endswith(".py") else root / package
    module = place.with_name(f"{place.name}.py")
    files = [place] if place.suffix == ".py" and place.is_file() else [module] if module.is_file() else sorted(place.rglob("*.py"))
    if not files:
        raise UserError(f"--mutants {package}: there is no such package or module below {root}")
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


@dataclass(frozen=True)
class Sample:
    """Which mutants to make, and what to run on them.

    Attributes:
        packages: of the project, each a package, a module or a file.
        count: mutants in all, an equal share of each package.
        seed: which ones.
        steps: of the guide; those that could see each where there are none.
        suite: a command that survivors have to pass, too; none where empty.
        localize: locate each mutant that a step kills, which takes about as long as the step.
    """

    packages: Sequence[str]
    count: int
    seed: int
    steps: Sequence[int] = ()
    suite: str = ""
    localize: bool = False


def chosen_of(root: Path, sample: Sample) -> list[tuple[str, Mutation]]:
    """The mutations that a sample draws, one of each package in turn: a run that is cut short has seen as much of each."""
    share = -(-sample.count // len(sample.packages))
    shares: list[list[tuple[str, Mutation]]] = []
    for package in sample.packages:
        sources = sources_of(root, package)
        found = [m for file, source in sources.items() for m in mutations(file, source)]
        shares.append([(package, m) for m in drawn(found, sources, share, sample.seed)])
    return [one for row in itertools.zip_longest(*shares) for one in row if one is not None]


def equivalents(root: Path, project: Path) -> dict[str, str]:
    """Key of each mutation that is declared equivalent -> the reason.

    Raises:
        UserError: the file is not of the form above, or names a mutation that the source does not have (any more).
    """
    file = project.with_name(EQUIVALENT)
    if not file.is_file():
        return {}
    rows = value_of(read_yaml(file, str(file)), str(file)) or []
    reasons: dict[str, str] = {}
    known: dict[str, set[str]] = {}
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not {"file", "line", "change", "reason"} <= row.keys() <= FIELDS:
            raise UserError(f"{file}: entry {number} needs file, line, change and reason, and may have in and number")
        if not (root / row["file"]).is_file():
            raise UserError(f"{file}: entry {number}: there is no file {row['file']}")
        key = " | ".join([row["file"], row.get("in") or "", row["line"].strip(), row["change"], str(row.get("number", 1))])
        if row["file"] not in known:
            known[row["file"]] = {m.key for m in mutations(row["file"], (root / row["file"]).read_text(encoding="utf-8"))}
        if key not in known[row["file"]]:
            raise UserError(
                f"{file}: entry {number}: {row['file']} has no mutation {row['change']!r} in {row['line']!r}: has it changed?"
            )
        reasons[key] = str(row["reason"])
    return reasons


def steps_for(package: str, parts: dict[str, str], builders: Sequence[str]) -> tuple[int, ...]:
    """The steps that could see a mutant of a package, the cheapest first.

    Args:
        package: as it was asked for.
        parts: part -> name of the port's module.
        builders: modules of the functions that build the port's models.
    """
    name = package.removesuffix(".py").replace("/", ".")

    def within(module: str) -> bool:
        return bool(module) and (module == name or module.startswith(f"{name}.") or name.startswith(f"{module}."))

    for part, steps in PART_STEPS.items():
        if within(parts.get(part, "")):
            several = [p for p in PART_STEPS if within(parts.get(p, ""))]
            return steps if len(several) == 1 else ALL_STEPS
    return MODEL_STEPS if any(within(builder) for builder in builders) else ALL_STEPS


class Log:
    """What became of each mutant, one a line as JSON, written as it becomes known.

    Args:
        file: the log.
        resume: keep what it has.
    """

    def __init__(self, file: Path, resume: bool) -> None:
        self.file = file
        self.done: dict[str, Mutant] = {}
        if resume and file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:  # cut short where the earlier run was killed
                    continue
                self.done[row["key"]] = Mutant.of_json(row)
        with atomic_open(file, "w") as out:
            out.writelines(json.dumps(mutant.as_json()) + "\n" for mutant in self.done.values())

    def add(self, mutant: Mutant) -> None:
        self.done[mutant.mutation.key] = mutant
        with open(self.file, "a", encoding="utf-8") as out:
            out.write(json.dumps(mutant.as_json()) + "\n")


def run(project: Path, sample: Sample, log: Log, jobs: int = 2, say: Callable[[str], None] = print) -> list[Mutant]:
    """Make mutants and run what could see each.

    Args:
        project: the project's file.
        sample: which ones.
        log: takes each; those that it has already are not run again.
        jobs: attempts at a time.
        say: takes each line of progress.

    Returns:
        The mutants, in the order of packages and files.

    Raises:
        UserError: there is no such package, or the sound project does not pass.
    """
    root = root_of(project)
    chosen = chosen_of(root, sample)
    reasons = equivalents(root, project)
    for package, mutation in chosen:
        if mutation.key in reasons:
            log.add(Mutant(package, mutation, "equivalent", reason=reasons[mutation.key]))
        elif mutation.key in log.done and log.done[mutation.key].outcome == "equivalent":
            del log.done[mutation.key]  # declared so in an earlier run, and no more
    missing = {m.key: (package, m) for package, m in chosen if m.key not in log.done}
    say(f"{len(chosen)} mutants of {counted(len(sample.packages), 'package')}, {len(chosen) - len(missing)} of them known")
    if missing:
        made = about(load_project(project))
        steps = {name: sample.steps or steps_for(name, made["parts"], made["builders"]) for name in sample.packages}
        needed = sorted({step for package, _ in missing.values() for step in steps[package]})
        with Workshop(project, needed, jobs, every_model=True, localize=sample.localize) as workshop:
            say(f"the sound project passes in {workshop.sound.seconds:.0f} s")
            tasks = (_task(root, m, steps[package]) for package, m in missing.values())
            for number, (task, attempt) in enumerate(workshop.run(tasks), start=1):
                mutant = _judged(*missing[task.key], attempt)
                log.add(mutant)
                say(f"{number:4}/{len(missing)} {mutant.line()}")
    found = [replace(log.done[m.key], package=package, mutation=m) for package, m in chosen]
    for mutant in found:
        if sample.suite and mutant.outcome == "survived" and not survives_suite(root, mutant.mutation, sample.suite):
            mutant.outcome = "killed by the suite"
            log.add(mutant)
            say(mutant.line())
    return found


def _task(root: Path, mutation: Mutation, steps: Sequence[int]) -> Task:
    source = (root / mutation.file).read_text(encoding="utf-8")
    return Task(mutation.key, {mutation.file: mutation.applied(source)}, steps)


def _judged(package: str, mutation: Mutation, attempt: Attempt) -> Mutant:
    outcome = OUTCOMES[attempt.outcome]
    return Mutant(package, mutation, outcome, attempt.step, attempt.finding, attempt.problem, seconds=attempt.seconds)


def survives_suite(root: Path, mutation: Mutation, command: str) -> bool:
    """Whether a command succeeds in a copy of the whole project with a mutation; one that takes half an hour does not."""
    own = [e.name for e in root.iterdir() if e.name[0] != "." and (e.suffix == ".py" or (e.is_dir() and any(e.rglob("*.py"))))]
    words = [sys.executable if word in ("python", "python3") else word for word in shlex.split(command)]
    with tempfile.TemporaryDirectory(prefix="edited-") as above:
        folder = Path(above) / root.name
        make_copy(root, folder, own, {mutation.file: mutation.applied((root / mutation.file).read_text(encoding="utf-8"))})
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(folder)}
        try:
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, timeout=SUITE_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


# --- report ----------------------------------------------------------------------------------------------------------------

KINDS = ("killed", "killed by the suite", "survived", "timed out", "stopped", "equivalent")


@dataclass
class Score:
    """Counts of one package, or of all.

    Attributes:
        counts: of each of ``KINDS``.
    """

    name: str
    counts: dict[str, int]

    @classmethod
    def of(cls, name: str, mutants: Iterable[Mutant]) -> Score:
        outcomes = [mutant.outcome for mutant in mutants]
        return cls(name, {kind: outcomes.count(kind) for kind in KINDS})

    @property
    def judged(self) -> int:
        """Mutants that are not equivalent."""
        return sum(self.counts.values()) - self.counts["equivalent"]

    @property
    def steps(self) -> float | None:
        """Share of those that a step killed, or that hung."""
        return (self.counts["killed"] + self.counts["timed out"]) / self.judged if self.judged else None

    @property
    def noticed(self) -> float | None:
        """Share of those that anybody notices: survivors left out."""
        return (self.judged - self.counts["survived"]) / self.judged if self.judged else None

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.counts, "score": self.steps, "noticed": self.noticed}


def scores(mutants: Sequence[Mutant]) -> list[Score]:
    """Of each package, and of all."""
    packages = dict.fromkeys(mutant.package for mutant in mutants)
    return [*(Score.of(p, [m for m in mutants if m.package == p]) for p in packages), Score.of("all", mutants)]


def table(mutants: Sequence[Mutant]) -> str:
    """One row a package, and every survivor by file and line."""
    percent = lambda share: "-" if share is None else f"{100 * share:.0f} %"  # noqa: E731
    head = f"{'package':32} {'killed':>6} {'by suite':>8} {'survived':>8} {'timed out':>9} {'stopped':>7} {'equivalent':>10}"
    lines = [f"{head} {'score':>6} {'noticed':>7}"]
    for score in scores(mutants):
        c = score.counts
        lines.append(
            f"{score.name:32} {c['killed']:6} {c['killed by the suite']:8} {c['survived']:8} {c['timed out']:9} {c['stopped']:7} "
            f"{c['equivalent']:10} {percent(score.steps):>6} {percent(score.noticed):>7}"
        )
    lines.append("score: killed by a step or timed out, of those that are not equivalent; noticed: all but the survivors")
    survivors = [m for m in mutants if m.outcome == "survived"]
    if survivors:
        lines += ["", f"survivors ({len(survivors)}):"]
        lines += [
            f"  {m.mutation.file}:{m.mutation.line}: {m.mutation.operator}: {m.mutation.change}" for m in _in_order(survivors)
        ]
    return "\n".join(lines)


def _in_order(mutants: Iterable[Mutant]) -> list[Mutant]:
    return sorted(mutants, key=lambda m: (m.mutation.file, m.mutation.start))


def write(file: Path, mutants: Sequence[Mutant], about: dict[str, Any]) -> None:
    """Scores and mutants as JSON."""
    content = {
        "about": about,
        "scores": [s.as_json() for s in scores(mutants)],
        "mutants": [m.as_json() for m in _in_order(mutants)],
    }
    with atomic_open(file, "w") as out:
        json.dump(content, out, indent=1)
        out.write("\n")
