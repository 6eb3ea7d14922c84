"""Mistakes in a schedule, each a hypothesis about the learning rates that a port then gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.comparisons.update.rates import unit_rates
from alignment.finding import NO_HINT, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, always, seen
from mobilenetv3_common.train_config import SCHEDULES, TrainConfig


@dataclass(frozen=True)
class RateCase:
    """The learning rates of one run.

    Attributes:
        ours, right: float64 (updates,), from the run's first update on.
        config: the run's recipe; None where it is not known.
        updates_per_epoch, pictures: of the run, and of each update.
    """

    ours: np.ndarray
    right: np.ndarray
    config: TrainConfig | None = None
    updates_per_epoch: int = 1
    pictures: int = 1

    @property
    def wrong(self) -> np.ndarray:
        """Where the two differ by more than rounding; bool (updates,)."""
        return ~(np.abs(self.ours - self.right) <= tolerance.RATE_RTOL * np.abs(self.right).max())

    @property
    def recipe(self) -> TrainConfig:
        assert self.config is not None
        return self.config

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Of the right schedule: the fields of a ``ScheduleConfig``."""
        return asdict(self.recipe.schedule_config(self.updates_per_epoch))

    @property
    def step(self) -> int:
        """Updates between two steps of the schedule."""
        return self.updates_per_epoch if self.config is not None and self.config.lr_unit == "epoch" else 1

    def rates(self, unit: str = "", factor: float = 1.0, **changes: Any) -> np.ndarray:
        """By closed formula, with another unit, a factor, or other settings of the schedule."""
        units = np.arange(len(self.ours)) // (1 if (unit or self.recipe.lr_unit) == "update" else self.updates_per_epoch)
        return unit_rates({**self.settings, **changes}, self.recipe.optimizer_config(self.pictures).lr * factor, units)


RateCases = Sequence[RateCase]  # what was measured of one schedule; the first is wrong


def _observed(cases: RateCases) -> list[Observed]:
    return [Observed(case, case.ours, case.right, tolerance.RATE_RTOL) for case in cases]


RELATED = Family("learning_rates", _observed)  # what two sequences of rates have to do with each other
SETTINGS = Family("schedule_settings", _observed)  # one mistake in the settings of the recipe
DROPS = Family("learning_rate_drops", _observed)  # of rates that fall in steps


def rate_hint(cases: RateCases) -> Hint:
    """Kind and words of the mistake that gives the port's rates in every case; ``NO_HINT`` where none does."""
    families = [RELATED, DROPS]
    config = cases[0].config
    if config is not None:
        # A constant rate with a warm-up that never moves lacks the warm-up: the other schedules, which come before, were stepped.
        families.insert(0 if config.lr_schedule == "constant" else 1, SETTINGS)
    return next((hint for family in families if (hint := family.hint(cases)) != NO_HINT), NO_HINT)


@RELATED
def never_stepped(cases: RateCases) -> Hypotheses:
    words = "the learning rate never moves: the schedule is not stepped"
    predict = lambda c: np.full_like(c.right, c.ours[0]) if np.ptp(c.right) > 0 else c.right  # noqa: E731
    yield Hypothesis(Kind.SCHEDULE_NEVER_STEPPED, words, predict)


@RELATED
def off_by_one(cases: RateCases) -> Hypotheses:
    """By one update, and by one step of the schedule."""
    for by_step in (False, True):

        def late(case: RateCase, by_step: bool = by_step) -> np.ndarray:
            n = case.step if by_step else 1
            return np.concatenate([case.ours[:n], case.right[:-n]])

        def early(case: RateCase, by_step: bool = by_step) -> np.ndarray:
            n = case.step if by_step else 1
            return np.concatenate([case.right[n:], case.ours[-n:]])

        yield Hypothesis(Kind.SCHEDULE_OFF_BY_ONE, "schedule off by one step: each rate comes one step late", late)
        yield Hypothesis(Kind.SCHEDULE_OFF_BY_ONE, "schedule off by one step: each rate comes one step early", early)


