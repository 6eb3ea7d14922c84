"""What a known fault is, as an object or as an edit of the source, a project's lists of them, and how one is injected."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from alignment.frameworks.base import Module
from alignment.kinds import Kind
from alignment.project import Project
from mobilenetv3_common.errors import UserError

Make = Callable[[contextlib.ExitStack, Project], Project]
Build = Callable[[], Module]


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


@dataclass(frozen=True)
class Edit:
    """A change of one file.

    Attributes:
        file: relative to the project's folder.
        old: text that occurs in it exactly once.
        new: what stands there instead.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class SourceFault:
    """One mistake and what has to be said of it.

    Attributes:
        name: for ``--inject``.
        area: e.g. ``"models"``, ``"data"``, ``"optimizer"``.
        step: the first step that should fail.
        location: where localisation should find it, exactly.
        hint: the kind of mistake that it should be called, by its value; "a|b" where either is right,
            "" where none is known: a hint is then neither right nor false.
        edits: of the port's source.
    """

    name: str
    area: str
    step: int
    location: str
    hint: str
    edits: tuple[Edit, ...]

    @property
    def kind(self) -> str:
        """The mistake's first name."""
        return self.hint.partition("|")[0]


@dataclass(frozen=True)
class Rewrite:
    """The same port in other words: no step may fail.

    Attributes:
        name: of the rewrite.
        edits: of the port's source.
    """

    name: str
    edits: tuple[Edit, ...]


class Edits:
    """A project's faults and rewrites by name, as its files register them.

    Attributes:
        faults, rewrites: by name, in the order in which they were registered.
    """

    def __init__(self) -> None:
        self.faults: dict[str, SourceFault] = {}
        self.rewrites: dict[str, Rewrite] = {}

    def fault(self, area: str, step: int, location: str, hint: str, name: str, *changes: tuple[str, str, str]) -> None:
        """Register a fault; each change is a file, the text in it, and the text in its place."""
        if name in self.faults:
            raise ValueError(f"two faults are called {name}")
        self.faults[name] = SourceFault(name, area, step, location, hint, tuple(Edit(*change) for change in changes))

    def rewrite(self, name: str, *changes: tuple[str, str, str]) -> None:
        """Register a rewrite."""
        if name in self.rewrites:
            raise ValueError(f"two rewrites are called {name}")
        self.rewrites[name] = Rewrite(name, tuple(Edit(*change) for change in changes))


@dataclass(frozen=True)
class LayerPair:
    """A sound pair, and ports of it with one wrong setting each.

    Attributes:
        port, reference: make the networks; the layer in question is their module ``layer``.
        inputs: makes their input from a generator.
        faults: by name: what makes the wrong port, and the kinds that it may be called.
        training: whether the pair agrees in training mode, too.
    """

    port: Build
    reference: Build
    inputs: Callable[[np.random.Generator], np.ndarray]
    faults: Mapping[str, tuple[Build, Sequence[Kind]]] = field(default_factory=dict)
    training: bool = True


def faults_of(project: Project) -> Mapping[str, Fault]:
    """The project's known faults; none where it lists none."""
    found: Any = project.faults() if project.faults is not None else {}
    return found


def edits_of(project: Project) -> Edits:
    """The project's faults and rewrites as edits of its source; none where it lists none."""
    found: Edits = project.edits() if project.edits is not None else Edits()
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
        near = difflib.get_close_matches(name, list(dict.fromkeys([*known, *edits])), 3)
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
