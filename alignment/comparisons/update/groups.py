"""Optimizers whose norm layers and biases have weight decays of their own, and rates by name and depth: two updates of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from alignment.compare import Group, Lanes, Quantity, judge_measured, norm
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.schedules import PICTURES, train_part
from alignment.frameworks.base import Framework, Module
from alignment.models.tracing import Network
from mobilenetv3_common.counted import counted
from mobilenetv3_common.param_groups import GroupRule
from mobilenetv3_common.train_config import OPTIMIZERS, OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

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


def updated(context: Context, lane: Network, config: OptimizerConfig, start: State, gradients: list[State]) -> list[State]:
    """A lane's trained weights after each update from a given start with given gradients."""
    framework, train = lane.framework, train_part(lane.side)
    context.networks.load(lane.role, lane.model, start)
    framework.clear_gradients(lane.model)
    states = []
    with framework.default_dtype(lane.dtype):
        optimizer = train.build_optimizer(lane.model, config.in_float32())
        train.build_schedule(optimizer, ScheduleConfig("constant"))
        for gradient in gradients:
            framework.add_gradients(lane.model, gradient)
            train.apply_update(lane.model, optimizer, clip_of(config, gradients))
            states.append({name: array for name, array in framework.state(lane.model).items() if name in gradient})
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


def compare_groups(context: Context, result: StepResult, lanes: Mapping[str, Network]) -> None:
    """Two updates of each optimizer with three different weight decays, and of the recipe's own."""
    ours, theirs = lanes["port64"], lanes["reference64"]
    start, gradients = given_updates(context, theirs.framework, theirs.model)
    by_name = own_groups(theirs.framework, theirs.model) if same_names(lanes) else ()
    named = [(group_name(config), config) for config in (*GROUPS, *by_name)]
    if context.recipe is not None:
        named.append(("recipe", context.recipe.optimizer_config(PICTURES)))
    for name, config in context.suspects_first(named, lambda one: f"optimizer.{one[0]}"):
        if context.in_haste and result.differs:
            return
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
            right = expected_decays(theirs.framework, theirs.model, config, list(gradients[0]))
            found = {role: made_decays(config, start, gradients[0], states[0]) for role, states in made.items()}
            result.quantities.append(judge_decays(found["port"], found["reference"], right))
        if config in by_name:
            decays = expected_decays(theirs.framework, theirs.model, config, list(gradients[0]))
            factors = expected_factors(config, list(gradients[0]))
            found = {role: made_factors(config, start, gradients[0], states[0], decays) for role, states in made.items()}
            result.quantities.append(judge_decays(found["port"], found["reference"], factors, f"{group.name}.rates", "rate"))


def same_names(lanes: Mapping[str, Network]) -> bool:
    """Whether both sides call their parameters the same, in the same order, so that a rule by name means the same."""
    ours, theirs = lanes["port64"], lanes["reference64"]
    found = [[name for name, _ in lane.model.named_parameters()] for lane in (ours, theirs) if _names_parameters(lane.model)]
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
            quantity.fail(f"the {role}'s {what} of {counted(len(wrong), 'tensor')} is not the recipe's, {first}")
    quantity.max_abs_diff = max((abs(ours.get(name, np.nan) - theirs[name]) for name in theirs), default=0.0)
    return quantity
