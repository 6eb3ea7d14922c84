"""The line of the port's source that makes a layer, or the forward that connects its parts."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from alignment.frameworks.base import Framework, Module
from alignment.raised import shown

ENGINE = Path(__file__).resolve().parents[1]
PLAIN = (bool, int, float, str, type(None))
_NOTED = "_alignment_made_in"  # attribute of a module: its number, and the lines that led to it
FileLine = tuple[Path, int]
Span = tuple[int | None, int | None, int | None, int | None]  # of a call: first and last line, first and last column


@dataclass(frozen=True)
class Caller:
    """A line of the model's source that led to a module.

    Attributes:
        file, line: where it is.
        function: in which it stands.
        span: of the call that was under way; all None where Python does not keep it (before 3.11).
        held: plain values that the function's names had then, and of others who they are.
    """

    file: Path
    line: int
    function: str
    span: Span
    held: dict[str, Any]


@contextlib.contextmanager
def noting_lines(framework: Framework) -> Iterator[None]:
    """The modules of a model that is built inside the block know the lines of the model's source that make each, and its number."""

    def note(module: Module, number: int, frame: FrameType) -> None:
        object.__setattr__(module, _NOTED, (number, tuple(_callers(framework, module, frame))))

    with counting_modules(framework, note):
        yield


@contextlib.contextmanager
def counting_modules(framework: Framework, made: Callable[[Module, int, FrameType], object]) -> Iterator[None]:
    """Inside the block ``made`` is told of each module when its constructor begins, how many were made before, and who calls it."""
    kind: Any = framework.module_type
    own, numbers = kind.__init__, itertools.count()

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, next(numbers), sys._getframe(1))
        own(self, *args, **kwargs)

    kind.__init__ = counted
    try:
        yield
    finally:
        kind.__init__ = own


def of_framework(framework: Framework, file: Path) -> bool:
    """Whether a file is the framework's, and none of the models that come with it."""
    name = framework.module_type.__module__.partition(".")[0]
    root = Path(getattr(sys.modules[name], "__file__", None) or name).parent
    return file.is_relative_to(root) and "models" not in file.relative_to(root).parts


def callers_of(module: Module) -> tuple[Caller, ...]:
    """The lines that led to a module, the one that makes it first; none where they were not noted."""
    return vars(module).get(_NOTED, (0, ()))[1]


def number_of(module: Module) -> int | None:
    """How many modules were made before; None where they were not noted."""
    return vars(module).get(_NOTED, (None,))[0]


def _callers(framework: Framework, module: Any, frame: FrameType | None) -> Iterator[Caller]:
    """The lines outside the framework, and outside the module's own constructors, from the innermost as far as one calls the next.

    The line of the engine that builds the model is nobody's to change.
    """
    found = False
    while frame is not None:
        code = frame.f_code
        own = code.co_name == "__init__" and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is module
        file = Path(code.co_filename)
        inside = of_framework(framework, file)
        if file.is_relative_to(ENGINE) or (found and inside) or not (own or inside or file.is_file()):
            return
        if not own and not inside:
            found = True
            yield Caller(file.resolve(), frame.f_lineno, code.co_name, _span(frame), _held(frame))
        frame = frame.f_back


