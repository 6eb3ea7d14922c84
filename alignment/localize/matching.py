"""Which module of the port is which module of the reference, also where one is missing, extra or renamed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from alignment.frameworks import framework_of
from alignment.frameworks.base import Framework, Module

UnmatchedKind = Literal["missing", "extra", "renamed"]


@dataclass(frozen=True)
class Unmatched:
    """A module that only one side has, or that has another name.

    Attributes:
        kind: ``"missing"`` (in the port), ``"extra"`` (in the port) or ``"renamed"``.
        path: in the reference, or in the port where only it has the module.
        module: its class, for people.
        parameters: how many numbers its parameters hold.
        detail: of a renamed one, what the port calls it.
    """

    kind: UnmatchedKind
    path: str
    module: str
    parameters: int
    detail: str = ""


@dataclass
class Matching:
    """Reference path -> port path for every module that both have, and those that only one has."""

    paths: dict[str, str] = field(default_factory=dict)
    unmatched: list[Unmatched] = field(default_factory=list)

    def renaming(self) -> dict[str, str]:
        """Port path -> reference path."""
        return {own: other for other, own in self.paths.items()}


def match_modules(
    port: Module,
    reference: Module,
    names: Mapping[str, str] | None = None,
    frameworks: tuple[Framework, Framework] | None = None,
) -> Matching:
    """Match the modules of two models.

    Children of matched parents are matched by name where their parameters agree in shape, and by an alignment of the two
    sequences otherwise, so that one missing layer of a ``Sequential`` does not shift all that follow it.

    Args:
        port, reference: models of any of the frameworks.
        names: port path -> reference path where the names differ, for modules or for whole prefixes (``"res2"`` ->
            ``"layer1"``).
        frameworks: of the port and of the reference; found out by themselves where they have no layers of a project.

    Raises:
        UserError: one of the two is not a model.
    """
    matching = Matching({"": ""})
    _Matcher(*(frameworks or (framework_of(port), framework_of(reference))), dict(names or {}), matching).children(
        port, reference, "", ""
    )
    return matching


@dataclass(frozen=True)
class _Candidate:
    """A child as it is looked at: its name, kind, class and the shapes of its parameters (each sorted: layouts differ)."""

    name: str
    module: Module
    kind: str
    title: str
    shapes: list[tuple[int, ...]]

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)


@dataclass
class _Matcher:
    port: Framework
    reference: Framework
    names: dict[str, str]
    matching: Matching

    def children(self, port: Module, reference: Module, ours: str, theirs: str) -> None:
        own, other = _candidates(self.port, port), _candidates(self.reference, reference)
        wanted = [self.names.get(_joined(ours, child.name), _joined(theirs, child.name)) for child in own]
        other_paths = [_joined(theirs, child.name) for child in other]
        for i, j in _align(own, other, wanted, other_paths):
            if i is None:
                assert j is not None
                self._note("missing", other_paths[j], other[j])
            elif j is None:
                self._note("extra", _joined(ours, own[i].name), own[i])
            else:
                path = _joined(ours, own[i].name)
                self.matching.paths[other_paths[j]] = path
                shifted = own[i].name.isdigit() and other[j].name.isdigit()
                if wanted[i] != other_paths[j] and not shifted:
                    self._note("renamed", other_paths[j], other[j], f"called {path} in the port")
                self.children(own[i].module, other[j].module, path, other_paths[j])

    def _note(self, kind: UnmatchedKind, path: str, child: _Candidate, detail: str = "") -> None:
        self.matching.unmatched.append(Unmatched(kind, path, child.title, child.parameters, detail))


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _candidates(framework: Framework, parent: Module) -> list[_Candidate]:
    found = []
    for name, module in framework.children(parent):
        layer = framework.layer(module)
        shapes = sorted(tuple(sorted(e.shape)) for e in framework.entries(module) if e.role == "parameter")
        found.append(_Candidate(name, module, re.sub(r"[123]d", "", layer.kind), layer.title, shapes))
    return found


def _align(own: list[_Candidate], other: list[_Candidate], wanted: list[str], paths: list[str]) -> list:
    """Best pairing in order, as (place in own or None, place in other or None); by name where both have the same names."""
    if sorted(wanted) == sorted(paths):
        return [(wanted.index(path), j) for j, path in enumerate(paths)]
    score = [[0.0] * (len(other) + 1) for _ in range(len(own) + 1)]
    same = [[_similarity(own[i], other[j], wanted[i] == paths[j]) for j in range(len(other))] for i in range(len(own))]
    for i in range(len(own) - 1, -1, -1):
        for j in range(len(other) - 1, -1, -1):
            score[i][j] = max(score[i + 1][j], score[i][j + 1], same[i][j] + score[i + 1][j + 1])
    pairs: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < len(own) and j < len(other):
        if same[i][j] > 0 and score[i][j] == same[i][j] + score[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif score[i][j] == score[i][j + 1]:
            pairs.append((None, j))
            j += 1
        else:
            pairs.append((i, None))
            i += 1
    return pairs + [(None, k) for k in range(j, len(other))] + [(k, None) for k in range(i, len(own))]


def _similarity(a: _Candidate, b: _Candidate, same_name: bool) -> float:
    if bool(a.shapes) != bool(b.shapes):
        return 0.0
    alike = 3.0 if a.shapes == b.shapes and a.shapes else 0.0
    alike += 1.0 if a.kind == b.kind else 0.0
    if not alike and not same_name:
        return 0.0
    return alike + (0.5 if same_name else 0.0)
