"""What a call of the port's module is in the reference's terms: one ``CallAdapter`` for each module, whatever is written otherwise.

A form is a subclass with the decorator ``form``, in a file of this folder that ``alignment/models/forms/__init__.py`` imports. It
is told by a layer itself (``told``), or learned from one call of each side (``learned``). Nothing else in the engine knows forms:
a network asks the adapter of a module what to give it, and what its outputs and gradients are on the other side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from alignment.frameworks.base import Call, Framework, Module

Given = TypeVar("Given")
Order = tuple[int, ...]  # of axes, as ``numpy.transpose`` takes it
MaybeArrays = Sequence["np.ndarray | None"]
Owned = tuple[Framework, Module]  # a module and its framework


@dataclass(frozen=True)
class CallAdapter:
    """How a module is called and what it returns, in the terms of the other side's module; this one of modules that are alike.

    The side that calls is the reference where a module of the port is compared, and the port where the reference's module takes
    the place of the port's (``back``).

    Attributes:
        bare: whether the module is compared without the layers that it carries on one side alone (``Network.carried``).
        made_up_for: whether the module differs in form alone: what surrounds it makes up for what it computes otherwise.
        fixed: whether the reference's module cannot take its place, since arrays come to it with their axes in another order.
        refused: whether the port never calls the module as the reference does, and how it does is not known.
    """

    bare: bool = field(default=False, kw_only=True)
    made_up_for: bool = field(default=False, kw_only=True)
    fixed: bool = field(default=False, kw_only=True)
    refused: bool = field(default=False, kw_only=True)

    @property
    def orders(self) -> tuple[Order, ...]:
        """The orders of axes, other than its own, in which an array of the module is one of the other side's."""
        return ()

    def given(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """What the module is given for a call of the other side's."""
        return args, kwargs

    def outputs(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The arrays that the module gives, as the other side's."""
        return arrays

    def cotangents(self, arrays: MaybeArrays) -> list[np.ndarray | None]:
        """Gradients of the other side's outputs, None for none, as those of the module's."""
        return list(arrays)

    def inputs(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        """Gradients of the floating arguments of the module as those of the other side's call."""
        return list(gradients)

    def returned(self, output: Any) -> Any:
        """What the module returns, in the structure that the other side's returns."""
        return output

    def gives(self, count: int) -> int:
        """How many of so many outputs of the other side the module gives: its caller may do without the rest, or make them."""
        return count

    def unused(self, arrays: Sequence[np.ndarray]) -> set[int]:
        """Which of the other side's arguments the module is not given, since it makes them itself: a mask, positions."""
        return set()

    def taken(self, given: Sequence[Given]) -> list[Given]:
        """Of what stands for the arrays of the other side's call, what the module is given."""
        return list(given)

    def with_others(self, arrays: Sequence[np.ndarray]) -> Iterator[CallAdapter]:
        """The same with one of the other side's arrays that are unused in the place of one like it, which may be a wrong one."""
        return iter(())

    def back(self) -> CallAdapter | None:
        """The other side's module called as this one is; None where that cannot be."""
        return self

    @classmethod
    def told(cls, layer: Owned, call: Call) -> CallAdapter | None:
        """The form in which a layer is given a call of the other side's, where the layers themselves tell; else None.

        Args:
            layer: framework and module that is to answer.
            call: of the other side's module.
        """
        return None

    @classmethod
    def told_back(cls, layer: Owned, other: Owned, args: tuple, kwargs: dict[str, Any]) -> CallAdapter | None:
        """Likewise the form in which the reference's layer answers a call of the port's layer, in whose place it is.

        Args:
            layer: of the port, which is called.
            other: of the reference, which answers.
            args, kwargs: arrays that the port's layer is given.
        """
        return None

    @classmethod
    def learned(cls, mine: Call, its: Call) -> CallAdapter | None:
        """The form that one call of the port and the same call of the reference show; None where they show none of this kind."""
        return None


FORMS: list[type[CallAdapter]] = []
AnyForm = TypeVar("AnyForm", bound=type[CallAdapter])


def form(cls: AnyForm) -> AnyForm:
    """Register a form."""
    FORMS.append(cls)
    return cls


def told(layer: Owned, call: Call) -> CallAdapter | None:
    """The first form that tells itself."""
    return next((found for one in FORMS if (found := one.told(layer, call)) is not None), None)


def told_back(layer: Owned, other: Owned, args: tuple, kwargs: dict[str, Any]) -> CallAdapter | None:
    """The first form that tells itself, of the reference's layer in the place of the port's."""
    return next((found for one in FORMS if (found := one.told_back(layer, other, args, kwargs)) is not None), None)


def learned(mine: Call, its: Call) -> CallAdapter | None:
    """The first form that two calls show; None where they are alike, or nothing shows how they differ."""
    return next((found for one in FORMS if (found := one.learned(mine, its)) is not None), None)


class Adapters(dict[str, CallAdapter]):
    """The adapters of the port's modules by the reference's path; one is alike until something else is known."""

    def __missing__(self, path: str) -> CallAdapter:
        return CallAdapter()

    def mark(self, path: str, **known: bool) -> None:
        """Set attributes of a module's adapter."""
        self[path] = replace(self[path], **known)

    def learn(self, path: str, found: CallAdapter) -> None:
        """Give a module another form, which keeps what is known of it besides."""
        before = self[path]
        self[path] = replace(found, bare=before.bare, made_up_for=before.made_up_for, fixed=before.fixed)

    def known(self, path: str) -> bool:
        """Whether a module is known to be called otherwise."""
        return type(self[path]) is not CallAdapter
