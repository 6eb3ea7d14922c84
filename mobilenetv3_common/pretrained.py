"""Weights for a network that is there, or for the one that they belong to, from a file of any trainer."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.foreign_names import prefix_of, refuse_other_types, translated, within
from mobilenetv3_common.weights import State, as_torch
from mobilenetv3_common.weights_file import Weights, naming, read_weights, say

FIRST = "features.0.0.weight"  # by which a MobileNetV3 of this project and of torchvision is known


def read_for(path: str | os.PathLike, expected: Collection[str] = (FIRST,), take: str = "auto") -> State:
    """A file's weights under torch's names and in its layout, without counters; what was done to them is said in one line.

    Args:
        path: of any kind that ``mobilenetv3_common.weights_file`` reads, of torch or Paddle.
        expected: canonical names of the network's tensors; some of them where it is not there yet.
        take: which weights of a training checkpoint, one of ``mobilenetv3_common.weights_file.TAKE``.

    Returns:
        The state under the network's names where these are found in it, else as the file has it; ``check_fit`` says what is wrong.

    Raises:
        UserError: as ``read_weights`` and ``prepared``.
    """
    return prepared(read_weights(path, take), path, expected, computes=True)


def not_usable(state: State, masks: bool = False) -> str:
    """What no network computes with, though activations may turn it into numbers again; empty where there is nothing.

    A ReLU6 of NaN is 0 in Paddle: a network with such weights gives every class the same probability, and no error.

    Args:
        state: canonical.
        masks: whether minus infinity is none of it, as in the mask of an attention that a network holds.
    """
    for name, array in state.items():
        if array.dtype.kind == "f" and not (np.isfinite(array) | (np.isneginf(array) & masks)).all():
            return f"{name} has values that are not finite"
        if name.endswith("running_var") and array.size and array.min() < 0:
            return f"{name} is a variance below zero"
    return ""


def prepared(
    weights: Weights,
    path: str | os.PathLike,
    expected: Collection[str] = (FIRST,),
    source: str = "auto",
    eps: float | None = None,
    computes: bool = False,
) -> State:
    """``read_for`` of weights that were read; ``source`` and ``eps`` as for ``translated``.

    Args:
        computes: whether a network is to compute with them, which refuses what ``not_usable`` finds; else it is said.

    Raises:
        UserError: as ``translated``.
    """
    state, notes = as_torch(weights.state), list(weights.notes)
    if FIRST in expected:
        with naming(Path(path)):
            found = translated(state, source, eps, weights.trained_as)
            if found is None:
                refuse_other_types(state)
        if found is not None:
            state = found.state
            notes += found.notes
    else:
        state, outside = under_names(state, expected)
        notes += outside
    if broken := not_usable(state):
        if computes:
            raise UserError(f"{path}: {broken}: the run that wrote it diverged, or it is damaged; take an earlier checkpoint")
        notes.append(f"warning: {broken}")
    say(path, ["; ".join(notes)] if notes else [])
    return state


def under_names(state: State, expected: Collection[str]) -> tuple[State, list[str]]:
    """A state under the names that a network expects, where a wrapper around it put something before them; and notes on that.

    Args:
        state: as a file has it.
        expected: names of the network's tensors.
    """
    known = set(expected)
    if not known or known & state.keys():
        return state, []
    heads = {name.partition(".")[0] for name in known}
    if len(heads) == 1 and {f"{(head := next(iter(heads)))}.{name}" for name in state} & known:  # the network itself is a wrapper
        return {f"{head}.{name}": array for name, array in state.items()}, []
    prefix = next((p for name in sorted(known) if (p := prefix_of(state, name)) is not None), None)
    if prefix is None:
        return state, []
    own, outside = within(state, prefix)
    return own, [f"names begin with {prefix}", *outside]