@RELATED
def scaled(cases: RateCases) -> Hypotheses:
    if all((case.right > 0).all() for case in cases):
        ratio = cases[0].ours[0] / cases[0].right[0]
        words = f"the learning rate is {ratio:.6g} times the reference's"
        yield Hypothesis(Kind.LR_SCALED, words, lambda c: ratio * c.right)


# --- settings --------------------------------------------------------------------------------------------------------------


def _made(cases: RateCases, kind: Kind, words: str, **changes: Callable[[RateCase], Any]) -> Hypotheses:
    """Settings with one mistake, made of each case's own; nothing where the first has them so."""
    if any(cases[0].settings[name] != value(cases[0]) for name, value in changes.items()):
        yield Hypothesis(kind, words, lambda case: case.rates(**{name: value(case) for name, value in changes.items()}))


def _own(name: str, change: Callable[[Any], Any] = lambda value: value) -> Callable[[RateCase], Any]:
    """A setting of a case, changed."""
    return lambda case: change(case.settings[name])


@SETTINGS
def unit(cases: RateCases) -> Hypotheses:
    own = cases[0].recipe.lr_unit
    other = "epoch" if own == "update" else "update"
    words = f"the schedule is stepped every {other}, expected every {own}"
    yield Hypothesis(Kind.SCHEDULE_UNIT, words, lambda case: case.rates(unit=other))


def _unwarmed(case: RateCase) -> int:
    return case.settings["total"] - case.settings["warmup"]


@SETTINGS
def no_warmup(cases: RateCases) -> Hypotheses:
    if cases[0].settings["warmup"]:
        yield from _made(cases, Kind.WARMUP_MISSING, "no warm-up", warmup=always(0), total=_unwarmed)
        yield from _made(cases, Kind.WARMUP_MISSING, "no warm-up", warmup=always(0))


@SETTINGS
def warmup_start(cases: RateCases) -> Hypotheses:
    if not cases[0].settings["warmup"]:
        return
    decay, kind, name = cases[0].settings["warmup_decay"], Kind.WARMUP_START, "warmup_decay"
    words = f"the warm-up begins at 0, expected {decay:g} of the learning rate"
    yield from _made(cases, kind, words, warmup_decay=always(0.0))
    words = f"the warm-up begins at the full learning rate, expected {decay:g} of it"
    yield from _made(cases, kind, words, warmup_decay=always(1.0))
    turned, squared = _own(name, lambda share: 1 - share), _own(name, lambda share: share**2)
    for other in (*map(always, (0.001, 0.01, 0.1, 0.5)), turned, squared, always(1 / 3)):
        words = f"the warm-up begins at {other(cases[0]):g} of the learning rate, expected {decay:g}"
        yield from _made(cases, kind, words, warmup_decay=other)


@SETTINGS
def warmup_length(cases: RateCases) -> Hypotheses:
    if not cases[0].settings["warmup"]:
        return
    shorter, longer, twice = (_own("warmup", change) for change in (lambda n: n - 1, lambda n: n + 1, lambda n: 2 * n))
    for length in (shorter, longer, lambda case: case.recipe.warmup_epochs, twice):
        words = f"a warm-up of {length(cases[0])} steps, expected {cases[0].settings['warmup']}"
        if length(cases[0]) > 0:
            yield from _made(cases, Kind.WARMUP_LENGTH, words, warmup=length)
            total = lambda case, length=length: _unwarmed(case) + length(case)  # type: ignore[misc]  # noqa: E731
            yield from _made(cases, Kind.WARMUP_LENGTH, words, warmup=length, total=total)


@SETTINGS
def minimum(cases: RateCases) -> Hypotheses:
    name, least = cases[0].settings["name"], cases[0].settings["lr_min"]
    if name in ("cosine", "polynomial", "onecycle", "restarts"):
        yield from _made(cases, Kind.SCHEDULE_MINIMUM, f"the {name} ends at 0, expected {least:g}", lr_min=always(0.0))


