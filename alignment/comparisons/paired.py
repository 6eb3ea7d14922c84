"""The two models as they are built, and which module of the port is which of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alignment.comparisons.given import Given, once
from alignment.frameworks.base import Module
from alignment.models.links import labelled
from alignment.models.matching import Matched, matched
from alignment.models.outputs import Order, orders_of, put_in_order
from alignment.strangers import strangers


class Paired:
    """The two models as they are built, and which module of the port is which of the reference.

    Args:
        given: what they are built from.
        known: what is computed already, by name.
    """

    def __init__(self, given: Given, known: dict[str, Any]) -> None:
        self.given, self.known = given, known

    def made(self, role: str, options: Mapping[str, Any]) -> Module:
        """A new model of one side as its own code builds it, by its own paths."""
        side = self.given.sides[role].framework
        with side.default_dtype("float32"), side.building():
            return getattr(self.given.spec, role)(**{**self.given.spec.options, **options})

    def unfilled(self, role: str, options: Mapping[str, Any]) -> Module:
        """A new model of one side for its names and shapes: its parameters may have no values."""
        with self.given.sides[role].framework.unfilled():
            network = self.made(role, {**self.given.options, **options})
        return self.named(role, network)

    def named(self, role: str, network: Module) -> Module:
        """The model of one side, known by the reference's paths, and its tensors in pieces, where the two sides' own are others."""
        if role == "port":
            self.matched.name(network, 0)
            put_in_order(self.given.port.framework, self.given.port.framework.modules(network), self.orders)
        elif self.matches:
            self.matched.name(network, 1)
        return network

    @once
    def matches(self) -> bool:
        """Whether the port can be built, and so matched."""
        with strangers("port"):  # whatever it raises, the steps say so
            return bool(self.matched)
        return False

    @once
    def matched(self) -> Matched:
        """Which module of the port is which of the reference.

        Raises:
            Exception: whatever the port's builder raises.
        """
        return self._match(self.made("port", self.given.options))

    def _match(self, port: Module) -> Matched:
        given, reference = self.given, self.made("reference", self.given.options)
        return matched(port, reference, given.names, given.frameworks, lambda: given.fake_inputs(2, small=True), given.links)

    @once
    def orders(self) -> Mapping[str, Order]:
        """Of the named outputs of the reference's modules, by path; nothing where it does not run, which ``check`` says."""
        framework, network = self.given.reference.framework, self.made("reference", self.given.options)
        framework.set_training(network, False)
        with strangers("reference"):
            inputs = self.given.fake_inputs(2, small=True)
            return orders_of(framework.call(framework.place(network), inputs, watched=framework.modules(network)).calls)
        return {}

    def matched_port(self, options: Mapping[str, Any]) -> Module:
        """A new port, by the reference's paths; where nothing is matched yet, this model is, which saves building another.

        Raises:
            Exception: whatever the port's builder raises.
        """
        port = self.made("port", options)
        if "matched" not in self.known:
            self.known["matched"] = self._match(port)
        return self.named("port", port)

    def own_path(self, place: str) -> str:
        """The path by which the port's author knows the module of a place, or the one around it."""
        paths = self.matched.matching.paths
        if linked := self._linked(place):
            return linked.rpartition(".")[0]
        if extra := next((one for one in self.matched.matching.unmatched if one.kind == "extra" and one.path == place), None):
            return self.as_built(extra.own or place)
        while place and place not in paths:
            place = place.rpartition(".")[0]
        return self.as_built(paths.get(place, place))

    def own_name(self, place: str) -> str:
        """What the port itself calls a module, or a tensor or function of one; ``""`` where it is the same name."""
        if linked := self._linked(place):
            return linked
        paths, module = self.matched.matching.paths, place
        while module and module not in paths:
            module = module.rpartition(".")[0]
        own = self.as_built(paths.get(module, module))
        return own + place[len(module) :] if module and own != module else ""

    def _linked(self, tensor: str) -> str:
        """The port's own name of a tensor, or of a part of one (``weight[query]``), that it holds otherwise; ``""`` of all else."""
        whole, _, label = tensor.rstrip("]").partition("[")
        return next((labelled(link.port, label) for link in self.matched.links if whole in link.reference), "")

    def as_built(self, path: str) -> str:
        """A path of the port as it was built, where the engine knows it by another."""
        back = {new: old for old, new in self.matched.shown.items()}
        return back.get(path, path)
