"""Batches of either side's data part, and how an epoch of them is compared; for step 2 and all that looks at pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.context import Context
from alignment.project import DataPart, Side
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import BatchPlan

BATCH_SIZE = 4
MAX_PICTURES = 32
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def part(side: Side) -> DataPart:
    """The side's data pipeline; the step is not run where there is none."""
    assert side.data is not None
    return side.data


def first_pictures(index: DatasetIndex) -> DatasetIndex:
    """At most MAX_PICTURES, spread evenly over the split."""
    if len(index) <= MAX_PICTURES:
        return index
    chosen = [i * len(index) // MAX_PICTURES for i in range(MAX_PICTURES)]
    return index.take(chosen)


def compared_with(context: Context) -> dict[str, Side]:
    """Whom the port is compared with: the reference, and the independent data part under its name where the project has one."""
    sides, independent = {"reference": context.reference}, context.project.independent
    if independent is not None and independent.data is not None:
        sides[independent.name] = replace(context.reference, data=independent.data)
    return sides


def outside(context: Context) -> Context | None:
    """The context with the independent data part in the reference's place; None where the project has none."""
    for side in list(compared_with(context).values())[1:]:
        return changed(context, project=replace(context.project, reference=side))
    return None


def changed(context: Context, **fields: Any) -> Context:
    """The context with other fields and the same weights."""
    return replace(context, **fields).knowing(weights=context.material.weights)


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
) -> Iterator[Batch]:
    """One epoch of one side's loader: images (N, 3, H, W), labels, picture numbers."""
    training = isinstance(preset, TrainPreset)
    size = BATCH_SIZE if training else BATCH_SIZE + 1  # evaluation ends with a short batch
    plan = BatchPlan(len(index), size, context.seed, shuffle=training, rank=rank, world_size=world_size)
    plan.set_epoch(epoch)
    dataset = part(side).ImageDataset(index, preset, context.seed, context.image_backend)
    for images, labels, numbers in part(side).build_loader(dataset, plan, workers, mix_group):
        yield side.framework.array(images), side.framework.array(labels), side.framework.array(numbers)


def compare_batches(name: str, port: list[Batch], reference: list[Batch]) -> Iterator[Quantity]:
    """Rows for pixels, labels and order over all batches of an epoch, batch by batch on failure."""
    count = Quantity(f"{name}.batches", [len(reference)])
    same = len(port) == len(reference)
    yield count if same else count.fail(f"{len(port)} batches in the port, {len(reference)} in the reference")
    for place, kind in enumerate(("images", "labels", "order")):
        pairs = zip(port, reference, strict=False)
        rows = [judge_equal(f"{name}.{kind}.batch{i}", p[place], r[place]) for i, (p, r) in enumerate(pairs)]
        failed = [row for row in rows if not row.passed]
        row = Quantity(f"{name}.{kind}", [len(rows), *(rows[0].shape if rows else [])])
        differences = [r.max_abs_diff for r in rows if r.max_abs_diff is not None]
        row.max_abs_diff = max(differences, default=None)
        row.mean_abs_diff = float(np.mean([r.mean_abs_diff for r in rows if r.mean_abs_diff is not None])) if differences else None
        if failed:
            row.fail(f"{failed[0].name}: {failed[0].reason}")
        yield row
