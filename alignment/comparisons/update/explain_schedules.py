"""Two sequences of learning rates: where they diverge, and which mistake in the schedule's settings gives the port's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.comparisons.context import Context, Lane
from alignment.comparisons.update.schedules import (
    PICTURES,
    UPDATES_PER_EPOCH,
    expected_rates,
    made_rates,
    unit_rates,
    whole_schedules,
)
from alignment.finding import NO_HINT, Finding, Hint, Stage
from alignment.kinds import Kind
from mobilenetv3_common.train_config import SCHEDULES, TrainConfig


def schedule(context: Context) -> Finding | None:
    """Learning rates of every schedule of step 5 over a whole run."""
    pair = {role: Lane(context, f"{role}32", share_dropout=False) for role in context.sides}
    right: set[tuple[str, bool]] = set()
    for _, config in whole_schedules(context.recipe):
        made = (config, UPDATES_PER_EPOCH, PICTURES)
        ours, theirs = (made_rates(lane.side, lane.network, *made) for lane in pair.values())
        warmed = bool(config.warmup_epochs) and (config.lr_schedule, False) in right and ("constant", True) not in right
        place = f"build_schedule({'warm-up' if warmed else config.lr_schedule})"
        if finding := rate_finding("schedule", place, ours, theirs, config):
            return finding
        right.add((config.lr_schedule, bool(config.warmup_epochs)))
        if finding := rate_finding("schedule", f"schedule_config({config.lr_schedule})", theirs, expected_rates(*made), config):
            return finding  # wrong on both sides: what they share is to blame
    return None


def differ(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Where two sequences of learning rates differ by more than rounding: bool, of their shape."""
    return ~(np.abs(ours - theirs) <= tolerance.RATE_RTOL * np.abs(theirs).max())


def rate_finding(
    stage: Stage,
    location: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    config: TrainConfig | None = None,
    updates_per_epoch: int = UPDATES_PER_EPOCH,
    pictures: int = PICTURES,
) -> Finding | None:
    """Two sequences of learning rates, and how they are related.

    Args:
        stage, location: of the finding.
        ours, theirs: float64 (updates,), from the run's first update on.
        config: the run's recipe, whose settings are tried with one mistake each; None where it is not known.
        updates_per_epoch, pictures: of the run, and of each update.
    """
    if ours.shape != theirs.shape:
        return Finding(stage, location, measured=f"{len(ours)} updates, expected {len(theirs)}")
    wrong = differ(ours, theirs)
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    guesses = [lambda: _related(ours, theirs), lambda: _of_drops(ours, theirs)]
    if config is not None:
        # A constant rate with a warm-up that never moves lacks the warm-up: the other schedules, which come before, were stepped.
        place = 0 if config.lr_schedule == "constant" else 1
        guesses.insert(place, lambda: _other_settings(ours, config, updates_per_epoch, pictures))
    kind, words = next((hint for guess in guesses if (hint := guess())[0] is not Kind.UNKNOWN), NO_HINT)
    return Finding(stage, location, kind, words, f"update {first}: {ours[first]:.6g}, expected {theirs[first]:.6g}")


def _related(ours: np.ndarray, theirs: np.ndarray) -> Hint:
    """A schedule that stands still, is shifted, or scaled."""
    if np.ptp(ours) == 0 and np.ptp(theirs) > 0:
        return Kind.SCHEDULE_NEVER_STEPPED, "the learning rate never moves: the schedule is not stepped"
    if np.allclose(ours[1:], theirs[:-1], rtol=1e-9, atol=0):
        return Kind.SCHEDULE_OFF_BY_ONE, "schedule off by one step: each rate comes one step late"
    if np.allclose(ours[:-1], theirs[1:], rtol=1e-9, atol=0):
        return Kind.SCHEDULE_OFF_BY_ONE, "schedule off by one step: each rate comes one step early"
    if (theirs > 0).all():
        ratio = ours / theirs
        if np.ptp(ratio) < 1e-9 * abs(ratio[0]):
            return Kind.LR_SCALED, f"the learning rate is {ratio[0]:.6g} times the reference's"
    return NO_HINT


def _of_drops(ours: np.ndarray, theirs: np.ndarray) -> Hint:
    """Rates that fall in steps: by another factor, or after another number of steps."""
    drops = [np.flatnonzero(np.diff(rates) != 0) for rates in (ours, theirs)]
    if not drops[0].size or not drops[1].size:
        return NO_HINT
    if np.array_equal(drops[0], drops[1]):
        factors = [rates[d[0] + 1] / rates[d[0]] for rates, d in zip((ours, theirs), drops, strict=True)]
        constant = all(np.allclose(rates[d + 1], rates[d] * f) for rates, d, f in zip((ours, theirs), drops, factors, strict=True))
        if constant and abs(factors[0] - factors[1]) > 1e-9:
            return Kind.SCHEDULE_FACTOR, f"it falls by the factor {factors[0]:.4g}, expected {factors[1]:.4g}"
        return NO_HINT
    starts = drops[0][0] + 1, drops[1][0] + 1
    if starts[0] + 1 == starts[1]:
        return Kind.SCHEDULE_OFF_BY_ONE, f"schedule off by one step: first change after {starts[0]} steps, expected {starts[1]}"
    if starts[0] != starts[1]:
        return Kind.SCHEDULE_PERIOD, f"it first changes after {starts[0]} steps, expected {starts[1]}"
    return NO_HINT


