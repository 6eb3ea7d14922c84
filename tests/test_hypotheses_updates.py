"""Every hypothesis about a schedule or about accumulation names its mistake, on plain arrays, and no other."""

from dataclasses import replace

import numpy as np
import pytest

from alignment.comparisons.update import schedules
from alignment.comparisons.update.accumulation import PARTS, Accumulation
from alignment.comparisons.update.mistakes import RateCase, rate_hint
from alignment.comparisons.update.rates import expected_rates
from alignment.comparisons.update.schedules import PICTURES, UPDATES_PER_EPOCH, WHOLE, rate_finding
from alignment.finding import NO_HINT
from alignment.kinds import Kind


def cases_of(name, change, warmup=0, **options):
    """A schedule by update and by epoch, whose port gives a changed sequence; ``change`` gets a right case."""
    made = []
    for unit in ("update", "epoch"):
        config = replace(WHOLE, lr_schedule=name, lr_unit=unit, warmup_epochs=warmup, warmup_decay=0.25, **options)
        right = expected_rates(config, UPDATES_PER_EPOCH, PICTURES)
        sound = RateCase(right, right, config, UPDATES_PER_EPOCH, PICTURES)
        made.append(replace(sound, ours=change(sound)))
    return [case for case in made if case.wrong.any()] + [case for case in made if not case.wrong.any()]


def with_settings(**changes):
    """The closed formula with other settings; a function of the right one gives each."""
    return lambda c: c.rates(**{key: value(c.settings[key]) for key, value in changes.items()})


