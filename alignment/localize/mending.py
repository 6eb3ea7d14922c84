"""A part of the port that computes what the reference's computes: with it in its place, what else is wrong can be seen.

The reference's module, in its own framework, takes the place of the port's forward. It computes with the port's weights and
statistics as they are at each call, gives its gradients to the port's parameters, and leaves its statistics in the port's. So a
mended port can be run, differentiated and updated as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alignment.frameworks.base import Framework, Module, Supplied, Tensor, Wanted, leaves
from alignment.localize.tracing import Network
from mobilenetv3_common.weights import Entry

Held = dict[str, tuple[Entry, Tensor]]


def mend(port: Network, reference: Network, path: str, thaw: bool = False) -> bool:
    """From now on a module of the port computes what the reference's computes, forward and backward.

    Args:
        port, reference: in the same precision; the reference is copied and stays as it is.
        path: of the module, in the reference.
        thaw: make its parameters trainable where they are in the reference; without, what is frozen in the port stays so.

    Returns:
        Whether the port has such a module, and its framework can do so.
    """
    if path not in port.modules or path not in reference.modules:
        return False
    ours, theirs = port.framework, reference.framework
    module, right = port.modules[path], theirs.copy(reference.modules[path])
    mine, its = port.held(path), _held(theirs, right)
    tied = _tied_by_mistake(port, reference, path)
    both = [name for name, (entry, _) in mine.items() if name in its and its[name][0].shape == entry.shape and name not in tied]
    parameters = [name for name in both if mine[name][0].role == "parameter"]
    for name in parameters if thaw else ():
        ours.set_trainable(mine[name][1], theirs.trainable(its[name][1]))
    trained = [name for name in parameters if theirs.trainable(its[name][1])]

    kinds: list[str] = []  # of the output's arrays

    def prepare() -> None:
        theirs.set_training(right, ours.training(module))
        for name in both:
            _copy(ours, mine[name], theirs, its[name])

    def forward(args: tuple, kwargs: dict[str, Any]) -> Any:
        prepare()
        output = theirs.call(right, args, kwargs, {"": right}).calls[""].output
        kinds[:] = [array.dtype.kind for array in leaves(output, np.ndarray)]
        for name in both:
            if mine[name][0].role == "buffer":
                _copy(theirs, its[name], ours, mine[name])
        return output

    def backward(args: tuple, kwargs: dict[str, Any], cotangents: list[np.ndarray]) -> list[np.ndarray | None]:
        prepare()
        wanted = Wanted(parameters={name: its[name][1] for name in trained})
        given = iter(cotangents)
        made = theirs.vjp(right, args, [next(given) if kind == "f" else None for kind in kinds], wanted, kwargs)
        gradients = [made.parameters[name] for name in trained]
        return [*made.inputs, *(_across(its[n][0], g, mine[n][0]) for n, g in zip(trained, gradients, strict=True))]

    return ours.supply(module, Supplied(forward, backward, tuple(mine[name][1] for name in trained)))


def mend_all(port: Network, reference: Network, paths: Sequence[str]) -> None:
    """``mend`` of several modules, their parameters trainable as the reference's."""
    for path in paths:
        mend(port, reference, path, thaw=True)


def _tied_by_mistake(port: Network, reference: Network, path: str) -> set[str]:
    """Names within a module of parameters that are one tensor with another one in the port alone."""
    mine, its = port.held(""), reference.held("")
    found = set()
    for name in port.held(path):
        full = f"{path}.{name}" if path else name
        same = {other for other, (_, tensor) in mine.items() if tensor is mine[full][1]}
        if full in its and any(other in its and its[other][1] is not its[full][1] for other in same):
            found.add(name)
    return found


def _held(framework: Framework, module: Module) -> Held:
    """Parameters and buffers of a module by canonical name within it."""
    return {entry.canonical: (entry, tensor) for entry, tensor in framework.described(module)}


def _copy(source: Framework, held: tuple[Entry, Tensor], target: Framework, into: tuple[Entry, Tensor]) -> None:
    target.assign(into[1], into[0].to_own(held[0].to_canonical(source.array(held[1]))))


def _across(source: Entry, gradient: np.ndarray | None, target: Entry) -> np.ndarray | None:
    return None if gradient is None else target.to_own(source.to_canonical(gradient))
