"""Start the ranks by the port's own launcher, and see to it that they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from alignment.comparisons.ranks import worker
from alignment.frameworks.base import Framework

PATIENCE = 60.0  # seconds in which some rank must get on
START = 300.0  # the same until each has said where it is: importing two frameworks on a busy machine takes a while
GRACE = 10.0  # seconds that the launcher has to end its processes
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Failure:
    """Why the ranks did not get to the end.

    Attributes:
        ranks: to which it happened.
        answered: whether they raised or ended, or gave no answer within the time limit.
        words: what happened, in one line.
    """

    ranks: tuple[int, ...]
    answered: bool
    words: str


def launch(framework: Framework, folder: Path, ranks: int, patience: float = PATIENCE) -> Failure | None:
    """Run the plan of a folder.

    Args:
        framework: the port's.
        folder: holds the plan and gets the records and the launcher's log.
        ranks: how many processes.
        patience: seconds after which ranks that do not get on are ended, once they have begun.
    """
    command = [*framework.launch(ranks, folder / "log"), worker.__file__, str(folder)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    with open(folder / "launcher.log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            silent = _wait(process, folder, ranks, patience)
        finally:
            _end(process, folder)
    if silent:
        return Failure(silent, False, f"no answer within {patience:.0f} s, last seen at {_place(folder, silent[0])}")
    return _broken(folder, ranks, process.returncode)


def _wait(process: subprocess.Popen, folder: Path, ranks: int, patience: float) -> tuple[int, ...]:
    """Wait for the launcher; the ranks that are furthest behind where nothing has moved for too long, else none."""
    moved, seen = time.monotonic(), -1
    while process.poll() is None:
        count = sum(path.stat().st_mtime_ns for path in folder.glob("rank*.*"))
        if count != seen:
            moved, seen = time.monotonic(), count
        begun = len(list(folder.glob("rank*.ticks"))) == ranks
        if time.monotonic() - moved > (patience if begun else START):
            return _behind(folder, ranks)
        time.sleep(0.1)
    return ()


def _behind(folder: Path, ranks: int) -> tuple[int, ...]:
    """The ranks that have computed least: the others wait for them."""
    waiting = [rank for rank in range(ranks) if not (folder / f"rank{rank}.done").exists()]
    ticks = {rank: int(text) if (text := _read(folder / f"rank{rank}.ticks")) else 0 for rank in waiting}
    return tuple(rank for rank in waiting if ticks[rank] == min(ticks.values()))


def _end(process: subprocess.Popen, folder: Path) -> None:
    """End the launcher, which ends its processes; then each of these, which may be in a session of its own."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for file in folder.glob("rank*.pid"):
        number = int(file.read_text())
        with contextlib.suppress(ProcessLookupError, OSError):
            if worker.__file__.encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                os.kill(number, signal.SIGKILL)


def _broken(folder: Path, ranks: int, status: int) -> Failure | None:
    """What the ranks that did not finish said last."""
    unfinished = [rank for rank in range(ranks) if not (folder / f"rank{rank}.done").exists()]
    if not unfinished:
        return None
    errors = {rank: text for rank in unfinished if (text := _read(folder / f"rank{rank}.error"))}
    if errors:
        first = min(errors, key=lambda rank: (folder / f"rank{rank}.error").stat().st_mtime_ns)
        same = tuple(rank for rank in errors if errors[rank] == errors[first])
        return Failure(same, True, f"{errors[first]}, at {_place(folder, first)}")
    return Failure(tuple(unfinished), True, f"ended with status {status} at {_place(folder, unfinished[0])}: {_last_line(folder)}")


def _place(folder: Path, rank: int) -> str:
    return _read(folder / f"rank{rank}.place") or "its start"


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def _last_line(folder: Path) -> str:
    logs = [folder / "launcher.log", *(path for path in (folder / "log").rglob("*") if path.is_file() and path.suffix != ".json")]
    lines = [line for path in logs for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"
