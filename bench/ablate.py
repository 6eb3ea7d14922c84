"""``python -m bench ablate``: is every hypothesis held by a test? They are removed one at a time, and the fast tests run without.

A hypothesis whose removal fails no test has survived: nobody would notice if it broke. It is deleted, or gets its test.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import alignment.comparisons
import alignment.localize.hypotheses
from alignment.flags import shown
from alignment.localize.hypotheses.hypothesis import FAMILIES, Family
from bench.flags import ablate_parser
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import ensure_writable_dir

ROOT = Path(__file__).resolve().parents[1]
TESTS = "test_hypotheses*.py"  # they take seconds; only those of attention need a framework
FAILED = 1  # pytest's exit status
SECONDS = 300  # for the tests of one family


@dataclass(frozen=True)
class Removed:
    """What became of the tests without one hypothesis.

    Attributes:
        family, name: of the hypothesis.
        outcome: ``"noticed"`` (a test failed), ``"survived"``, ``"untested"`` (no test file imports the family), or ``"error"``.
        seconds: that the tests took.
    """

    family: str
    name: str
    outcome: str
    seconds: float = 0.0


def load() -> None:
    """Import every module that may register hypotheses."""
    for package in (alignment.localize.hypotheses, alignment.comparisons):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def _modules_of(family: Family) -> set[str]:
    """The modules that know a family by a name: where its hypotheses are no functions of their own."""
    own = [module for name, module in list(sys.modules.items()) if name.startswith("alignment.")]
    return {module.__name__ for module in own if any(value is family for value in vars(module).values())}


def tests_of(family: Family) -> list[str]:
    """The test files that import a module in which the family, or a hypothesis of it, stands."""
    modules = {maker.__module__ for maker in family.makers.values()} - {Family.__module__} or _modules_of(family)
    names = [*modules, *(f"{module.rpartition('.')[0]} import {module.rpartition('.')[2]}" for module in modules)]
    files = sorted((ROOT / "tests").glob(TESTS))
    return [str(file.relative_to(ROOT)) for file in files if any(name in file.read_text(encoding="utf-8") for name in names)]


def _run(family: str, name: str, files: Sequence[str]) -> Removed:
    start = time.perf_counter()
    if not files:
        return Removed(family, name, "untested")
    command = [sys.executable, "-m", "bench.ablated", family, name, *files]
    try:
        status = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        status = -1
    outcome = {0: "survived", FAILED: "noticed"}.get(status, "error")
    return Removed(family, name, outcome, round(time.perf_counter() - start, 2))


def _digest() -> str:
    """Of the engine's source and the tests: outcomes of another one say nothing."""
    files = sorted([*(ROOT / "alignment").rglob("*.py"), *(ROOT / "tests").glob(TESTS)])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class Log:
    """``ablate.jsonl``: the source's digest, then one line a hypothesis, as it goes."""

    def __init__(self, path: Path, resume: bool) -> None:
        self.path, self.known = path, dict[tuple[str, str], Removed]()
        lines = path.read_text(encoding="utf-8").splitlines() if resume and path.is_file() else []
        if lines and _parsed(lines[0]).get("source") == _digest():
            found = (_parsed(line) for line in lines[1:])
            self.known = {(one["family"], one["name"]): Removed(**one) for one in found if one}
        elif lines:
            print(f"{shown(path)} is of other source files: starting over")
        with path.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in ({"source": _digest()}, *map(asdict, self.known.values())))

    def add(self, one: Removed) -> None:
        """Write one outcome."""
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(one)) + "\n")


def _parsed(line: str) -> dict:
    """A line of the log; empty where it was cut off."""
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return {}


def _outcomes(families: Sequence[Family], log: Log, jobs: int) -> Iterator[Removed]:
    """Every hypothesis of some families, in order."""
    chosen = [(family, name) for family in families for name in family.makers]

    def outcome(one: tuple[Family, str]) -> Removed:
        family, name = one
        if (family.name, name) in log.known:
            return log.known[family.name, name]
        removed = _run(family.name, name, tests_of(family))
        log.add(removed)
        return removed

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(outcome, chosen)


def ablate(argv: Sequence[str]) -> int:
    """Run the command; returns 0 where no hypothesis survived.

    Raises:
        UserError: no such family, no tests beside the package, or the tests fail with every hypothesis in place.
    """
    args = ablate_parser().parse_args(argv)
    if args.jobs < 1:
        raise UserError(f"--jobs must be at least 1, found {args.jobs}")
    load()
    for name in args.families:
        if name not in FAMILIES:
            raise UserError(f"no family of hypotheses is called {name}; there are {', '.join(sorted(FAMILIES))}")
    families = [FAMILIES[name] for name in dict.fromkeys(args.families or sorted(FAMILIES))]
    files = sorted({file for family in families for file in tests_of(family)})
    if not sorted((ROOT / "tests").glob(TESTS)):
        raise UserError(f"there are no tests/{TESTS} beside the package: run it in a checkout of the project")
    if files and _run(families[0].name, "", files).outcome != "survived":
        raise UserError(f"these tests fail with every hypothesis in place: run pytest {' '.join(files)}")
    ensure_writable_dir(args.result_dir)
    found, path = [], args.result_dir / "ablate.jsonl"
    for one in _outcomes(families, Log(path, args.resume), args.jobs):
        found.append(one)
        if one.outcome != "noticed":
            print(f"{one.outcome}: {one.family}: {one.name}", flush=True)
    counted = {outcome: sum(one.outcome == outcome for one in found) for outcome in ("noticed", "survived", "untested", "error")}
    print(f"{len(found)} hypotheses: " + ", ".join(f"{count} {outcome}" for outcome, count in counted.items()))
    print(f"results: {shown(path)}")
    return 0 if counted["noticed"] == len(found) else 1
