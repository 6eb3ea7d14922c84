"""Gradients through a module whose framework has no derivative for some of what it is given.

torch has none for the weights of a loss, and refuses to run where they are leaves of the graph. Such a refusal says nothing about
either side: the input is given as a constant then, and has no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alignment.frameworks.base import Framework, Module, Pass, Wanted, leaves
from alignment.strangers import strangers

MOST = 8  # floating inputs of which each is tried by itself


def pulled(
    framework: Framework,
    module: Module,
    args: tuple,
    cotangents: Sequence[np.ndarray | None] | None,
    wanted: Wanted,
    kwargs: Mapping[str, Any] | None = None,
    again: Callable[[], object] = lambda: None,
) -> tuple[Pass, bool]:
    """``Framework.vjp`` with as many inputs as leaves of the graph as the framework allows.

    Args:
        framework, module, args, cotangents, wanted, kwargs: as there.
        again: puts back what a pass changes in the module; called before each further one.

    Returns:
        What the pass gave, and whether the gradient of an input was refused.
    """
    raised = strangers("framework")
    with raised:
        return framework.vjp(module, args, cotangents, wanted, kwargs), False
    assert raised.error is not None
    every = frozenset(range(sum(array.dtype.kind == "f" for array in leaves((args, dict(kwargs or {})), np.ndarray))))

    def tried(constants: frozenset[int]) -> Pass | None:
        again()
        with strangers("framework"):
            return framework.vjp(module, args, cotangents, replace(wanted, constants=wanted.constants | constants), kwargs)
        return None

    made, constants = tried(every) if every else None, every
    if made is None:
        raise raised.error  # of the module itself
    for number in sorted(every)[:MOST]:
        fewer = tried(constants - {number})
        if fewer is not None:
            made, constants = fewer, constants - {number}
    return made, True
