"""Learning rates of every schedule over whole recipes, and optimizers whose norm layers and biases have decays of their own.

A part of step 5 that trains nothing. Learning rates are compared side by side and with a closed formula, so that a mistake
that both sides share is seen too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Group, Lanes, Quantity, judge_measured, norm, relative
from alignment.comparisons.context import Context, Lane
from alignment.comparisons.result import StepResult
from alignment.frameworks.base import Framework, Module
from alignment.project import Side, TrainPart
from mobilenetv3_common.param_groups import GroupRule
from mobilenetv3_common.train_config import OPTIMIZERS, SCHEDULES, OptimizerConfig, ScheduleConfig, TrainConfig
from mobilenetv3_common.weights import State

UPDATES_PER_EPOCH = 4
PICTURES = 64  # an update: the learning rates are scaled from 32
WHOLE = TrainConfig(
    epochs=9, lr=0.25, scale_lr_from=32, lr_step_epochs=2, lr_gamma=0.5, lr_min=2.0**-6,
    lr_milestones="4,5,8", lr_power=1.75, lr_restart_epochs=2, lr_restart_factor=2, lr_rise=0.375, lr_start_div=20.0,
)  # fmt: skip
WARMUPS = ((0, 0.01), (2, 0.01), (3, 0.25))  # epochs, share of the learning rate at which they begin

# Decays of weights, norm layers and biases so far apart that none can stand for another; numbers that float32 holds.
DECAYS: dict[str, Any] = {"weight_decay": 2.0**-5, "norm_weight_decay": 2.0**-3, "bias_weight_decay": 2.0**-7}
GROUPS = tuple(
    OptimizerConfig(name, lr=2.0**-4, momentum=0.75, alpha=0.875, beta1=0.875, beta2=0.96875, eps=2.0**-5, **DECAYS)
    for name in OPTIMIZERS
)
GROUPS += (replace(GROUPS[0], nesterov=True), replace(GROUPS[0], l1_decay=2.0**-6))
# A weight decay of 0 is one of its own, and no missing one.
UNDECAYED = replace(GROUPS[0], norm_weight_decay=0.0, bias_weight_decay=0.0)
GROUPS += (UNDECAYED,)


def clip_of(config: OptimizerConfig, gradients: list[State]) -> float | None:
    """The norm to which gradients are clipped before the L1 penalty is added to them; None for an optimizer without."""
    if not config.l1_decay:
        return None
    return 2.0 ** math.floor(math.log2(min(math.sqrt(sum(norm(a) ** 2 for a in one.values())) for one in gradients)) - 1)


def train_part(side: Side) -> TrainPart:
    """A side's training code, which is there wherever optimizers are compared."""
    assert side.train is not None
    return side.train


# --- schedules -------------------------------------------------------------------------------------------------------------


def whole_schedules(recipe: TrainConfig | None = None) -> Iterator[tuple[str, TrainConfig]]:
    """Name and recipe of each schedule that is compared: those without a warm-up first, and the given recipe's last."""
    for epochs, decay in WARMUPS:
        for name in [name for name in SCHEDULES if not (epochs and name == "onecycle")]:
            for unit in ("update", "epoch"):
                config = replace(WHOLE, lr_schedule=name, lr_unit=unit, warmup_epochs=epochs, warmup_decay=decay)
                yield f"schedule.{name}.{unit}" + (f".warmup{epochs}" if epochs else ""), config
    if recipe is not None:
        yield "schedule.recipe", recipe
    yield "schedule.cosine.update.sqrt", replace(WHOLE, lr_schedule="cosine", scale_lr_by="sqrt", scale_lr_from=24)


def expected_rates(config: TrainConfig, updates_per_epoch: int, pictures: int) -> np.ndarray:
    """The learning rate of every update of a whole run, by closed formula from the recipe alone.

    Args:
        config: the recipe.
        updates_per_epoch: of the run.
        pictures: of an update, over all micro-batches.
    """
    by_update = config.lr_unit == "update"
    units = np.arange(config.epochs * updates_per_epoch) // (1 if by_update else updates_per_epoch)
    per_epoch = updates_per_epoch if by_update else 1
    schedule = ScheduleConfig(
        config.lr_schedule,
        step_size=config.lr_step_epochs * per_epoch,
        gamma=config.lr_gamma ** (1 / per_epoch) if config.lr_schedule == "exponential" else config.lr_gamma,
        total=config.epochs * per_epoch,
        lr_min=config.lr_min,
        warmup=config.warmup_epochs * per_epoch,
        warmup_decay=config.warmup_decay,
        milestones=tuple(int(epoch) * per_epoch for epoch in (config.lr_milestones or "").split(",") if epoch),
        power=config.lr_power,
        restart=config.lr_restart_epochs * per_epoch,
        restart_factor=config.lr_restart_factor,
        rise=config.lr_rise,
        start_div=config.lr_start_div,
    )
    scale = (pictures / config.scale_lr_from) ** (0.5 if config.scale_lr_by == "sqrt" else 1.0) if config.scale_lr_from else 1.0
    return unit_rates(vars(schedule), config.lr * scale, units)


