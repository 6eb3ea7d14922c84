"""FreshRun runs of the train part's own network: does the seed decide its weights, and has it the recipe's width and dropout?

Every other comparison gives the runs a network and weights, so what a user's own command builds is seen here alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, engine
from mobilenetv3_common.train_config import MODELS, TrainConfig

OTHERS: dict[str, Any] = {"width_mult": 0.75, "dropout": 0.375, "bn_momentum": 0.0625, "freeze_bn": False}


@dataclass
class FreshRun:
    """Two fresh runs of one seed, on one side.

    Attributes:
        shapes: of every tensor, by canonical name.
        settings: of every dropout and normalisation layer, by path: p, or momentum.
        differing: tensors of the two runs that differ.
    """

    shapes: dict[str, tuple[int, ...]]
    settings: dict[str, float]
    differing: list[str]


def lacks_fresh(context: Context) -> str:
    """Why the train parts' own networks are not compared; ``""`` where they are."""
    if context.spec.load is not None:
        return "the train parts' own network: its tensors are loaded by the project's own function"
    return "" if context.model in MODELS else f"the train parts' own network: {context.model} is none of theirs"


def fresh(ground: Ground, role: str) -> FreshRun:
    """Build a side's own network twice from one seed, without another network or weights."""
    framework, train = ground.context.sides[role].framework, engine(ground.context, role)
    config = replace(ground.short, **OTHERS)

    def built(config: TrainConfig) -> Any:
        network = train.build_run(config, train.Ranks(device=ground.context.device)).model
        return ground.context.paired.named(role, network)  # a port may call its layers otherwise

    first, second = built(config), built(config)
    states = framework.state(first), framework.state(second)
    differing = [name for name, array in states[0].items() if not np.array_equal(array, states[1][name])]
    settings = {}
    for path, module in framework.modules(first).items():
        for name in ("p", "momentum"):
            if isinstance(value := getattr(module, name, None), (int, float)):
                settings[f"{path}.{name}"] = float(value)
    return FreshRun({name: array.shape for name, array in states[0].items()}, settings, differing)


def wrong_settings(ours: FreshRun, theirs: FreshRun) -> dict[str, str]:
    """What is wrong with the port's own network, by the quantity's name; ``""`` for nothing."""
    shapes = [n for n in dict.fromkeys([*theirs.shapes, *ours.shapes]) if ours.shapes.get(n) != theirs.shapes.get(n)]
    settings = [n for n, value in theirs.settings.items() if abs(ours.settings.get(n, np.inf) - value) > 1e-9]
    found = {"shapes": "", "settings": "", "seed": ""}
    if shapes:
        n = shapes[0]
        found["shapes"] = f"{n} is {ours.shapes.get(n)}, expected {theirs.shapes.get(n)}; {len(shapes)} of {len(theirs.shapes)}"
    if settings:
        n = settings[0]
        found["settings"] = f"{n} is {ours.settings.get(n, 'missing')}, expected {theirs.settings[n]:g}"
    if ours.differing and not theirs.differing:
        found["seed"] = f"two runs of one seed begin with other weights: {len(ours.differing)} tensors, first {ours.differing[0]}"
    return found


def judge_fresh(result: StepResult, ours: FreshRun, theirs: FreshRun) -> None:
    """Hold the port's own network against the reference's."""
    for name, wrong in wrong_settings(ours, theirs).items():
        quantity = Quantity(f"fresh.{name}", [])
        result.quantities.append(quantity.fail(wrong) if wrong else quantity)
    result.require("fresh.layers", len(theirs.settings), len(theirs.settings) > 0, "dropout or normalisation layers")
