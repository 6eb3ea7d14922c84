"""Weights on which no output of a model depends: an embedding that nothing calls, a pooler whose result is dropped."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from alignment.frameworks.base import Framework, Module, Wanted
from alignment.strangers import strangers
from mobilenetv3_common.weights import is_statistic

MOST_TRIED = 16  # modules of which each is changed alone, once all of them together have changed the output


def unused(framework: Framework, model: Module, inputs: Callable[[], tuple]) -> list[str]:
    """Own names of the trained parameters to which no gradient flows in either mode, and which change no output.

    Statistics of layers whose parameters are all unused are unused, too.

    Args:
        framework: the model's.
        model: which is copied.
        inputs: makes arrays to run it on.

    Returns:
        The names; none where the model cannot run in evaluation mode.
    """
    found: set[str] | None = None
    for training in (False, True):
        with strangers("port") as raised:  # it may need labels, or more than one value a channel
            one = framework.copy(model)
            framework.set_training(one, training)
            held = {entry.own: tensor for entry, tensor in framework.described(one) if framework.trainable(tensor)}
            made = framework.vjp(one, inputs(), None, Wanted(False, held, framework.modules(one)))
        if raised.error is not None:
            break
        unread = {name for name, gradient in made.parameters.items() if gradient is None}
        found = unread if found is None else found & unread
    found = found or set()
    if found and not _changes_nothing(framework, model, inputs(), found):
        holders = {name.rpartition(".")[0] for name in found}
        each = [{name for name in found if name.rpartition(".")[0] == path} for path in sorted(holders)[:MOST_TRIED]]
        found = {name for group in each if _changes_nothing(framework, model, inputs(), group) for name in group}
    entries = [entry for entry, _ in framework.described(model)]
    read = {entry.own.rpartition(".")[0] for entry in entries if entry.role == "parameter" and entry.own not in found}
    idle = {name.rpartition(".")[0] for name in found} - read
    return sorted(found | {entry.own for entry in entries if is_statistic(entry.own) and entry.own.rpartition(".")[0] in idle})


def _changes_nothing(framework: Framework, model: Module, inputs: tuple, names: Collection[str]) -> bool:
    """Whether the outputs in evaluation mode stay the very same with other values in these tensors."""
    with strangers("port"):
        one = framework.copy(model)
        framework.set_training(one, False)
        before = framework.call(one, inputs).outputs
        for entry, tensor in framework.described(one):
            if entry.own in names:
                framework.assign(tensor, framework.array(tensor) * 1.5 + 0.25)
        after = framework.call(one, inputs).outputs
        return len(before) == len(after) and all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    return False
