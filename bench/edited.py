"""Steps on an edited copy of a project's source, as a user runs them: building, loading and conversion are under test too.

The project's own packages (those below its folder that its file imports, the engine's among them where it lies there) are copied
and edited; what else lies in the folder is linked. A child, forked from a process that has imported the frameworks alone, puts
the copy first on its path and runs the steps. A crash, a hang and a refusal are outcomes like any other.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from alignment.faults import Edit
from mobilenetv3_common.counted import numbered
from mobilenetv3_common.errors import UserError

SERVER = Path(__file__).with_name("fork_server.py")
ENGINE = Path(__file__).resolve().parents[1]
LEAST_LIMIT = 120.0  # seconds: a step that fails is localised besides, which the sound port's time does not show
LIMIT_FACTOR = 3.0


def edited(root: Path, edits: Iterable[Edit]) -> dict[str, str]:
    """The texts of the files that some edits change, by name.

    Raises:
        UserError: a file is not there, or a text does not occur in it exactly once.
    """
    changed: dict[str, str] = {}
    for edit in edits:
        try:
            text = changed[edit.file] if edit.file in changed else (root / edit.file).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot read {root / edit.file}: {error.strerror}") from error
        count = text.count(edit.old)
        if count != 1:
            raise UserError(
                f"{edit.file}: {edit.old!r} occurs {count} times, expected once: the source has changed, or the edit is wrong"
            )
        changed[edit.file] = text.replace(edit.old, edit.new)
    return changed


def root_of(project: Path) -> Path:
    """The folder of a project: the one that holds its file, or the outermost package around it."""
    folder = project.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def make_copy(root: Path, folder: Path, own: Collection[str], changed: Mapping[str, str]) -> None:
    """A copy of a project's folder.

    Args:
        root: the project's folder.
        folder: the copy, which does not exist yet.
        own: names in ``root`` that are copied; the others are linked, Git's folder left out.
        changed: file -> its text in the copy.
    """
    folder.mkdir()
    for entry in root.iterdir():
        if entry.name in own:
            copy = shutil.copytree if entry.is_dir() else shutil.copy2
            copy(entry, folder / entry.name)
        elif entry.name not in (".git", "__pycache__"):
            (folder / entry.name).symlink_to(entry)
    for name, text in changed.items():
        file = folder / name
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
        file.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Task:
    """Steps to run on an edited copy.

    Attributes:
        key: what the caller knows it by.
        changed: file, relative to the project's folder -> its text.
        steps: in this order, until one fails; all that the project has where empty.
        seed: of fake data, weights and sample order.
        quick: end where something has failed, and locate nothing, whatever the workshop's other attempts do.
        suspect: name of a row that failed in an earlier attempt: what makes it is compared first where the attempt is quick.
        repair: packages and files in which a correction may be; candidates of it are wanted where there are any.
        limit: seconds for it; the workshop's where None.
    """

    key: str
    changed: Mapping[str, str]
    steps: Sequence[int] = ()
    seed: int = 0
    quick: bool = False
    suspect: str = ""
    repair: Sequence[str] = ()
    limit: float | None = None


@dataclass
class Attempt:
    """What came of it.

    Attributes:
        outcome: ``"passed"``, ``"failed"`` (a step failed), ``"refused"`` (exit status 2, or the steps left something out that they
            run on the sound project), ``"raised"`` (the command itself broke off, or was ended by a signal) or ``"timed out"``.
        status: exit status of the command; None where it was stopped at its time limit.
        step: the first that failed.
        finding: the fields of ``alignment.finding.Finding``; None where nothing was localised.
        problem: one line: what failed first, or why there is no verdict.
        seconds: wall time.
        by_step: of each step that was run.
        not_run: step -> why it was not run, or which part of it.
        candidates: of corrections, where they were asked for: what made each, and its edits (file, start, end in bytes, text).
    """

    outcome: str
    status: int | None = 0
    step: int | None = None
    finding: dict[str, Any] | None = None
    problem: str = ""
    seconds: float = 0.0
    by_step: dict[str, float] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    candidates: list[tuple[str, list[tuple[str, int, int, str]]]] = field(default_factory=list)


class Workshop:
    """Runs steps on edited copies of a project, some at a time; a context manager.

    Args:
        project: the project's file.
        steps: all that will be asked for: they are run on the sound project first, which must pass them.
        jobs: children at a time, each with one thread.
        every_model: run step 1 on the project's other models, too, as far as the sound port passes it.
        limit: seconds for one attempt; two minutes and three times what the sound project takes for its steps where None.
        localize: locate what makes a step fail.

    Attributes:
        root: the project's folder.
        parts: part -> name of the module that is the port's.
        builders: modules of the functions that build the port's models.
        theirs: modules of the reference's parts and models.
        sound: the attempt on the sound project.
    """

    def __init__(
        self,
        project: Path,
        steps: Sequence[int],
        jobs: int = 2,
        every_model: bool = False,
        limit: float | None = None,
        localize: bool = True,
    ) -> None:
        self.project, self.steps, self.jobs, self.every_model = project.resolve(), list(steps), jobs, every_model
        self.limit, self.localize = limit, localize
        self.others: list[str] = []
        self.root = root_of(project)
        self.parts: dict[str, str] = {}
        self.builders: list[str] = []
        self.theirs: list[str] = []
        self.own: set[str] = set()
        self.sound = Attempt("passed")
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Workshop:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edited-")))
            modules = self._look_at_sound_project()
            self._server = stack.enter_context(self._started(modules))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Attempt]]:
        """Each task with what came of it, in the order in which they end."""
        waiting = iter(tasks)
        running: dict[str, Task] = {}
        number = 0
        while True:
            while len(running) <= self.jobs and (task := next(waiting, None)) is not None:
                number += 1
                running[str(number)] = task
                self._submit(str(number), task)
            if not running:
                return
            assert self._server.stdout is not None
            answer = self._server.stdout.readline()
            if not answer:
                raise RuntimeError(f"the fork server ended: {_last_line(self.folder / 'server.log')}")
            said = json.loads(answer)
            name = said["id"]
            attempt = self._attempt(name, said)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            yield running.pop(name), attempt

    def first_right(self, task: Task, changes: Sequence[Mapping[str, str]], begin: int, budget: float) -> tuple[int | None, int]:
        """Which of several changes of one edited copy is the first with which its step passes, and how many were tried.

        The copy is imported once (``bench.trials``), which takes a small part of what an attempt for each takes.

        Args:
            task: the copy, its one step, the suspect, and the limit of each trial, in seconds of a processor.
            changes: files of the copy -> their texts.
            begin: number of the first to be tried.
            budget: seconds.
        """
        listed, name = self.folder / "changes.json", "changes"
        listed.write_text(json.dumps([dict(one) for one in changes]), encoding="utf-8")
        each = task.limit or self._limit(task.steps)
        of_port = {one.partition(".")[0] for one in (*self.parts.values(), *self.builders)}
        of_reference = {one.partition(".")[0] for one in self.theirs}
        touched = {file for one in changes for file in one}
        call = self._call(self.folder / name, name, task)
        call["limit"] = budget + 8 * each + LEAST_LIMIT
        call["call"] |= {
            "changes": str(listed),
            "port_packages": sorted(of_port - of_reference),
            "port_alone": self._edits_port_alone({*task.changed, *touched}),
            "begin": begin,
            "budget": budget,
            "each": each,
            "at_once": self.jobs,
        }
        make_copy(self.root, self.folder / name, self.own, task.changed)
        try:
            assert self._server.stdin is not None and self._server.stdout is not None
            self._server.stdin.write(json.dumps(call) + "\n")
            self._server.stdin.flush()
            if not self._server.stdout.readline():
                raise RuntimeError(f"the fork server ended: {_last_line(self.folder / 'server.log')}")
            out = self.folder / f"{name}.json"
            found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"right": None, "tried": 0}
            out.unlink(missing_ok=True)
            return found["right"], found["tried"]
        finally:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    # --- the processes -----------------------------------------------------------------------------------------------------

    def _edits_port_alone(self, changed: Iterable[str]) -> bool:
        """Whether files are of packages that are the port's and not the reference's."""
        port, reference = (
            {name.partition(".")[0] for name in names} for names in ([*self.parts.values(), *self.builders], self.theirs)
        )
        return {file.partition("/")[0].removesuffix(".py") for file in changed} <= port - reference

    def _call(self, root: Path, name: str, task: Task, about: bool = False) -> dict[str, Any]:
        steps, localize = task.steps or self.steps, self.localize and not task.quick
        return {
            "id": name,
            "path": [str(root), str(ENGINE)],
            "log": str(self.folder / f"{name}.log"),
            "limit": task.limit or self._limit(steps),
            "call": {
                "project": str(root / self.project.relative_to(self.root)),
                "steps": list(steps),
                "out": str(self.folder / f"{name}.json"),
                "weights": str(self.folder),
                "localize": localize and not about,
                "in_haste": not localize and not about,
                "suspect": task.suspect,
                "port_alone": about or self._edits_port_alone(task.changed),
                "seed": task.seed,
                "repair": list(task.repair),
                "changes": "",
                "others": self.others,
                "about": about,
                "every_model": self.every_model,
            },
        }

    def _limit(self, steps: Sequence[int]) -> float:
        """Seconds for an attempt of these steps."""
        taken = [seconds for step, seconds in self.sound.by_step.items() if not steps or int(step.split()[0]) in steps]
        return self.limit or LEAST_LIMIT + LIMIT_FACTOR * sum(taken)

    def _look_at_sound_project(self) -> list[str]:
        """Run the steps where the project is; returns the modules of other people that this imported.

        Raises:
            UserError: the project cannot be used, or does not pass.
        """
        start = time.monotonic()
        job = json.dumps(self._call(self.root, "sound", Task("sound", {}), about=True))
        with open(self.folder / "sound.log", "wb") as log:
            subprocess.run([sys.executable, str(SERVER), "--once", job], stdout=log, stderr=log, env=_one_thread(), check=False)
        self.sound = self._attempt("sound", {"status": 0, "seconds": time.monotonic() - start})
        if self.sound.outcome == "passed" and not self.sound.by_step:
            raise UserError(f"{self.project}: {numbered('step', self.steps)} cannot run on it")
        if self.sound.outcome != "passed":
            problem = self.sound.problem.replace("UserError: ", "")  # what is in it is no error of its own
            raise UserError(f"{self.project}: the project as it is does not pass ({self.sound.outcome}: {problem})")
        found = json.loads((self.folder / "sound.json").read_text())
        self.parts, self.builders, self.theirs = found["parts"], found["builders"], found["reference"]
        self.others = found.get("others", [])
        self.own = own_names(self.root, found["files"])
        return found["modules"]

    @contextlib.contextmanager
    def _started(self, modules: list[str]) -> Iterator[subprocess.Popen]:
        listed = self.folder / "modules.json"
        listed.write_text(json.dumps(modules))
        command = [sys.executable, str(SERVER), str(listed), str(self.jobs)]
        with open(self.folder / "server.log", "wb") as log:
            server = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_one_thread(),
                text=True,
                start_new_session=True,
            )
        try:
            yield server
        finally:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.close()  # the server then kills its children and ends
            server.wait()
            server.stdout.close()

    def _submit(self, name: str, task: Task) -> None:
        make_copy(self.root, self.folder / name, self.own, task.changed)
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(self._call(self.folder / name, name, task)) + "\n")
        self._server.stdin.flush()

    def _attempt(self, name: str, ended: dict[str, Any]) -> Attempt:
        """What a child wrote, or why it wrote nothing."""
        out, seconds = self.folder / f"{name}.json", ended["seconds"]
        found = json.loads(out.read_text()) if out.exists() else None
        late = ended["status"] is None
        if found is None or (found["status"] == 0 and (late or ended["status"])):
            if late:
                return Attempt("timed out", None, problem=f"no verdict after {seconds:.0f} s", seconds=seconds)
            return Attempt("raised", 1, problem=_last_line(self.folder / f"{name}.log"), seconds=seconds)
        outcome = {0: "passed", 1: "failed", 2: "refused"}[found["status"]]
        problem = found["problem"]
        less = {step: why for step, why in found["not_run"].items() if why != self.sound.not_run.get(step)}
        if outcome == "passed" and less and name != "sound":  # a verdict on less than the sound project's rests on
            return Attempt("refused", 0, problem=f"not run: {'; '.join(less.values())}", seconds=seconds, by_step=found["seconds"])
        if found["finding"] is None and (late or ended["status"]):
            problem += "; localisation did not end" if late else "; localisation broke off"
        said = found["status"], found["step"], found["finding"], problem, seconds, found["seconds"], found["not_run"]
        return Attempt(outcome, *said, found["candidates"])


def _one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "no message"


def align_copy(call: Mapping[str, Any], edits: Iterable[Edit]) -> int:
    """Run ``alignment.cli.align_edited`` in a process that imports everything from an edited copy of the project.

    Args:
        call: the flags of ``run`` by name, the project's file among them.
        edits: of the project, which has been imported here.

    Returns:
        Its exit status.
    """
    project = Path(call["project"]).resolve()
    root = root_of(project)
    own = own_names(root, [file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))])
    changed = edited(root, edits)
    with tempfile.TemporaryDirectory(prefix="edited-") as above:
        folder = Path(above) / root.name
        make_copy(root, folder, own, changed)
        given = {name: str(value) if isinstance(value, Path) else value for name, value in call.items()}
        given["project"] = str(folder / project.relative_to(root))
        given["copy_of"] = [str(folder), str(root)]
        sys.stdout.flush()
        command = [sys.executable, "-c", _ALIGN, str(folder), str(ENGINE), json.dumps(given), str(SERVER)]
        return subprocess.run(command, check=False).returncode


_ALIGN = """
import json, runpy, sys
runpy.run_path(sys.argv[4])["import_from"](sys.argv[1:3])
from alignment.cli import align_edited
sys.exit(align_edited(json.loads(sys.argv[3])))
"""


def own_names(root: Path, files: Iterable[str]) -> set[str]:
    """What is directly in a project's folder and holds some of these files; installed packages are not the project's."""
    found = [Path(file).resolve() for file in files]
    inside = [file.relative_to(root).parts for file in found if file.is_relative_to(root)]
    return {parts[0] for parts in inside if not parts[0].startswith(".") and "site-packages" not in parts}
