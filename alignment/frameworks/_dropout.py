"""Random numbers that a model's functions draw, from given ones where the module that calls them was told to share them."""

from __future__ import annotations

import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alignment.frameworks._passes import Module

FRAMEWORKS = f"{Path(__file__).resolve().parent}{os.sep}"
ENGINE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
STEPS = 2.0**24  # in [0, 1), of the numbers that are drawn: float32 holds them
HALF = 2.0**26  # a number in [0, 1) has 53 bits: its first and last ones are two numbers
Uniform = Callable[[tuple[int, ...]], np.ndarray]


@dataclass
class Sharing:
    """The numbers of one model.

    Attributes:
        uniform: numbers in [0, 1) of a shape.
        called: of each call of a function, so far, that is no dropout layer's: the share of values that it drops, or None where
            the numbers are not drawn to drop anything, as far as can be seen.
        drawn: the same of every call, that of a dropout layer too.
        by_layer: whether the function that a dropout layer calls has dropped by the numbers, and the layer has not returned.
        alone: where one number is drawn by itself, each place once: ``file:line``.
    """

    uniform: Uniform
    called: list[float | None] = field(default_factory=list)
    drawn: list[float | None] = field(default_factory=list)
    by_layer: bool = False
    alone: dict[str, None] = field(default_factory=dict)


class Shared(NamedTuple):
    """How a module takes part.

    Attributes:
        sharing: the numbers of its model.
        is_layer: whether it is a dropout layer itself.
        mirrored: whether it draws the numbers from the other end of the interval, which are as random: ``rand() < keep`` then keeps
            what ``floor(keep + rand())`` keeps, and a normal number has the other sign.
    """

    sharing: Sharing
    is_layer: bool
    mirrored: bool = False


_SHARING: weakref.WeakKeyDictionary[Any, Shared] = weakref.WeakKeyDictionary()


def share(modules: Iterable[Module], layers: Iterable[Module], uniform: Uniform) -> Sharing:
    """From now on functions that these modules call draw given numbers.

    Args:
        modules: of a model.
        layers: those of them that are dropout layers themselves.
        uniform: numbers in [0, 1) of a shape. It must not refer to the model, which would then never be freed.
    """
    sharing, own = Sharing(uniform), {id(layer) for layer in layers}
    for module in modules:
        _SHARING[module] = Shared(sharing, id(module) in own)
    return sharing


def passed_on(copies: Iterable[Module], originals: Iterable[Module]) -> None:
    """Copies of modules share what these share."""
    for made, original in zip(copies, originals, strict=False):
        if original in _SHARING:
            _SHARING[made] = _SHARING[original]


def mirror(modules: Iterable[Module], on: bool = True) -> None:
    """Let modules that share numbers draw mirrored ones from now on, or as they are."""
    for module in modules:
        if module in _SHARING:
            _SHARING[module] = _SHARING[module]._replace(mirrored=on)


def is_mirrored(module: Module) -> bool:
    """Whether a module draws mirrored numbers."""
    return module in _SHARING and _SHARING[module].mirrored


def layer_numbers(module: Module, sharing: Sharing, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in [0, 1) of a shape for a dropout layer."""
    shared = _SHARING.get(module)
    numbers = sharing.uniform(shape)
    return 1 - numbers if shared is not None and shared.mirrored else numbers


def kept_values(p: float, shape: tuple[int, ...], drawn: tuple[int, ...]) -> np.ndarray | None:
    """Which values a dropout keeps: bool of a shape; None where the caller shares no numbers.

    Args:
        p: share of the values that are dropped.
        shape: of what it is given.
        drawn: of the numbers that are drawn, which broadcasts to ``shape``.
    """
    numbers = uniform_numbers(drawn, p)
    return None if numbers is None else np.broadcast_to(numbers >= p, shape)


def uniform_numbers(shape: tuple[int, ...], dropped: float | None = None) -> np.ndarray | None:
    """Numbers in [0, 1) of a shape, which float32 holds; None where the caller shares none.

    Args:
        shape: of the numbers.
        dropped: share of the values that are dropped by them, where that is known.
    """
    found = _caller()
    if found is None:
        return None
    _note(found, dropped)
    if math.prod(shape) == 1:
        found.sharing.alone[_place()] = None
    steps = np.floor(found.sharing.uniform(shape) * STEPS)
    return (STEPS - 1 - steps if found.mirrored else steps) / STEPS


def normal_numbers(shape: tuple[int, ...]) -> np.ndarray | None:
    """Normal numbers of a shape; None where the caller shares none. They are made of the uniform ones (Box and Muller)."""
    found = _caller()
    if found is None:
        return None
    _note(found, None)
    numbers = found.sharing.uniform(shape)
    first, second = np.floor(numbers * HALF) / HALF, numbers * HALF % 1.0
    made = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    return -made if found.mirrored else made


def occurs(probability: np.ndarray | float, shape: tuple[int, ...]) -> np.ndarray | None:
    """Whether each of some events occurs: bool of a shape; None where the caller shares no numbers.

    A dropout of the same share, and ``floor(probability + rand())``, keep the same values.
    """
    least, most = (float(function(probability)) for function in (np.min, np.max)) if np.size(probability) else (0.0, 0.0)
    numbers = uniform_numbers(shape, 1 - most if least == most else None)
    return None if numbers is None else numbers >= 1 - np.asarray(probability, dtype=np.float64)


def _note(shared: Shared, dropped: float | None) -> None:
    shared.sharing.drawn.append(dropped)
    if shared.is_layer:
        shared.sharing.by_layer = True
    else:
        shared.sharing.called.append(dropped)


def _place() -> str:
    """The innermost line outside the engine, ``file:line``."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ENGINE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _caller() -> Shared | None:
    """The innermost module on the stack that shares its numbers: the first argument of a function that is running.

    The engine's own frames around the model are not looked at: to read a frame's variables keeps them alive as long as the frame.
    Those of this package may stand between a model and what a function of its framework calls, and are passed over.
    """
    frame, within = sys._getframe(2), False
    while frame is not None:
        code = frame.f_code
        own = code.co_filename.startswith(ENGINE)
        if own and within and not code.co_filename.startswith(FRAMEWORKS):
            return None
        within = within or not own
        if within and not own and code.co_argcount:
            try:
                found = _SHARING.get(frame.f_locals.get(code.co_varnames[0]))
            except TypeError:  # no module: it has no hash, or cannot be referred to weakly
                found = None
            if found is not None:
                return found
        frame = frame.f_back  # type: ignore[assignment]
    return None
