"""Audits as a user runs them: ``python -m alignment audit`` on a file, in a child that has imported the frameworks."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "pair.py"  # of a version; its name says nothing of the mistake
LIMIT = 240  # seconds for one audit
CRASHED = 70
ARGUMENTS = f"audit --port {FILE}:Port --reference {FILE}:Reference --input {FILE}:inputs --report report".split()


@dataclass(frozen=True)
class Audit:
    """What an audit said of a version.

    Attributes:
        status: the command's exit status; None where it took longer than ``LIMIT``.
        verdict: its line, or the last line of what it printed.
        mistakes: as ``alignment.json`` lists them, in order.
        seconds: that it took.
    """

    status: int | None
    verdict: str
    mistakes: tuple[dict[str, Any], ...]
    seconds: float


def warm() -> None:
    """Import the frameworks and the command once, so that each audit takes a second; nothing is computed before a fork."""
    for name in ("torch", "paddle", "alignment.cli"):
        importlib.import_module(name)


def audit(source: str, folder: Path) -> Audit:
    """Audit a version of a pair in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(source, encoding="utf-8")
    start = time.monotonic()
    status = _waited(_forked(folder), start)
    seconds = round(time.monotonic() - start, 2)
    found: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        found = json.loads((folder / "report" / "alignment.json").read_text(encoding="utf-8"))
    printed = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    verdict = found.get("verdict") or (printed[-1] if printed else "nothing was printed")
    mistakes = tuple({key: value for key, value in mistake.items() if key != "card"} for mistake in found.get("mistakes", []))
    return Audit(status, verdict, mistakes, seconds)


def _forked(folder: Path) -> int:
    """A child that runs the command in a folder; returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = CRASHED
    try:
        os.setsid()
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        status = int(importlib.import_module("alignment.cli").main(ARGUMENTS))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else CRASHED
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)  # what runs at the exit is the parent's


def _waited(pid: int, start: float) -> int | None:
    """The exit status of a child; None where its time is over, and it is ended."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - start > LIMIT:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.02)
