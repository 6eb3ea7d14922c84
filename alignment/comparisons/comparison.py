"""A comparison measures each side once; what it measured is judged, and where the judgement fails, explained.

A comparison is one class in one file. ``compare`` runs it in a step: the reference and the port are measured, the two measurements
are judged, and both are kept with the step's result. ``explain`` of a failed step reads them again; it runs no side a second time.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.result import Enough, Explainable, StepResult
from alignment.finding import Finding
from alignment.strangers import strangers

Make = TypeVar("Make", bound=Callable[..., "Comparison"])
Value = np.ndarray | Mapping[str, float] | str  # an array, named numbers, or what a side does in words: "raises"
Measurement = Mapping[str, Value]  # of one side, by name; it can be stored
M = TypeVar("M", bound=Measurement)


class Comparison(Protocol):
    """What is compared of the two sides. It holds the inputs that both are given, and nothing of a side."""

    def measure(self, context: Context, role: str) -> Measurement:
        """What one side gives for the inputs.

        Args:
            context: the two sides.
            role: ``"port"`` or ``"reference"``.

        Raises:
            Exception: what the port raises; the step then fails, and says where.
        """

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        """The verdict on every row, from the measurements alone."""

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """Place and cause of what is wrong in the measurements; None where nothing is wrong, or another comparison's subject is."""


_LISTED: dict[str, list[tuple[int, Callable[..., Comparison]]]] = {}  # of each folder, with their places


def listed(place: int) -> Callable[[Make], Make]:
    """Lists what makes a comparison among those of its file's folder, which the folder's step runs in the order of their places."""

    def added(make: Make) -> Make:
        _LISTED.setdefault(make.__module__.rpartition(".")[0], []).append((place, make))
        return make

    return added


def listed_in(folder: str, *given: Any) -> list[Comparison]:
    """The comparisons that the files of a step's folder list, made of what the step gives to each."""
    for file in pkgutil.iter_modules(importlib.import_module(folder).__path__):
        importlib.import_module(f"{folder}.{file.name}")
    return [make(*given) for _, make in sorted(_LISTED[folder], key=lambda one: one[0])]


@dataclass(frozen=True)
class Compared:
    """A comparison with what it measured.

    Attributes:
        comparison: what was compared.
        port, reference: the measurements.
    """

    comparison: Comparison
    port: Measurement
    reference: Measurement

    @property
    def late(self) -> bool:
        """Whether it is explained after what the model's modules show."""
        return getattr(self.comparison, "late", False)

    def explain(self) -> Finding | None:
        return self.comparison.explain(self.port, self.reference)


@dataclass(frozen=True)
class Unmeasured:
    """A comparison in which the port raised.

    Attributes:
        comparison: what was to be compared.
        error: what was raised.
    """

    comparison: Comparison
    error: Exception
    late: bool = False

    def explain(self) -> Finding | None:
        raise self.error


@dataclass(frozen=True)
class Searched:
    """What is explained by a search through the modules: of the values, the blame by layers alone says the place.

    Attributes:
        explain: the search.
    """

    explain: Callable[[], Finding | None]
    late: bool = False


def named(prefix: str, measurement: Measurement) -> dict[str, np.ndarray]:
    """The arrays of a measurement whose names begin so, without that."""
    return {name.removeprefix(prefix): np.asarray(one) for name, one in measurement.items() if name.startswith(prefix)}


def of_both(context: Context, comparison: Comparison) -> tuple[Measurement, Measurement]:
    """What the port and the reference give."""
    reference = measure(context, comparison, "reference")
    return measure(context, comparison, "port"), reference


def measure(context: Context, comparison: Comparison, role: str) -> Measurement:
    """What one side gives, now or in an earlier attempt."""
    earlier = getattr(context, "earlier", None)
    return earlier.measure(context, comparison, role) if earlier else comparison.measure(context, role)


def measured(context: Context, comparison: Comparison) -> Compared | Unmeasured:
    """Measure both sides once; what says where a step that has failed goes wrong adds no row to it."""
    made: list[tuple[Measurement, Measurement]] = []
    with strangers("port") as raised:  # whatever the port raises
        made.append(of_both(context, comparison))
    if raised.error is not None:
        return Unmeasured(comparison, raised.error)
    return Compared(comparison, *made[0])


def wrong(part: Explainable) -> bool:
    """Whether a comparison has found something: nothing that comes after it needs to be measured."""
    return isinstance(part, Unmeasured) or part.explain() is not None


def compare(context: Context, result: StepResult, comparison: Comparison) -> Compared:
    """Measure both sides once, judge them, and keep the measurements with the step's result.

    Raises:
        Enough: in haste, and something has failed.
    """
    before = len(result.quantities)
    compared = judged(result, comparison, *of_both(context, comparison))
    earlier = getattr(context, "earlier", None)
    enough = earlier is not None and earlier.judged(comparison, result.quantities[before:])
    if context.in_haste and (enough or result.differs):
        raise Enough(result)
    return compared


def judged(result: StepResult, comparison: Comparison, port: Measurement, reference: Measurement) -> Compared:
    """Judge what was measured, and keep it with the step's result."""
    compared = Compared(comparison, port, reference)
    result.extend(comparison.judge(port, reference))
    result.compared.append(compared)
    return compared


def explained(result: StepResult) -> Finding | None:
    """The first finding of a step's comparisons, from what they measured."""
    return next((found for one in result.compared if (found := one.explain()) is not None), None)
