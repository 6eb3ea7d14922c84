"""What a fault is, the list of them, and how one is injected."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from alignment.sides import PaddleSide
from mobilenetv3_common.errors import UserError

Make = Callable[[contextlib.ExitStack], PaddleSide]


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
        make: builds the broken side.
    """

    name: str
    area: str
    step: int
    location: str
    hint: str
    make: Make


FAULTS: dict[str, Fault] = {}


def fault(area: str, step: int, location: str, hint: str, name: str = "") -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        key = name or make.__name__
        FAULTS[key] = Fault(key, area, step, location, hint, make)
        return make

    return register


@contextlib.contextmanager
def injected(name: str | None) -> Iterator[PaddleSide]:
    """The Paddle side with one fault inside the block; sound where ``name`` is None.

    Raises:
        UserError: there is no such fault.
    """
    if name is None:
        yield PaddleSide()
        return
    if name not in FAULTS:
        raise UserError(f"--inject {name}: no such fault; known are {', '.join(FAULTS)}")
    with contextlib.ExitStack() as stack:
        yield FAULTS[name].make(stack)


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
