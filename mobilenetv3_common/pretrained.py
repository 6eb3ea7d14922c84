"""Weights for a network that is there, or for the one that they belong to, from a file of any trainer."""

from __future__ import annotations

import os
from collections.abc import Collection

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.foreign_names import prefix_of, translated, within
from mobilenetv3_common.weights import State, as_torch
from mobilenetv3_common.weights_file import Weights, read_weights, say

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
    return prepared(read_weights(path, take), path, expected)


def prepared(
    weights: Weights,
    path: str | os.PathLike,
    expected: Collection[str] = (FIRST,),
    source: str = "auto",
    eps: float | None = None,
) -> State:
    """``read_for`` of weights that were read; ``source`` and ``eps`` as for ``translated``.

    Raises:
        UserError: as ``translated``.
    """
    state, notes = as_torch(weights.state), list(weights.notes)
    if FIRST in expected:
        odd = next((name for name, array in state.items() if array.dtype.kind not in "f" and array.ndim), None)
        if odd is not None:
            raise UserError(f"{path}: {odd} is of type {state[odd].dtype}, which weights are not: save them as float32")
        try:
            found = translated(state, source, eps, weights.trained_as)
        except UserError as error:
            raise UserError(f"{path}: {error.line}") from error
        if found is not None:
            state = found.state
            notes += found.notes
    else:
        state, outside = under_names(state, expected)
        notes += outside
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
