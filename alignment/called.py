"""Which public functions of a port are called while something runs: in the steps, and in each rank."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from alignment.project import PARTS, Builder, Project

SPECIAL = ("__init__", "__call__", "__iter__", "__len__", "__getitem__")


@dataclass
class Seen:
    """Public functions of the port by ``module.name``, and which of them were called."""

    known: dict[str, FunctionType] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)


def _first_call(*args: Any, **kwargs: Any) -> Any:
    noted = "what is called in its place"
    return noted(*args, **kwargs)  # type: ignore[operator]


@contextlib.contextmanager
def watched(project: Project, builder: Builder) -> Iterator[Seen]:
    """Note which public functions of the port are called inside the block, in any thread.

    Each function's code gives way to one that notes the first call and puts the code back; what follows costs nothing. (Tracing
    all calls, of the frameworks' own functions too, makes the steps a fifth slower.)
    """
    seen = Seen(functions(_modules(port_packages(project, builder))))
    codes = {name: function.__code__ for name, function in seen.known.items()}
    for name, function in seen.known.items():
        function.__code__ = _noting(seen, name, function, codes[name])
    try:
        yield seen
    finally:
        for name, function in seen.known.items():
            function.__code__ = codes[name]


def _noting(seen: Seen, name: str, function: FunctionType, code: CodeType) -> CodeType:
    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.called.add(name)
        function.__code__ = code
        return function(*args, **kwargs)

    template = _first_call.__code__
    own = tuple(noted if isinstance(const, str) else const for const in template.co_consts)
    consts, names = (*own, *code.co_consts), code.co_names  # who reads what a function names reads the same
    return template.replace(co_consts=consts, co_names=names, co_name=code.co_name, co_freevars=code.co_freevars)


def port_packages(project: Project, builder: Builder) -> set[str]:
    """Names of the packages and modules that the port's parts and its model are written in."""
    names = part_names(project)
    while isinstance(builder, functools.partial):
        builder = builder.func
    module = getattr(inspect.unwrap(builder), "__module__", "")
    roots = {name.partition(".")[0] for name in names}
    return names | {module.rpartition(".")[0] if module.partition(".")[0] in roots else module}


def part_names(project: Project) -> set[str]:
    """Names of the packages and modules that the port's parts are."""
    parts = [getattr(project.port, part) for part in PARTS]
    return {part.__name__ for part in parts if isinstance(part, ModuleType)}


def _modules(packages: Iterable[str]) -> list[ModuleType]:
    """What is loaded of some packages."""
    inside = lambda name: any(name == own or name.startswith(f"{own}.") for own in packages)  # noqa: E731
    return [found for name, found in sorted(sys.modules.items()) if isinstance(found, ModuleType) and inside(name)]


def functions(modules: Iterable[ModuleType]) -> dict[str, FunctionType]:
    """Public functions and methods that are written in some modules, by ``module.name``."""
    found: dict[str, FunctionType] = {}
    for module in modules:
        for owner, prefix in [(module, ""), *((v, f"{v.__qualname__}.") for v in vars(module).values() if isinstance(v, type))]:
            if isinstance(owner, type) and owner.__module__ != module.__name__:
                continue
            for name, value in vars(owner).items():
                function = _plain(value)
                if function is None or (name.startswith("_") and name not in SPECIAL) or prefix.startswith("_"):
                    continue
                if function.__code__.co_filename == getattr(module, "__file__", None):
                    found[f"{function.__module__}.{prefix}{name}"] = function
    return found


def _plain(value: Any) -> FunctionType | None:
    """The function under decorators, properties and the like."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None
