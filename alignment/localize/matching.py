"""Which Paddle layer is which torch module, also where one is missing, too many or renamed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_KINDS = {"conv2dnormactivation": "convnormactivation"}


@dataclass(frozen=True)
class Unmatched:
    """A module that only one side has: ``kind`` is ``"missing"`` (in Paddle), ``"extra"`` or ``"renamed"``."""

    kind: str
    path: str
    module: str
    parameters: int
    detail: str = ""


@dataclass
class Matching:
    """torch path -> Paddle path for every module that both have, and those that only one has."""

    paths: dict[str, str] = field(default_factory=dict)
    unmatched: list[Unmatched] = field(default_factory=list)


def match_modules(layer: Any, module: Any, names: Mapping[str, str] | None = None) -> Matching:
    """Match the modules of two models.

    Children of matched parents are matched by name where their parameters agree in shape, and by an alignment of the two
    sequences otherwise, so that one missing layer of a ``Sequential`` does not shift all that follow it.

    Args:
        layer: a ``paddle.nn.Layer``.
        module: a ``torch.nn.Module``.
        names: Paddle path -> torch path where the names differ, for modules or for whole prefixes (``"res2"`` ->
            ``"layer1"``).
    """
    matching = Matching({"": ""})
    _match_children(layer, module, "", "", dict(names or {}), matching)
    return matching


def _match_children(layer: Any, module: Any, ours: str, theirs: str, names: dict[str, str], matching: Matching) -> None:
    own, other = list(layer.named_children()), list(module.named_children())
    joined = lambda prefix, name: f"{prefix}.{name}" if prefix else name  # noqa: E731
    wanted = [names.get(joined(ours, name), joined(theirs, name)) for name, _ in own]
    other_paths = [joined(theirs, name) for name, _ in other]
    pairs = _align(own, other, wanted, other_paths)
    for i, j in pairs:
        if i is None:
            assert j is not None
            matching.unmatched.append(Unmatched("missing", other_paths[j], _kind(other[j][1]), _size(other[j][1])))
        elif j is None:
            path = joined(ours, own[i][0])
            matching.unmatched.append(Unmatched("extra", path, _kind(own[i][1]), _size(own[i][1])))
        else:
            path = joined(ours, own[i][0])
            matching.paths[other_paths[j]] = path
            shifted = own[i][0].isdigit() and other[j][0].isdigit()
            if wanted[i] != other_paths[j] and not shifted:
                unmatched = Unmatched("renamed", other_paths[j], _kind(other[j][1]), _size(other[j][1]), f"called {path} in Paddle")
                matching.unmatched.append(unmatched)
            _match_children(own[i][1], other[j][1], path, other_paths[j], names, matching)


def _align(own: list, other: list, wanted: list[str], paths: list[str]) -> list[tuple[int | None, int | None]]:
    """Best pairing in order; where the two lists have the same names in another order, by name."""
    if sorted(wanted) == sorted(paths):
        return [(wanted.index(path), j) for j, path in enumerate(paths)]
    score = [[0.0] * (len(other) + 1) for _ in range(len(own) + 1)]
    same = [[_similarity(own[i][1], other[j][1], wanted[i] == paths[j]) for j in range(len(other))] for i in range(len(own))]
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


def _similarity(a: Any, b: Any, same_name: bool) -> float:
    shapes, others = _shapes(a), _shapes(b)
    if bool(shapes) != bool(others):
        return 0.0
    alike = 3.0 if shapes == others and shapes else 0.0
    alike += 1.0 if _kind(a) == _kind(b) else 0.0
    if not alike and not same_name:
        return 0.0
    return alike + (0.5 if same_name else 0.0)


def _kind(module: Any) -> str:
    name = type(module).__name__.lower()
    return _KINDS.get(name, name)


STATISTICS = ("_mean", "_variance")  # which Paddle keeps among BatchNorm's parameters


def _shapes(module: Any) -> list[tuple[int, ...]]:
    """Shapes of all weights below, each sorted, since Paddle turns linear weights round; statistics left out."""
    named = module.named_parameters()
    return sorted(tuple(sorted(int(n) for n in p.shape)) for name, p in named if name.rsplit(".", 1)[-1] not in STATISTICS)


def _size(module: Any) -> int:
    return sum(math.prod(shape) for shape in _shapes(module))
