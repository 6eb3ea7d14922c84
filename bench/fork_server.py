"""A process that has imported the frameworks, and forks a child for every job; run as a script by ``bench.edited``.

It imports nothing of the engine and nothing of a project: each child imports both anew, from the folders that its job names, so
an edit of either is under test. It computes nothing before it forks, and OpenMP has one thread: threads do not survive a fork.

    python fork_server.py --once JOB          one job in this process, as JSON
    python fork_server.py MODULES JOBS        import the modules that a JSON file lists, then jobs from standard input, one a line
                                              as JSON, JOBS of them at a time; a line on standard output for each that has ended

A job has ``id``, ``path`` (folders for the front of ``sys.path``), ``log`` (a file for what it prints), ``limit`` (seconds) and
``call`` (what ``bench.attempt.main`` is given).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback

CRASHED = 70


def import_from(path: list[str]) -> None:
    """Import from these folders first; what the environment's start has imported of a copy's packages is forgotten.

    Else the original's code would run in the place of the edited one, and an edit would have no effect.
    """
    sys.path[:0] = path
    for name in list(sys.modules):
        package = os.path.join(path[0], name.partition(".")[0])
        if os.path.isfile(os.path.join(package, "__init__.py")) or os.path.isfile(f"{package}.py"):
            del sys.modules[name]


def work(job: dict) -> None:
    """Do a job in this process."""
    import_from(job["path"])
    os.chdir(job["path"][0])
    importlib.import_module("bench.attempt").main(job["call"])


def forked(job: dict) -> int:
    """A child that does a job, in a process group of its own; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    status = CRASHED
    try:
        os.setsid()
        null, log = os.open(os.devnull, os.O_RDONLY), os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for old, new in ((null, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        work(job)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)  # atexit is the server's


def ended(pid: int) -> int | None:
    """The exit status of a child (negative: the signal that ended it); None while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def kill(pid: int) -> None:
    """End a child and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def say(job: dict, status: int | None, seconds: float) -> None:
    print(json.dumps({"id": job["id"], "status": status, "seconds": round(seconds, 2)}), flush=True)


def serve(jobs: int) -> None:
    """Jobs from standard input until it ends; children that still run then are killed."""
    running: dict[int, tuple[dict, float]] = {}
    waiting: list[dict] = []
    pending, open_input = b"", True
    try:
        while open_input:
            if select.select([0], [], [], 0.05)[0]:
                read = os.read(0, 1 << 16)
                open_input = bool(read)
                *lines, pending = (pending + read).split(b"\n")
                waiting += [json.loads(line) for line in lines]
            while waiting and len(running) < jobs:
                job = waiting.pop(0)
                running[forked(job)] = job, time.monotonic()
            for pid, (job, start) in list(running.items()):
                seconds = time.monotonic() - start
                status = ended(pid)
                late = status is None and seconds > job["limit"]
                if status is None and not late:
                    continue
                kill(pid)
                if late:
                    os.waitpid(pid, 0)
                del running[pid]
                say(job, None if late else status, seconds)
    finally:
        for pid in running:
            kill(pid)


def importable(name: str) -> bool:
    """Whether a module can be imported by itself, tried in a child: a failed import leaves its traces in a process."""
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            importlib.import_module(name)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def main() -> None:
    sys.path.pop(0)  # this file's folder
    if sys.argv[1] == "--once":
        work(json.loads(sys.argv[2]))
        return
    refused: set[str] = set()
    with open(sys.argv[1], encoding="utf-8") as listed:
        modules = json.load(listed)
    for name in modules:
        package = name.partition(".")[0]
        if package not in refused and (package in sys.modules or importable(package)):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        else:
            refused.add(package)
    serve(int(sys.argv[2]))


if __name__ == "__main__":
    main()
