"""A stock layer with another setting: the reference's own layer is computed again with it, by its framework's own kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from alignment.finding import Hint
from alignment.formulas import ACTIVATIONS as ACTIVATIONS_BY_NAME
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close, explains
from alignment.localize.hypotheses.hypothesis import PROBE

KINDS = {
    "eps": Kind.NORM_EPS,
    "num_groups": Kind.GROUPS,
    "groups": Kind.GROUPS,
    **dict.fromkeys(("size", "alpha", "beta", "k"), Kind.NORM_SETTING),
    **dict.fromkeys(("min_val", "max_val", "lambd", "threshold", "slope"), Kind.ACTIVATION),
    "dim": Kind.AXIS,
    "padding_idx": Kind.PADDING_INDEX,
    "align_corners": Kind.ALIGN_CORNERS,
    "mode": Kind.INTERPOLATION,
    "output_padding": Kind.OUTPUT_PADDING,
    "stride": Kind.STRIDE,
    "padding": Kind.PADDING,
    "dilation": Kind.DILATION,
    "padding_mode": Kind.PADDING,
    **dict.fromkeys(("ceil_mode", "count_include_pad", "kernel_size", "output_size"), Kind.POOLING),
    "num_heads": Kind.HEADS,
    "norm_first": Kind.NORM_POSITION,
    **dict.fromkeys(("activation", "nonlinearity"), Kind.ACTIVATION),
    "batch_first": Kind.BATCH_FIRST,
}
ACTIVATIONS = ("celu", "elu", "softplus")
SAME = 1e-9  # relative L2 within which a module computes a known activation
RNG = range(-4, 4)
# What is tried where the port's layer does not say its settings.
USUAL: Mapping[str, tuple[Any, ...]] = {
    "eps": (1e-3, 1e-5, 1e-6, 1e-12, 1e-8, 0.0),
    "num_groups": (1, 2, 4, 8, 16, 32),
    "groups": (1, 2, 4, 8),
    "dim": tuple(RNG),
    "align_corners": (False, True),
    "ceil_mode": (False, True),
    "count_include_pad": (False, True),
    "batch_first": (False, True),
    "num_heads": (1, 2, 4, 8),
    "norm_first": (False, True),
    "activation": ("relu", "gelu", "silu"),
    "padding_idx": (None,),
}


def settings(s: Subject) -> Iterator[Hint]:
    """Settings that the port's layer says it has, alone and together; usual ones where it does not say.

    A hypothesis counts as everywhere: it gives what the port gives, for the input of the pass and for a second one.
    """
    pair, network = s.pair, s.pair.reference
    expected = dict(s.layer.settings)
    if s.phase != "forward" or pair.truth is not None or not expected:
        return
    own = pair.port.framework.layer(pair.port.modules[s.path])
    if own.kind == s.layer.kind:
        other = {name: value for name, value in own.settings.items() if name in expected and value != expected[name]}
        options: list[dict[str, Any]] = [{name: value} for name, value in other.items()]
        options += [other] if len(other) > 1 else []
    else:
        tried = [(name, value) for name in USUAL if name in expected for value in USUAL[name] if value != expected[name]]
        options = [{name: value} for name, value in tried]
    subjects = [s, *([probe] if (probe := s.probe(PROBE)) is not None else [])]
    for changes in options:
        if not changes.keys() <= KINDS.keys():
            continue
        if all(_confirmed(one, network.answer_set(s.path, one.call, changes).outputs) for one in subjects):
            words = ", ".join(f"{name} {_shown(value)}, expected {_shown(expected[name])}" for name, value in changes.items())
            yield _kind(s.layer.kind, next(iter(changes))), f"wrong {words}"


def of_own_class(s: Subject) -> Iterator[Hint]:
    """The reference's module is of a user's own class, the port's is a stock layer: that is computed again with usual settings.

    A hypothesis counts where the port's layer then gives what the reference's module gives, for the input and for a second one.
    """
    pair, network = s.pair, s.pair.reference
    if s.phase != "forward" or pair.truth is not None or network.framework.knows(network.modules[s.path]):
        return
    module = pair.port.modules[s.path]
    probe = s.probe(PROBE)  # None where the reference's module has children: it is no layer
    if probe is None or not pair.port.framework.knows(module):
        return
    own = pair.port.framework.layer(module)
    computed, wanted = ([_function(one, mine) for one in (s, probe)] for mine in (True, False))
    if computed[0] and wanted[0] and computed[0] == computed[1] and wanted[0] == wanted[1]:
        yield Kind.ACTIVATION, f"activation swapped: it computes {computed[0]}, expected {wanted[0]}"
    for name, value in ((one, value) for one in USUAL if one in own.settings for value in USUAL[one]):
        if value != own.settings[name] and all(_becomes_right(one, {name: value}) for one in (s, probe)):
            yield _kind(own.kind, name), f"wrong {name} {_shown(own.settings[name])}, expected {_shown(value)}"


def _becomes_right(s: Subject, changes: Mapping[str, Any]) -> bool:
    made = s.pair.port.answer_set(s.path, s.call, changes).outputs
    return len(made) == 1 and explains(made[0], s.expected, s.output)


def _function(s: Subject, mine: bool) -> str:
    """The activation that the port's or the reference's module computes; ``""`` where it is no known one."""
    given, made = s.input, s.output if mine else s.expected
    if given is None or made is None or made.shape != given.shape or made.dtype.kind != "f":
        return ""
    with np.errstate(over="ignore", invalid="ignore"):
        return next((name for name, function in ACTIVATIONS_BY_NAME.items() if close(made, function(given), SAME)), "")


def _confirmed(s: Subject, made: list) -> bool:
    given, right = s.blame.ours.outputs, s.blame.theirs.outputs
    triples = list(itertools.zip_longest(made, given, right))
    differing = [t for t in triples if t[1] is None or t[2] is None or t[1].shape != t[2].shape or (t[1] != t[2]).any()]
    return bool(made) and all(a is not None and explains(a, b, c) for a, b, c in differing[:1]) and len(made) == len(given)


def _kind(layer: str, setting: str) -> Kind:
    return Kind.ACTIVATION if layer in ACTIVATIONS and KINDS[setting] is Kind.NORM_SETTING else KINDS[setting]


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
