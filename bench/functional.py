"""Mistakes between the layers: each is an edit of the port's source, to be named by its line; right rewrites must not be named."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment.faults import Edit, Edits, Rewrite, SourceFault
from alignment.frameworks.base import Module
from alignment.localize import Finding, localize
from alignment.project import ModelSpec, Project, import_file
from bench.edited import edited
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

SAMPLES = 2


@dataclass
class Outcome:
    """What was said of one edit of the port.

    Attributes:
        name: of the fault, with those of rewrites beside it.
        found: the finding; None where the port agrees.
        line: of the source that was edited, ``port.py:31``.
        kinds: what it may be called.
    """

    name: str
    found: Finding | None
    line: str
    kinds: Sequence[str]

    @property
    def by_line(self) -> bool:
        """Whether the right line is named, or three lines at most between which it lies."""
        if self.found is None or not self.found.source:
            return False
        (file, _, lines), (own, _, line) = self.found.source.partition(":"), self.line.partition(":")
        first, _, last = lines.partition("-")
        return file == own and int(first) <= int(line) <= int(last or first) <= int(first) + 2

    @property
    def named(self) -> bool:
        """Whether the mistake is called what it is, too."""
        return self.by_line and self.found is not None and str(self.found.kind) in self.kinds

    @property
    def false(self) -> bool:
        """Whether another line is named."""
        return self.found is not None and bool(self.found.source) and not self.by_line

    def line_of_text(self) -> str:
        """The outcome in one line."""
        verdict = "named" if self.named else "by line" if self.by_line else "FALSE LINE" if self.false else "no line"
        said = f"{self.found.kind or 'no kind'}: {self.found.hint or 'no hint'}" if self.found else "agrees"
        return f"{self.name}: {verdict if self.kinds else 'passes' if self.found is None else 'ALARM'}: {said}"


def inputs_of(spec: ModelSpec) -> tuple[np.ndarray, ...]:
    """Random arrays for a model."""
    rng = np.random.default_rng(0)
    if spec.inputs is not None:
        return spec.inputs(SAMPLES, spec.input_shape, rng)
    return (rng.standard_normal((SAMPLES, *spec.input_shape)),)


class Bench:
    """A project whose edits are tried on its models one by one, in memory.

    Args:
        file: the project's.
        project: which it defines.
        folder: for edited sources.
    """

    def __init__(self, file: Path, project: Project, folder: Path) -> None:
        self.root, self.project, self.folder = file.resolve().parent, project, folder
        self._count = 0

    def model_of(self, edit: Edit) -> str:
        """The model in whose class an edit lies.

        Raises:
            UserError: it lies in no class that is a model of the project, or does not fit the source.
        """
        edited(self.root, [edit])
        before = (self.root / edit.file).read_text(encoding="utf-8").partition(edit.old)[0]
        name = before.rpartition("\nclass ")[2].partition("(")[0]
        if name not in self.project.models:
            raise UserError(f"{edit.file}: {edit.old!r} lies in no class that is a model of {self.project.name}")
        return name

    def line_of(self, edits: Sequence[Edit]) -> str:
        """The first line that the first of some edits changes, where all are made."""
        first = edits[0]
        text = edited(self.root, edits)[first.file].splitlines()
        without = edited(self.root, edits[1:]).get(first.file) or (self.root / first.file).read_text(encoding="utf-8")
        pairs = enumerate(zip(text, without.splitlines(), strict=False), 1)
        return f"{first.file}:{next(number for number, (a, b) in pairs if a != b)}"

    def found(self, name: str, edits: Sequence[Edit]) -> Finding | None:
        """What localisation says of a model whose source is edited."""
        spec = self.project.models[name]
        np.random.seed(0)
        for side in (self.project.port, self.project.reference):
            side.framework.seed(0)
        reference = spec.reference(**spec.options)
        return localize(self._port(name, edits), reference, inputs_of(spec), weights=False, backward=False).first

    def _port(self, name: str, edits: Sequence[Edit]) -> Module:
        texts = edited(self.root, edits)
        if not texts:
            spec = self.project.models[name]
            return spec.port(**spec.options)
        self._count += 1
        folder = self.folder / f"edit{self._count}"
        folder.mkdir(parents=True)
        ((file, text),) = texts.items()
        (folder / file).write_text(text, encoding="utf-8")
        module = import_file(folder / file)
        try:
            return getattr(module, name)(**self.project.models[name].options)
        finally:
            sys.modules.pop(module.__name__, None)


def run_all(
    file: Path,
    project: Project,
    known: Edits,
    names: Sequence[str] | None = None,
    said: Callable[[str], Any] = print,
    beside: bool = True,
) -> list[Outcome]:
    """Every fault alone and beside each rewrite of the same model, then every rewrite.

    Args:
        file: of the project.
        project: which it defines.
        known: its edits.
        names: of the faults and rewrites; None for all.
        said: is given the outcome of each in one line.
        beside: whether faults are tried beside rewrites, too.
    """
    outcomes: list[Outcome] = []

    def add(outcome: Outcome) -> None:
        outcomes.append(outcome)
        said(outcome.line_of_text())

    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(file, project, Path(folder))
        for fault in chosen(known.faults, names):
            add(_of_fault(bench, fault, ()))
            for rewrite in known.rewrites.values() if beside else ():
                if bench.model_of(rewrite.edits[0]) == fault.area and _fit(bench, fault, rewrite):
                    add(_of_fault(bench, fault, rewrite.edits, f" beside {rewrite.name}"))
        for rewrite in chosen(known.rewrites, names):
            found = bench.found(bench.model_of(rewrite.edits[0]), rewrite.edits)
            add(Outcome(rewrite.name, found, bench.line_of(rewrite.edits), ()))
    return outcomes


def chosen(known: dict[str, Any], names: Sequence[str] | None) -> list[Any]:
    """Those of some faults or rewrites that are asked for."""
    return [one for name, one in known.items() if names is None or name in names]


def _of_fault(bench: Bench, fault: SourceFault, more: Sequence[Edit], words: str = "") -> Outcome:
    edits = (*fault.edits, *more)
    return Outcome(fault.name + words, bench.found(fault.area, edits), bench.line_of(edits), fault.hint.split("|"))


def _fit(bench: Bench, fault: SourceFault, rewrite: Rewrite) -> bool:
    """Whether both can be made at once."""
    try:
        edited(bench.root, (*fault.edits, *rewrite.edits))
    except UserError:
        return False
    return True


def summary(outcomes: Sequence[Outcome]) -> str:
    """The counts in words."""
    alone = [one for one in outcomes if one.kinds and " beside " not in one.name]
    beside = [one for one in outcomes if " beside " in one.name]
    sound = [one for one in outcomes if not one.kinds]
    alarms = [one for one in sound if one.found is not None]
    lines = [
        f"{len(alone)} faults: {sum(one.found is not None for one in alone)} detected, "
        f"{sum(one.by_line for one in alone)} named by line, {sum(one.named for one in alone)} called what they are, "
        f"{sum(one.false for one in alone)} false lines"
    ]
    if beside:
        lines.append(
            f"{len(beside)} faults beside a rewrite: {sum(one.by_line for one in beside)} named by line, "
            f"{sum(one.false for one in beside)} false lines"
        )
    lines.append(f"{len(sound)} rewrites: {len(alarms)} alarms")
    return "\n".join(lines)


def enough(outcomes: Sequence[Outcome]) -> bool:
    """Whether all faults are detected, 95 % of them named by line, no other line ever, and no rewrite blamed."""
    alone = [one for one in outcomes if one.kinds and " beside " not in one.name]
    detected = all(one.found is not None for one in outcomes if one.kinds)
    silent = all(one.found is None for one in outcomes if not one.kinds)
    return detected and silent and not any(one.false for one in outcomes) and sum(o.by_line for o in alone) >= 0.95 * len(alone)


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """The outcomes as JSON."""
    rows = [
        {
            "name": one.name,
            "line": one.line,
            "found": one.found and vars(one.found),
            "by_line": one.by_line,
            "named": one.named,
        }
        for one in outcomes
    ]
    with atomic_open(path, "w") as out:
        json.dump(rows, out, indent=1)
        out.write("\n")


def run(file: Path, project: Project, known: Edits, name: str | None, result_dir: Path) -> int:
    """``bench --functional-faults``: 0 where enough faults are named by line, and nothing that is right is blamed.

    Raises:
        UserError: the project lists no edits, or none of that name.
    """
    if not known.faults:
        raise UserError(f"{project.name} lists no edits of its source; use projects/functional/project.py")
    if name is not None and name not in known.faults and name not in known.rewrites:
        raise UserError(f"--inject {name}: no such fault or rewrite of {project.name}")
    outcomes = run_all(file, project, known, None if name is None else [name])
    write(result_dir / "functional_faults.json", outcomes)
    print(f"\n{summary(outcomes)}\nresults: {result_dir / 'functional_faults.json'}")
    return 0 if enough(outcomes) else 1
