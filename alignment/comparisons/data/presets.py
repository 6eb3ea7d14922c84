"""Step 2: default values of the presets and documented recipes, against what is published outside the project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Any

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement, compare
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.project import Independent
from mobilenetv3_common.config_file import read_recipe
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import IMAGENET_POLICY
from mobilenetv3_common.train_config import TrainConfig


class Presets:
    """The values of the presets, of the presets that a run without flags has, and of the recipes; and what is published of them.

    Args:
        other: who publishes them.
    """

    def __init__(self, other: Independent) -> None:
        self.name = other.name
        self.published = other.published() if other.published is not None else None
        self.recipes = other.recipes() if other.recipes is not None else None

    def measure(self, context: Context, role: str) -> dict[str, str]:
        """In words; what is published is in the project's own where the two are equal."""
        made = {}
        for location, found, expected in self._values():
            differs = f"{expected}" if f"{expected}" != f"{found}" else f"{expected!r}"
            made[location] = f"{found}" if role == "port" or found == expected else differs
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = [Quantity(f"presets.{self.name}.{location}", []) for location in port]
        for row, found, expected in zip(rows, port.values(), reference.values(), strict=True):
            if found != expected:
                row.fail(f"{found}, expected {expected}")
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for location, found in port.items():
            if found != (expected := reference[location]):
                words = f"{found}, expected {expected}"
                return Finding("data", location, Kind.PRESET, words, f"{self.name} publishes {expected}")
        return None

    def _values(self) -> Iterator[tuple[str, Any, Any]]:
        """Where each value stands, e.g. ``"TrainPreset.crop_scale"``, the project's, and the published one."""
        published, config = self.published or {}, TrainConfig()
        if "IMAGENET_POLICY" in published:
            for number, (found, expected) in enumerate(zip_longest(IMAGENET_POLICY, published["IMAGENET_POLICY"])):
                yield f"IMAGENET_POLICY[{number}]", found, expected
        for owner, preset in (
            ("", EvalPreset()),
            ("", TrainPreset()),
            ("TrainConfig().eval_preset: ", config.eval_preset),
            ("TrainConfig().train_preset: ", config.train_preset),
        ):
            for name in _names(type(preset)):
                if name in published:
                    yield owner + name, getattr(preset, name.partition(".")[2]), published[name]
        for path, documented in (self.recipes or {}).items():
            try:
                recipe: Any = TrainConfig(**read_recipe(path, TrainConfig))
            except UserError as error:
                recipe = error
            for field, expected in documented.items():
                yield f"{path.name}: {field}", getattr(recipe, field, str(recipe)), expected


def run(context: Context, result: StepResult) -> None:
    """A row for each published value; fields of which nothing is published are named in the evidence."""
    if context.project.independent is None:
        return
    presets = Presets(context.project.independent)
    compare(context, result, presets)
    if (known := presets.published) is not None:
        open_fields = [name for kind in (EvalPreset, TrainPreset) for name in _names(kind) if name not in known]
        result.evidence["defaults_without_outside_counterpart"] = open_fields
        result.cover("preset defaults", outside=True)
    if (documented := presets.recipes) is not None:
        beside = {path for known in documented for path in known.parent.glob("*.yaml")}
        result.evidence["recipes_without_outside_counterpart"] = sorted(path.name for path in beside - documented.keys())
        result.cover(*(f"recipe {path.stem}" for path in documented), outside=True)


def _names(kind: type) -> list[str]:
    return [f"{kind.__name__}.{field.name}" for field in fields(kind)]
