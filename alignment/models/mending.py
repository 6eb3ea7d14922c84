"""A part of the port that computes what the reference's computes: with it in its place, what else is wrong can be seen.

The reference's module, in its own framework, takes the place of the port's forward. It computes with the port's weights and
statistics as they are at each call, gives its gradients to the port's parameters, and leaves its statistics in the port's. So a
mended port can be run, differentiated and updated as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alignment.frameworks.base import Call, Framework, Module, Piece, Supplied, Tensor, Wanted, call_tensors, leaves, mapped
from alignment.models.carried import alone, put_below, stock_of
from alignment.models.derived import pulled
from alignment.models.forms import CallAdapter, told_back
from alignment.models.forms.adapter import Owned
from alignment.models.forms.axes import structure
from alignment.models.tracing import Network, Unfit, apart, carrying
from alignment.strangers import Refused, strangers
from mobilenetv3_common.weights import Entry

Held = dict[str, tuple[Entry, Tensor]]


def mend(port: Network, reference: Network, path: str, thaw: bool = False, calls: tuple[Call, Call] | None = None) -> bool:
    """From now on a module of the port computes what the reference's computes, forward and backward.

    Args:
        port, reference: in the same precision; the reference is copied and stays as it is.
        path: of the module, in the reference.
        thaw: make its parameters trainable where they are in the reference; without, what is frozen in the port stays so.
        calls: of the port's module, as its caller makes it, and of the reference's.

    Returns:
        Whether the port has such a module, its framework can do so, and the caller gets what it goes on with.
    """
    if path not in port.modules or path not in reference.modules:
        return False
    ours, theirs = port.framework, reference.framework
    side = apart(port, reference, path)
    if side is port:
        return False  # what it carries besides is another layer in the reference
    module, right = port.modules[path], theirs.copy(reference.modules[path])
    if side is reference or reference.adapters[path].bare:
        alone(theirs, right, [layer for _, layer in theirs.children(right)])
    call_tensors(right, _pieces_within(reference, path))
    mine, its = port.held(path), _held(theirs, right)
    tied = _tied_by_mistake(port, reference, path)
    both = [name for name, (entry, _) in mine.items() if name in its and its[name][0].shape == entry.shape and name not in tied]
    parameters = [name for name in both if mine[name][0].role == "parameter"]
    for name in parameters if thaw else ():
        ours.set_trainable(mine[name][1], theirs.trainable(its[name][1]))
    trained = [name for name in parameters if theirs.trainable(its[name][1])]

    learned = port.adapters[path].back()
    if learned is None:
        return False
    packed: dict[int, dict[Any, str]] = {}  # tensors of the port, each with the names of the parts that it holds
    for name in trained:  # of several names of one tensor of the reference, one gives the gradient
        entry, tensor = its[name]
        packed.setdefault(id(mine[name][1]), {}).setdefault(name if isinstance(entry, Piece) else id(tensor), name)
    parts = [[*names.values()] for names in packed.values()]
    shared = {name: (mine[name], its[name]) for name in both}
    stock = stock_of(ours, module) if reference.adapters[path].bare and carrying(port, reference, path) is port else None
    if calls is not None and not _stands_in((ours, module), (theirs, right), learned, calls):
        return False
    if not ours.supply(module, _supplied((ours, module), (theirs, right), shared, parts, learned)):
        return False
    if stock is not None:
        put_below(ours, module, stock)
    return True


def _stands_in(port: Owned, reference: Owned, learned: CallAdapter, calls: tuple[Call, Call]) -> bool:
    """Whether the reference's module takes a call of the port's, and returns the structure that the port's caller goes on with.

    A form that the layers themselves tell is sure of both.
    """
    mine, its = calls
    if told_back(port, reference, mine.args, mine.kwargs) is not None:
        return True
    try:
        learned.given(mine.args, mine.kwargs)
        return structure(learned.returned(its.output)) == structure(mine.output)
    except Refused:  # it was learned from another call
        return False


def _supplied(
    port: tuple[Framework, Module],
    reference: tuple[Framework, Module],
    shared: Mapping[str, tuple[tuple[Entry, Tensor], tuple[Entry, Tensor]]],
    packed: Sequence[Sequence[str]],
    learned: CallAdapter,
) -> Supplied:
    """What takes the place of a module's forward and backward.

    Args:
        port, reference: framework and module; the reference's is the stand-in.
        shared: by name, a tensor of the port and the reference's.
        packed: names of the trained parts that one tensor of the port holds.
        learned: how the port's module is called, where a call does not say otherwise.
    """
    (ours, module), (theirs, right) = port, reference
    trained = [name for parts in packed for name in parts]
    kinds: list[str] = []  # of the arrays that the port's module returns
    given: list[str] = []  # likewise of the reference's
    marks: list[bool] = []  # whether the reference's takes marks as truth values, which the port gives as numbers

    def adapter(args: tuple, kwargs: dict[str, Any]) -> CallAdapter:
        for mine, its in shared.values():
            _copy(ours, mine, theirs, its)
        theirs.set_training(right, ours.training(module))
        return told_back(port, reference, args, kwargs) or learned

    def forward(args: tuple, kwargs: dict[str, Any]) -> Any:
        back = adapter(args, kwargs)
        output = _answered(reference, back, (args, kwargs), marks)
        for mine, its in shared.values():
            if mine[0].role == "buffer":
                _copy(theirs, its, ours, mine)
        returned = back.returned(output)
        kinds[:], given[:] = ([array.dtype.kind for array in leaves(one, np.ndarray)] for one in (returned, output))
        return returned

    def backward(args: tuple, kwargs: dict[str, Any], cotangents: list[np.ndarray]) -> list[np.ndarray | None]:
        back, wanted = adapter(args, kwargs), Wanted(parameters={name: shared[name][1][1] for name in trained})
        floating = iter(cotangents)
        back_again = back.cotangents([next(floating, None) if kind == "f" else None for kind in kinds])
        own = back.given(args, kwargs)
        arrays, names = _marked(own, marks == [True])
        starts = [*back_again, *[None] * (len(given) - len(back_again))]
        made, _ = pulled(theirs, right, arrays, starts, wanted, names, lambda: adapter(args, kwargs))
        inputs = _with_gaps(made.inputs, own, (arrays, names))
        across = {name: _across(shared[name][1][0], made.parameters[name], shared[name][0][0]) for name in trained}
        return [*back.inputs(inputs, (args, kwargs)), *(_sum(across[part] for part in parts) for parts in packed)]

    return Supplied(forward, backward, tuple(shared[parts[0]][0][1] for parts in packed))


def _answered(reference: Owned, back: CallAdapter, call: tuple[tuple, dict[str, Any]], marks: list[bool]) -> Any:
    """What the reference's module gives, with zeros and ones as truth values where it takes nothing else; ``marks`` keeps that.

    Raises:
        Unfit: it does not take what it is given.
    """
    theirs, right = reference
    try:
        given = back.given(*call)
    except Refused as error:  # a form that was learned from another call
        raise Unfit(str(error)) from error
    for as_truth in marks or (False, True):
        with strangers("reference") as raised:
            output = theirs.call(right, *_marked(given, as_truth), {"": right}).calls[""].output
            marks[:] = [as_truth]
            return output
    raise Unfit(raised.words) from raised.error


def _marked(given: tuple[tuple, dict[str, Any]], as_truth: bool) -> tuple[tuple, dict[str, Any]]:
    """Arguments of which arrays of zeros and ones, as of a mask, are truth values where ``as_truth``."""
    marks = lambda array: array.astype(bool) if np.isin(array, (0, 1)).all() else array  # noqa: E731
    return mapped(given, np.ndarray, marks) if as_truth else given


def _with_gaps(gradients: Sequence[np.ndarray | None], own: Any, marked: Any) -> list[np.ndarray | None]:
    """Gradients of the floating arrays of some arguments, with None for those that became truth values."""
    pairs = zip(leaves(own, np.ndarray), leaves(marked, np.ndarray), strict=True)
    found = iter(gradients)
    return [next(found, None) if after.dtype.kind == "f" else None for before, after in pairs if before.dtype.kind == "f"]


def mend_all(port: Network, reference: Network, paths: Sequence[str]) -> None:
    """``mend`` of several modules, their parameters trainable as the reference's."""
    for path in paths:
        mend(port, reference, path, thaw=True)


