"""Loader workers of either framework: how they begin, one line for whatever ends them, and none that is left behind.

The multi-process iterators of Paddle and torch have one design: processes in ``_workers``, which ``__del__`` shuts down unless
``_shutdown`` says that they are. Where one is made in part only, or left open on an error path, ``__del__`` raises, or waits
for ever. So an iterator is used through ``supervised`` alone, which ends its workers on every way out.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing.queues
import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mobilenetv3_common import errors
from mobilenetv3_common.errors import UserError, WorkerError
from mobilenetv3_common.image import quiet_opencv
from mobilenetv3_common.run_control import at_stop, end_with_parent

Item = TypeVar("Item")

READING = 1.0  # seconds that a thread which has been told to end may take
PATIENCE = 5.0  # seconds for a process that was killed to be gone
BEGINNING = 15.0  # seconds in which a worker that is forked says that it has begun
FORKS = 3  # times that workers are forked before one that says nothing is taken as it is
WITHIN = 8.0  # seconds after a worker's end in which its loop has to hear of it
SHARED_MEMORY = Path("/dev/shm")
NO_ROOM = 28  # exit status (ENOSPC) of a worker whose batch did not fit into shared memory
CRASHES = (signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE)  # of which both frameworks print a line of their own

_NO_SHARED_MEMORY = re.compile(r"shared memory|shm|bus error|no space left", re.IGNORECASE)
_WORKER_GONE = re.compile(r"workers? .*(exit|killed)|process .*(exited|killed)|Blocking queue is killed", re.IGNORECASE)
_NOT_STARTED = {errno.ENOSPC, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}


# --- in a worker ---


def shield_worker() -> None:
    """In a loader worker: leave stopping to the training process.

    Ctrl-C, and a job's end, reach every process of a group; a worker in a group of its own ends when its parent ends it,
    or (on Linux, by ``PR_SET_PDEATHSIG``) when its parent is killed: Paddle's would go on waiting for it for ever.
    """
    os.setpgid(0, 0)
    end_with_parent(signal.SIGKILL)
    at_stop(signal.SIG_DFL)


def start_worker(worker_id: int) -> None:
    """What every loader worker does first; ``worker_id`` is the loader's own count.

    Python's garbage collection then leaves alone what the worker has from its parent: Paddle locks its allocator's counts to
    free a tensor, and where a thread of the parent held the lock at the fork, a worker of either framework waits for ever.
    """
    gc.freeze()
    gc.enable()
    shield_worker()
    for number in (*CRASHES, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)  # its parent says what has happened
    # A batch that cannot be sent is dropped by a queue, and its loop would wait for it for ever.
    multiprocessing.queues.Queue._on_queue_feeder_error = staticmethod(_end_unsent)  # type: ignore[attr-defined]
    quiet_opencv()


def has_begun() -> None:
    """In a worker that ``forked`` waits for: say that it has begun."""
    if _saying is not None:
        with contextlib.suppress(OSError):
            os.write(_saying, b".")
            os.close(_saying)


def _end_unsent(error: Exception, batch: object) -> None:
    if _NO_SHARED_MEMORY.search(str(error)) or getattr(error, "errno", None) == errno.ENOSPC:
        os._exit(NO_ROOM)
    with contextlib.suppress(OSError):
        os.write(
            2, f"a loader worker cannot send its batch: {type(error).__name__}: {' '.join(str(error).split())[:300]}\n".encode()
        )
    os._exit(1)


# --- in the process that they work for ---

_saying: int | None = None  # the end of a pipe on which the workers that are forked now say that they have begun


def forked(fork: Callable[[], Any], processes: Callable[[], Sequence[Any]]) -> None:
    """Fork workers, and do it again where one of them stands still as it begins.

    A fork copies locks as they are. One that another thread held at that moment (Paddle's allocator counts under one) is held in
    the worker for ever, and the loop would wait for its batch for ever.

    Args:
        fork: starts the workers, which call ``has_begun`` once they have taken and left the locks in question.
        processes: those that it has started.
    """
    global _saying
    for _ in range(FORKS):
        hearing, _saying = os.pipe()
        try:
            fork()
        finally:
            os.close(_saying)
            _saying = None
            begun = _all_begun(hearing, processes())
            os.close(hearing)
        if begun:
            return
        for process in processes():
            process.kill()
            process.join(PATIENCE)
    fork()


def _all_begun(hearing: int, processes: Sequence[Any]) -> bool:
    """Whether every process has said that it has begun; what has ended is told elsewhere."""
    poll, missing, late = select.poll(), len(processes), time.monotonic() + BEGINNING
    poll.register(hearing, select.POLLIN)
    while missing > 0:
        if poll.poll(100):
            said = len(os.read(hearing, missing))
            missing = missing - said if said else 0
        elif any(process.exitcode is not None for process in processes):
            return True
        elif time.monotonic() > late:
            return False
    return True


def supervised(
    kind: Any, loader: Any, handling: Any, forget: Callable[[Any], None], stop: Callable[[Any], None]
) -> Generator[Any, None, None]:
    """The batches of a framework's multi-process iterator, whose workers are gone when this generator ends or is closed.

    Both frameworks raise the end of a worker from their handler of SIGCHLD, wherever the main thread is: in the middle of a
    checkpoint, or where Python only prints what is raised. They are made to forget the workers; whoever asks any loader for a batch
    hears of it, at the latest after the five seconds after which the frameworks look whether their workers live.

    Args:
        kind: the framework's class of iterators.
        loader: what it iterates over.
        handling: the framework's module that sets its handler of SIGCHLD.
        forget: makes that handler forget an iterator's workers.
        stop: ends the threads of an iterator, however much of it was made.

    Raises:
        UserError: workers or their shared memory cannot be had.
        WorkerError: a worker has ended, of this iterator or of another.
    """
    _watch()
    iterator = kind.__new__(kind)  # first, so that it is at hand also where the constructor raises
    workers = _Workers(iterator)
    try:
        with _unheard(handling), _uncollected():
            try:
                iterator.__init__(loader)
            finally:
                forget(iterator)
        while True:
            look_after_workers()
            try:
                batch = next(iterator)
            except StopIteration:
                break
            yield batch
        if (error := workers.lost()) is not None:
            raise error
    except (RuntimeError, SystemError, OSError, EOFError, MemoryError) as error:
        cause = getattr(iterator, "wrong", None) or error  # in the thread of Paddle's that reads
        told = workers.lost() or as_user_error(cause) or workers.gone(cause)
        if told is None and cause is error:
            raise
        raise told or cause from error
    finally:
        workers.end(stop)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Inside the block nothing is collected, nor in a worker that is forked there, until ``start_worker`` allows it again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _unheard(handling: Any) -> Iterator[None]:
    """Inside the block no handler of a framework's hears of a child's end, and none is set."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL) if main else None
    was, handling._SIGCHLD_handler_set = handling._SIGCHLD_handler_set, True
    try:
        yield
    finally:
        handling._SIGCHLD_handler_set = was
        if before is not None:
            signal.signal(signal.SIGCHLD, before)


def delivered(loader: Iterable[Item]) -> Generator[Item, None, None]:
    """The batches of any loader; what it raises where its workers cannot be had, or have ended, is one line.

    Raises:
        UserError: workers or their shared memory cannot be had.
        WorkerError: a worker has ended, in place of the framework's RuntimeError or SystemError; any other is raised as it is.
    """
    try:
        yield from loader
    except (RuntimeError, SystemError, OSError, MemoryError) as error:
        if (told := as_user_error(error)) is None:
            raise
        raise told from error


def as_user_error(error: BaseException) -> UserError | None:
    """What an error of a loader means for the user, where it comes from its workers' end or their lack of room; else None."""
    whole = str(error)
    lines = whole.strip().splitlines() or [""]
    said = lines[-1 if "Traceback" in whole else 0].strip()[:200]  # of a worker of torch's the whole traceback
    if isinstance(error, MemoryError) or re.search(r"^MemoryError|worker: MemoryError", whole, re.MULTILINE):
        return _died("in it memory ran out")
    if isinstance(error, OSError):
        if error.filename is not None or error.errno not in _NOT_STARTED:
            return None
        return _no_room(said) if error.errno == errno.ENOSPC else _not_started(error)
    if _NO_SHARED_MEMORY.search(whole):
        return _no_room(said)
    return _died(said) if _WORKER_GONE.search(whole) else None


def _no_room(said: str) -> UserError:
    return UserError(
        f"the loader's workers get no shared memory ({said}): make /dev/shm larger (docker run --shm-size 8g), lower --workers or "
        "--batch-size, or give --workers 0"
    )


def _not_started(error: OSError) -> UserError:
    return UserError(
        f"the loader's workers cannot be started ({error.strerror}): lower --workers, or raise the limits on processes, memory and "
        "open files (ulimit -u, -v, -n)"
    )


def _died(said: str) -> WorkerError:
    return WorkerError(
        "a loader worker has ended, perhaps because memory or shared memory (/dev/shm) ran out: lower --workers or --batch-size "
        f"and start again; a training run goes on from its last checkpoint with --resume auto ({said})"
    )


_all: dict[_Workers, None] = {}  # in the order of their beginning


def newest() -> Any:
    """The iterator of the framework's that began last, of those that still run; None where there is none."""
    return next((workers.iterator for workers in reversed(_all)), None)


def lost_worker() -> UserError | None:
    """What to say of a worker, of any loader that still runs, that has ended before its time."""
    return next(filter(None, (workers.lost() for workers in list(_all))), None)


def look_after_workers() -> None:
    """Raise where a worker has ended before its time.

    Raises:
        UserError: as ``supervised``.
    """
    if (error := lost_worker()) is not None:
        raise error


_watching = False


def _watch() -> None:
    """See to it that a command ends within ``WITHIN`` seconds of a worker's end, wherever its main thread is."""
    global _watching
    if not _watching:
        _watching = True
        threading.Thread(target=_end_late_commands, name="watch workers", daemon=True).start()


def _end_late_commands() -> None:
    since: float | None = None
    while True:
        time.sleep(0.5)
        error = lost_worker()
        since = None if error is None else since or time.monotonic()
        if error is not None and since is not None and time.monotonic() - since > WITHIN and errors.in_command:
            with contextlib.suppress(OSError):
                os.write(2, f"error: {error.line}\n".encode(errors="replace"))  # sys.stderr may be locked
            os._exit(error.status)


class _Workers:
    """The workers of one iterator."""

    def __init__(self, iterator: Any) -> None:
        self.iterator, self.owner = iterator, os.getpid()
        _all[self] = None

    def processes(self) -> list[Any]:
        return list(getattr(self.iterator, "_workers", ()))

    def lost(self) -> UserError | None:
        """What to say of one of them that has ended before its time."""
        for process in self.processes() if self.owner == os.getpid() else ():
            code = process.exitcode
            if code == -signal.SIGTERM and getattr(self.iterator, "_shutdown", False):
                continue  # the framework's own way to end one that does not
            if code == NO_ROOM or code == -signal.SIGBUS:
                return _no_room(f"process {process.pid}")
            if code:
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
                return _died(f"process {process.pid} {how}")
        return None

    def gone(self, cause: BaseException) -> UserError | None:
        """What to say of one that has ended with status 0, or is about to end, where its batch could not be fetched from it."""
        if not isinstance(cause, ConnectionError | EOFError | FileNotFoundError):
            return None
        for process in self.processes():
            process.join(1)
            if process.exitcode is not None:
                return self.lost() or _died(f"process {process.pid} ended with status {process.exitcode}")
        return None

    def end(self, stop: Callable[[Any], None]) -> None:
        """End them at once: they have nothing to save."""
        if self.owner != os.getpid():  # in a child that has a copy of the loop
            return
        _all.pop(self, None)
        processes = self.processes()
        if not getattr(self.iterator, "_shutdown", False):
            self.iterator._shutdown = True
            stop(self.iterator)
        for process in processes:
            process.kill()
        # Paddle's thread may hold the lock of its allocator's counts, for which a worker that is forked now would wait.
        if (reading := getattr(self.iterator, "_thread", None)) is not None:
            reading.join(READING)
        for process in processes:
            process.join(PATIENCE)
            for name in SHARED_MEMORY.glob(f"*_{process.pid}_*"):  # batches that it made and nobody received
                if name.name.startswith(("paddle_", "torch_")):
                    name.unlink(missing_ok=True)
