"""Mistakes that are edits of a project's source: which of them end with a verified patch?

The step that owes a mistake is run on a copy of the project and locates it. Candidates of a correction are made of what it found,
and each is tried by the same step on a copy of its own, which ends where something fails. The first that passes is written as a
diff, applied by ``git apply``, and verified by the whole step with other weights, inputs and sample order.

Files of the port and of the code that both sides share may be changed, and the project's file, which says how weights are loaded:
nothing that compares, tests or is the reference.
"""

from __future__ import annotations

import ast
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from alignment.faults import SourceFault
from alignment.repair.edits import Fix, SourceEdit, applied, diff
from bench.edited import Attempt, Task, Workshop, edited
from bench.patch_rows import Row

QUICKEST = 3  # the step that shows that the project as it is can be run
LIMIT = 1800.0  # seconds for one attempt
# Seconds of a processor for one trial, over which the change has made a network that is far too large, or a loop without an end:
# what is always granted, in which a whole step passes, and how many times as long as the step took with the mistake.
LEAST_TRIAL, TRIAL_FACTOR = 60.0, 3.0
CHECKS = {"alignment", "bench", "tests"}
SOURCE = "edits"


@contextlib.contextmanager
def corrector(file: Path, jobs: int, budget: float) -> Iterator[Callable[[SourceFault], Row]]:
    """A function that makes a mistake in a copy of a project, looks for its correction and verifies it.

    Args:
        file: the project's.
        jobs: candidates at a time, one thread each.
        budget: seconds for the search of one correction.
    """
    with Workshop(file, [QUICKEST], jobs, limit=LIMIT) as shop:
        yield lambda fault: corrected(shop, fault, budget)


def corrected(shop: Workshop, fault: SourceFault, budget: float) -> Row:
    """What came of one mistake."""
    start, row = time.monotonic(), Row(fault.name, fault.hint, SOURCE)
    changed = edited(shop.root, fault.edits)
    found = _one(shop, Task(fault.name, changed, [fault.step], repair=sources_of(shop)))
    if found.outcome != "failed" or found.finding is None:
        row.problem = f"the step {found.outcome}, nothing was located: {found.problem}"
    else:
        row.found = [f"{found.finding['location']}: {found.finding['kind']}"]
        with tempfile.TemporaryDirectory(prefix="patched-") as made, contextlib.chdir(made):
            _search(row, _Search(shop, fault, changed, Path(made).resolve(), found), budget)
    row.seconds = round(time.monotonic() - start, 1)
    return row


def sources_of(shop: Workshop) -> list[str]:
    """The packages of a project in which a correction may be, and the project's file."""
    here = shop.project.relative_to(shop.root)
    others = {name.partition(".")[0] for name in shop.theirs} | CHECKS | {here.parts[0]}
    return [*sorted(name for name in shop.own if name.removesuffix(".py") not in others), str(here)]


def _one(shop: Workshop, task: Task) -> Attempt:
    ((_, attempt),) = shop.run([task])
    return attempt


@dataclass(frozen=True)
class _Search:
    """One mistake: the files with it, which ``folder`` has once they are needed, and the candidates of its correction."""

    shop: Workshop
    fault: SourceFault
    changed: Mapping[str, str]
    folder: Path
    found: Attempt

    def fix(self, number: int) -> Fix:
        edits = self.found.candidates[number][1]
        return tuple(SourceEdit(self._file(name), start, end, text, 0) for name, start, end, text in edits)

    def _file(self, name: str) -> Path:
        file = self.folder / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.changed.get(name) or (self.shop.root / name).read_text(encoding="utf-8"), encoding="utf-8")
        return file

    def files(self, contents: Mapping[Path, bytes]) -> dict[str, str]:
        """All files that differ from the project's, where some of them become others."""
        return {**self.changed, **self._texts(contents)}

    def first(self, begin: int, budget: float) -> tuple[int | None, int]:
        """The first candidate from a number on with which the step passes, and how many were tried."""
        row = self.found.problem.partition(": ")[0]
        limit = LEAST_TRIAL + TRIAL_FACTOR * (sum(self.found.by_step.values()) or self.found.seconds)
        changes = [self._texts(applied([self.fix(number)])) for number in range(len(self.found.candidates))]
        task = Task("trials", self.changed, [self.fault.step], quick=True, suspect=row, limit=limit)
        return self.shop.first_right(task, changes, begin, budget)

    def _texts(self, contents: Mapping[Path, bytes]) -> dict[str, str]:
        return {str(file.relative_to(self.folder)): text.decode() for file, text in contents.items()}


def _search(row: Row, search: _Search, budget: float) -> None:
    """Look for a candidate with which the whole step passes with another seed, too; what passes trials alone is left."""
    end, begin, tried = time.monotonic() + budget, 0, 0
    while begin < len(search.found.candidates):
        number, more = search.first(begin, max(end - time.monotonic(), 0.0))
        tried += more
        if number is None:
            break
        _verify(row, search, number)
        if row.verified or time.monotonic() > end:
            return
        begin = number + 1
    row.problem = row.problem or f"{tried} of {len(search.found.candidates)} candidates tried"


def _verify(row: Row, search: _Search, number: int) -> None:
    """Write a candidate as a patch, apply that as a person would, and run the whole step with another seed."""
    fix = search.fix(number)
    before = {edit.file: edit.file.read_bytes() for edit in fix}
    row.written, row.by, row.patch = True, search.found.candidates[number][0], diff([fix])
    (search.folder / "fix.diff").write_text(row.patch, encoding="utf-8")
    done = subprocess.run(["git", "apply", "fix.diff"], capture_output=True, text=True, check=False)
    row.applies, row.problem = done.returncode == 0, done.stderr.strip()
    if row.applies:
        after = search.files({edit.file: edit.file.read_bytes() for edit in fix})
        again = _one(search.shop, Task("again", after, [search.fault.step], seed=1))
        row.verified = again.outcome == "passed"
        row.restored = all(_same(text, search.shop.root / name) for name, text in after.items())
        row.problem = "" if row.verified else f"still wrong: {again.outcome}: {again.problem}"
    if not row.verified:
        for file, content in before.items():
            file.write_bytes(content)


def _same(text: str, file: Path) -> bool:
    return ast.dump(ast.parse(text)) == ast.dump(ast.parse(file.read_text(encoding="utf-8")))
