"""Batches of either side's data part, and who the port is compared with; for step 2 and all that looks at pictures."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.project import DataPart, Side
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import BatchPlan

BATCH_SIZE = 4
BATCHES = 2
MAX_PICTURES = 32
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
REFERENCE = "reference"


def part(side: Side) -> DataPart:
    """The side's data pipeline; the step is not run where there is none."""
    assert side.data is not None
    return side.data


def first_pictures(index: DatasetIndex, most: int = MAX_PICTURES) -> DatasetIndex:
    """At most so many, spread evenly over the split."""
    return index if len(index) <= most else index.take([i * len(index) // most for i in range(most)])


def few_pictures(index: DatasetIndex) -> DatasetIndex:
    """Two batches of ``first_pictures``."""
    return first_pictures(first_pictures(index), BATCHES * BATCH_SIZE)


@functools.cache
def _picture(index: DatasetIndex, number: int, backend: str) -> Image.Image:
    return decode_image(index.path(number), backend)


def pictures(context: Context, backend: str, count: int = 4) -> list[Image.Image]:
    """A few decoded pictures, spread over the validation split."""
    index = first_pictures(context.material.index("val"))
    return [_picture(index, i * len(index) // count, backend) for i in range(count)]


def compared_with(context: Context) -> dict[str, Side]:
    """Whom the port is compared with: the reference, and the independent data part under its name where the project has one."""
    sides, independent = {REFERENCE: context.reference}, context.project.independent
    if independent is not None and independent.data is not None:
        sides[independent.name] = replace(context.reference, data=independent.data)
    return sides


def measured_sides(context: Context, role: str) -> dict[str, Side]:
    """The sides that a role stands for, by the prefix of their names in the measurement."""
    if role == "port":
        return {"": context.port}
    return {f"{who}/": side for who, side in compared_with(context).items()}


def only(reference: Measurement, who: str) -> Measurement:
    """What was measured of one of ``compared_with``, under the port's names."""
    return {name.removeprefix(f"{who}/"): value for name, value in reference.items() if name.startswith(f"{who}/")}


def arrays_of(measured: Measurement) -> Mapping[str, np.ndarray]:
    """The measurement of a comparison that measures arrays alone."""
    return measured  # type: ignore[return-value]


def batches(
    side: Side,
    context: Context,
    index: DatasetIndex,
    preset: EvalPreset | TrainPreset,
    epoch: int,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    mix_group: int | None = None,
    backend: str = "",
) -> Iterator[Batch]:
    """One epoch of one side's loader: images (N, 3, H, W), labels, picture numbers."""
    training = isinstance(preset, TrainPreset)
    size = BATCH_SIZE if training else BATCH_SIZE + 1  # evaluation ends with a short batch
    plan = BatchPlan(len(index), size, context.seed, shuffle=training, rank=rank, world_size=world_size)
    plan.set_epoch(epoch)
    dataset: Any = part(side).ImageDataset(index, preset, context.seed, backend or context.image_backend)
    for images, labels, numbers in part(side).build_loader(dataset, plan, workers, mix_group):
        yield side.framework.array(images), side.framework.array(labels), side.framework.array(numbers)
