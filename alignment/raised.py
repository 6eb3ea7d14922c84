"""Where an exception was raised, in the source of whoever wrote the model: never in a framework, and never in the engine."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import CodeType

import mobilenetv3_common
from mobilenetv3_common.errors import UserError


@cache
def _foreign() -> tuple[str, ...]:
    """Folders whose code is no model's: Python's own, installed packages, the engine and what it shares with the packages."""
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    elsewhere = [
        Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")
    ]  # of the system, of a user
    own = [Path(str(file)).parent for file in (__file__, mobilenetv3_common.__file__)]
    return tuple(f"{folder.resolve()}{os.sep}" for folder in (*installed, *elsewhere, *own))


def place_of(error: BaseException) -> str:
    """``package/file.py:141 in Class.method`` of the innermost frame in a model's source; ``""`` where no frame is in one.

    Of a ``SyntaxError`` it is the line that cannot be read. Paths begin at the folder from which the package is imported.
    """
    where = source_of(error)
    return f"{shown(where[0])}:{where[1]}{f' in {where[2]}' if where[2] else ''}" if where is not None else ""


def source_of(error: BaseException) -> tuple[Path, int, str] | None:
    """File, line and function (``""`` at the top of a file) of ``place_of``."""
    if isinstance(error, SyntaxError) and error.filename and os.path.isfile(error.filename):
        return Path(error.filename).resolve(), error.lineno or 0, ""
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if os.path.isfile(code.co_filename):
            file = Path(code.co_filename).resolve()
            if not str(file).startswith(_foreign()):
                found = file, trace.tb_lineno, _function(code, trace.tb_frame.f_locals)
        trace = trace.tb_next
    return found


def _function(code: CodeType, variables: dict) -> str:
    if code.co_name == "<module>":
        return ""
    name = getattr(code, "co_qualname", "")  # from Python 3.11 on
    if not name:
        name = f"{type(variables['self']).__name__}.{code.co_name}" if "self" in variables else code.co_name
    return name.replace("<locals>.", "")


def shown(file: Path) -> str:
    """A file's path from the folder from which its outermost package is imported."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return str(file.relative_to(folder))


def words_of(error: BaseException) -> str:
    """An exception in one line: its class and the first line of its text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


class PortCannotBeImported(UserError):
    """The port's own source cannot be imported: a finding, not bad input."""

    status = 1


def import_problem(path: str | Path, file: Path, error: BaseException) -> UserError:
    """What to say of a project file whose import raises: the port's fault where that was raised in the port, or lacks a name.

    Args:
        path: of the project file, as it was given.
        file: the same, resolved.
        error: what was raised.
    """
    where, place, words = source_of(error), place_of(error), words_of(error)
    packages = _port_packages(file)
    lacking = getattr(error, "obj", None) if isinstance(error, AttributeError) else getattr(error, "name", None)
    module = str(getattr(lacking, "__name__", lacking)).partition(".")[0]
    raised_in = shown(where[0]).split(os.sep)[0] if where is not None else ""
    if raised_in in packages or (module in packages and raised_in not in packages):
        return PortCannotBeImported(f"the port cannot be imported: {place}: {words}")
    return UserError(f"{path} cannot be imported: {words}{f' ({place})' if place else ''}")


def _port_packages(file: Path) -> set[str]:
    """Packages that a project file names for its port alone: in arguments called ``port``, and not in ``reference``.

    What is installed (a framework with models of its own), or is not there, is none.
    """
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return set()
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {(alias.asname or alias.name).partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    named: dict[str, set[str]] = {"port": set(), "reference": set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in named:
            used = {below.id for below in ast.walk(node.value) if isinstance(below, ast.Name)}
            named[node.arg] |= {modules[name].partition(".")[0] for name in used & modules.keys()}
    found = {name: importlib.util.find_spec(name) for name in named["port"] - named["reference"]}
    origins = {name: str(Path(spec.origin).resolve()) for name, spec in found.items() if spec and spec.origin}
    return {name for name, origin in origins.items() if not origin.startswith(_foreign())}
