"""Many changes of one edited copy: each is tried in a child of one process that has imported the copy and made the reference.

In the child the functions that a change touches get other code. Where that does not do, it imports what may depend on the change
from an overlay: of a change in the port's own package, that package and the project's; else all that is the project's.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from alignment.comparisons import run_step
from alignment.comparisons.context import Context
from alignment.comparisons.earlier import Earlier
from alignment.comparisons.update.tensors import PORT_LANES, ULP_DRAWS
from alignment.project import load_project
from alignment.strangers import strangers
from bench.kept_weights import kept_state
from bench.swapped import LiveFunctions

PASSED, FAILED = 0, 1  # how a child ends
WAIT = 0.01  # seconds between two looks at the children
BUSY = 4.0  # how many times as long as of a processor a trial may last, on a machine that has other work


@dataclass
class Prepared:
    """A copy that is imported.

    Attributes:
        root: the copy's folder, the working folder.
        call: as of ``bench.attempt.main``, with ``changes`` (a file with a list: file -> its text), ``port_packages`` (what is the
            port's and not the reference's), ``begin`` (number of the first change to be tried), ``budget`` (seconds), ``each``
            (seconds of a processor for one) and ``at_once`` (children at a time).
        context: of the copy.
        live: the project's functions.
        called: names of those that run while the models are built and looked at.
        earlier: what was measured of the copy, and which comparisons have failed.
        running: children, each with its change and when it began.
    """

    root: Path
    call: Mapping[str, Any]
    context: Context
    live: LiveFunctions
    called: frozenset[str] = frozenset()
    earlier: tuple[dict[Any, Any], list[Any]] = field(default_factory=lambda: ({}, []))
    running: dict[int, tuple[int, float]] = field(default_factory=dict)

    def passes(self, changed: Mapping[str, str]) -> bool:
        """Whether the step passes with a change; in a child, which is of no use afterwards."""
        files = {self.root / name: text for name, text in changed.items()}
        of_port = {Path(name).parts[0].removesuffix(".py") for name in changed} <= {*self.call["port_packages"]}
        names = self.live.take(files)
        if names is not None:
            known = dict(self.context.known)
            if not of_port:
                known = {}
            elif names & self.called:
                ready = {name: lane for name, lane in known.get("ready", {}).items() if name.startswith("reference32")}
                known = {"ready": ready} | {name: known[name] for name in ("weights", "orders") if name in known}
            context = self.context.but()
            object.__setattr__(context, "known", known)
            return step_passes(context, self.call, self.earlier, of_port)
        with tempfile.TemporaryDirectory(prefix="overlay-") as over:
            return self.passes_imported(changed, Path(over), of_port)

    def passes_imported(self, changed: Mapping[str, str], over: Path, of_port: bool) -> bool:
        """Whether the step passes with a change that takes effect by an import, which is from an empty folder ``over``."""
        project = Path(self.call["project"]).relative_to(self.root)
        tops = {Path(name).parts[0] for name in changed}
        for top in tops:
            whole = self.root / top
            (shutil.copytree if whole.is_dir() else shutil.copy2)(whole, over / top)
        for name, text in changed.items():
            (over / name).write_text(text, encoding="utf-8")
        own = tops | {project.parts[0].removesuffix(".py")}
        engine_stays = tops <= {*self.call["port_packages"], project.parts[0]}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if name.partition(".")[0] in own or (not engine_stays and file.startswith(f"{self.root}{os.sep}")):
                del sys.modules[name]
        sys.path.insert(0, str(over))
        sys.dont_write_bytecode = True
        from bench import trials  # where all is imported anew, another one, with another engine

        file = over / project if project.parts[0] in tops else self.root / project
        context = trials.context_of(trials.load_project(file), self.call)
        return trials.step_passes(context, self.call, self.earlier, of_port)


def step_passes(context: Context, call: Mapping[str, Any], before: tuple[dict[Any, Any], list[Any]], of_port: bool) -> bool:
    """Whether the step passes, and all of it was run: first what has failed before, by itself, then the whole step."""
    step, known, (made, wrong) = call["steps"][0], dict(context.known), before
    if wrong:
        earlier = Earlier(made, wrong, reference=of_port, alone=True)
        run_step(step, context.but(earlier=earlier))
        if earlier.passes is False:
            return False
    if of_port:
        context = context.but(earlier=Earlier(made, wrong))
    context = context.but()
    object.__setattr__(context, "known", {name: value for name, value in known.items() if wrong == [] or name != "ready"})
    result = run_step(step, context)
    return result.passed and not result.not_run


def context_of(project: Any, call: Mapping[str, Any]) -> Context:
    """A context in haste with the kept weights of the reference."""
    first = next(iter(project.models))
    kept = Path(call["weights"]) if call["port_alone"] else None
    state = kept_state(Path(call["weights"]), first, call["seed"])
    settings = {"in_haste": True, "seed": call["seed"], "suspect": call["suspect"], "kept": kept}
    return Context(project, first, given_state=state, **settings)


def main(call: dict[str, Any]) -> None:
    """Try changes in their order until one passes or the time is over; the answer says which, and how many were tried."""
    root, end = Path.cwd().resolve(), time.monotonic() + call["budget"]
    changes = json.loads(Path(call["changes"]).read_text(encoding="utf-8"))
    prepared = _prepared(root, call)
    right: list[int] = []
    tried, number = 0, call["begin"]
    try:
        while prepared.running or (number < len(changes) and not right and time.monotonic() < end):
            open_ = number < len(changes) and not right and time.monotonic() < end
            while open_ and len(prepared.running) < call["at_once"] and number < len(changes):
                pid = _child(call["each"], functools.partial(prepared.passes, changes[number]))
                prepared.running[pid] = number, time.monotonic()
                number, tried = number + 1, tried + 1
            for pid, (which, start) in list(prepared.running.items()):
                done, status, used = os.wait4(pid, os.WNOHANG)
                late = not done and time.monotonic() - start > BUSY * call["each"]
                if done or late:
                    _end(pid, waited=bool(done))
                    del prepared.running[pid]
                    seconds = f"{time.monotonic() - start:.2f} s, {used.ru_utime + used.ru_stime:.2f} s of a processor"
                    print(f"change {which}: {'late' if late else 'passes' if status == PASSED else 'fails'}, {seconds}", flush=True)
                    right += [which] if done and status == PASSED else []
            time.sleep(WAIT)
    finally:
        for pid in prepared.running:
            _end(pid, waited=False)
    Path(f"{call['out']}.new").write_text(json.dumps({"right": min(right, default=None), "tried": tried}))
    os.replace(f"{call['out']}.new", call["out"])


def _prepared(root: Path, call: Mapping[str, Any]) -> Prepared:
    """Import the copy, and measure in a child what the changes are to be held against."""
    context = context_of(load_project(call["project"]), call)
    prepared = Prepared(root, call, context, LiveFunctions(_own_files(root)))
    with tempfile.TemporaryDirectory(prefix="earlier-") as folder:
        file = Path(folder) / "earlier.pickle"
        pid = _child(call["each"], lambda: _record(context, call["steps"][0], file))
        start = time.monotonic()
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() - start > BUSY * call["each"]:
                _end(pid, waited=False)
                break
            time.sleep(WAIT)
        if file.is_file():
            made, wrong, modules = pickle.loads(file.read_bytes())
            prepared.earlier = made, wrong
            _import(modules, root)
    prepared.called = frozenset(_getting_ready(context, call["steps"][0], str(root)))
    return prepared


def _record(context: Context, step: int, file: Path) -> bool:
    """Run the step on the copy, and keep what was measured."""
    context = context.but(earlier=Earlier())
    run_step(step, context)
    assert context.earlier is not None
    with open(f"{file}.new", "wb") as out:
        pickle.dump((context.earlier.made, context.earlier.wrong, sorted(sys.modules)), out)
    os.replace(f"{file}.new", file)
    return True


def _import(modules: Sequence[str], root: Path) -> None:
    """Import what other people's modules the step has imported, so that no child has to."""
    for name in modules:
        top = name.partition(".")[0]
        if name not in sys.modules and not any((root / one).exists() for one in (top, f"{top}.py")):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _getting_ready(context: Context, step: int, root: str) -> set[str]:
    """Make what steps begin with; returns the names of the project's functions that ran meanwhile."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            called.add(frame.f_code.co_name)

    lanes = () if step == 2 else (*PORT_LANES, "reference64", "reference32", *(("ulp32", *ULP_DRAWS) if step in (1, 5) else ()))
    sys.setprofile(note)
    try:
        with contextlib.suppress(Exception), strangers("port"):
            _ = context.material.weights
        with contextlib.suppress(Exception), strangers("port"):
            if lanes:
                _ = context.unshared_randomness
        ready = {}
        for name in lanes:
            with contextlib.suppress(Exception), strangers("port"):
                ready[name] = context.networks.of(name)
    finally:
        sys.setprofile(None)
    context.known["ready"] = ready
    return called


def _own_files(root: Path) -> list[Path]:
    """Files of the copy that are imported and not the engine's."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    inside = [Path(one) for one in files if one and one.startswith(f"{root}{os.sep}") and one.endswith(".py")]
    return sorted(one for one in inside if one.relative_to(root).parts[0] not in ("alignment", "bench"))


def _child(seconds: float, work: Callable[[], bool]) -> int:
    """A child that does some work and says whether it succeeds, in a process group of its own; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    status = FAILED
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))  # it may lose its parent
        status = PASSED if work() else FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _end(pid: int, waited: bool) -> None:
    """End a child and all that it started."""
    for kill in (os.killpg, os.kill) if not waited else (os.killpg,):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    if not waited:
        os.waitpid(pid, 0)
