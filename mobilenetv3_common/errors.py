"""One way to refuse bad input: a single clear line on standard error and exit status 2."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator

from mobilenetv3_common.called import as_called
from mobilenetv3_common.interrupts import raise_at_ctrl_c
from mobilenetv3_common.streams import keep_open
from mobilenetv3_common.terminal import OUTPUT, escaped_output, printable


class UserError(Exception):
    """Something the user gave cannot be used. The message names the thing and the fix, in one line.

    Data-loading workers of both frameworks re-raise a worker's exception as ``type(exc)(long_traceback_text)``;
    ``line`` finds the original message again inside that text.

    Attributes:
        status: with which the command ends.
    """

    status = 2

    @property
    def line(self) -> str:
        """The message as one line, without any worker traceback around it, and without what does not print."""
        text = str(self).rsplit("UserError: ", 1)[-1].rsplit(f"{type(self).__name__}: ", 1)[-1].strip()
        text = as_called(printable(" ".join(text.split())))
        return text if len(text) <= 1200 else f"{text[:900]} ... {text[-250:]}"


class Diverged(UserError):
    """A run whose numbers are no longer finite; it may go back to its last good checkpoint.

    Args:
        what: where it was seen.
        advice: what else the message says.
    """

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what}{advice}")
        self.what = what


class RankError(UserError):
    """Another rank did not answer; the run may be started again, so the command ends with 1."""

    status = 1


class WorkerError(UserError):
    """A loader worker has ended."""


class ProgramError(Exception):
    """A mistake of the program itself: the command ends with the traceback, a line that says so, and a status of its own."""

    status = 3


_COLLECTIVE = re.compile(r"time(d )?out|connection (closed|reset|refused)|broken pipe|gloo", re.IGNORECASE)
_STORE = re.compile(r"tcp (\w+ )?error|tcp_utils|tcp_store", re.IGNORECASE)
LAUNCHER_LOOKS = 2.0  # seconds within which torchrun, msrun and Paddle's launcher notice that a rank has ended


@contextlib.contextmanager
def naming_lost_ranks(timeout: float) -> Iterator[None]:
    """Inside the block, what a collective operation raises when another rank is late or gone is one line.

    A rank that ends by itself breaks the connection of all others at once. These wait until the launcher has seen the first
    one: else it names the rank that only lost its neighbour as the cause, with that rank's exit status.

    Args:
        timeout: seconds that a rank waits, for the message.

    Raises:
        RankError: in place of the framework's RuntimeError, or the ValueError of Paddle's store, which the first rank keeps; any
            other is raised as it is.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        signs = _COLLECTIVE if isinstance(error, RuntimeError) else _STORE
        if signs.search(str(error)) is None:
            raise
        time.sleep(LAUNCHER_LOOKS)
        raise RankError(
            f"another rank did not answer in time, or has ended (its own log says why): --rank-timeout, now {timeout:g} s, is how "
            f"long a rank waits ({' '.join(str(error).split())[-160:]})"
        ) from error


def shown(path: object) -> str:
    """A path for a message: bytes of its name that are not UTF-8 as ``\\xNN``, so that it can be printed anywhere."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")


in_command = False  # whether a command's ``main`` runs in this process, which may then be ended


def exit_on_user_error(main: Callable[..., int]) -> Callable[..., int]:
    """Wrap a command's ``main``: a ``UserError`` becomes one line on standard error and exit status 2; output is text alone."""

    @functools.wraps(main)
    def command(*args, **kwargs) -> int:
        keep_open()  # cron, or whatever starts it without streams
        return wrapped(*args, **kwargs)

    @escaped_output()
    def wrapped(*args, **kwargs) -> int:
        global in_command
        raise_at_ctrl_c()
        in_command = True
        try:
            try:
                status = main(*args, **kwargs)
            finally:  # here: at the interpreter's exit, a reader that has gone would end in a traceback
                if sys.stdout is not None:
                    sys.stdout.flush()
        except UserError as error:
            _tell(f"error: {error.line}")
            status = error.status
        except ProgramError as error:
            traceback.print_exception(error.__cause__ or error)
            _tell(f"internal error: {printable(str(error))}")
            status = error.status
        except BrokenPipeError:
            # The reader of our output (head, say) has gone; the rest of the output is unwanted.
            _drop_output()
            status = 1
        except KeyboardInterrupt as error:
            if isinstance(error, SystemExit):  # another signal's
                raise
            _tell("stopped by Ctrl-C")
            status = 130
        except OSError as error:
            # Whatever the system refuses that nobody foresaw: a path too long, a disk that is gone.
            if error.filename is None:
                raise
            status = _refused(error)
        finally:
            in_command = False
        if _one_of_several():
            # An orderly exit takes leave of the other ranks, and can wait for one that has gone already.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        return status

    return command


def _refused(error: OSError) -> int:
    _tell(f"error: {printable(str(error.filename))}: {error.strerror}")
    if error.filename == OUTPUT:
        _drop_output()
    return 2


def _drop_output() -> None:
    """Nobody takes what is printed: Python need not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed
        print(text, file=sys.stderr, flush=True)


def _one_of_several() -> bool:
    """Whether a launcher (torchrun, paddle.distributed.launch) started this process among others."""
    return any(os.environ.get(name, "1") not in ("", "1") for name in ("WORLD_SIZE", "PADDLE_TRAINERS_NUM"))
