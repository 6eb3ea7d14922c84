"""The boundary to code that is not the engine's: what a stranger's code raises is caught here and nowhere else.

Whatever a port, a reference or a framework raises is something to report. What the engine itself raises by mistake is not: it
must never be told as the port's, so it ends the command (``InternalError``).
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import numpy as np

import mobilenetv3_common
from alignment.raised import place_of, words_of
from mobilenetv3_common.errors import ProgramError, UserError

ENGINE = f"{Path(__file__).resolve().parent}{os.sep}"
ADAPTERS = f"{ENGINE}frameworks{os.sep}"  # they hand on what a framework's compiled code raises, which has no frame of its own
MISTAKES = (AssertionError, AttributeError, KeyError, NameError, ZeroDivisionError)  # which no framework raises in an adapter
CALLED = re.compile(r"([\w.<>]+)\(\) (?:got|missing|takes|argument)")


class Refused(ValueError):
    """What the engine does not compute with the values that a stranger's code gave."""


class InternalError(ProgramError):
    """The engine itself raised: a mistake of the engine, and no finding about the port."""


class strangers:  # read as contextlib.suppress is
    """In the block a stranger's code runs. What it raises is caught and kept; what the engine raises by mistake is not.

    Args:
        whose: ``"port"``, ``"reference"``, or in words.
        alone: nothing of the engine runs in the block; everything that is raised is the stranger's.

    Attributes:
        error: what was raised, without the variables of what raised it; None where nothing was.
        place: where in a stranger's source it was raised; empty where that is not known.

    Raises:
        InternalError: the engine's own code raised.
    """

    def __init__(self, whose: str, alone: bool = False) -> None:
        self.whose, self.alone = whose, alone
        self.error: Exception | None = None
        self.place = ""

    def __enter__(self) -> strangers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, ProgramError) or not isinstance(error, Exception | SystemExit if self.alone else Exception):
            return False
        assert error is not None
        if not self.alone and isinstance(error, Exception) and engines_own(error):
            raise internal(error, f" while the {self.whose}'s code ran") from error
        self.place = error.raised_at = getattr(error, "raised_at", None) or place_of(error)  # type: ignore[attr-defined]
        inner = trace.tb_next if trace is not None else None
        traceback.clear_frames(inner)  # tensors and data loaders would be kept until Python looks for circles
        self.error = error.with_traceback(inner)  # type: ignore[assignment]  # a file may end the process, where it runs alone
        return True

    @property
    def words(self) -> str:
        """What was raised in one line; empty where nothing was."""
        return words_of(self.error) if self.error is not None else ""

    @property
    def there(self) -> str:
        """The place in brackets; empty where it is not known."""
        return f" ({self.place})" if self.place else ""

    @property
    def whole(self) -> str:
        """The same with all of its text."""
        return f"{type(self.error).__name__}: {self.error}"


@contextlib.contextmanager
def engine() -> Iterator[None]:
    """In the block the engine's code runs: what it raises by mistake ends in an ``InternalError``, wherever it was not caught."""
    try:
        yield
    except (UserError, ProgramError, OSError):
        raise
    except Exception as error:
        raise internal(error) from error


def internal(error: BaseException, when: str = "") -> InternalError:
    """What is said of an exception of the engine's own code."""
    frames = [(str(_file(code)), line) for _, code, line in _frames(error)]
    inside = [f"alignment/{file.removeprefix(ENGINE)}:{line}" for file, line in frames if file.startswith(ENGINE)]
    place = f" ({inside[-1]})" if inside else ""
    return InternalError(f"the engine itself raised {words_of(error)}{place}{when}; this says nothing about the port")


def engines_own(error: Exception) -> bool:
    """Whether the engine raised an exception by mistake, whatever code of others called it.

    The innermost frame counts that is not Python's, numpy's or the shared package's. The engine's own classes mean no mistake.
    Where the engine works with what the port gave, and went through the same lines with what the reference gave, it is the port's.
    """
    if hasattr(error, "raised_at") or isinstance(error, UserError) or type(error).__module__.startswith("alignment."):
        return False
    frames = list(_frames(error))
    for _, code, _ in reversed(frames):
        file = _file(code)
        if file.startswith(ENGINE) or _stands_in_the_engine(code):
            if file.startswith(ADAPTERS) and not isinstance(error, MISTAKES):
                return False
            return not _about_a_stranger(error) and not _of_the_port(file, frames)
        if not file.startswith(_neutral()):
            return False
    return True


def _frames(error: BaseException) -> Iterator[tuple[FrameType, CodeType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next


@cache
def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).resolve()) if os.path.isfile(code.co_filename) else code.co_filename


@cache
def _neutral() -> tuple[str, ...]:
    """Whose code runs on somebody's behalf: Python's library without what is installed in it, numpy, what both packages share."""
    folders = [Path(str(file)).parent for file in (np.__file__, mobilenetv3_common.__file__)]
    standard = Path(sysconfig.get_path("stdlib"))
    inside = [one for one in standard.iterdir() if one.name not in ("site-packages", "dist-packages")] if standard.is_dir() else []
    return ("<", *(f"{one.resolve()}{os.sep}" for one in folders), *(str(one.resolve()) for one in inside))


@lru_cache(1000)
def _stands_in_the_engine(code: CodeType) -> bool:
    """Whether a function or method stands in a module of the engine, in whatever file it was written: one that was replaced."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "alignment" and module is not None:
            for value in list(vars(module).values()):
                methods = vars(value).values() if isinstance(value, type) and value.__module__.startswith("alignment") else ()
                if any(getattr(one, "__code__", None) is code for one in (value, *methods)):
                    return True
    return False


def _about_a_stranger(error: Exception) -> bool:
    """Whether an exception without a stranger's frame is about a stranger's object: what it lacks, or does not take."""
    if isinstance(error, AttributeError):
        owner = getattr(error, "obj", None)
        return not _known(getattr(owner, "__name__", "") if hasattr(owner, "__spec__") else type(owner).__module__)
    if isinstance(error, TypeError) and (called := CALLED.match(str(error))):
        return not _of_the_engine(called[1])
    return not _known(type(error).__module__)


def _known(module: str) -> bool:
    return module.partition(".")[0] in ("", "alignment", "builtins", "numpy", "mobilenetv3_common")


def _of_the_engine(name: str) -> bool:
    """Whether a function of this qualified name is Python's, or stands in the engine."""
    first = name.partition(".")[0]
    modules = [module for key, module in list(sys.modules.items()) if key.partition(".")[0] == "alignment" and module is not None]
    found = [vars(module)[first] for module in modules if first in vars(module)]
    return hasattr(builtins, first) or any(_known(getattr(one, "__module__", "") or "") for one in found)


def _of_the_port(file: str, frames: list[tuple[FrameType, CodeType, int]]) -> bool:
    """Whether the engine was at work on what the port gave: the reference went through the same lines before."""
    roles = [frame.f_locals["role"] for frame, _, _ in frames if "role" in frame.f_locals]
    return file.startswith(ENGINE) and bool(roles) and roles[-1] == "port"
