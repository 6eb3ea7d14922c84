"""Learning rates of every schedule over whole recipes: a part of step 5 that trains nothing.

They are compared side by side and with a closed formula, so that a mistake that both sides share is seen too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement, Value, compare
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.mistakes import RateCase, rate_hint
from alignment.comparisons.update.rates import expected_rates, judge_rates
from alignment.finding import Finding, Stage
from alignment.frameworks.base import Module
from alignment.kinds import Kind
from alignment.models.tracing import Network
from alignment.project import Side, TrainPart
from alignment.strangers import strangers
from mobilenetv3_common.train_config import SCHEDULES, TrainConfig

UPDATES_PER_EPOCH = 4
PICTURES = 64  # an update: the learning rates are scaled from 32
WHOLE = TrainConfig(
    epochs=9, lr=0.25, scale_lr_from=32, lr_step_epochs=2, lr_gamma=0.5, lr_min=2.0**-6,
    lr_milestones="4,5,8", lr_power=1.75, lr_restart_epochs=2, lr_restart_factor=2, lr_rise=0.375, lr_start_div=20.0,
)  # fmt: skip
LATE = 31  # epochs of a schedule with restarts: each is twice as long as the one before, and the last begins late
WARMUPS = ((0, 0.01), (2, 0.01), (3, 0.25))  # epochs, share of the learning rate at which they begin


def train_part(side: Side) -> TrainPart:
    """A side's training code, which is there wherever optimizers are compared."""
    assert side.train is not None
    return side.train


def whole_schedules(recipe: TrainConfig | None = None) -> Iterator[tuple[str, TrainConfig]]:
    """Name and recipe of each schedule that is compared: those without a warm-up first, and the given recipe's last."""
    for epochs, decay in WARMUPS:
        for name in [name for name in SCHEDULES if not (epochs and name == "onecycle")]:
            for unit in ("update", "epoch"):
                last = LATE if name == "restarts" else WHOLE.epochs
                config = replace(WHOLE, epochs=last, lr_schedule=name, lr_unit=unit, warmup_epochs=epochs, warmup_decay=decay)
                yield f"schedule.{name}.{unit}" + (f".warmup{epochs}" if epochs else ""), config
    if recipe is not None:
        yield "schedule.recipe", recipe
    yield "schedule.cosine.update.sqrt", replace(WHOLE, lr_schedule="cosine", scale_lr_by="sqrt", scale_lr_from=24)


def made_rates(side: Side, network: Module, config: TrainConfig, updates_per_epoch: int, pictures: int) -> np.ndarray:
    """The learning rate of every update of a whole run, of a side's own schedule, stepped as the training loop steps it."""
    train = train_part(side)
    optimizer = train.build_optimizer(network, config.optimizer_config(pictures))
    schedule = train.build_schedule(optimizer, config.schedule_config(updates_per_epoch))
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a schedule whose optimizer never stepped; none shall here
        for update in range(1, config.epochs * updates_per_epoch + 1):
            rates.append(side.framework.learning_rate(optimizer))
            if config.lr_unit == "update" or update % updates_per_epoch == 0:
                schedule.step()
    return np.array(rates)


