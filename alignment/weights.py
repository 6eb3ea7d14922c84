"""Weights between two models of any frameworks: by module path and canonical name, strict and bijective.

What differs between the frameworks (names of statistics, transposed matrices, counters) is data of each framework
(``alignment.frameworks.base.Layout``); nothing here knows one of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from alignment.frameworks import framework_of
from alignment.frameworks.base import Framework, Module
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import Entry, State, read_state

ANY_FRAMEWORK = ".safetensors"


def copy_weights(source: Module, target: Module, names: Mapping[str, str] | None = None) -> None:
    """Give a model the weights and statistics of another one, in place; arrays are cast to the target's types.

    Args:
        source, target: models of any of the frameworks.
        names: target path -> source path of the modules, or whole parts, that are called otherwise.

    Raises:
        UserError: a tensor is missing on either side, or has another shape; the target is then as it was.
    """
    load_renamed(framework_of(target), target, framework_of(source).state(source), names, "the source's weights")


def load_renamed(
    framework: Framework, model: Module, state: State, names: Mapping[str, str] | None = None, source: str = "the weights"
) -> None:
    """Load a canonical state that goes by another model's module paths.

    Args:
        framework: the model's.
        model: takes the weights.
        state: canonical.
        names: the model's path -> the state's path, for modules or whole parts that are called otherwise.
        source: names the weights in a message.

    Raises:
        UserError: a key is missing or too many, or a shape differs; the message has the model's own paths.
    """
    paths = dict(names or {})
    other = {renamed(entry, paths): entry.canonical for entry in framework.entries(model)} if paths else {}
    framework.load(model, {other.get(name, name): array for name, array in state.items()}, source)


def copy_to_paddle(module: Module, layer: Module, names: Mapping[str, str] | None = None) -> None:
    """``copy_weights`` from a torch module to a Paddle layer; ``names``: Paddle path -> torch path."""
    copy_weights(module, layer, names)


def load_file(path: str | os.PathLike, sides: Sequence[tuple[Framework, Module]]) -> State:
    """Read a weights file that is in the own form of one of two models, as a canonical state that fits it.

    Whose form it is follows from the file's suffix, or else from its names of statistics; where neither tells, the first side
    is tried first.

    Args:
        path: of any kind that ``mobilenetv3_common.weights.read_state`` reads.
        sides: framework and model of the reference, then of the port; both models have the same canonical state.

    Raises:
        UserError: the file cannot be read, is of a framework that neither side has, or does not fit.
    """
    state = read_state(path)
    suffix = os.path.splitext(path)[1]
    fitting = [side for side in sides if suffix in side[0].suffixes]
    if not fitting and suffix != ANY_FRAMEWORK:
        raise UserError(f"{path}: neither side's framework ({', '.join(side[0].title for side in sides)}) has files of this kind")
    last = {name.rpartition(".")[2] for name in state}
    fitting = fitting or [side for side in sides if last & side[0].statistics_names()] or list(sides)
    problem: UserError | None = None
    for framework, model in fitting:
        try:
            return framework.canonical(model, state, str(path))
        except UserError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def renamed(entry: Entry, names: Mapping[str, str]) -> str:
    """A tensor's canonical name with its longest known parent replaced by what the other side calls that.

    Args:
        entry: of one side.
        names: its module paths -> the other side's.
    """
    parent, _, rest = entry.canonical.rpartition(".")
    while parent not in names:
        if not parent:
            return entry.canonical
        parent, _, last = parent.rpartition(".")
        rest = f"{last}.{rest}"
    return f"{names[parent]}.{rest}" if names[parent] else rest
