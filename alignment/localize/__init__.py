"""Where does a port go wrong? ``localize`` compares two models of any frameworks and names the first own mistake of the port.

Example::

    from alignment.localize import localize

    report = localize(port, reference, images)      # images: float32 array (N, 3, H, W)
    print(report.first.line() if report.first else "no divergence")
    print(report.table())
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.finding import Finding, LayerRow, Localization
from alignment.frameworks import framework_of
from alignment.frameworks.base import Module, in_precision, leaves
from alignment.kinds import Kind
from alignment.localize.blame import Pair
from alignment.localize.search import (
    locate_in_models,
    random_cotangents,
    refuse_randomness,
    tied_names,
    weights_findings,
)
from alignment.localize.structure import structure_finding
from alignment.models import rounding
from alignment.models.counterparts import Matching, Sides
from alignment.models.matching import match_modules, matched, order_of_use
from alignment.models.observe import share_dropout
from alignment.models.tracing import Network
from alignment.models.values import Live
from alignment.models.weights import copy_weights, renamed
from mobilenetv3_common.weights import State, in_canonical

__all__ = ["Finding", "Kind", "LayerRow", "Localization", "Pair", "compare_states", "localize", "match_modules", "states_compared"]


def localize(
    port: Module,
    reference: Module,
    inputs: np.ndarray | tuple[np.ndarray, ...],
    *,
    names: Mapping[str, str] | None = None,
    training: bool = False,
    rtol: float = tolerance.EXACT_RTOL,
    backward: bool = True,
    weights: bool = True,
) -> Localization:
    """Compare a port with its reference, and name the first module whose own mistake makes them diverge.

    Copies of both run in exact mode: float64, with the float32 constants of known kernels taken out
    (``alignment.frameworks``), so a right port agrees to ``tolerance.EXACT_RTOL`` and there is no threshold to tune; eps may
    be rounded or not (``alignment.models.rounding``). Looked at in this order: the structure, the weights, the forward pass with
    the statistics it leaves behind, the backward pass from random gradients of the outputs. The models given are left as they are.

    Args:
        port: a model of any framework of ``alignment/frameworks``, holding its weights.
        reference: likewise, of the same or another framework.
        inputs: array, or arrays, for both models' ``forward``; floating ones are used in float64.
        names: port path -> reference path, for modules or whole parts that are called otherwise.
        training: compare in training mode; dropout then draws the same masks on both sides.
        rtol: relative L2 at which modules count as equal; ``tolerance.CLOSE`` for kernels with float32 constants (elu, smoothing).
        backward: compare gradients too.
        weights: compare weights first; without, copy the reference's weights into the port's copy where names fit.

    Returns:
        The first finding, or None, and a table over all modules.

    Raises:
        UserError: one of the two is no model, the reference cannot run on the inputs, or its random numbers cannot be shared.
    """
    sides = framework_of(port), framework_of(reference)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    ours, theirs = sides[0].copy(port), sides[1].copy(reference)
    found = matched(ours, theirs, names or {}, sides, lambda: given)
    matching, notes = found.matching, found.matching.notes
    found.name(ours, 0)
    found.name(theirs, 1)
    if finding := structure_finding(ours, theirs, matching, sides, lambda: order_of_use(sides[1], theirs, given)):
        return Localization(finding, notes=notes)
    if weights and (finding := compare_states(ours, theirs, matching, sides)):
        return Localization(finding, notes=notes)
    pair = replace(_exact_pair((ours, theirs), matching, sides, given, training, not weights), rtol=rtol)
    refuse_randomness(pair)
    if backward:
        pair.cotangents = random_cotangents(pair)
    return replace(locate_in_models(pair), notes=notes)


def _exact_pair(
    models: tuple[Module, Module], matching: Matching, sides: Live, given: tuple, training: bool, same_weights: bool
) -> Pair:
    """Both models in exact mode, with the same masks, and with the reference's weights where those are not to be compared."""
    ours, theirs = (side.make_exact(model) for side, model in zip(sides, models, strict=True))
    for side, model in zip(sides, (ours, theirs), strict=True) if training else ():
        share_dropout(side, model, lambda shape: np.random.default_rng(len(shape)).random(shape))
    if same_weights:
        copy_weights(theirs, ours)
    held = (a if a is None or isinstance(a, bool | str) or leaves(a, np.ndarray) else np.asarray(a) for a in given)
    args: tuple[Any, ...] = in_precision(tuple(held))
    rounding.choose((sides[0], ours), (sides[1], theirs), matching.paths, args)
    return Pair(Network(sides[0], ours, matching.paths), Network(sides[1], theirs), matching, args, training=training)


def compare_states(port: Module, reference: Module, matching: Matching, frameworks: Sides) -> Finding | None:
    """The first of ``states_compared``."""
    return next(iter(states_compared(port, reference, matching, frameworks)), None)


def states_compared(port: Module, reference: Module, matching: Matching, frameworks: Sides) -> list[Finding]:
    """The tensors that the port shares by mistake, or holds with other values; those of other shapes are left out.

    Args:
        port, reference: models that hold their weights.
        matching: which module is which.
        frameworks: of the port and of the reference.
    """
    side, other = frameworks
    names = matching.renaming()
    described, theirs = side.described(port), other.described(reference)
    tied = tied_by_mistake(port, reference, matching, frameworks)
    ours: State = {}
    for entry, tensor in described:
        name = renamed(entry, names)
        ours[name] = entry.onto(side.array(tensor), ours.get(name))
    right = in_canonical((entry, other.array(t)) for entry, t in theirs)
    found = weights_findings(ours, {n: a for n, a in right.items() if n in ours and ours[n].shape == a.shape}, tied)
    for group, apart in untied_by_mistake(port, reference, matching, frameworks):
        words = f"a tensor of its own, expected the same tensor as {group[0]}"
        found.append(Finding("weights", apart[-1], Kind.PARAMETERS_UNTIED, words, f"{len(group)} names", also=apart[:-1]))
    return found


def tied_by_mistake(port: Module, reference: Module, matching: Matching, frameworks: Sides) -> list[list[str]]:
    """Groups of the reference's names whose parameters are one tensor in the port alone; see ``states_compared``."""
    names = matching.renaming()
    expected = tied_names(frameworks[1].described(reference), lambda entry: entry.canonical)
    together = {name: number for number, group in enumerate(expected) for name in group}
    groups = tied_names(frameworks[0].described(port), lambda entry: renamed(entry, names))
    return [group for group in groups if len({together.get(name, name) for name in group}) > 1]


def untied_by_mistake(port: Module, reference: Module, matching: Matching, frameworks: Sides) -> list[tuple[list[str], list[str]]]:
    """Groups of the reference's names whose parameters are one trained tensor there, and several in the port.

    Beside each stand those of its names, one a tensor, that are no names of its first tensor in the port.
    """
    (side, other), names = frameworks, matching.renaming()
    held = {renamed(entry, names): id(tensor) for entry, tensor in side.described(port) if entry.role == "parameter"}
    described = [(entry, tensor) for entry, tensor in other.described(reference) if entry.role == "parameter"]
    trained = {entry.canonical for entry, tensor in described if other.trainable(tensor)}
    groups = [[n for n in group if n in held] for group in tied_names(described, lambda e: e.canonical) if group[0] in trained]
    apart = [[n for i, n in enumerate(group) if held[n] not in [held[one] for one in group[:i]]][1:] for group in groups]
    return [(group, names) for group, names in zip(groups, apart, strict=True) if names]
