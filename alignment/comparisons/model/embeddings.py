"""The numbers of embeddings that stand for padding: their row learns nothing, which shows only where the input holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement, Value, named
from alignment.comparisons.context import Context
from alignment.finding import Finding
from alignment.frameworks.base import Module, leaves
from alignment.kinds import Kind

SAMPLES = 4  # of the pass whose gradients are compared
NONE = -1  # Paddle's own, too
NUMBER, KIND, HELD = "number/", "kind/", "held/"


class Paddings:
    """Paired embeddings with other padding numbers, which the input of the compared passes does not hold.

    Where the input holds them the gradients tell: a port may treat the number by itself. An embedding that is mended is left out,
    one in a module that is mended is not: its setting is seen all the same.

    Args:
        networks: a model of each role; with the context's weights where None.
    """

    late = True

    def __init__(self, networks: Mapping[str, Module] | None = None) -> None:
        self.networks = networks

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        """Padding number and kind of each embedding; of the reference, the numbers that the input holds, too."""
        framework, network = context.sides[role].framework, self.networks[role] if self.networks else context.networks.build(role)
        modules = framework.modules(network)
        layers = {path: framework.layer(module) for path, module in modules.items() if path not in context.mended}
        made: dict[str, Value] = {f"{KIND}{path}": layer.kind for path, layer in layers.items()}
        numbers = {path: layer.settings["padding_idx"] for path, layer in layers.items() if "padding_idx" in layer.settings}
        made |= {f"{NUMBER}{path}": np.array(NONE if number is None else max(number, NONE)) for path, number in numbers.items()}
        if role == "reference" and numbers:
            watched = {path: modules[path] for path in numbers}
            calls = framework.call(network, context.material.samples(SAMPLES, small=True)[0], watched=watched).calls
            for path in numbers:
                given = [(call.args, call.kwargs) for key, call in calls.items() if key.partition("#")[0] == path]
                if arrays := leaves(given, np.ndarray):
                    made[f"{HELD}{path}"] = np.unique(np.concatenate([array.ravel() for array in arrays]).astype(np.int64))
        return made

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        """A row, which fails, for each."""
        reason = "the given input does not contain this number, so no computed value shows it"
        return [Quantity(f"padding.{path}", []).fail(f"{words}: {reason}") for path, words in _apart(port, reference)]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        return next(self.findings(port, reference), None)

    def findings(self, port: Measurement, reference: Measurement) -> Iterator[Finding]:
        for path, words in _apart(port, reference):
            words, why = f"{words}: only the gradient of this number's row differs", "compared by the layers' settings"
            yield Finding("backward", path, Kind.PADDING_INDEX, words, f"{why}, because the input does not contain this number")


def _apart(port: Measurement, reference: Measurement) -> Iterator[tuple[str, str]]:
    """Paths in the reference, and what is wrong there in words."""
    ours, held = named(NUMBER, port), named(HELD, reference)
    for path, expected in named(NUMBER, reference).items():
        own = ours.get(path, np.array(NONE))
        alike = port.get(f"{KIND}{path}") == reference[f"{KIND}{path}"]
        if alike and own != expected and path in held and not ({int(own), int(expected)} - {NONE}) & set(held[path].tolist()):
            numbers = (None if number == NONE else int(number) for number in (own, expected))
            yield path, "padding_idx {}, expected {}".format(*numbers)
