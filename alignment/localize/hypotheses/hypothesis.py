"""What a hypothesis is, the registry of all of them, and the one function that confirms them.

A hypothesis is one mistake that a port may have: its kind, its words, and what would then be seen. ``confirmed`` holds that against
everything that was measured. Nothing else in the engine decides what a mistake is called.

Hypotheses stand in families: those that are asked about the same subject, in the order in which they were registered. A new one is
one function under the decorator of its family, and its name there is the function's::

    @CONVOLUTION
    def stride(s: Subject) -> Iterator[Hypothesis]:
        for n in range(1, 5):
            yield Hypothesis(Kind.STRIDE, f"stride {against(n, s.layer.settings['stride'])}", lambda x: ...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.finding import NO_HINT, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import UNEXPLAINED, close, explains


@dataclass(frozen=True)
class Hypothesis:
    """One mistake.

    Attributes:
        kind, words: what it is called where it is confirmed.
        predict: what a port with this mistake gives for what an observation was given, as an array or a number; None where the
            mistake cannot be made there. A fact that was seen itself, such as an exception, has no prediction.
        rtol: relative L2 within which the prediction must be what the port gave; None for the observation's own.
        unexplained: share of the difference from the reference that the prediction may leave over.
        about: what else the finding needs to say, e.g. the function to blame.
    """

    kind: Kind
    words: str
    predict: Callable[[Any], Any] | None
    rtol: float | None = None
    unexplained: float = UNEXPLAINED
    about: Any = None

    @property
    def hint(self) -> Hint:
        """Kind and words."""
        return self.kind, self.words


@dataclass(frozen=True)
class Observed:
    """One case that was measured on both sides.

    Attributes:
        given: what both sides were given, in the form that the family's predictions take.
        ours, right: what the port and the reference gave: arrays, or numbers; None for nothing.
        rtol: relative L2 within which a prediction must be ``ours``.
        noise: L2 distance that rounding alone makes, besides ``rtol``.
        parts: where the parts of a flat array begin, each of which is to be explained by itself; None for one part.
    """

    given: Any
    ours: Any
    right: Any
    rtol: float = tolerance.CLOSE
    noise: Any = 0.0
    parts: np.ndarray | None = None

    def agrees(self, hypothesis: Hypothesis) -> bool:
        """Whether a hypothesis predicts what the port gave, and explains its difference from the reference where there is one."""
        assert hypothesis.predict is not None
        made, ours, right = (None if a is None else np.asarray(a) for a in (hypothesis.predict(self.given), self.ours, self.right))
        rtol = self.rtol if hypothesis.rtol is None else hypothesis.rtol
        if self.parts is not None:
            return _explains_parts(made, ours, right, rtol, hypothesis.unexplained, self.noise, self.parts)
        if self.differs:
            return explains(made, ours, right, rtol, hypothesis.unexplained)
        return close(made, ours, max(rtol, tolerance.EXACT_RTOL))

    @property
    def differs(self) -> bool:
        """Whether the port gave something else than the reference."""
        if self.ours is None or self.right is None:
            return self.ours is not self.right
        return not close(np.asarray(self.ours), np.asarray(self.right), tolerance.EXACT_RTOL)


def _explains_parts(made: Any, ours: Any, right: Any, rtol: float, unexplained: float, noise: Any, parts: np.ndarray) -> bool:
    """``explains`` for each part of flat arrays: every part is the port's, and leaves almost nothing of its difference over."""
    if made is None or made.shape != ours.shape or not np.isfinite(made).all():
        return False
    size = lambda values: np.sqrt(np.add.reduceat(values * values, parts))  # noqa: E731
    error, gap = size(made - ours), size(ours - right)
    return bool((error <= rtol * np.maximum(size(ours), size(right)) + noise).all() and (error <= unexplained * gap + noise).all())


def confirmed(hypotheses: Iterable[Hypothesis], observed: Sequence[Observed]) -> Iterator[Hypothesis]:
    """The hypotheses that hold in every case that was measured, and explain at least one in which the port differs.

    Where the port differs, the prediction must be what the port gave, far nearer than the reference is. Where it does not, the
    mistake must not show either.
    """
    wrong = any(one.differs for one in observed)
    for hypothesis in hypotheses:
        if hypothesis.predict is None or (wrong and all(one.agrees(hypothesis) for one in observed)):
            yield hypothesis


Hypotheses = Iterator[Hypothesis]
Maker = Callable[..., Iterable[Hypothesis]]
FAMILIES: dict[str, Family] = {}


@dataclass
class Family:
    """Hypotheses about one sort of subject, in the order in which they are tried.

    Attributes:
        name: of the family, unique.
        observed: what was measured of a subject.
        makers: by name, the functions that give the hypotheses about a subject.
    """

    name: str
    observed: Callable[..., Sequence[Observed]] = lambda *subject: ()
    makers: dict[str, Maker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.name not in FAMILIES, f"two families of hypotheses are called {self.name}"
        FAMILIES[self.name] = self

    def __call__(self, maker: Maker) -> Maker:
        """Register a function under its own name."""
        return self.register(maker.__name__.strip("_"), maker)

    def register(self, name: str, maker: Maker) -> Maker:
        """Register a function under a name."""
        assert name not in self.makers, f"two hypotheses of {self.name} are called {name}"
        self.makers[name] = maker
        return maker

    def add(self, kind: Kind, words: str, predict: Callable[[Any], Any]) -> None:
        """Register one hypothesis whose words are the same for every subject; they are its name."""
        self.register(words, lambda *subject: [Hypothesis(kind, words, predict)])

    def hypotheses(self, *subject: Any) -> Iterator[Hypothesis]:
        """All hypotheses about a subject, in order."""
        for maker in self.makers.values():
            yield from maker(*subject)

    def confirmed(self, *subject: Any) -> Iterator[Hypothesis]:
        """Those that are confirmed by what was measured of the subject."""
        if self.makers:
            yield from confirmed(self.hypotheses(*subject), self.observed(*subject))

    def hint(self, *subject: Any) -> Hint:
        """Kind and words of the first that is confirmed; ``NO_HINT`` where none is."""
        return next((one.hint for one in self.confirmed(*subject)), NO_HINT)

    def remove(self, name: str) -> None:
        """Take a hypothesis out, so that a test can be seen to fail without it."""
        del self.makers[name]


def seen(kind: Kind, words: str, about: Any = None) -> Hypothesis:
    """A fact that was measured by itself, and needs no prediction: an exception, a shape, a value that is not finite."""
    return Hypothesis(kind, words, None, about=about)


def always(value: Any) -> Callable[[Any], Any]:
    """A prediction that needs nothing of the case."""
    return lambda given: value
