"""The numbers of embeddings that stand for padding: their row learns nothing, which shows only where the input holds them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.frameworks.base import leaves

SAMPLES = 4  # of the pass whose gradients are compared


def paddings(context: Context) -> Iterator[tuple[str, int | None, int | None]]:
    """Paired embeddings with other padding numbers, which the input of the compared passes does not hold.

    Where it holds them the gradients tell: a port may treat the number by itself.

    Yields:
        Path in the reference, the port's number and the reference's; None for none.
    """
    networks = {role: context.networks.build(role) for role in context.sides}
    known = {role: side.framework.modules(networks[role]) for role, side in context.sides.items()}
    found: dict[str, tuple[int | None, int | None]] = {}
    for path, module in known["reference"].items():
        layers = [context.reference.framework.layer(module)]
        if "padding_idx" in layers[0].settings and path in known["port"]:
            layers.insert(0, context.port.framework.layer(known["port"][path]))
            own, expected = (_number(layer.settings.get("padding_idx")) for layer in layers)
            if layers[0].kind == layers[1].kind and own != expected:
                found[path] = own, expected
    if not found:
        return
    framework, model = context.reference.framework, networks["reference"]
    framework.set_training(model, False)
    watched = {path: known["reference"][path] for path in found}
    calls = framework.call(model, context.material.samples(SAMPLES, small=True)[0], watched=watched).calls
    for path, (own, expected) in found.items():
        given = [call for key, call in calls.items() if key.partition("#")[0] == path]
        arrays = leaves([(call.args, call.kwargs) for call in given], np.ndarray)
        held = {int(number) for array in arrays for number in np.unique(array)}
        if arrays and not held & {own, expected}:
            yield path, own, expected


def _number(held: int | None) -> int | None:
    """Paddle's own -1 stands for none."""
    return None if held is None or held < 0 else held


def words(own: int | None, expected: int | None) -> str:
    """What is wrong, for people."""
    return f"padding_idx {own}, expected {expected}"


def padding_rows(context: Context) -> list[Quantity]:
    """A row, which fails, for each of ``paddings``."""
    reason = "the given input does not hold the number, so nothing that is computed shows it"
    mended = tuple(f"{path}." for path in context.mended)
    return [
        Quantity(f"padding.{path}", []).fail(f"{words(*numbers)}: {reason}")
        for path, *numbers in paddings(context)
        if not f"{path}.".startswith(mended)
    ]
