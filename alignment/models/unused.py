"""Parameters that no pass of a model reads: an embedding of token types that nothing calls, a head that is left over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alignment.frameworks.base import Framework, Module, Wanted
from alignment.strangers import strangers


def unused(framework: Framework, model: Module, inputs: Callable[[], tuple]) -> list[str]:
    """Own names of the trained parameters whose modules no pass calls, and to which no gradient flows, in either mode.

    Args:
        framework: the model's.
        model: which is copied.
        inputs: makes arrays to run it on.

    Returns:
        The names; none where the model cannot run in evaluation mode.
    """
    found: set[str] | None = None
    nested: set[str] = set()  # inside a module that a pass calls, which may read them and give them no gradient
    for training in (False, True):
        with strangers("port") as raised:  # it may need labels, or more than one value a channel
            one = framework.copy(model)
            framework.set_training(one, training)
            held = {entry.own: tensor for entry, tensor in framework.described(one) if framework.trainable(tensor)}
            made = framework.vjp(one, inputs(), None, Wanted(False, held, framework.modules(one)))
        if raised.error is not None:
            break
        called = {key.partition("#")[0] for key in made.calls}
        unread = {name for name, gradient in made.parameters.items() if gradient is None and _holder(name) not in called - {""}}
        found = unread if found is None else found & unread
        nested |= {name for name in unread if _inside(name, called - {""})}
    found, nested = found or set(), nested & (found or set())
    return sorted(found if nested and _of_no_effect(framework, model, inputs, nested) else found - nested)


def _of_no_effect(framework: Framework, model: Module, inputs: Callable[[], tuple], names: set[str]) -> bool:
    """Whether a pass gives the same where parameters hold no numbers."""
    outputs: list[list[np.ndarray]] = []
    for emptied in (False, True):
        with strangers("port") as raised:
            one = framework.copy(model)
            framework.set_training(one, False)
            for entry, tensor in framework.described(one):
                if emptied and entry.own in names:
                    framework.assign(tensor, np.full(entry.own_shape, np.nan, "float32"))
            outputs.append(framework.call(one, inputs()).outputs)
        if raised.error is not None:
            return False
    return all(np.array_equal(a, b) for a, b in zip(*outputs, strict=True))


def _holder(name: str) -> str:
    return name.rpartition(".")[0]


def _inside(name: str, paths: set[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:count]) in paths for count in range(1, len(parts)))
