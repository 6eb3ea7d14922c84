"""Fresh runs of the train part's own network: does the seed decide its weights, and has it the recipe's width and dropout?

Every other comparison gives the runs a network and weights, so what a user's own command builds is seen here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, engine
from alignment.comparisons.run.states import judge_wrong, part, under
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.tolerance import SAME
from mobilenetv3_common.train_config import MODELS, TrainConfig

OTHERS: dict[str, Any] = {"width_mult": 0.75, "dropout": 0.375, "bn_momentum": 0.0625, "freeze_bn": False}


def lacks_fresh(context: Context) -> str:
    """Why the train parts' own networks are not compared; ``""`` where they are."""
    if context.spec.load is not None:
        return "the train parts' own network: its tensors are loaded by the project's own function"
    return "" if context.model in MODELS else f"the train parts' own network: {context.model} is none of theirs"


@dataclass(frozen=True)
class Fresh:
    """Two runs of one seed, without another network or weights: the network's shapes and settings, and tensors that differ."""

    ground: Ground

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        framework, train = context.sides[role].framework, engine(context, role)
        config = replace(self.ground.short, **OTHERS)

        def built(config: TrainConfig) -> Any:
            network = train.build_run(config, train.Ranks(device=context.device)).model
            return context.paired.named(role, network)  # a port may call its layers otherwise

        first, second = built(config), built(config)
        states = framework.state(first), framework.state(second)
        differing = [name for name, array in states[0].items() if not np.array_equal(array, states[1][name])]
        settings = {}
        for path, module in framework.modules(first).items():
            for name in ("p", "momentum"):
                if isinstance(value := getattr(module, name, None), (int, float)):
                    settings[f"{path}.{name}"] = float(value)
        shapes = under("shape", {name: np.array(array.shape, dtype=int) for name, array in states[0].items()})
        return {**shapes, "settings": settings, "differing": np.array(differing)}

    def wrong(self, port: Measurement, reference: Measurement) -> dict[str, str]:
        """What is wrong with the port's own network, by the row's name; ``""`` for nothing."""
        ours, theirs = ({n: tuple(shape.tolist()) for n, shape in part(side, "shape").items()} for side in (port, reference))
        shapes = [n for n in dict.fromkeys([*theirs, *ours]) if ours.get(n) != theirs.get(n)]
        own, other = _settings(port), _settings(reference)
        settings = [n for n, value in other.items() if abs(own.get(n, np.inf) - value) > SAME]
        found = {"shapes": "", "settings": "", "seed": ""}
        if shapes:
            n = shapes[0]
            found["shapes"] = f"{n} is {ours.get(n)}, expected {theirs.get(n)}; {len(shapes)} of {len(theirs)}"
        if settings:
            n = settings[0]
            found["settings"] = f"{n} is {own.get(n, 'missing')}, expected {other[n]:g}"
        differing = np.asarray(port["differing"]).tolist()
        if differing and not np.asarray(reference["differing"]).size:
            found["seed"] = f"two runs of one seed begin with other weights: {len(differing)} tensors, first {differing[0]}"
        return found

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        return judge_wrong({f"fresh.{name}": words for name, words in self.wrong(port, reference).items()})

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what shows that there was something to compare."""
        count = len(_settings(reference))
        result.require("fresh.layers", count, count > 0, "dropout or normalisation layers")

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for what, wrong in self.wrong(port, reference).items():
            if wrong:
                kind, words = Kind.RECIPE, f"a setting of the recipe does not reach the network: {wrong}"
                if what == "seed":
                    kind, words = Kind.OTHER_SEED, f"the recipe's seed does not decide the fresh weights: {wrong}"
                return Finding("train", "build_model", kind, words, wrong)
        return None


def _settings(measured: Measurement) -> Mapping[str, float]:
    """Of every dropout and normalisation layer, by path: p, or momentum."""
    settings = measured["settings"]
    assert isinstance(settings, Mapping)
    return settings