def _other_settings(ours: np.ndarray, config: TrainConfig, updates_per_epoch: int, pictures: int) -> Hint:
    """The one mistake in the settings that gives the port's rates at every update."""
    lr, right = config.optimizer_config(pictures).lr, asdict(config.schedule_config(updates_per_epoch))
    other = "epoch" if config.lr_unit == "update" else "update"

    def gives(changes: dict[str, Any], unit: str) -> bool:
        changed = {**right, **changes}
        units = np.arange(len(ours)) // (1 if unit == "update" else updates_per_epoch)
        return not differ(ours, unit_rates(changed, lr * changed.get("factor", 1.0), units)).any()

    if gives({}, other):
        return Kind.SCHEDULE_UNIT, f"the schedule is stepped every {other}, expected every {config.lr_unit}"
    for kind, words, changes in _mistakes(right, config, updates_per_epoch):
        if gives(changes, config.lr_unit):
            return kind, words
    return NO_HINT


def _mistakes(right: dict[str, Any], config: TrainConfig, updates_per_epoch: int) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
    """Settings with one mistake each: its kind, its words, and the changed fields (``factor`` is of the learning rate)."""
    name, warmup, decay, gamma, total = (right[key] for key in ("name", "warmup", "warmup_decay", "gamma", "total"))
    if warmup:
        yield Kind.WARMUP_MISSING, "no warm-up", {"warmup": 0, "total": total - warmup}
        yield Kind.WARMUP_MISSING, "no warm-up", {"warmup": 0}
        yield Kind.WARMUP_START, f"the warm-up begins at 0, expected {decay:g} of the learning rate", {"warmup_decay": 0.0}
        words = "the warm-up begins at the full learning rate"
        yield Kind.WARMUP_START, f"{words}, expected {decay:g} of it", {"warmup_decay": 1.0}
        for other in (0.001, 0.01, 0.1, 0.5, 1 - decay, decay**2, 1 / 3):
            words = f"the warm-up begins at {other:g} of the learning rate, expected {decay:g}"
            if other != decay:
                yield Kind.WARMUP_START, words, {"warmup_decay": other}
        for other in (warmup - 1, warmup + 1, config.warmup_epochs, 2 * warmup):
            words = f"a warm-up of {other} steps, expected {warmup}"
            if other != warmup and other > 0:
                yield Kind.WARMUP_LENGTH, words, {"warmup": other}
                yield Kind.WARMUP_LENGTH, words, {"warmup": other, "total": total - warmup + other}
    if name in ("cosine", "polynomial", "onecycle", "restarts"):
        yield Kind.SCHEDULE_MINIMUM, f"the {name} ends at 0, expected {right['lr_min']:g}", {"lr_min": 0.0}
    if name == "cosine":
        for other in dict.fromkeys((total + warmup, total - warmup, total - 1, total + 1, 2 * total, config.epochs)):
            if other not in (total, warmup):
                words = f"the cosine ends after {other} steps, expected {total}, warm-up included"
                yield Kind.SCHEDULE_PERIOD, words, {"total": other}
    if name == "step":
        size = right["step_size"]
        for other in (size - 1, size + 1, config.lr_step_epochs, config.lr_step_epochs * updates_per_epoch):
            if other != size and other > 0:
                yield Kind.SCHEDULE_PERIOD, f"it falls every {other} steps, expected {size}", {"step_size": other}
    if name in ("step", "exponential"):
        factors = (1 - gamma, gamma**2, gamma**0.5, 0.1, config.lr_gamma, config.lr_gamma ** (1 / updates_per_epoch), 1 / gamma)
        for other in dict.fromkeys(factors):
            if abs(other - gamma) > 1e-12:
                yield Kind.SCHEDULE_FACTOR, f"it falls by the factor {other:.6g}, expected {gamma:.6g}", {"gamma": other}
    for other in SCHEDULES:
        if other != name:
            yield Kind.OTHER_SCHEDULE, f"a {other} schedule, expected {name}", {"name": other}
    for factor in (0.1, 0.5, 2.0, 10.0):
        yield Kind.LR_SCALED, f"the learning rate is {factor:g} times the reference's", {"factor": factor}