class Schedules:
    """Every schedule by update and by epoch, without and with warm-up, over a whole run.

    Args:
        recipe: of the project; None where it has none.
        networks: of both sides, by role, which the optimizers are made for.
    """

    def __init__(self, recipe: TrainConfig | None, networks: Mapping[str, Module]) -> None:
        self.configs = dict(whole_schedules(recipe))
        self.networks = networks

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        side, network, made = context.sides[role], self.networks[role], dict[str, Value]()
        for name, config in self.configs.items():
            with strangers("port") as raised:
                made[name] = made_rates(side, network, config, UPDATES_PER_EPOCH, PICTURES)
            if raised.error is not None:
                if role == "reference":
                    raise
                made |= {f"{name}.raises": raised.words, f"{name}.place": raised.place}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        for name, config in self.configs.items():
            if raised := port.get(f"{name}.raises"):
                rows.append(Quantity(name, []).fail(f"the port raises {raised}"))
                continue
            expected = expected_rates(config, UPDATES_PER_EPOCH, PICTURES)
            rows.append(judge_rates(name, np.asarray(port[name]), np.asarray(reference[name]), expected))
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """The first schedule that is wrong; a mistake must give the port's rates of all that have its name and warm-up."""
        ours, theirs = self._cases(port, reference), self._cases(reference)
        right: set[tuple[str, bool]] = set()
        for name, config in self.configs.items():
            warmed = bool(config.warmup_epochs) and (config.lr_schedule, False) in right and ("constant", True) not in right
            place = f"build_schedule({'warm-up' if warmed else config.lr_schedule})"
            if name in ours and (finding := rate_finding("schedule", place, ours[name], self._alike(ours, config))):
                return finding
            right.add((config.lr_schedule, bool(config.warmup_epochs)))
            place = f"schedule_config({config.lr_schedule})"
            if finding := rate_finding("schedule", place, theirs[name], self._alike(theirs, config)):
                return finding  # wrong on both sides: what they share is to blame
        for name in self.configs:
            if raised := port.get(f"{name}.raises"):
                return Finding(
                    "backward", str(port[f"{name}.place"]) or "schedule", Kind.RAISES, "the port cannot run", str(raised)
                )
        return None

    def _cases(self, made: Measurement, right: Measurement | None = None) -> dict[str, RateCase]:
        """Rates beside the right ones: another side's, or those of the closed formula."""
        cases = {}
        for name, config in self.configs.items():
            if name not in made:
                continue  # the port raised
            expected = expected_rates(config, UPDATES_PER_EPOCH, PICTURES) if right is None else np.asarray(right[name])
            cases[name] = RateCase(np.asarray(made[name]), expected, config, UPDATES_PER_EPOCH, PICTURES)
        return cases

    @staticmethod
    def _alike(cases: Mapping[str, RateCase], config: TrainConfig) -> list[RateCase]:
        """Those of a config's schedule, with a warm-up as it has one or none."""
        key = config.lr_schedule, bool(config.warmup_epochs)
        return [case for case in cases.values() if (case.recipe.lr_schedule, bool(case.recipe.warmup_epochs)) == key]


def rate_finding(stage: Stage, location: str, case: RateCase, alike: Sequence[RateCase] = ()) -> Finding | None:
    """Two sequences of learning rates, and how they are related.

    Args:
        stage, location: of the finding.
        case: the learning rates of both sides.
        alike: other cases in which the same mistake must show, too.
    """
    ours, right = case.ours, case.right
    if ours.shape != right.shape:
        return Finding(stage, location, measured=f"{len(ours)} updates, expected {len(right)}")
    if not case.wrong.any():
        return None
    first = int(np.argmax(case.wrong))
    hint = rate_hint([case, *(one for one in alike if one is not case)])
    return Finding(stage, location, *hint, f"update {first}: {ours[first]:.6g}, expected {right[first]:.6g}")


def compare_schedules(context: Context, result: StepResult, lanes: Mapping[str, Network]) -> None:
    """Every schedule, on the networks of the exact lanes."""
    schedules = Schedules(context.recipe, {role: lanes[f"{role}64"].model for role in context.sides})
    compare(context, result, schedules)
    for config in schedules.configs.values():
        result.cover(*schedule_topics(config), outside=True)  # the closed formula


def schedule_topics(config: TrainConfig) -> list[str]:
    """What a recipe's schedule covers."""
    warmup = ["warm-up" if config.lr_unit == "update" else "warm-up by epoch"] if config.warmup_epochs else []
    scaling = ["square-root scaling"] if config.scale_lr_from and config.scale_lr_by == "sqrt" else []
    return [f"{config.lr_schedule} schedule", *warmup, *scaling]