def unit_rates(schedule: Mapping, lr: float, units: np.ndarray) -> np.ndarray:
    """Learning rates at given units by closed formula.

    Args:
        schedule: the fields of a ``ScheduleConfig``, or others that it would refuse.
        lr: before the schedule.
        units: integers from 0.
    """
    name, warmup, decay = schedule["name"], schedule["warmup"], schedule["warmup_decay"]
    after = np.maximum(units - warmup, 0)
    if name == "step":
        rates = lr * schedule["gamma"] ** (after // schedule["step_size"])
    elif name == "exponential":
        rates = lr * schedule["gamma"] ** after
    elif name == "cosine":
        rates = _between(lr, schedule["lr_min"], after / max(schedule["total"] - warmup, 1))
    elif name == "multistep":
        rates = lr * schedule["gamma"] ** np.searchsorted(np.array(schedule["milestones"], dtype=float), units, side="right")
    elif name == "polynomial":
        left = 1 - np.minimum(after / max(schedule["total"] - warmup, 1), 1)
        rates = schedule["lr_min"] + (lr - schedule["lr_min"]) * left ** schedule["power"]
    elif name == "onecycle":
        peak, end = schedule["rise"] * schedule["total"] - 1, schedule["total"] - 1
        rising = _between(lr / schedule["start_div"], lr, units / max(peak, 1e-9))
        rates = np.where(units <= peak, rising, _between(lr, schedule["lr_min"], (units - peak) / max(end - peak, 1)))
    elif name == "restarts":
        starts, length = [0], schedule["restart"]
        while starts[-1] <= after.max(initial=0):
            starts.append(starts[-1] + length)
            length *= schedule["restart_factor"]
        cycle = np.searchsorted(starts, after, side="right") - 1
        rates = _between(lr, schedule["lr_min"], (after - np.array(starts)[cycle]) / np.diff([*starts, starts[-1] + length])[cycle])
    else:
        rates = np.full(len(units), float(lr))
    return np.where(units < warmup, lr * (decay + (1 - decay) * units / max(warmup, 1)), rates)


def _between(start: float, end: float, share: np.ndarray) -> np.ndarray:
    """Half a cosine from one rate to another, after shares of its way."""
    return end + (start - end) * (1 + np.cos(np.pi * share)) / 2


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


def judge_rates(name: str, ours: np.ndarray, theirs: np.ndarray, formula: np.ndarray) -> Quantity:
    """Learning rates of both sides and of the closed formula, all float64 (updates,), held to ``EXACT_RTOL`` of the largest."""
    quantity = Quantity(name, list(theirs.shape))
    largest = float(np.abs(theirs).max())
    quantity.mean_abs_diff, quantity.max_abs_diff = (float(f(np.abs(ours - theirs))) for f in (np.mean, np.max))
    quantity.float64_diff = relative(quantity.max_abs_diff, largest)
    for one, other, words in (
        (ours, theirs, "the port's learning rates diverge from the reference's"),
        (theirs, formula, "the reference's learning rates diverge from the closed formula"),
    ):
        wrong = ~(np.abs(one - other) <= tolerance.EXACT_RTOL * largest)
        if wrong.any():
            first = int(np.argmax(wrong))
            quantity.fail(f"{words} at update {first}: {one[first]:.6g}, expected {other[first]:.6g}")
    return quantity


def compare_schedules(context: Context, result: StepResult, lanes: Mapping[str, Lane]) -> None:
    """Every schedule by update and by epoch, without and with warm-up, over a whole run."""
    pair = [lanes["port64"], lanes["reference64"]]
    for name, config in whole_schedules(context.recipe):
        made = (config, UPDATES_PER_EPOCH, PICTURES)
        ours, theirs = (made_rates(lane.side, lane.network, *made) for lane in pair)
        result.quantities.append(judge_rates(name, ours, theirs, expected_rates(*made)))
        result.cover(*schedule_topics(config))


def schedule_topics(config: TrainConfig) -> list[str]:
    """What a recipe's schedule covers."""
    warmup = ["warm-up" if config.lr_unit == "update" else "warm-up by epoch"] if config.warmup_epochs else []
    scaling = ["square-root scaling"] if config.scale_lr_from and config.scale_lr_by == "sqrt" else []
    return [f"{config.lr_schedule} schedule", *warmup, *scaling]


# --- optimizer groups ------------------------------------------------------------------------------------------------------


def update_topics(config: OptimizerConfig) -> list[str]:
    """What an optimizer's update covers, weight decays apart."""
    more = {
        "Nesterov momentum": config.nesterov,
        "L1 decay": config.l1_decay,
        "parameter groups": any(not rule.frozen for rule in config.rules),
        "layer-wise decay": config.layer_decay != 1.0,
    }
    return [config.name, *(topic for topic, holds in more.items() if holds)]


def group_name(config: OptimizerConfig) -> str:
    """What the rows of an optimizer with groups are called."""
    return ".".join([*update_topics(config), *(["undecayed"] if config == UNDECAYED else [])])


def own_groups(framework: Framework, network: Module) -> tuple[OptimizerConfig, ...]:
    """Rates and weight decays by a network's own names, and by depth."""
    names = [e.canonical for e, tensor in framework.described(network) if e.role == "parameter" and framework.trainable(tensor)]
    rules: tuple[GroupRule, ...] = (GroupRule(names[0], 0.5, 2.0**-4), GroupRule(names[-1], 2.0))
    if len(names) > 2:
        rules += (GroupRule(names[len(names) // 2], 1.0, 0.0),)
    return (replace(GROUPS[0], rules=rules), replace(GROUPS[0], layer_decay=0.75))


def given_updates(context: Context, framework: Framework, network: Module) -> tuple[State, list[State]]:
    """Weights without zeros, and two gradients, drawn for a network of the reference: canonical, float64."""
    rng = np.random.default_rng([context.seed, 7])
    state = {name: array.astype(np.float64) for name, array in context.material.weights.state.items()}
    trained = {e.canonical: e.shape for e, t in framework.described(network) if e.role == "parameter" and framework.trainable(t)}
    for name, shape in trained.items():
        state[name] = state[name] + rng.standard_normal(shape) / 8
    return state, [{name: rng.standard_normal(shape) / 64 for name, shape in trained.items()} for _ in range(2)]


def updated(context: Context, lane: Lane, config: OptimizerConfig, start: State, gradients: list[State]) -> list[State]:
    """A lane's trained weights after each update from a given start with given gradients."""
    framework, train = lane.framework, train_part(lane.side)
    context.networks.load(lane.role, lane.network, start)
    framework.clear_gradients(lane.network)
    states = []
    with framework.default_dtype(lane.dtype):
        optimizer = train.build_optimizer(lane.network, config.in_float32())
        train.build_schedule(optimizer, ScheduleConfig("constant"))
        for gradient in gradients:
            framework.add_gradients(lane.network, gradient)
            train.apply_update(lane.network, optimizer, clip_of(config, gradients))
            states.append({name: array for name, array in framework.state(lane.network).items() if name in gradient})
    lane.reset()
    return states


def expected_decays(framework: Framework, network: Module, config: OptimizerConfig, names: list[str]) -> dict[str, float]:
    """The weight decay that each parameter shall have: BatchNorm's, that of other layers' biases, or that of all others."""
    modules = framework.modules(network)
    found = {}
    for name in names:
        own, _, last = name.rpartition(".")
        normalises = own in modules and framework.layer(modules[own]).kind == "batch_norm"
        other = config.norm_weight_decay if normalises else config.bias_weight_decay if last == "bias" else None
        own_rule = [rule.decay for rule in config.rules if rule.pattern == name and rule.decay is not None]
        found[name] = own_rule[0] if own_rule else config.weight_decay if other is None else other
    return found


def made_decays(config: OptimizerConfig, start: State, gradient: State, after: State) -> dict[str, float]:
    """The weight decay that one update of SGD really had, by tensor: what moved the weights besides the gradient."""
    rate = config.in_float32().lr
    pulled = {name: (start[name] - after[name]) / rate - gradient[name] for name in gradient}
    return {name: float((pulled[name] * start[name]).sum()) / norm(start[name]) ** 2 for name in gradient}


def compare_groups(context: Context, result: StepResult, lanes: Mapping[str, Lane]) -> None:
    """Two updates of each optimizer with three different weight decays, and of the recipe's own."""
    ours, theirs = lanes["port64"], lanes["reference64"]
    start, gradients = given_updates(context, theirs.framework, theirs.network)
    by_name = own_groups(theirs.framework, theirs.network) if same_names(lanes) else ()
    named = [(group_name(config), config) for config in (*GROUPS, *by_name)]
    if context.recipe is not None:
        named.append(("recipe", context.recipe.optimizer_config(PICTURES)))
    for name, config in named:
        # AdamW's powers of beta are float32's in Paddle: exact for the first update of any recipe.
        fed = gradients if name != "recipe" else gradients[:1]
        made = {lane.role: updated(context, lane, config, start, fed) for lane in (ours, theirs)}
        group = Group(f"optimizer.{name}.groups")
        for tensor, expected in made["reference"][-1].items():
            lane = Lanes(port64=made["port"][-1].get(tensor), reference64=expected)
            group.add(judge_measured(f"{group.name}.{tensor}", lane))
        result.extend(group.rows())
        result.cover(*update_topics(config))
        if config.norm_weight_decay is not None:
            result.cover("norm weight decay")
        if config.bias_weight_decay is not None:
            result.cover("bias weight decay")
        if config == GROUPS[0]:
            right = expected_decays(theirs.framework, theirs.network, config, list(gradients[0]))
            found = {role: made_decays(config, start, gradients[0], states[0]) for role, states in made.items()}
            result.quantities.append(judge_decays(found["port"], found["reference"], right))
        if config in by_name:
            decays = expected_decays(theirs.framework, theirs.network, config, list(gradients[0]))
            factors = expected_factors(config, list(gradients[0]))
            found = {role: made_factors(config, start, gradients[0], states[0], decays) for role, states in made.items()}
            result.quantities.append(judge_decays(found["port"], found["reference"], factors, f"{group.name}.rates", "rate"))


def same_names(lanes: Mapping[str, Lane]) -> bool:
    """Whether both sides call their parameters the same, in the same order, so that a rule by name means the same."""
    ours, theirs = lanes["port64"], lanes["reference64"]
    found = [[name for name, _ in lane.network.named_parameters()] for lane in (ours, theirs) if _names_parameters(lane.network)]
    return len(found) == 2 and [n for n in found[0] if n in found[1]] == found[1]


def _names_parameters(network: Module) -> bool:
    return callable(getattr(network, "named_parameters", None))


def expected_factors(config: OptimizerConfig, names: list[str]) -> dict[str, float]:
    """The factor of the learning rate that each parameter shall have; ``names`` are in the network's order."""
    found: dict[str, float] = {}
    block, depth = "", 0
    for name in reversed(names):
        parts = name.split(".")
        own = ".".join(parts[:2]) if len(parts) > 1 and parts[1].isdecimal() else parts[0]
        depth += block not in ("", own)
        block = own
        found[name] = config.layer_decay**depth * next((rule.lr for rule in config.rules if rule.pattern == name), 1.0)
    return found


def made_factors(
    config: OptimizerConfig, start: State, gradient: State, after: State, decays: dict[str, float]
) -> dict[str, float]:
    """The factor of the learning rate that one update of SGD really had, by tensor."""
    rate = config.in_float32().lr
    pulled = {name: rate * (gradient[name] + decays[name] * start[name]) for name in gradient}
    return {name: float(((start[name] - after[name]) * pulled[name]).sum()) / norm(pulled[name]) ** 2 for name in gradient}


def judge_decays(
    ours: dict[str, float],
    theirs: dict[str, float],
    expected: dict[str, float],
    name: str = "optimizer.sgd.decays",
    what: str = "weight decay",
) -> Quantity:
    """Weight decays, or factors of the rate, by tensor: both sides', held to the rule itself."""
    quantity = Quantity(name, [len(expected)])
    for role, found in (("port", ours), ("reference", theirs)):
        wrong = [name for name, decay in expected.items() if not abs(found.get(name, np.nan) - decay) <= 1e-9]
        if wrong:
            first = f"first {wrong[0]}: {found.get(wrong[0], np.nan):.6g}, expected {expected[wrong[0]]:.6g}"
            quantity.fail(f"the {role}'s {what} of {len(wrong)} tensor(s) is not the recipe's, {first}")
    quantity.max_abs_diff = max((abs(ours.get(name, np.nan) - theirs[name]) for name in theirs), default=0.0)
    return quantity


def compare(context: Context, result: StepResult, lanes: Mapping[str, Lane]) -> None:
    """Both, on the networks of the exact lanes, which are left as they were."""
    compare_schedules(context, result, lanes)
    compare_groups(context, result, lanes)