@SETTINGS
def length_of_cosine(cases: RateCases) -> Hypotheses:
    first = cases[0].settings
    changes = (lambda n: n - 1, lambda n: n + 1, lambda n: 2 * n)
    for length in (
        lambda case: case.settings["total"] + case.settings["warmup"],
        _unwarmed,
        *(_own("total", change) for change in changes),
        lambda case: case.recipe.epochs,
    ):
        if first["name"] == "cosine" and length(cases[0]) != first["warmup"]:
            words = f"the cosine ends after {length(cases[0])} steps, expected {first['total']}, warm-up included"
            yield from _made(cases, Kind.SCHEDULE_PERIOD, words, total=length)


@SETTINGS
def step_size(cases: RateCases) -> Hypotheses:
    first = cases[0].settings
    for size in (
        _own("step_size", lambda n: max(n - 1, 1)),
        _own("step_size", lambda n: n + 1),
        lambda case: case.recipe.lr_step_epochs,
        lambda case: case.recipe.lr_step_epochs * case.updates_per_epoch,
    ):
        if first["name"] == "step":
            words = f"it falls every {size(cases[0])} steps, expected {first['step_size']}"
            yield from _made(cases, Kind.SCHEDULE_PERIOD, words, step_size=size)


@SETTINGS
def factor(cases: RateCases) -> Hypotheses:
    first = cases[0].settings
    for other in (
        *(_own("gamma", change) for change in (lambda gamma: 1 - gamma, lambda gamma: gamma**2, lambda gamma: gamma**0.5)),
        always(0.1),
        lambda case: case.recipe.lr_gamma,
        lambda case: case.recipe.lr_gamma ** (1 / case.updates_per_epoch),
        _own("gamma", lambda gamma: 1 / gamma),
    ):
        if first["name"] in ("step", "exponential"):
            words = f"it falls by the factor {other(cases[0]):.6g}, expected {first['gamma']:.6g}"
            yield from _made(cases, Kind.SCHEDULE_FACTOR, words, gamma=other)


@SETTINGS
def another_schedule(cases: RateCases) -> Hypotheses:
    for other in SCHEDULES:
        words = f"a {other} schedule, expected {cases[0].settings['name']}"
        yield from _made(cases, Kind.OTHER_SCHEDULE, words, name=always(other))


@SETTINGS
def another_rate(cases: RateCases) -> Hypotheses:
    for times in (0.1, 0.5, 2.0, 10.0):
        words = f"the learning rate is {times:g} times the reference's"
        yield Hypothesis(Kind.LR_SCALED, words, partial(RateCase.rates, factor=times))


# --- rates that fall in steps ----------------------------------------------------------------------------------------------


def _drops(rates: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.diff(rates) != 0)


def _factor(rates: np.ndarray) -> float | None:
    """The one by which the rates fall whenever they change; None where there is no such."""
    drops = _drops(rates)
    if not drops.size or not rates[drops[0]]:
        return None
    first = float(rates[drops[0] + 1] / rates[drops[0]])
    return first if np.allclose(rates[drops + 1], rates[drops] * first) else None


@DROPS
def another_factor(cases: RateCases) -> Hypotheses:
    ours, right = _factor(cases[0].ours), _factor(cases[0].right)
    if ours is not None and right is not None and abs(ours - right) > tolerance.RATE_RTOL:

        def predict(case: RateCase) -> np.ndarray:
            number = np.concatenate([[0], np.cumsum(np.diff(case.right) != 0)])
            return case.ours[0] * ours**number

        yield Hypothesis(Kind.SCHEDULE_FACTOR, f"it falls by the factor {ours:.4g}, expected {right:.4g}", predict)


@DROPS
def first_change(cases: RateCases) -> Iterator[Hypothesis]:
    """After how many steps the rates first change, where every case changes at other updates."""
    drops = [(_drops(case.ours), _drops(case.right)) for case in cases if case.wrong.any()]
    if not all(one.size and other.size and not np.array_equal(one, other) for one, other in drops):
        return
    starts = [(int(one[0]) + 1, int(other[0]) + 1) for one, other in drops]
    own, expected = starts[0]
    if all(one + 1 == other for one, other in starts):
        words = f"schedule off by one step: first change after {own} steps, expected {expected}"
        yield seen(Kind.SCHEDULE_OFF_BY_ONE, words)
    if all(one != other for one, other in starts):
        yield seen(Kind.SCHEDULE_PERIOD, f"it first changes after {own} steps, expected {expected}")
