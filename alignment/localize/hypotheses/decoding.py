"""Mistakes of a decoder that one pass over a whole text does not show: of positions, of the mask of padding, and of the cache.

Each is put into the calls of the reference, which is then decoded once more: the port makes the mistake where that gives what the
port gives in every case that was measured.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alignment import tolerance
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import HALVES, close
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis, Observed, seen
from alignment.models.decoder import Decoder, Step, StepChange, TokenRows, tried

Texts = tuple[TokenRows, ...]
OTHER = ".other"  # ends the name of a case with other tokens in the padding
WEAK = 0.01  # of what another token moves: a mask that lets less through hides by too small a number


@dataclass(frozen=True)
class Decoded:
    """What is asked about: the reference, and what was measured.

    Attributes:
        reference: in exact mode.
        cases: by name, what both sides were given.
        ours, right: by case, what the port and the reference gave; only of cases in which neither raises.
        moved: by case, of both sides, (length, length): how far the output of a token moves where another token is changed,
            relative to the largest output.
    """

    reference: Decoder
    cases: Mapping[str, Texts]
    ours: Mapping[str, np.ndarray]
    right: Mapping[str, np.ndarray]
    moved: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def made(self, change: StepChange, batches: Texts) -> np.ndarray | None:
        """What the reference gives where its calls are changed; None where it cannot run so."""
        found = decoded(self.reference, batches, change)
        return None if isinstance(found, str) else found


def decoded(decoder: Decoder, batches: Texts, change: StepChange | None = None) -> np.ndarray | str:
    """Logits of the tokens of all batches, or what the first raised."""
    arrays = []
    for batch in batches:
        made = tried(decoder, batch, change)
        if isinstance(made, str):
            return made
        arrays.append(batch.real(made))
    return np.concatenate(arrays)


def _observed(s: Decoded) -> Sequence[Observed]:
    """Cases that differ first, of few calls: most hypotheses fail at once."""
    every = [Observed(s.cases[name], s.ours[name], s.right[name]) for name in s.ours]
    return sorted(every, key=lambda one: (not one.differs, sum(len(batch.chunks) or 1 for batch in one.given)))


DECODING = Family("decoding", _observed)


def _of(s: Decoded, kind: Kind, words: str, change: StepChange) -> Hypothesis:
    return Hypothesis(kind, words, functools.partial(s.made, change))


@DECODING
def causal_mask(s: Decoded) -> Iterator[Hypothesis]:
    """Which outputs move when one token is changed."""
    for name, (ours, right) in s.moved.items():
        where = " in a call with a cache" if name != "full" else ""
        more, less = (np.argwhere((a > tolerance.SAME) & (b <= tolerance.SAME)) for a, b in ((ours, right), (right, ours)))
        if name != "full" and "prompt" in s.ours and not close(s.ours["prompt"], s.right["prompt"], tolerance.FLOAT32_CONSTANT):
            more = more[:0]  # with one token to a call nothing comes later: the cache is wrong, or what goes with it
        if len(more) and (more[:, 1] > more[:, 0]).all():
            token, later = (int(n) for n in more[0])
            weak = ", weakly: the number that hides it is too small" if np.triu(ours, 1).max() < WEAK * ours.max() else ""
            yield seen(Kind.MASK, f"the causal mask{where} lets token {token} see token {later}, which comes later{weak}")
            return
        if len(less) and (less[:, 0] == less[:, 1]).all():
            yield seen(Kind.MASK, f"the causal mask{where} hides each token from itself: its diagonal is off by one")
            return


# --- positions -----------------------------------------------------------------------------------------------------------------


def _positions(s: Decoded, rules: Mapping[str, Callable[[Step], np.ndarray]]) -> Iterator[Hypothesis]:
    """Rules by which positions are counted, where they are not given; or even where they are."""
    for words, rule in rules.items() if s.reference.names.positions else ():
        for even in (False, True):

            def change(step: Step, rule: Callable[[Step], np.ndarray] = rule, even: bool = even) -> Step:
                return step if step.positions is not None and not even else replace(step, positions=rule(step))

            yield _of(s, Kind.POSITIONS, f"{words}, even where positions are given" if even else words, change)


def _right(step: Step) -> np.ndarray:
    return step.absolute if step.positions is None else step.positions


def _behind(rule: Callable[[Step], np.ndarray]) -> Callable[[Step], np.ndarray]:
    """A rule for calls with a cache; the first call has the right positions."""
    return lambda step: rule(step) if step.past else _right(step)


@DECODING
def positions_behind_a_cache(s: Decoded) -> Iterator[Hypothesis]:
    yield from _positions(
        s,
        {
            "positions begin at 0 again in each call, expected to go on behind the cache": lambda step: step.absolute - step.past,
            "positions stay at the end of the prompt, expected to go on with each token": _behind(
                lambda step: step.absolute - step.past + step.first
            ),
            "positions behind a cache are off by +1": _behind(lambda step: step.absolute + 1),
            "positions behind a cache are off by -1": _behind(lambda step: step.absolute - 1),
        },
    )


@DECODING
def positions_of_padding(s: Decoded) -> Iterator[Hypothesis]:
    """Rows that are padded on the left."""
    out, count = "leave padding out, expected to count it", "count padding, expected to begin at the first token of a row"
    yield from _positions(
        s,
        {
            f"positions {out}": lambda step: step.among_real,
            f"positions {count}": lambda step: step.absolute,
            f"positions behind a cache {out}": _behind(lambda step: step.among_real),
            f"positions behind a cache {count}": _behind(lambda step: step.absolute),
        },
    )


@DECODING
def positions_beyond(s: Decoded) -> Iterator[Hypothesis]:
    """Behind the trained length."""
    if end := s.reference.trained:
        words = f"positions from {end} on, the trained length,"
        rules = {
            f"{words} begin at 0 again (modulo {end})": lambda step: _right(step) % end,
            f"{words} are all {end - 1}": lambda step: np.minimum(_right(step), end - 1),
        }
        yield from _positions(s, rules)


# --- the mask of padding -------------------------------------------------------------------------------------------------------


@DECODING
def mask_ignored(s: Decoded) -> Iterator[Hypothesis]:
    def heeded(step: Step, begin: int) -> Step:
        """With a mask that hides nothing before a token."""
        if step.mask is None:
            return step
        return replace(step, mask=np.concatenate([np.ones_like(step.mask[:, :begin]), step.mask[:, begin:]], axis=1))

    never = sys.maxsize
    for words, begin in {
        "the mask of padding is ignored": lambda step: never,
        "the mask of padding is ignored once a cache is given": lambda step: never if step.past else 0,
        "the mask of padding is heeded for new tokens alone, and not for those in the cache": lambda step: step.past,
    }.items():
        yield _of(s, Kind.MASK, words, lambda step, begin=begin: heeded(step, begin(step)))  # type: ignore[misc]


@DECODING
def mask_too_weak(s: Decoded) -> Iterator[Hypothesis]:
    """Outputs of tokens that move with what stands in the padding."""
    for name in (name for name in s.ours if name + OTHER in s.ours):
        far, right = (np.abs(side[name] - side[name + OTHER]).max() / np.abs(side[name]).max() for side in (s.ours, s.right))
        if tolerance.SAME < far < WEAK and right <= tolerance.SAME:
            words = f"outputs of tokens move by {far:.1e} of the largest with what stands in the padding"
            yield seen(Kind.MASK, f"the mask hides padding by too small a number: {words}")
            return


# --- the cache -----------------------------------------------------------------------------------------------------------------


def _cached(s: Decoded, kind: Kind, words: str, change: StepChange) -> Iterator[Hypothesis]:
    """A change of calls with a cache, whose length also sets the positions; or positions are right nevertheless."""
    for placed in (False, True) if s.reference.names.positions else (False,):

        def changed(step: Step, placed: bool = placed) -> Step:
            if not step.past or step.cache is None:
                return step
            return replace(change(step), positions=_right(step) if placed else step.positions)

        yield _of(s, kind, words, changed)


@DECODING
def cache_lost(s: Decoded) -> Iterator[Hypothesis]:
    def stale(step: Step, kept: int) -> Step:
        """With the first tokens of the cache alone."""
        mask = None if step.mask is None else np.concatenate([step.mask[:, :kept], step.mask[:, step.past :]], axis=1)
        return replace(step, cache=s.reference.copied(step.prompt) if kept else None, mask=mask)

    words = "the cache stays that of the prompt: what later calls add to it is lost"
    yield from _cached(s, Kind.CACHE, words, lambda step: stale(step, step.first))
    yield from _cached(s, Kind.CACHE, "the cache is not used: each call sees its own tokens alone", lambda step: stale(step, 0))


@DECODING
def cache_exchanged(s: Decoded) -> Iterator[Hypothesis]:
    def exchanged(step: Step) -> Step:
        held = s.reference.arrays(step.cache)
        if len(held) % 2 or any(one.shape != held[n ^ 1].shape for n, one in enumerate(held)):
            return step
        return replace(step, cache=s.reference.copied(step.cache, lambda n, _: held[n ^ 1]))

    yield from _cached(s, Kind.CACHE, "keys and values of the cache are exchanged", exchanged)


@DECODING
def cache_rounded(s: Decoded) -> Iterator[Hypothesis]:
    for name, rounded in HALVES.items():

        def half(step: Step, rounded: Callable[[np.ndarray], np.ndarray] = rounded) -> Step:
            narrow = lambda _, array: rounded(array).astype(array.dtype) if array.dtype.kind == "f" else array  # noqa: E731
            return replace(step, cache=s.reference.copied(step.cache, narrow))

        yield from _cached(s, Kind.HALF_PRECISION, f"the cache is kept in {name}", half)
