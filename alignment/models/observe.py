"""Watching a model of any framework while it computes: outputs, kinks, and dropout that draws given numbers."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from alignment.frameworks._dropout import Sharing, Uniform, layer_numbers
from alignment.frameworks.base import Framework, Module, Tensor, leaves

MaskShape = tuple[int, ...]
MaskPieces = Mapping[MaskShape, tuple[int, Sequence[MaskShape]]]  # of which others along which axis; none has its first axis


@dataclass
class MaskDraws:
    """The numbers of dropout masks, a pure function of the seed, the iteration and the shape. They know nothing of a model.

    Attributes:
        flat: whether they are laid out in the order of the values, whatever the axes: see ``alignment.models.regrouped``.
        asked: the shapes that were asked for; None where nobody wants to know.
        pieces: of what shapes, drawn apart on the other side, numbers are made.
        alone: what a number is that is drawn by itself; None where it is drawn as all others are.
    """

    seed: int
    iteration: int = 0
    flat: bool = False
    asked: list[MaskShape] | None = None
    pieces: MaskPieces = field(default_factory=dict)
    alone: float | None = None

    def __call__(self, shape: MaskShape) -> np.ndarray:
        """Numbers in [0, 1), float64; with the axes in another order they are the same, unless axes of equal length change places.

        So a port with the channels last, or the batch first, drops what its reference drops.
        """
        if self.asked is not None:
            self.asked.append(shape)
        drawn = self._drawn(shape)
        axis, parts = self.pieces.get(shape[1:], (0, ()))
        end = 0
        for part in parts:
            place = [slice(None), *map(slice, part)]
            place[axis] = slice(end, end := end + part[axis - 1])
            drawn[tuple(place)] = self._drawn((shape[0], *part))
        return drawn

    def _drawn(self, shape: MaskShape) -> np.ndarray:
        if self.alone is not None and math.prod(shape) == 1:
            return np.full(shape, self.alone)
        if self.flat:
            return np.random.default_rng([self.seed, self.iteration]).random(shape)
        order = sorted(range(len(shape)), key=lambda axis: -shape[axis])
        drawn = np.random.default_rng([self.seed, self.iteration]).random([shape[axis] for axis in order])
        return np.ascontiguousarray(drawn.transpose(np.argsort(order)))


class SharedDropouts(NamedTuple):
    """What shares its masks.

    Attributes:
        layers: how many dropout layers there are that drop anything.
        functions: what is told of dropouts that were called as functions.
    """

    layers: int
    functions: Sharing


def share_dropout(framework: Framework, model: Module, uniform: Uniform) -> SharedDropouts:
    """From now on every dropout of a model keeps an element where ``uniform(shape)``, in [0, 1), is at least its ``p``.

    Two models that are given the same numbers then drop the same elements. A dropout of channels asks for one number a channel,
    one along axes for one a place on these. In evaluation mode nothing changes. Dropouts that are called as functions share theirs
    where the framework can see who calls them.
    """
    every = [module for module in framework.modules(model).values() if framework.layer(module).kind == "dropout"]
    found = [module for module in every if float(framework.layer(module).settings["p"]) > 0]
    functions = framework.share_masks(model, every, uniform)
    for module in found:
        framework.without_inplace(module)  # the mask is for what the layer is given, not for what it makes of it
        framework.hook(module, after=_masked(framework, framework.layer(module).settings, functions))
    return SharedDropouts(len(found), functions)


def _masked(framework: Framework, settings: Mapping[str, Any], functions: Sharing) -> Callable:
    p = float(settings["p"])
    scale = 1.0 if settings.get("mode") == "downscale_in_infer" else 1.0 - p

    def masked(module: Module, args: tuple, kwargs: dict, output: Tensor) -> Tensor | None:
        given = args[0] if args else next(iter(kwargs.values()))
        done, functions.by_layer = functions.by_layer, False
        if done or not framework.training(module) or p == 0:
            return None
        functions.drawn.append(p)
        shape = tuple(int(n) for n in given.shape)
        kept = layer_numbers(module, functions, _mask_shape(shape, settings)) >= p
        return framework.times(given, np.broadcast_to(kept, shape) / scale) if scale else None

    return masked


def _mask_shape(shape: tuple[int, ...], settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Of the numbers that a dropout draws: one for each value, for each channel, or along the axes that it was given."""
    axes = settings.get("axis")
    if settings.get("channels"):
        return (*shape[:2], *(1,) * (len(shape) - 2))
    if axes is None:
        return shape
    chosen = {axis % len(shape) for axis in (axes if isinstance(axes, list | tuple) else (axes,))}
    return tuple(n if i in chosen else 1 for i, n in enumerate(shape))


def dropout_probe(module: Module) -> np.ndarray:
    """Ones for a dropout layer on its own, float32: 16,384 numbers are drawn for them, also where it drops whole channels."""
    found = (re.fullmatch(r"Dropout(\d)d", kind.__name__, re.I) for kind in type(module).__mro__)
    return np.ones((64, 256, *(1,) * next((int(one[1]) for one in found if one), 0)), dtype=np.float32)


@contextlib.contextmanager
def traced_outputs(framework: Framework, model: Module, names: Iterable[str], into: dict[str, np.ndarray]) -> Iterator[None]:
    """Note the first output of every call of the named modules inside the block; the second call's is noted as ``name#2``."""
    modules = framework.modules(model)

    def keeper(name: str) -> Callable:
        calls = 0

        def keep(_module: Module, _args: tuple, _kwargs: dict, output: Any) -> None:
            nonlocal calls
            calls += 1
            into[name if calls == 1 else f"{name}#{calls}"] = framework.array(leaves(output, framework.tensor_type)[0])

        return keep

    with _hooked(framework, [(modules[name], None, keeper(name)) for name in names if name in modules]):
        yield


@contextlib.contextmanager
def traced_kinks(framework: Framework, model: Module, into: dict[str, np.ndarray]) -> Iterator[None]:
    """Note on which side of its kinks every input of a layer with kinks lies: one up for each reached, one for each passed.

    A second forward pass inside the block is noted as ``name#2``, and so on.
    """

    def keeper(name: str, kinks: tuple[float, ...]) -> Callable:
        calls = 0

        def keep(_module: Module, args: tuple) -> None:
            nonlocal calls
            calls += 1
            array = framework.array(args[0])
            side = np.digitize(array, kinks) + np.digitize(array, kinks, right=True)  # on a kink is a side of its own
            into[name if calls == 1 else f"{name}#{calls}"] = side.astype(np.int8)

        return keep

    layers = [(name, module, framework.kinks(module)) for name, module in framework.modules(model).items()]
    with _hooked(framework, [(module, keeper(name, kinks), None) for name, module, kinks in layers if kinks]):
        yield


@contextlib.contextmanager
def _hooked(framework: Framework, hooks: Iterable[tuple[Module, Callable | None, Callable | None]]) -> Iterator[None]:
    handles = [framework.hook(module, before=before, after=after) for module, before, after in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
