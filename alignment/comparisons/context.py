"""What every step works with: the project, its model with weights and inputs, and the runs that are compared."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from alignment.compare import distance, norm, relative, without_masked
from alignment.comparisons.given import Given, once
from alignment.comparisons.material import SharedMaterial, Weights
from alignment.comparisons.networks import Networks
from alignment.comparisons.paired import Paired
from alignment.frameworks._dropout import Sharing
from alignment.frameworks.base import Framework, Low, in_precision, leaves, mapped
from alignment.models import observe, rounding
from alignment.models.matching import Matched
from alignment.models.mending import mend_all
from alignment.models.outputs import Order
from alignment.models.tracing import Network
from alignment.project import Side
from alignment.strangers import strangers

CONVERSION = "conversion not checked"  # the beginning of a note
PASSES = 8  # that a network makes with the same weights and inputs before its outputs are taken to be no matter of chance

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

        The masks of dropout layers are shared. What draws numbers by a function, or in a layer that is not known, is not.
        """
        if self.without_training:
            return f"training mode: {self.without_training}"
        lane = Lane(self, "reference32")
        lane.train_mode(True)
        passes = []
        with strangers("reference") as raised:  # it may need labels, or more than one value a channel
            for _ in range(PASSES):
                passes.append(lane.outputs(self.fake_inputs(4, small=True)))
                lane.reset()
        if raised.error is not None:
            return f"training mode: the reference cannot run in it on this input: {raised.words}"
        both = [(a, b) for later in passes[1:] for a, b in zip(passes[0], later, strict=True)]
        pairs = [(a, b) for a, b in (without_masked(*one) for one in both) if np.isfinite(a).all()]
        same = all(relative(distance(a, b), norm(a)) < 1e-4 for a, b in pairs)
        return "" if same else "training mode: the reference draws random numbers that cannot be shared (nn.Dropout's can)"

    @once
    def drops_by_function(self) -> frozenset[str]:
        """The roles whose models call a dropout as a function in training mode, where such calls can be seen."""
        inputs = self.fake_inputs(4, small=True)
        return frozenset(role for role in self.sides if Lane(self, f"{role}32").drops_by_function(inputs))


@dataclass
class MaskDraws:
    """The numbers of dropout masks, a pure function of the seed, the iteration and the shape. They know nothing of a model."""

    seed: int
    iteration: int = 0

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers in [0, 1), float64; with the axes in another order they are the same, unless axes of equal length change places.

        So a port with the channels last, or the batch first, drops what its reference drops.
        """
        order = sorted(range(len(shape)), key=lambda axis: -shape[axis])
        drawn = np.random.default_rng([self.seed, self.iteration]).random([shape[axis] for axis in order])
        return np.ascontiguousarray(drawn.transpose(np.argsort(order)))


class Lane:
    """One of the runs that are compared with each other: which side, which precision, which weights.

    A lane whose name begins with ``ulp`` is the reference with all it is given (weights, running statistics, inputs)
    moved by one unit in the last place: what it then changes by is rounding, and nothing can be asked to be closer. A lane whose
    name ends in ``16`` computes in the context's low precision, by the framework's own automatic mixed precision.

    Args:
        context: the model and weights.
        name: a field of ``alignment.compare.Lanes``, e.g. ``"port64"``; ``"ulp64#1"`` is another draw of ``"ulp64"``.
        share_dropout: whether dropout takes its masks from the context's seed and this lane's ``draws.iteration``.

    Attributes:
        role: ``"port"`` or ``"reference"``.
        framework, side: of the role.
        dtype: of weights and inputs, ``"float32"`` or ``"float64"``; the latter is exact mode.
        network: the model.
        dropouts: how many dropout layers share their masks.
        functions: what is told of dropouts that are called as functions, which share theirs, too.
    """

    def __init__(self, context: Context, name: str, share_dropout: bool = True) -> None:
        self.context = context
        self.name = name
        kind, _, draw = name.partition("#")
        self.exact = kind.endswith("64")
        self.dtype = "float64" if self.exact else "float32"
        self.role = "port" if name.startswith("port") else "reference"
        self.side: Side = context.sides[self.role]
        self.framework: Framework = self.side.framework
        self.changed = name.startswith("ulp")
        self.draw = int(draw or 0)
        self.unit = self.dtype  # what one ulp is of
        if kind.endswith("16"):
            self.unit = context.precision
            self.framework = self.framework.in_low_precision(Low(context.precision))
        state = context.networks.start(self.role)
        self.state = context.material.ulp_changed(state, self.unit, self.draw) if self.changed else state
        self.network = context.networks.build(self.role, exact=self.exact)
        self.draws = MaskDraws(context.seed)
        self.dropouts, self.functions = 0, Sharing(self.draws)
        if share_dropout:
            self.dropouts, self.functions = observe.share_dropout(self.framework, self.network, self.draws)
        if self.role == "port" and context.mended:
            mend_all(self.as_network(), self._reference(share_dropout), context.mended)
        self.reset()

    def _reference(self, share_dropout: bool) -> Network:
        """The reference in this lane's precision, with this lane's masks."""
        framework, low = self.context.reference.framework, self.framework.low
        framework = framework if low is None else framework.in_low_precision(low)
        network = self.context.networks.build("reference", exact=self.exact)
        if share_dropout:
            observe.share_dropout(framework, network, self.draws)
        found = Network(framework, network)
        found.adapters = self.context.paired.matched.matching.adapters
        return found

    def as_network(self) -> Network:
        """The model as functions of arrays."""
        if self.role == "reference":
            return Network(self.framework, self.network)
        matching = self.context.paired.matched.matching
        found = Network(self.framework, self.network, matching.paths)
        found.adapters = matching.adapters
        return found

    def inputs(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Inputs in this lane's precision, moved by one ulp where the lane's weights are."""
        if not self.changed:
            return in_precision(given, self.dtype)
        named = {str(number): array for number, array in enumerate(leaves(given, np.ndarray))}
        changed = iter(self.context.material.ulp_changed(named, self.unit, self.draw).values())
        return mapped(given, np.ndarray, lambda _: next(changed))

    def outputs(self, given: tuple[Any, ...]) -> list[np.ndarray]:
        """What the network gives for inputs, without a graph."""
        return self.framework.call(self.network, self.inputs(given)).outputs

    def drops_by_function(self, given: tuple[Any, ...]) -> bool:
        """Whether the model calls a dropout as a function in training mode, where such calls can be seen."""
        self.train_mode(True)
        with contextlib.suppress(Exception):  # whatever a pass raises, the comparisons say
            self.outputs(given)
        self.reset()
        return bool(self.functions.called)

    def train_mode(self, on: bool) -> None:
        """Training or evaluation mode."""
        self.framework.set_training(self.network, on)

    def reset(self) -> None:
        """Put the weights and statistics back to where the lane starts."""
        self.context.networks.load(self.role, self.network, self.state)
