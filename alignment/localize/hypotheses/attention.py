"""Mistakes of attention: another scale or mask in the layer itself, or another mask that a module gives to the layers inside it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from alignment import tolerance
from alignment.frameworks._attention import ATTENTION, INPUTS, MASKS, added
from alignment.frameworks.base import Attended, Call
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis, seen
from alignment.localize.hypotheses.passes import of_pass
from alignment.models.tracing import Network
from alignment.strangers import strangers

ATTENTION_LAYER = Family("attention", of_pass)
NEVER = -1e4  # a score that is so much smaller counts for nothing


def _attended(s: Subject) -> Attended | None:
    """The call of an attention layer; None where the module is none."""
    call = s.call.attended
    asked = s.phase == "forward" and s.pair.truth is None
    return call if asked and call is not None and call.kind == ATTENTION else None


@ATTENTION_LAYER
def scale(s: Subject) -> Iterator[Hypothesis]:
    """Scores that are divided by another number than the root of a head's width.

    The projections of a stock layer are linear, so a factor of the scores is one of its query's weights: those are scaled.
    """
    call, network = _attended(s), s.pair.reference
    layer = network.framework.attention(network.modules[s.path]) if call is not None else None
    if layer is None or call is None:
        return
    width = call.inputs[0].shape[-1]
    head = width // layer.heads
    divisors = {"nothing": 1.0, f"{head}, the width of a head": head, f"the root of {width}, the whole width": math.sqrt(width)}

    def predict(factor: float, one: Subject) -> np.ndarray | None:
        outputs = network.answer_set(one.path, one.call, {"score_factor": factor}).outputs
        return outputs[0] if outputs else None

    for words, divisor in {**divisors, f"{width}, the whole width": width}.items():
        if divisor**2 != head:
            words = f"the scores are divided by {words}, expected the root of {head}, the width of a head"
            yield Hypothesis(Kind.ATTENTION_SCALE, words, functools.partial(predict, math.sqrt(head) / divisor))


@ATTENTION_LAYER
def own_mask(s: Subject) -> Iterator[Hypothesis]:
    """The layer ignores its mask, has one of its own, or takes it for the contrary."""
    if (call := _attended(s)) is None:
        return
    mask = call.masks[0]
    queries, keys = call.inputs[0].shape[1], call.inputs[1].shape[1]
    causal = np.tril(np.ones((queries, keys), bool))
    options: list[tuple[str, np.ndarray | None]] = [("it ignores the mask", None)]
    if mask is None:
        options = [("it masks what comes later, expected no mask", causal)]
    elif mask.dtype.kind == "b":
        options.append(("it takes true in a mask for the contrary: what is masked is attended to", ~mask))

    def predict(other: Attended, one: Subject) -> np.ndarray | None:
        outputs = one.pair.reference.answer(one.path, replace(one.call, attended=other)).outputs
        return outputs[0] if outputs else None

    for words, given in options:
        yield Hypothesis(Kind.MASK, words, functools.partial(predict, replace(call, masks=(given,))))


@ATTENTION_LAYER
def given_masks(s: Subject) -> Iterator[Hypothesis]:
    """The masks that the port's module gives to attention layers inside it, held against the reference's."""
    pair = s.pair
    if s.phase != "forward" or pair.truth is not None:
        return
    inside = [
        key for key in pair.reference.children(s.path, pair.called)
        if key in pair.calls and pair.calls[key].attended is not None and key in pair.port.modules
    ]  # fmt: skip
    calls = _calls_inside(pair.port, s, inside) if inside else {}
    for key in inside:
        mine, right = calls.get(key), pair.calls[key].attended
        if mine is None or right is None or mine.kind != right.kind:
            continue
        for name, ours, theirs in zip(MASKS[right.kind], mine.masks, right.masks, strict=True):
            if words := _other_mask(ours, theirs, right, name):
                yield seen(Kind.MASK, f"the {name} that {key} is given: {words}")


def _calls_inside(network: Network, s: Subject, inside: list[str]) -> dict[str, Attended | None]:
    """By path: the first call of each of the port's modules."""
    framework, modules = network.framework, {path: network.modules[path] for path in inside}
    calls: dict[str, Call] = {}
    with strangers("port"):  # that is said elsewhere
        calls = framework.call(network.modules[s.path], *network.given(s.path, s.call), modules).calls
    network.put_back(s.path)
    return {path: framework.attended(modules[path], calls[path].args, calls[path].kwargs) for path in inside if path in calls}


def _other_mask(ours: np.ndarray | None, theirs: np.ndarray | None, call: Attended, name: str) -> str:
    """How two masks differ; empty where they do not."""
    sizes = dict(zip(INPUTS[call.kind], (one.shape[1] for one in call.inputs), strict=True))
    keys = sizes.get("key", sizes.get("memory", sizes.get("src", 0)) if name == "memory_mask" else 0)
    shape = np.broadcast_shapes(*(mask.shape for mask in (ours, theirs) if mask is not None), (1, max(keys, 1)))
    a, b = (np.zeros(shape) if mask is None else np.broadcast_to(added(mask, np.float64), shape) for mask in (ours, theirs))
    masked, expected = a < NEVER, b < NEVER
    if np.array_equal(masked, expected):
        kept = ~expected
        same = np.allclose(a[kept], b[kept], rtol=tolerance.SAME, atol=tolerance.EXACT_RTOL)
        return "" if same else "it adds other numbers to the scores"
    share = f"{int(masked.sum())} of {masked.size} places are masked, expected {int(expected.sum())}"
    if ours is None or theirs is None:
        return f"none, expected one ({share})" if ours is None else f"one, expected none ({share})"
    if np.array_equal(masked, ~expected):
        return f"the contrary of the expected one ({share}): true in a mask of truth values means attend in Paddle, masked in torch"
    if shape[-1] == shape[-2] and np.array_equal(masked, expected.swapaxes(-1, -2)):
        return f"the expected one transposed: keys for queries ({share})"
    return f"{share}; {int((masked != expected).sum())} differ"
