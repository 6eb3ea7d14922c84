"""What automatic augmentation does to pictures: each policy's function by itself, against the probabilities that are stated."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.distributions import as_stated
from alignment.draws import Draws, Operations
from alignment.finding import Finding, Hint
from alignment.kinds import Kind
from mobilenetv3_common import sampling

# The function of each policy, and how many pictures it is asked about: more than a whole sample could be drawn for.
POLICIES = {"imagenet": ("auto_augment_imagenet", 6000), "ra": ("rand_augment", 4000), "ta_wide": ("trivial_augment_wide", 8000)}
EACH = 100  # pictures for each of RandAugment's magnitudes
MAGNITUDES = range(31)  # of RandAugment
HEIGHT, WIDTH = 224, 160  # of the picture, whose sides differ so that exchanged axes are seen
Probabilities = Mapping[Operations, float]


def stored(name: str, outcomes: Sequence[Operations]) -> dict[str, np.ndarray]:
    """What is done to pictures as two arrays, (pictures, operations) each; an operation without a name is none."""
    longest = max(map(len, outcomes), default=0)
    padded = [[*outcome, *[("", 0.0)] * (longest - len(outcome))] for outcome in outcomes]
    return {
        f"{name}.names": np.array([[operation for operation, _ in row] for row in padded]),
        f"{name}.magnitudes": np.array([[magnitude for _, magnitude in row] for row in padded], dtype=np.float64),
    }


def outcomes_of(measurement: Measurement, name: str) -> list[Operations]:
    """What ``stored`` has stored under a name."""
    names, magnitudes = (np.asarray(measurement[f"{name}.{what}"]).tolist() for what in ("names", "magnitudes"))
    rows = zip(names, magnitudes, strict=True)
    return [tuple((operation, magnitude) for operation, magnitude in zip(*row, strict=True) if operation) for row in rows]


def events(outcome: Operations) -> list[tuple]:
    """What can be counted of what is done to one picture, each event once and always in the same order."""
    found: list[tuple] = [("done", *(part for op in outcome for part in op)), ("operations", len(outcome))]
    for place, (name, magnitude) in enumerate(outcome):
        found += [("operation", place, name), ("magnitude", place, name, abs(magnitude))]
        found.append(("direction", place, name, "negative" if magnitude < 0 else "not negative"))
    return found


def as_known(outcomes: Iterable[Operations], law: Probabilities) -> Counter[Operations]:
    """How often each outcome occurs; a magnitude that is a stated one but for the rounding of float32 counts as that one."""
    stated: dict[str, np.ndarray] = {}
    for name, magnitude in {op for outcome in law for op in outcome}:
        stated[name] = np.append(stated.get(name, []), magnitude)

    @functools.cache
    def known(name: str, magnitude: float) -> tuple[str, float]:
        of_name = stated.get(name, np.array([math.inf]))
        nearest = float(of_name[np.abs(of_name - magnitude).argmin()])
        same = abs(nearest - magnitude) <= tolerance.MAGNITUDE_RTOL * abs(nearest) < math.inf
        return name, nearest if same else magnitude

    counted: Counter[Operations] = Counter()
    for outcome, number in Counter(outcomes).items():
        counted[tuple(known(*op) for op in outcome)] += number
    return counted


def operation_row(name: str, outcomes: Iterable[Operations], law: Probabilities) -> Quantity:
    """A row for what a policy has done, against the probability of everything that it can do."""
    known: Counter[tuple] = Counter()
    for outcome, probability in law.items():
        for event in events(outcome):
            known[event] += probability  # type: ignore[assignment]  # a Counter of probabilities
    counted: Counter[tuple] = Counter()
    done = as_known(outcomes, law)
    for outcome, number in done.items():
        for event in events(outcome):
            counted[event] += number
    return as_stated(name, counted, sum(done.values()), {event: min(float(p), 1.0) for event, p in known.items()})


def asked(policy: str, seed: int, count: int, **arguments: Any) -> list[Operations]:
    """What a policy's own function does to pictures of HEIGHT x WIDTH."""
    rng = np.random.default_rng([seed, len(policy)])
    function: Callable[..., Operations] = getattr(sampling, POLICIES[policy][0])
    size = () if policy == "ta_wide" else (HEIGHT, WIDTH)
    return [function(rng, *size, **arguments) for _ in range(count)]


