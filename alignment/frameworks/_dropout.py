"""Dropout that is called as a function, with masks of given numbers where the module that calls it was told to share them."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alignment.frameworks._passes import Module

ENGINE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
Uniform = Callable[[tuple[int, ...]], np.ndarray]


@dataclass
class Sharing:
    """The numbers of one model.

    Attributes:
        uniform: numbers in [0, 1) of a shape.
        called: p of each call of a function, so far, that is no dropout layer's.
        by_layer: whether the function that a dropout layer calls has dropped by the numbers, and the layer has not returned.
    """

    uniform: Uniform
    called: list[float] = field(default_factory=list)
    by_layer: bool = False


_SHARING: weakref.WeakKeyDictionary[Any, tuple[Sharing, bool]] = weakref.WeakKeyDictionary()


def share(modules: Iterable[Module], layers: Iterable[Module], uniform: Uniform) -> Sharing:
    """From now on functions that these modules call drop by given numbers.

    Args:
        modules: of a model.
        layers: those of them that are dropout layers themselves.
        uniform: numbers in [0, 1) of a shape. It must not refer to the model, which would then never be freed.
    """
    sharing, own = Sharing(uniform), {id(layer) for layer in layers}
    for module in modules:
        _SHARING[module] = sharing, id(module) in own
    return sharing


def kept_values(p: float, shape: tuple[int, ...], drawn: tuple[int, ...]) -> np.ndarray | None:
    """Which values a dropout keeps: bool of a shape; None where the caller shares no numbers.

    Args:
        p: share of the values that are dropped.
        shape: of what it is given.
        drawn: of the numbers that are drawn, which broadcasts to ``shape``.
    """
    found = _caller()
    if found is None:
        return None
    sharing, is_layer = found
    if is_layer:
        sharing.by_layer = True
    else:
        sharing.called.append(p)
    return np.broadcast_to(sharing.uniform(drawn) >= p, shape)


def _caller() -> tuple[Sharing, bool] | None:
    """The innermost module on the stack that shares its numbers: the first argument of a function that is running.

    The engine's own frames around the model are not looked at: to read a frame's variables keeps them alive as long as the frame.
    """
    frame, within = sys._getframe(2), False
    while frame is not None:
        code = frame.f_code
        own = code.co_filename.startswith(ENGINE)
        if own and within:
            return None
        within = not own
        if within and code.co_argcount:
            try:
                found = _SHARING.get(frame.f_locals.get(code.co_varnames[0]))
            except TypeError:  # no module: it has no hash, or cannot be referred to weakly
                found = None
            if found is not None:
                return found
        frame = frame.f_back  # type: ignore[assignment]
    return None
