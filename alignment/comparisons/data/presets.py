"""Step 2: default values of the presets and documented recipes, against what is published outside the project."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any

from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.project import Independent
from mobilenetv3_common.config_file import read_recipe
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import IMAGENET_POLICY
from mobilenetv3_common.train_config import TrainConfig


@dataclass(frozen=True)
class PresetValue:
    """One value and what is published of it.

    Attributes:
        location: where it stands, e.g. ``"TrainPreset.crop_scale"``.
        found: the project's value, or why there is none.
        expected: the published one.
    """

    location: str
    found: Any
    expected: Any

    @property
    def same(self) -> bool:
        return self.found == self.expected

    def row(self, name: str) -> Quantity:
        """A row of step 2."""
        row = Quantity(f"presets.{name}.{self.location}", [])
        return row if self.same else row.fail(f"{self.found}, expected {self.expected}")


def run(context: Context, result: StepResult) -> None:
    """A row for each published value; fields of which nothing is published are named in the evidence."""
    other = context.project.independent
    if other is None:
        return
    result.extend(value.row(other.name) for value in values(other))
    if other.published is not None:
        known = other.published()
        open_fields = [name for kind in (EvalPreset, TrainPreset) for name in _names(kind) if name not in known]
        result.evidence["defaults_without_outside_counterpart"] = open_fields
        result.cover("preset defaults")
    if other.recipes is not None:
        documented = other.recipes()
        beside = {path for known in documented for path in known.parent.glob("*.yaml")}
        result.evidence["recipes_without_outside_counterpart"] = sorted(path.name for path in beside - documented.keys())
        result.cover(*(f"recipe {path.stem}" for path in documented))


def _names(kind: type) -> list[str]:
    return [f"{kind.__name__}.{field.name}" for field in fields(kind)]


def values(other: Independent) -> Iterator[PresetValue]:
    """Everything that is published: of the presets, of the presets that a run without flags has, and of the recipes."""
    published = other.published() if other.published is not None else {}
    config = TrainConfig()
    if "IMAGENET_POLICY" in published:
        for number, (found, expected) in enumerate(zip_longest(IMAGENET_POLICY, published["IMAGENET_POLICY"])):
            yield PresetValue(f"IMAGENET_POLICY[{number}]", found, expected)
    for owner, preset in (
        ("", EvalPreset()),
        ("", TrainPreset()),
        ("TrainConfig().eval_preset: ", config.eval_preset),
        ("TrainConfig().train_preset: ", config.train_preset),
    ):
        for name in _names(type(preset)):
            if name in published:
                yield PresetValue(owner + name, getattr(preset, name.partition(".")[2]), published[name])
    for path, documented in (other.recipes() if other.recipes is not None else {}).items():
        try:
            recipe: Any = TrainConfig(**read_recipe(path, TrainConfig))
        except UserError as error:
            recipe = error
        for field, expected in documented.items():
            yield PresetValue(f"{path.name}: {field}", getattr(recipe, field, str(recipe)), expected)
