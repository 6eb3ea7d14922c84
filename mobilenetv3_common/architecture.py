"""Which MobileNetV3 a file of weights belongs to, read off the shapes of its tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mobilenetv3_common.class_names import MAX_CLASSES
from mobilenetv3_common.weights import CLASSIFIER

Shapes = Mapping[str, tuple[int, ...]]
# The model by the number of the last convolution -> its channels at width 1.
TAILS = {12: ("mobilenet_v3_small", 576), 16: ("mobilenet_v3_large", 960)}
FIRST = "features.1.block"
MOST_CHANNELS = 1 << 12  # four times the widest layer at width 1; a shape in a file costs little, the network of it does


@dataclass(frozen=True)
class Architecture:
    """What a builder has to be told, and what is done to the network that it makes.

    Attributes:
        model: name of the builder.
        num_classes, width_mult, reduced_tail: its arguments.
        rows: number in ``features``, channels in, expanded and out, of a block or the first convolution that has others than the
            width gives: timm rounds otherwise, and does not narrow the first convolution below width 0.75.
        first_expansion: whether the first block expands too, by a convolution of as many channels, as PaddleClas's does.
        tail_channels: of the last convolution, where it is another one than the width gives.
        last_channels: of the hidden layer, where it is not what the width gives; timm and PaddleClas do not widen it.
        squeezed: channels inside a squeeze-excitation by its path, where PaddleClas rounds a quarter otherwise.
    """

    model: str
    num_classes: int
    width_mult: float = 1.0
    reduced_tail: bool = False
    first_expansion: bool = False
    rows: tuple[tuple[int, int, int, int], ...] = ()
    tail_channels: int | None = None
    last_channels: int | None = None
    squeezed: tuple[tuple[str, int], ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The builder's arguments."""
        return {"num_classes": self.num_classes, "width_mult": self.width_mult, "reduced_tail": self.reduced_tail}

    @property
    def differences(self) -> list[str]:
        """In which layers it is not the builder's network, for people."""
        found = [f"{len(self.rows)} blocks have other channels than any width gives"] if self.rows else []
        found += ["the first block expands"] if self.first_expansion else []
        found += [f"the last convolution has {self.tail_channels} channels"] if self.tail_channels else []
        found += [f"the hidden layer has {self.last_channels} channels"] if self.last_channels else []
        return found + ([f"{len(self.squeezed)} squeeze-excitations have other widths"] if self.squeezed else [])


def architecture_of(shapes: Shapes, shapes_of: Callable[..., Shapes]) -> Architecture | None:
    """The network that has tensors of these shapes; None where no MobileNetV3 has.

    Args:
        shapes: canonical, without counters.
        shapes_of: the same of the network of a model's name and a builder's options.
    """
    last = _last(shapes)
    if last not in TAILS or len(shapes.get(f"{CLASSIFIER}.weight", ())) != 2 or not _sound(shapes):
        return None
    model, tail = TAILS[last]
    classes = shapes[f"{CLASSIFIER}.weight"][0]
    kernel = shapes.get(f"{FIRST}.0.0.weight", ())
    first_expansion = len(kernel) == 4 and kernel[2:] == (1, 1)
    usual = _without_expansion(shapes) if first_expansion else shapes
    candidates = {}
    for width, reduced in widths(shapes[f"features.{last}.0.weight"][0] / tail):
        made = shapes_of(model, num_classes=classes, width_mult=width, reduced_tail=reduced)
        if made.keys() == usual.keys():
            candidates[width, reduced] = made
            if not _rows(usual, made, last):
                break
    if not candidates:
        return None
    width, reduced = min(candidates, key=lambda key: len(_rows(usual, candidates[key], last)))
    return _differing(
        Architecture(model, classes, width, reduced, first_expansion), shapes, usual, candidates[width, reduced], last
    )


def _sound(shapes: Shapes) -> bool:
    """Whether convolutions and gates have four axes, and the network is of a width that somebody trains."""
    kernels = [s for n, s in shapes.items() if n.startswith("features.") and re.search(r"(\.0|fc1|fc2)\.weight$", n)]
    classes = shapes[f"{CLASSIFIER}.weight"][0]
    return 0 < classes <= MAX_CLASSES and all(
        len(shape) == 4 and 0 < min(shape) <= max(shape) <= MOST_CHANNELS for shape in kernels
    )


def _differing(found: Architecture, shapes: Shapes, usual: Shapes, made: Shapes, last: int) -> Architecture:
    """The architecture with the channels in which the file differs from what its builder makes."""
    rows = _rows(usual, made, last)
    rebuilt, theirs = {f"features.{row[0]}" for row in rows}, _gates(made)
    there = dict(zip(_gates(usual), _gates(shapes), strict=True))  # the path in the file, where the first block is one layer longer
    squeezed = tuple(
        (there[gate], count)
        for gate, count in _gates(usual).items()
        if theirs[gate] != count or gate.partition(".block")[0] in rebuilt
    )
    end, hidden = f"features.{last}.0.weight", f"{CLASSIFIER}.weight"
    return replace(
        found,
        rows=rows,
        tail_channels=None if shapes[end] == made[end] else shapes[end][0],
        last_channels=None if shapes[hidden] == made[hidden] else shapes[hidden][1],
        squeezed=squeezed,
    )


def _rows(usual: Shapes, made: Shapes, last: int) -> tuple[tuple[int, int, int, int], ...]:
    """Number, channels in, expanded and out of each part before the last convolution that differs, squeeze-excitation left out."""
    found = []
    for number in range(last):
        convolutions = [name for name in made if re.match(rf"features\.{number}\.(block\.\d+\.)?0\.weight", name)]
        if any(tuple(usual[name]) != tuple(made[name]) for name in convolutions):
            first, deep, out = (usual[convolutions[place]] for place in (0, -2 if number else 0, -1))
            depthwise = first[1] == 1 and number > 0
            found.append((number, deep[0] if depthwise else first[1], deep[0], out[0]))
    return tuple(found)


def model_of(names: Iterable[str]) -> str | None:
    """The model whose last convolution is among the names; at any width."""
    return TAILS[_last(names)][0] if _last(names) in TAILS else None


def _last(names: Iterable[str]) -> int:
    """The number of the last convolution: 0 where there is none."""
    return max((int(m[1]) for name in names if (m := re.fullmatch(r"features\.(\d+)\.0\.weight", name))), default=0)


def widths(width: float) -> Iterator[tuple[float, bool]]:
    """Widths and reduced tails under which a tail may be so wide, usual ones first: channels are multiples of 8."""
    for reduced in (False, True):
        exact = width * (2 if reduced else 1)
        for candidate in dict.fromkeys((round(exact * 20) / 20, round(exact * 100) / 100, exact)):
            if candidate > 0:
                yield candidate, reduced


def _gates(shapes: Shapes) -> dict[str, int]:
    """The channels inside each squeeze-excitation, by its path."""
    return {name.removesuffix(".fc1.weight"): shape[0] for name, shape in shapes.items() if name.endswith(".fc1.weight")}


def _without_expansion(shapes: Shapes) -> Shapes:
    """The shapes as they are where the first block does not expand: its first layer left out, the others one place nearer."""

    def place(name: str) -> int | None:
        found = re.match(re.escape(FIRST) + r"\.(\d+)\.", name)
        return int(found[1]) if found else None

    kept = {name: shape for name, shape in shapes.items() if place(name) != 0}
    return {
        name if (at := place(name)) is None else name.replace(f"{FIRST}.{at}.", f"{FIRST}.{at - 1}.", 1): shape
        for name, shape in kept.items()
    }