class Policies:
    """The functions of the policies; RandAugment with each of its magnitudes; signs, of all operations together.

    Args:
        draws: the independent part, which states the probabilities.
    """

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        """What the port's functions do; of the reference nothing is drawn."""
        made: dict[str, np.ndarray] = {}
        for policy, (_, count) in POLICIES.items() if role == "port" else ():
            made |= stored(policy, asked(policy, context.seed, count))
        for magnitude in MAGNITUDES if role == "port" else ():
            made |= stored(f"ra.{magnitude}", asked("ra", context.seed, EACH, magnitude=magnitude))
        return made

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        usual = [self._row(port, policy) for policy in POLICIES]
        signs = self._signs("draws.signs", [self._negative(port, policy, "ra") for policy in POLICIES])
        return [*usual, signs, *(self._row(port, "ra", magnitude) for magnitude in MAGNITUDES)]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for policy, (function, _) in POLICIES.items():
            for magnitude in (None, *(MAGNITUDES if policy == "ra" else ())):
                row = self._row(port, policy, magnitude)
                if not row.passed:
                    outcomes, law = self._outcomes(port, policy, magnitude), self._law(policy, magnitude)
                    name, hint = operation_hint(self.draws, policy, outcomes, law, magnitude)
                    return Finding("data", f"{function}: {name}" if name else function, *hint, row.reason)
            negative = self._negative(port, policy, policy)
            row = self._signs("signs", [negative])
            if not row.passed:
                words = f"magnitudes are negative with probability {np.mean(negative):.3f}, expected 0.5"
                return Finding("data", f"{function}: sign", Kind.SIGN, words, row.reason)
        return None

    def _law(self, policy: str, magnitude: int | None) -> Probabilities:
        return self.draws.operations(policy, HEIGHT, WIDTH, magnitude)

    @staticmethod
    def _outcomes(port: Measurement, policy: str, magnitude: int | None = None) -> list[Operations]:
        return outcomes_of(port, policy if magnitude is None else f"{policy}.{magnitude}")

    def _row(self, port: Measurement, policy: str, magnitude: int | None = None) -> Quantity:
        name = f"draws.{POLICIES[policy][0]}" if magnitude is None else f"draws.rand_augment.{magnitude}"
        return operation_row(name, self._outcomes(port, policy, magnitude), self._law(policy, magnitude))

    def _negative(self, port: Measurement, policy: str, table: str) -> list[bool]:
        """Whether magnitudes are negative, of the operations that have a sign in a policy's table."""
        signed = {name for name, (_, sign) in self.draws.magnitudes(table, HEIGHT, WIDTH).items() if sign}
        done = (operation for outcome in self._outcomes(port, policy) for operation in outcome)
        return [magnitude < 0 for name, magnitude in done if name in signed and magnitude]

    @staticmethod
    def _signs(name: str, negative: Sequence[list[bool]]) -> Quantity:
        return as_stated(name, {"negative": sum(map(sum, negative))}, sum(map(len, negative)), {"negative": 0.5})


# --- by what mistake -------------------------------------------------------------------------------------------------------


def operation_hint(
    draws: Draws, policy: str, outcomes: list[Operations], law: Probabilities, magnitude: int | None
) -> tuple[str, Hint]:
    """Which operation a policy draws otherwise (``""`` where unknown), and how."""
    known = {op for outcome in law for op in outcome}
    names = {name for name, _ in known}
    counted = as_known(outcomes, law)
    done = {op for outcome in counted for op in outcome}
    for name in sorted({name for name, _ in done} - names):
        return name, (Kind.OTHER_OPERATION, f"{name} is drawn, which the policy does not have")
    for name in sorted(names - {name for name, _ in done}):
        return name, (Kind.OTHER_OPERATION, f"{name} is never drawn")
    if policy == "ra":
        for other in MAGNITUDES:
            right = draws.operations(policy, HEIGHT, WIDTH, other)
            if right != law and operation_row("", outcomes, right).passed:
                expected = "the default one" if magnitude is None else f"{magnitude}"
                return "magnitude", (Kind.MAGNITUDE, f"the magnitudes of bin {other}, expected those of {expected}")
    for name in sorted(names):
        ours, theirs = ({m for op, m in found if op == name} for found in (done, known))
        if impossible := sorted(ours - theirs):
            if {-m for m in impossible} <= theirs:
                return name, (Kind.SIGN, f"{name} by {impossible[0]:g}: its magnitude has no such sign")
            near = min(theirs, key=lambda m: abs(m - impossible[0]))
            words = f"{name} by {impossible[0]:.6g}, which does not occur; the nearest that does is {near:.6g}"
            return name, (Kind.MAGNITUDE, words)
        if len({m < 0 for m in ours if m}) < len({m < 0 for m in theirs if m}):
            never = "positive" if min(ours) < 0 else "negative"
            return name, (Kind.SIGN, f"{name} always goes one way: its magnitude is never {never}")
    return _share_hint([op for outcome in counted.elements() for op in outcome], law)


def _share_hint(done: Sequence[tuple[str, float]], law: Probabilities) -> tuple[str, Hint]:
    """The operation whose magnitudes have other shares, where each operation is as frequent as it must be."""
    expected: Counter[tuple[str, float]] = Counter()
    for outcome, probability in law.items():
        for operation in outcome:
            expected[operation] += probability  # type: ignore[assignment]  # a Counter of shares
    made, names = Counter(done), sorted({name for name, _ in expected})

    def of(counted: Mapping[tuple[str, float], float], name: str) -> dict[float, float]:
        return {magnitude: share for (own, magnitude), share in counted.items() if own == name}

    whole = {name: sum(of(expected, name).values()) for name in names}
    laws = {name: share / sum(whole.values()) for name, share in whole.items()}
    if as_stated("", Counter(name for name, _ in done), len(done), laws).passed:
        for name in names:
            ours, theirs = of(made, name), of(expected, name)
            given = {magnitude: share / whole[name] for magnitude, share in theirs.items()}
            row = as_stated("", {m: int(count) for m, count in ours.items()}, int(sum(ours.values())), given)
            if not row.passed:
                return name, (Kind.MAGNITUDE, f"the magnitudes of {name}, which is as frequent as it must be: {row.reason}")
    return "", (Kind.PROBABILITY, "single operations have other probabilities")
