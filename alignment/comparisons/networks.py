"""Models of the two sides with weights in them, in float32 or in exact mode."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from alignment.comparisons.given import Given, once
from alignment.comparisons.material import SharedMaterial
from alignment.comparisons.paired import Paired
from alignment.frameworks._dropout import Sharing
from alignment.frameworks.base import Framework, Low, Module, in_precision
from alignment.models import mirrored, observe, regrouped, rounding, unsaved
from alignment.models.mending import mend_all
from alignment.models.regrouped import Drawn
from alignment.models.tracing import Network, Start
from alignment.models.weights import renamed
from alignment.strangers import strangers
from mobilenetv3_common.weights import State, read_state


class Networks:
    """Models of the two sides with weights in them, in float32 or in exact mode.

    Args:
        given: of what.
        paired: the two models as they are built.
        material: the weights.
        known: what is computed already, by name.
    """

    def __init__(self, given: Given, paired: Paired, material: SharedMaterial, known: dict[str, Any]) -> None:
        self.given, self.paired, self.material, self.known = given, paired, material, known

    def fresh(self, role: str, options: Mapping[str, Any] | None = None) -> Module:
        """A new model of one side with its own fresh weights, float32, where it was built."""
        return self.paired.named(role, self.paired.made(role, self.material.weights.options if options is None else options))

    @once
    def described(self) -> Module:
        """The reference as it is built, to be looked at: nobody runs or changes it, so it is built once."""
        return self.fresh("reference")

    def _to_be_loaded(self, role: str) -> Module:
        """As ``fresh(role)``; where loading gives a value to every parameter or raises, without random draws for large ones."""
        whole = role == "reference" or (self.given.spec.load is None and not self.given.fitting)
        with self.given.sides[role].framework.loaded_next() if whole else contextlib.nullcontext():
            return self.fresh(role)

    def build(self, role: str, exact: bool = False) -> Module:
        """A model of one side with the reference's weights, in evaluation mode; float32, or in exact mode.

        Raises:
            UserError: the weights do not fit.
        """
        framework = self.given.sides[role].framework
        network = self._to_be_loaded(role)
        if exact:
            network = self.exact(role, network)
        network = framework.place(network)
        self.load(role, network, self.start(role))
        framework.set_training(network, False)
        return network

    def start(self, role: str) -> State:
        """The canonical state with which a side starts: of the port, that of its converted file where there is one.

        Raises:
            UserError: the converted file cannot be read, or does not fit the port.
        """
        return self.material.weights.state if role == "reference" or self.given.port_weights is None else self._converted

    @once
    def _converted(self) -> State:
        assert self.given.port_weights is not None
        return self.given.port.framework.canonical(
            self.fresh("port"), read_state(self.given.port_weights, self.given.take), self.given.port_weights
        )

    def exact(self, role: str, network: Module) -> Module:
        """A model of one side in exact mode, in place, with the roundings of eps under which the two sides can agree."""
        network = self._exactly(role, network)
        rounding.apply(self.given.sides[role].framework, network, self.roundings[role])
        return network

    def _exactly(self, role: str, network: Module) -> Module:
        framework = self.given.sides[role].framework
        network = framework.make_exact(network)
        if role == "port":
            unsaved.share(framework, network, self.computed_constants)
        return network

    @once
    def computed_constants(self) -> unsaved.Constants:
        """Of the reference: see ``alignment.models.unsaved``."""
        return unsaved.constants_of(self.given.reference.framework, self.fresh("reference"))

    @once
    def roundings(self) -> Mapping[str, rounding.Choice]:
        """Of eps, by role; none where the port cannot be built, which the steps then say."""
        pairs = []
        with strangers("port") as raised:  # whatever the port raises
            for role, side in self.given.sides.items():
                network = side.framework.place(self._exactly(role, self._to_be_loaded(role)))
                self.load(role, network, self.start(role))
                pairs.append((side.framework, network))
            paths = self.paired.matched.matching.paths
        if raised.error is not None:
            return {role: {} for role in self.given.sides}
        inputs = in_precision(self.given.fake_inputs(4, small=True))
        return dict(zip(self.given.sides, rounding.choose(pairs[0], pairs[1], paths, inputs), strict=True))

    def load(self, role: str, network: Module, state: State) -> None:
        """Put a canonical state of the reference, or the one with which a side starts, into a model of one side."""
        if role == "port" and self.given.fitting:
            _fit(self.given.port.framework, network, state, self.paired.matched.matching.renaming())
            return
        converted = self.given.port_weights is not None and state is self.known.get("_converted")
        if role == "port" and self.given.spec.load is not None and not converted:
            self.given.spec.load(network, self.material.regrouped(state, self.material.weights.options, whole=True))
        else:
            self.given.sides[role].framework.load(network, state)

    def loaded_in_part(self) -> Module | None:
        """A port that does not have the reference's structure, after its own loading of what fits; None where it cannot do that.

        Where nothing of the reference's fits, the port is given what it holds itself, under the names that it knows.
        """
        framework, names = self.given.port.framework, self.paired.matched.matching.renaming()
        given: State = {}
        network = framework.place(self.fresh("port"))
        for entry, tensor in framework.described(network):
            values = self.material.weights.state.get(renamed(entry, names))
            if values is None or values.shape != entry.shape:
                values = entry.to_canonical(framework.array(tensor))
            given[entry.canonical] = values
        with strangers("port") as raised:  # whatever the port raises
            load = self.given.spec.load or framework.load
            load(network, given)
        if raised.error is not None:
            return None
        return network

    def of(self, name: str, share_dropout: bool = True) -> Network:
        """One of the runs that are compared with each other: which side, which precision, which weights.

        One whose name begins with ``ulp`` is the reference with all it is given (weights, running statistics, inputs) moved by
        one unit in the last place: what it then changes by is rounding, and nothing can be asked to be closer. One whose name ends
        in ``16`` computes in the given low precision, by the framework's own automatic mixed precision.

        Args:
            name: a field of ``alignment.compare.Lanes``, e.g. ``"port64"``; ``"ulp64#1"`` is another draw of ``"ulp64"``.
            share_dropout: whether dropout takes its masks from the seed and the network's ``draws.iteration``.

        Raises:
            UserError: the weights do not fit.
        """
        if share_dropout and name in (ready := self.known.get("ready", {})):
            return ready.pop(name)
        kind, _, draw = name.partition("#")
        role, exact, low = "port" if name.startswith("port") else "reference", kind.endswith("64"), kind.endswith("16")
        unit = self.given.precision if low else "float64" if exact else "float32"  # what one ulp is of
        framework, state = _framework(self.given, role, low), self.start(role)
        moved = functools.partial(self.material.ulp_changed, dtype=unit, draw=int(draw or 0)) if name.startswith("ulp") else None
        model = self.build(role, exact=exact)
        draws = observe.MaskDraws(self.given.seed, flat=self.drawn.flat, pieces=self.drawn.pieces)
        dropouts, functions = 0, Sharing(draws)
        if share_dropout:
            dropouts, functions = observe.share_dropout(framework, model, draws)
            mirrored.apply(framework, model, self.drawn.mirrored if role == "port" else frozenset())
        load = functools.partial(self.load, role, model)
        begin = Start(name, self.given.sides[role], moved(state) if moved else state, load, moved, draws, dropouts, functions)
        network = Network(framework, model, self.paired.matched.matching.paths if role == "port" else None, begin=begin)
        if role == "port":
            network.adapters = self.paired.matched.matching.adapters
            if self.given.mended:
                mend_all(network, self._reference_beside(network, low, share_dropout), self.given.mended)
        network.reset()
        return network

    @once
    def drawn(self) -> Drawn:
        """How the sides' random numbers become the same: see ``alignment.models.regrouped`` and ``alignment.models.mirrored``."""
        found = self.known["drawn"] = Drawn()  # as they are, while it is found out
        with strangers("port"):  # whatever it raises, the steps say
            sides = [(side.framework, self.fresh(role)) for role, side in self.given.sides.items()]
            named = [any(mirrored.any_draws(*side, names) for side in sides) for names in (regrouped.DRAWING, mirrored.DRAWING)]
            layers = self.given.spec.blocks is None and all(_drops(*side) for side in sides)
            if self.given.without_training or not (any(named) or layers):
                return found
            inputs = in_precision(self.given.fake_inputs(4, small=True))
            if named[0] or layers:
                found = self.known["drawn"] = regrouped.choose(self.of("port64"), self.of("reference64"), inputs)
            if named[1]:
                found = found._replace(mirrored=mirrored.choose(self.of("port64"), self.of("reference64"), inputs))
        return found

    def _reference_beside(self, port: Network, low: bool, share_dropout: bool) -> Network:
        """The reference in the port's precision, with the port's masks."""
        framework, model = _framework(self.given, "reference", low), self.build("reference", exact=port.exact)
        if share_dropout:
            observe.share_dropout(framework, model, port.draws)
        found = Network(framework, model)
        found.adapters = port.adapters
        return found


def _framework(given: Given, role: str, low: bool) -> Framework:
    framework = given.sides[role].framework
    return framework.in_low_precision(Low(given.precision)) if low else framework


def _drops(framework: Framework, model: Module) -> bool:
    """Whether a model has a dropout layer."""
    return any(framework.layer(module).kind == "dropout" for module in framework.modules(model).values())


def _fit(framework: Framework, port: Module, state: State, names: Mapping[str, str]) -> None:
    """Put what fits of a canonical state of the reference into the port; ``names`` as of ``Matching.renaming``."""
    for entry, tensor in framework.described(port):
        values = state.get(renamed(entry, names))
        if values is not None and values.shape == entry.shape:
            framework.assign(tensor, entry.to_own(values))
