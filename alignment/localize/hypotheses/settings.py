"""A stock layer with another setting: the reference's own layer is computed again with it, by its framework's own kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from alignment import formulas, tolerance
from alignment.formulas import ACTIVATIONS as ACTIVATIONS_BY_NAME
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis
from alignment.localize.hypotheses.passes import PROBE, by_call, by_input, by_repair

SETTINGS = Family("settings", by_call)
OWN_FUNCTION = Family("function_of_own_class", by_input)
WRITTEN_OUT = Family("function_written_out", by_input)
OWN_SETTING = Family("setting_of_own_class", by_repair)

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


def _hypothesis(s: Subject, changes: Mapping[str, Any]) -> Hypothesis:
    """The reference's own layer with other settings."""
    network, expected = s.pair.reference, s.layer.settings

    def predict(one: Subject) -> np.ndarray | None:
        made = network.answer_set(one.path, one.call, changes).outputs
        return made[one.differing] if one.differing < len(made) == len(one.blame.ours.outputs) else None

    return Hypothesis(_kind(s.layer.kind, next(iter(changes))), f"wrong {instead(changes, expected)}", predict)


def _asked(s: Subject) -> bool:
    return s.phase == "forward" and s.pair.truth is None


@SETTINGS
def said_by_the_port(s: Subject) -> Iterator[Hypothesis]:
    """Settings that the port's layer says it has, alone and together."""
    own, expected = s.own_layer, s.layer.settings
    if not _asked(s) or own.kind != s.layer.kind:
        return
    other = {name: value for name, value in own.settings.items() if name in expected and value != expected[name]}
    options: list[dict[str, Any]] = [{name: value} for name, value in other.items()]
    for changes in [*options, other] if len(other) > 1 else options:
        if changes.keys() <= KINDS.keys():
            yield _hypothesis(s, changes)


@SETTINGS
def usual(s: Subject) -> Iterator[Hypothesis]:
    """Usual settings where the port's layer does not say its own."""
    expected = s.layer.settings
    if _asked(s) and s.own_layer.kind != s.layer.kind:
        for name, value in ((one, value) for one in USUAL if one in expected for value in USUAL[one]):
            if value != expected[name]:
                yield _hypothesis(s, {name: value})


def _of_own_class(s: Subject, stock: bool = True) -> Subject | None:
    """The second input where the reference's module is of a user's own class and the port's is a stock layer or not; else None."""
    pair, network = s.pair, s.pair.reference
    if not _asked(s) or network.framework.knows(network.modules[s.path]):
        return None
    probe = s.probe(PROBE)  # None where the reference's module has children: it is no layer
    return probe if probe is not None and pair.port.framework.knows(pair.port.modules[s.path]) is stock else None


@OWN_FUNCTION
def another_activation(s: Subject) -> Iterator[Hypothesis]:
    """Both compute activations that are known, and not the same one."""
    yield from _swapped(s, _of_own_class(s))


@WRITTEN_OUT
def another_activation_written_out(s: Subject) -> Iterator[Hypothesis]:
    """Likewise where both sides have classes of their own, and no call inside them says what is wrong."""
    yield from _swapped(s, _of_own_class(s, stock=False))


def _swapped(s: Subject, probe: Subject | None) -> Iterator[Hypothesis]:
    if probe is None:
        return
    computed, wanted = ([_function(one, mine) for one in (s, probe)] for mine in (True, False))
    if computed[0] and wanted[0] and wanted[0] == wanted[1]:
        function = ACTIVATIONS_BY_NAME[computed[0]]
        words = f"activation swapped: it computes {computed[0]}, expected {wanted[0]}"
        yield Hypothesis(Kind.ACTIVATION, words, function, tolerance.SAME)


@OWN_SETTING
def usual_setting_repairs(s: Subject) -> Iterator[Hypothesis]:
    """The port's stock layer, computed again with a usual setting, gives what the reference's own class gives."""
    if _of_own_class(s) is None:
        return
    own = s.own_layer
    for name, value in ((one, value) for one in USUAL if one in own.settings for value in USUAL[one]):
        if value != own.settings[name]:
            words = f"wrong {name} {_shown(own.settings[name])}, expected {_shown(value)}"
            yield Hypothesis(_kind(own.kind, name), words, functools.partial(_repaired, {name: value}))


@OWN_SETTING
def frozen_statistics_repair(s: Subject) -> Iterator[Hypothesis]:
    """A stock batch normalisation in training mode where a class of the reference's own always takes the running statistics."""
    if s.pair.training and s.own_layer.kind == "batch_norm" and _of_own_class(s) is not None:
        words = "it normalises by the statistics of the batch in training mode, expected the running ones in every mode: frozen, "
        yield Hypothesis(Kind.TRAINING_MODE, f"{words}as with use_global_stats=True", _with_kept_statistics)


def _with_kept_statistics(s: Subject) -> np.ndarray | None:
    held, x = s.weights(), s.input
    if x is None or x.ndim < 2 or not {"running_mean", "running_var"} <= held.keys():
        return None
    kept, eps = (held["running_mean"], held["running_var"]), float(s.own_layer.settings["eps"])
    return formulas.normalised(x, *kept, eps, held.get("weight"), held.get("bias"))


def _repaired(changes: Mapping[str, Any], s: Subject) -> np.ndarray | None:
    made = s.pair.port.answer_set(s.path, s.call, changes).outputs
    return made[0] if len(made) == 1 else None


def _function(s: Subject, mine: bool) -> str:
    """The activation that the port's or the reference's module computes; ``""`` where it is no known one."""
    given, made = s.input, s.output if mine else s.expected
    if given is None or made is None or made.shape != given.shape or made.dtype.kind != "f":
        return ""
    with np.errstate(over="ignore", invalid="ignore"):
        return next((name for name, function in ACTIVATIONS_BY_NAME.items() if close(made, function(given), tolerance.SAME)), "")


def _kind(layer: str, setting: str) -> Kind:
    return Kind.ACTIVATION if layer in ACTIVATIONS and KINDS[setting] is Kind.NORM_SETTING else KINDS[setting]


def instead(changes: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Settings that a layer has instead of others, in words: each with the value that is expected of it."""
    return "; ".join(f"{name} {_shown(value)}, expected {_shown(expected[name])}" for name, value in changes.items())


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