MISTAKES = {
    "never": ("step", lambda c: np.full_like(c.right, c.right[0]), 0, Kind.SCHEDULE_NEVER_STEPPED, "never moves"),
    "late": ("step", lambda c: np.concatenate([c.right[:1], c.right[:-1]]), 0, Kind.SCHEDULE_OFF_BY_ONE, "one step late"),
    "early": ("step", lambda c: np.append(c.right[1:], c.right[-1]), 0, Kind.SCHEDULE_OFF_BY_ONE, "one step early"),
    "an epoch late": (
        "exponential",
        lambda c: np.concatenate([c.right[: c.step], c.right[: -c.step]]),
        0,
        Kind.SCHEDULE_OFF_BY_ONE,
        "one step late",
    ),
    "scaled": ("cosine", lambda c: 1.7 * c.right, 0, Kind.LR_SCALED, "1.7 times"),
    "ten times": ("cosine", lambda c: c.rates(factor=10.0), 0, Kind.LR_SCALED, "10 times"),
    "every epoch": ("exponential", lambda c: c.rates(unit="epoch"), 0, Kind.SCHEDULE_UNIT, "every epoch, expected every update"),
    "every update": ("step", lambda c: c.rates(unit="update"), 0, Kind.SCHEDULE_UNIT, "every update, expected every epoch"),
    "no warm-up": ("constant", with_settings(warmup=lambda n: 0), 2, Kind.WARMUP_MISSING, "no warm-up"),
    "from 0": ("constant", with_settings(warmup_decay=lambda n: 0.0), 2, Kind.WARMUP_START, "begins at 0,"),
    "from the top": ("cosine", with_settings(warmup_decay=lambda n: 1.0), 2, Kind.WARMUP_START, "at the full learning rate"),
    "another start": ("constant", with_settings(warmup_decay=lambda n: 1 - n), 2, Kind.WARMUP_START, "begins at 0.75"),
    "longer": ("constant", with_settings(warmup=lambda n: n + 1), 2, Kind.WARMUP_LENGTH, "a warm-up of 9 steps, expected 8"),
    "to zero": ("polynomial", with_settings(lr_min=lambda n: 0.0), 0, Kind.SCHEDULE_MINIMUM, "polynomial ends at 0"),
    "one more": ("cosine", with_settings(total=lambda n: n + 1), 0, Kind.SCHEDULE_PERIOD, "after 37 steps, expected 36"),
    "each step shorter": ("step", with_settings(step_size=lambda n: max(n - 1, 1)), 0, Kind.SCHEDULE_PERIOD, "every 7 steps"),
    "squared": ("exponential", with_settings(gamma=lambda n: n**2), 0, Kind.SCHEDULE_FACTOR, "by the factor"),
    "another": ("cosine", with_settings(name=lambda n: "exponential"), 0, Kind.OTHER_SCHEDULE, "exponential schedule, expected"),
    "another factor": ("step", with_settings(gamma=lambda n: 0.3), 0, Kind.SCHEDULE_FACTOR, "factor 0.3, expected 0.5"),
    "five steps": (
        "step",
        with_settings(step_size=lambda n: n + 5),
        0,
        Kind.SCHEDULE_PERIOD,
        "first changes after 13 steps, expected 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_a_schedule_is_named(name):
    schedule, change, warmup, kind, words = MISTAKES[name]
    found = rate_hint(cases_of(schedule, change, warmup))
    assert found[0] is kind and words in found[1], found


def test_a_mistake_must_show_in_every_case():
    """By update the rates come one step late; by epoch they are scaled: no mistake is known that does both."""
    made = cases_of("step", lambda c: np.concatenate([c.right[:1], c.right[:-1]]) if c.step == 1 else 1.7 * c.right)
    assert rate_hint(made) == NO_HINT and rate_hint(made[:1])[0] is Kind.SCHEDULE_OFF_BY_ONE


def test_no_mistake_is_claimed_of_other_rates():
    rng = np.random.default_rng(0)
    assert rate_hint(cases_of("cosine", lambda c: c.right * (1 + 0.1 * rng.random(len(c.right))))) == NO_HINT
    sound = cases_of("cosine", lambda c: c.right * (1 + 1e-12))[0]
    assert rate_finding("schedule", "here", sound) is None
    short = replace(sound, ours=sound.right[:-1])
    assert rate_finding("schedule", "here", short).measured == f"{len(sound.right) - 1} updates, expected {len(sound.right)}"


# --- accumulation ----------------------------------------------------------------------------------------------------------


def gradients(change=lambda part, right: right[part]):
    """A side's measurement: two tensors of each part; ``change`` gets the part and the right gradients of all."""
    rng = np.random.default_rng(2)
    one, second = ({"a": rng.standard_normal(5), "b": rng.standard_normal((2, 3))} for _ in range(2))
    right = {"one": one, "the second": second, "two": {name: (one[name] + second[name]) / 2 for name in one}}
    return {f"{part}/{tensor}": change(part, {p: right[p][tensor] for p in right}) for part in PARTS for tensor in ("a", "b")}


ACCUMULATED = {
    "summed": (lambda part, g: 2 * g[part] if part == "two" else g[part], Kind.SUM_FOR_MEAN, "expected their mean"),
    "cleared": (lambda part, g: g["the second"] if part == "two" else g[part], Kind.GRADIENT_CLEARED_EARLY, "of the last"),
    "half cleared": (lambda part, g: g["the second"] / 2 if part == "two" else g[part], Kind.GRADIENT_CLEARED_EARLY, "half the"),
    "dropped": (lambda part, g: g["one"] if part == "two" else g[part], Kind.BATCH_DROPPED, "the gradient of the first"),
    "half dropped": (lambda part, g: g["one"] / 2 if part == "two" else g[part], Kind.BATCH_DROPPED, "half the gradient"),
    "scaled": (lambda part, g: 3 * g[part], Kind.GRADIENT_SCALED, "every gradient is 3 times"),
    "three for two": (lambda part, g: 3 * g[part] if part == "two" else g[part], Kind.GRADIENT_SCALED, "3 times"),
    "infinite": (lambda part, g: g[part] * np.inf, Kind.NOT_FINITE, "NaN or infinite"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCUMULATED)
def test_a_mistake_of_accumulation_is_named(name):
    change, kind, words = ACCUMULATED[name]
    with np.errstate(invalid="ignore"):
        found = Accumulation().explain(gradients(change), gradients())
    assert found.kind is kind and words in found.hint and found.location == "accumulate_gradients", found


def test_no_mistake_of_accumulation_is_claimed_of_another_one():
    assert Accumulation().explain(gradients(), gradients()) is None
    found = Accumulation().explain(gradients(lambda part, g: g[part] + 0.1 * (part == "two")), gradients())
    assert found.kind is Kind.UNKNOWN and found.measured.startswith("a: relative L2")


def test_schedules_are_explained_from_what_was_measured():
    """No side is there: the values alone say the place."""
    made = schedules.Schedules(None, {})
    right = {name: expected_rates(config, UPDATES_PER_EPOCH, PICTURES) for name, config in made.configs.items()}
    assert made.explain(right, right) is None and all(row.passed for row in made.judge(right, right))
    ours = {name: rates * (2.0 if ".cosine." in name else 1.0) for name, rates in right.items()}
    found = made.explain(ours, right)
    assert (found.location, found.kind) == ("build_schedule(cosine)", Kind.LR_SCALED) and found.measured.startswith("update 0: ")
    assert [row.name for row in made.judge(ours, right) if not row.passed] == [name for name in right if ".cosine." in name]
    assert made.explain(ours, ours).location == "schedule_config(cosine)"