def _tied_by_mistake(port: Network, reference: Network, path: str) -> set[str]:
    """Names within a module of parameters that are one tensor with another one in the port alone; parts of one tensor are not."""
    mine, its = port.held(""), reference.held("")
    found = set()
    for name in port.held(path):
        full = f"{path}.{name}" if path else name
        entry, held = mine[full]
        same = {other for other, (one, tensor) in mine.items() if tensor is held and not (is_part(one) and is_part(entry))}
        if full in its and any(other in its and its[other][1] is not its[full][1] for other in same):
            found.add(name)
    return found


def is_part(entry: Entry) -> bool:
    """Whether a tensor holds more than this."""
    return isinstance(entry, Piece) and entry.partial


def _pieces_within(network: Network, path: str) -> dict[str, list[Piece]]:
    """The pieces in which a module's tensors are known, by their names within it."""
    prefix = f"{path}." if path else ""
    found: dict[str, list[Piece]] = {}
    for name, (entry, _) in network.held(path).items():
        if isinstance(entry, Piece) and entry.own.startswith(prefix):
            own = entry.own.removeprefix(prefix)
            found.setdefault(own, []).append(replace(entry, canonical=name, own=own))
    return found


def _held(framework: Framework, module: Module) -> Held:
    """Parameters and buffers of a module by canonical name within it."""
    return {entry.canonical: (entry, tensor) for entry, tensor in framework.described(module)}


def _copy(source: Framework, held: tuple[Entry, Tensor], target: Framework, into: tuple[Entry, Tensor]) -> None:
    target.assign(into[1], into[0].into(held[0].to_canonical(source.array(held[1])), target.array(into[1])))


def _sum(arrays: Iterable[np.ndarray | None]) -> np.ndarray | None:
    """Of gradients of one tensor; None where none reaches it."""
    found = [array for array in arrays if array is not None]
    return sum(found[1:], found[0]) if found else None


def _across(source: Entry, gradient: np.ndarray | None, target: Entry) -> np.ndarray | None:
    return None if gradient is None else target.to_own(source.to_canonical(gradient))
