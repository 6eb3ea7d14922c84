"""What a known fault is, a project's list of them, and how one is injected."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from alignment.localize.kinds import Kind
from alignment.project import Project
from mobilenetv3_common.errors import UserError

Make = Callable[[contextlib.ExitStack, Project], Project]


@dataclass(frozen=True)
class Fault:
    """One mistake and what has to be said of it.

    Attributes:
        name: for ``--inject``.
        area: ``"models"``, ``"weights"``, ``"data"``, ``"metric"``, ``"loss"``, ``"optimizer"``, ``"schedule"``,
            ``"training"`` or ``"distributed"``.
        step: the first step that must fail.
        location: where localisation must find it, exactly.
        hint: the kind of mistake that it must be called.
        make: gives the project with this mistake in its port; what it enters on the stack is undone afterwards.
    """

    name: str
    area: str
    step: int
    location: str
    hint: Kind
    make: Make


class Faults(dict[str, Fault]):
    """A project's faults by name, in the order of the steps."""

    def add(self, area: str, step: int, location: str, hint: Kind, name: str = "") -> Callable[[Make], Make]:
        """Register a function as the ``make`` of a fault, under the function's name where none is given."""

        def register(make: Make) -> Make:
            key = name or make.__name__
            if key in self:
                raise ValueError(f"two faults are called {key}")
            self[key] = Fault(key, area, step, location, hint, make)
            return make

        return register

    def collect(self, package: ModuleType) -> Faults:
        """Import every file of a package, which register their faults here; returns them in the order of the steps."""
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
        ordered = sorted(self.values(), key=lambda fault: fault.step)  # stable: the order within a file stays
        self.clear()
        self.update({fault.name: fault for fault in ordered})
        return self


def faults_of(project: Project) -> Mapping[str, Fault]:
    """The project's known faults; none where it lists none."""
    found: Any = project.faults() if project.faults is not None else {}
    return found


def fault_named(project: Project, name: str) -> Fault:
    """One of the project's faults.

    Raises:
        UserError: there is no such fault.
    """
    known = faults_of(project)
    if name not in known:
        edits = project.edits().faults if project.edits is not None else {}
        if name in edits:
            raise UserError(f"--inject {name}: it is an edit of the source: bench --source-faults runs it")
        near = difflib.get_close_matches(name, [*known, *edits], 3)
        words = f"did you mean {' or '.join(near)}?" if near else "--inject list names them"
        raise UserError(f"--inject {name}: no such fault; {words}" if known else f"--inject {name}: {project.name} lists no faults")
    return known[name]


@contextlib.contextmanager
def injected(project: Project, name: str | None) -> Iterator[Project]:
    """The project with one fault in its port inside the block; sound where ``name`` is None.

    Raises:
        UserError: there is no such fault.
    """
    if name is None:
        yield project
        return
    fault = fault_named(project, name)
    with contextlib.ExitStack() as stack:
        yield fault.make(stack, project)


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute, or an entry of a dictionary, has another value inside the block."""
    entry = isinstance(owner, dict)
    before = owner[name] if entry else getattr(owner, name)
    put = owner.__setitem__ if entry else lambda key, new: setattr(owner, key, new)
    put(name, value)
    try:
        yield
    finally:
        put(name, before)