def _span(frame: FrameType) -> Span:
    positions = getattr(frame.f_code, "co_positions", None)
    nowhere = (None, None, None, None)
    return next(itertools.islice(positions(), frame.f_lasti // 2, None), nowhere) if positions else nowhere


def _held(frame: FrameType) -> dict[str, Any]:
    names = frame.f_locals if frame.f_code.co_name != "<module>" else {}
    return {name: value if isinstance(value, PLAIN) else (type(value), id(value)) for name, value in names.items()}


def source_line(framework: Framework, model: Module, path: str, made: bool = False) -> str:
    """``source_place`` as ``file.py:12``; ``""`` where it is not known."""
    place = source_place(framework, model, path, made)
    return f"{shown(place[0])}:{place[1]}" if place else ""


def source_place(framework: Framework, model: Module, path: str, made: bool = False) -> tuple[Path, int] | None:
    """File and line for a module of a model by its own path; None where they are not known.

    Args:
        framework, model: the port.
        path: of the module.
        made: ask for where it is made, also of a module that has others inside.
    """
    modules = framework.modules(model, every_path=True)
    if path not in modules:
        return None
    module = modules[path]
    if framework.children(module) and not made and not _stock(framework, module):
        return _line(getattr(type(module), framework.computing))
    if noted := callers_of(module):
        return noted[0].file, noted[0].line
    names: list[str] = []
    while path:
        path, _, name = path.rpartition(".")
        names.insert(0, name)
        parent = modules.get(path)
        if parent is not None and not _stock(framework, parent):
            return _assigned(type(parent), names)
    return None


def set_by(file: Path, line: int, value: float) -> int | None:
    """The line that gives an attribute, which a line of the same class uses, a number; None where that is not sure.

    The line uses one attribute of ``self`` alone that the class sets once, to this number, and does not hold the number itself.
    """
    with contextlib.suppress(OSError, SyntaxError):
        around = [one for one in ast.walk(ast.parse(file.read_bytes())) if isinstance(one, ast.ClassDef)]
        around = [one for one in around if one.lineno <= line <= (one.end_lineno or 0)]
        if not around:
            return None
        inside = list(ast.walk(max(around, key=lambda one: one.lineno)))
        at = [one for one in inside if isinstance(one, ast.expr) and one.lineno <= line <= (one.end_lineno or 0)]
        if any(_number(one) == value for one in at):
            return None
        assigned = [pair for one in inside if isinstance(one, ast.Assign | ast.AnnAssign) for pair in _pairs(one)]
        used = {one.attr for one in at if isinstance(one, ast.Attribute) and _is_own(one, one.attr)}
        given = [[held for target, held in assigned if _is_own(target, name)] for name in used]
        lines = [one[0].lineno for one in given if len(one) == 1 and one[0] is not None and _number(one[0]) == value]
        changed = {one.target.attr for one in inside if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Attribute)}
        return lines[0] if len(lines) == 1 and not used & changed else None
    return None


def _number(node: ast.expr) -> float | None:
    with contextlib.suppress(ValueError):
        found = ast.literal_eval(node)
        return found if isinstance(found, int | float) and not isinstance(found, bool) else None
    return None


def _stock(framework: Framework, module: Module) -> bool:
    """Whether a module's class is the framework's own container."""
    name = framework.module_type.__module__.partition(".")[0]
    own = type(module).__module__
    return own.partition(".")[0] == name and ".models" not in own


def _line(function: object) -> tuple[Path, int] | None:
    try:
        written = inspect.unwrap(function)  # type: ignore[arg-type]
        file, (_, number) = inspect.getsourcefile(written), inspect.getsourcelines(written)
    except (OSError, TypeError):
        return None
    return (Path(file).resolve(), number) if file else None


def _assigned(kind: type, names: list[str]) -> tuple[Path, int] | None:
    """Where a class or one that it is derived from assigns ``self.NAME``; the argument of a Sequential where it can be told."""
    for owner in kind.__mro__:
        try:
            lines, start = inspect.getsourcelines(owner)
            file = inspect.getsourcefile(owner)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            for target, value in _pairs(node):
                if _is_own(target, names[0]) and file and not isinstance(value, ast.Constant):  # None, until it is made
                    return Path(file).resolve(), start + _within(value or node, names[1:]).lineno - 1
    return None


def _pairs(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """What is assigned, and to what: of ``a, b = f(), g()`` each by itself."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        own = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(parts)
        values = node.value.elts if own else [node.value] * len(parts)  # type: ignore[union-attr]
        yield from zip(parts, values, strict=True)


def _is_own(target: ast.expr, name: str) -> bool:
    own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return own and target.attr == name  # type: ignore[attr-defined]


def _within(value: ast.expr | ast.stmt, names: list[str]) -> ast.expr | ast.stmt:
    """The argument of ``Sequential(...)`` that the numbers name, one inside another."""
    for name in names:
        plain = isinstance(value, ast.Call) and not any(isinstance(one, ast.Starred) for one in value.args)
        called = getattr(getattr(value, "func", None), "attr", getattr(getattr(value, "func", None), "id", ""))
        if not (plain and called == "Sequential" and name.isdigit() and int(name) < len(value.args)):  # type: ignore[union-attr]
            return value
        value = value.args[int(name)]  # type: ignore[union-attr]
    return value
