"""What every step works with: the project, its model with weights and inputs, and the runs that are compared."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative, without_masked
from alignment.comparisons.given import Given, once
from alignment.comparisons.material import SharedMaterial, Weights
from alignment.comparisons.networks import Networks
from alignment.comparisons.paired import Paired
from alignment.models import rounding
from alignment.models.matching import Matched
from alignment.models.outputs import Order
from alignment.strangers import strangers

UNSHARED = "the reference draws random numbers that cannot be shared (those of dropout layers and the framework's functions can)"
CONVERSION = "conversion not checked"  # the beginning of a note
# That the reference makes with the same weights and inputs before its outputs are taken to be no matter of chance. What it draws
# seldom shows in float32; in exact mode, whether it draws there what it does not draw in float32.
PASSES = {"reference32": 8, "reference64": 2}

C = TypeVar("C", bound="Context")


@dataclass(frozen=True)
class Context(Given):
    """What is given, with what is built from it when it is first asked for.

    Attributes:
        known: what is computed already, by name.
    """

    known: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    @functools.cached_property
    def paired(self) -> Paired:
        """The two models as they are built, and which module is which."""
        return Paired(self, self.known)

    @functools.cached_property
    def material(self) -> SharedMaterial:
        """Weights, pictures and inputs."""
        return SharedMaterial(self, self.paired, self.known)

    @functools.cached_property
    def networks(self) -> Networks:
        """Models with weights in them."""
        return Networks(self, self.paired, self.material, self.known)

    def knowing(
        self: C,
        *,
        weights: Weights | None = None,
        matched: Matched | None = None,
        orders: Mapping[str, Order] | None = None,
        roundings: Mapping[str, rounding.Choice] | None = None,
    ) -> C:
        """The same, where some of what is built is known beforehand, and what is computed already."""
        told = {"weights": weights, "matched": matched, "orders": orders, "roundings": roundings}
        return self._with(self.known | {name: value for name, value in told.items() if value is not None}, {})

    def but(self: C, **changes: Any) -> C:
        """The same with other fields on which nothing depends that is computed once, but for roundings on ``fitting``."""
        kept = {name: value for name, value in self.known.items() if name != "roundings"} if "fitting" in changes else self.known
        return self._with(kept, changes)

    def _with(self: C, known: dict[str, Any], changes: Mapping[str, Any]) -> C:
        other = replace(self, **changes)
        object.__setattr__(other, "known", known)
        return other

    def notes(self) -> list[str]:
        """What a reader of the verdict has to know: layers called or nested otherwise, and which conversion was not checked."""
        if self.not_held:
            return [*self.paired.matched.matching.notes, *(f"not held by dumps: {words}" for words in self.not_held)]
        found = []
        with strangers("port"):  # one that cannot be built is a finding of the steps
            found += [f"{note} (--names sets other pairs)" for note in self.paired.matched.matching.notes]
        if self.port_weights is None and self.given_state is None:
            found.append(
                f"{CONVERSION}: the engine itself loaded the {self.material.weights.name} weights into both sides "
                "(--weights ORIGINAL --port-weights CONVERTED compares a converted file)"
            )
        return found

    @once
    def unshared_randomness(self) -> str:
        """Why the two sides cannot be compared in training mode; ``""`` where they can.

        The numbers of dropout layers and of the functions of the frameworks, of NumPy and of Python are shared. What is drawn
        elsewhere (by a generator of its own, in the kernel of a recurrent layer) is not.
        """
        if self.without_training:
            return f"training mode: {self.without_training}"
        for name, passes in PASSES.items():
            again = []
            with strangers("reference") as raised:  # it may need labels, or more than one value a channel
                lane = self.networks.of(name)
                lane.train_mode(True)
                for _ in range(passes):
                    again.append(lane.outputs(self.fake_inputs(4, small=True)))
                    lane.reset()
            if raised.error is not None:
                return f"training mode: the reference cannot run in it on this input: {raised.words}"
            both = [(a, b) for later in again[1:] for a, b in zip(again[0], later, strict=True)]
            pairs = [(a, b) for a, b in (without_masked(*one) for one in both) if np.isfinite(a).all()]
            most = tolerance.AGAIN_64 if lane.exact else tolerance.AGAIN_32
            if not all(relative(distance(a, b), norm(a)) < most for a, b in pairs):
                return f"training mode: {UNSHARED}"
        return ""

    @once
    def drops_by_function(self) -> frozenset[str]:
        """The roles whose models call a dropout as a function in training mode, where such calls can be seen."""
        inputs = self.fake_inputs(4, small=True)
        return frozenset(role for role in self.sides if self.networks.of(f"{role}32").drops_by_function(inputs))
