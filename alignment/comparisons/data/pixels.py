"""Step 2: pictures of the port against those of the independent data part; OpenCV, every magnitude of every operation, mixing."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from PIL import Image

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import (
    BATCH_SIZE,
    Batch,
    batches,
    changed,
    compare_batches,
    compared_with,
    first_pictures,
    part,
)
from alignment.comparisons.result import StepResult
from alignment.draws import MagnitudeTable
from alignment.project import DataPart, Side
from mobilenetv3_common import sampling
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.presets import AUTO_AUGMENT_POLICIES, EvalPreset, TrainPreset
from mobilenetv3_common.sampling import MixParams, SampleParams

SIZE = 48  # pixels of the picture on which every operation is done with every magnitude
BATCHES = 2
AUGMENTED = {
    "basic": TrainPreset(),
    "autoaugment": TrainPreset(auto_augment="imagenet"),
    "randaugment": TrainPreset(auto_augment="ra"),
    "trivialaugment": TrainPreset(auto_augment="ta_wide"),
    "erasing": TrainPreset(random_erase_prob=0.5),
}
MIXED = {"mixup": TrainPreset(mixup_alpha=0.2), "cutmix": TrainPreset(cutmix_alpha=1.0)}
# Shares and boxes on pictures of 20 x 32 pixels; rows and columns of a box differ, so that exchanged axes are seen.
MIXES = (
    MixParams("mixup", 0.3),
    MixParams("mixup", 1.0),
    MixParams("cutmix", 0.85, (2, 11, 7, 13)),
    MixParams("cutmix", 0.7, (0, 25, 12, 7)),
    MixParams("cutmix", 1.0, (5, 8, 0, 3)),
)


def _few(index: DatasetIndex) -> DatasetIndex:
    """Two batches of pictures, spread evenly over the split."""
    index = first_pictures(index)
    chosen = [i * len(index) // (BATCHES * BATCH_SIZE) for i in range(min(BATCHES * BATCH_SIZE, len(index)))]
    return index.take(chosen)


def training_pictures(context: Context, result: StepResult) -> None:
    """The port's training pictures, for drawn parameters, against the independent ones."""
    index = _few(context.material.index("train"))
    for who, side in compared_with(context).items():
        for name, preset in AUGMENTED.items() if side is not context.reference else ():
            ours, theirs = (list(batches(one, context, index, preset, 1)) for one in (context.port, side))
            result.extend(compare_batches(f"train.{name}.{who}", ours, theirs))
            result.cover("training pictures")


# --- OpenCV ----------------------------------------------------------------------------------------------------------------


def with_opencv(context: Context, result: StepResult) -> None:
    """A few evaluation and training pictures decoded by OpenCV: both sides, and the independent ones."""
    try:
        import cv2  # noqa: F401
    except ImportError:
        result.not_run = "; ".join([*filter(None, [result.not_run]), "the OpenCV backend: OpenCV is not installed"])
        return
    decoded = changed(context, image_backend="cv2")
    for split, name, preset in (("val", "eval", EvalPreset()), ("train", "train", TrainPreset())):
        index = _few(context.material.index(split))
        ours = list(batches(context.port, decoded, index, preset, 0))
        for who, side in compared_with(context).items():
            result.extend(compare_batches(f"opencv.{name}.{who}", ours, list(batches(side, decoded, index, preset, 0))))
    result.cover("OpenCV backend")


# --- operations ------------------------------------------------------------------------------------------------------------


def tables(context: Context, size: int = SIZE) -> dict[str, MagnitudeTable]:
    """The magnitudes of each policy: the independent ones, or else the project's own."""
    other = context.project.independent
    if other is not None and other.draws is not None:
        return {policy: other.draws.magnitudes(policy, size, size) for policy in AUTO_AUGMENT_POLICIES}
    return {policy: sampling.policy_table(policy, size, size) for policy in AUTO_AUGMENT_POLICIES}


def every_operation(context: Context) -> dict[str, list[float]]:
    """Each operation with every magnitude of every bin of every policy, in both directions where it has a sign."""
    found: dict[str, set[float]] = {}
    for table in tables(context).values():
        for name, (values, signed) in table.items():
            found.setdefault(name, set()).update(values or [0.0], [-value for value in values] if signed else [])
    return {name: sorted(values) for name, values in found.items()}


def operated(data: DataPart, picture: Image.Image, name: str, magnitude: float) -> np.ndarray:
    """A picture of SIZE x SIZE pixels after one operation and nothing else, normalised."""
    params = SampleParams((0, 0, SIZE, SIZE), False, ((name, magnitude),), None)
    return np.asarray(data.train_transform(picture, TrainPreset(SIZE), params))


def picture_of(context: Context) -> Image.Image:
    """The picture on which operations are done."""
    with Image.open(context.material.index("val").path(0)) as image:
        return image.convert("RGB").resize((SIZE, SIZE))


def operations(context: Context, result: StepResult) -> None:
    """Every operation with every magnitude, port against reference, and against the independent one."""
    picture, sides = picture_of(context), compared_with(context)
    for name, magnitudes in every_operation(context).items():
        row = Quantity(f"operations.{name}", [len(magnitudes), 3, SIZE, SIZE])
        made = functools.partial(operated, picture=picture, name=name)
        for magnitude in magnitudes:
            ours = made(part(context.port), magnitude=magnitude)
            for who, side in sides.items():
                one = judge_equal("", ours, made(part(side), magnitude=magnitude))
                if not one.passed and row.passed:
                    row.fail(f"by {magnitude:g}, against the {who}: {one.reason}")
        result.quantities.append(row)
    result.cover("every magnitude of every operation")


# --- mixing ----------------------------------------------------------------------------------------------------------------


def mixed_by(side: Side, context: Context, index: DatasetIndex, params: MixParams, count: int = 6) -> Batch | None:
    """What a side's data set makes of one made-up group: images (N, 3, 20, 32), labels; None where it has no ``mix_batch``."""
    dataset: Any = part(side).ImageDataset(index, MIXED["mixup"], context.seed)
    if not hasattr(dataset, "mix_batch") or not hasattr(dataset, "arrays"):
        return None
    rng = np.random.default_rng([context.seed, count])
    images, labels = rng.standard_normal((count, 3, 20, 32), dtype=np.float32), rng.integers(0, index.num_classes, count)
    arrays = dataset.arrays
    mixed = dataset.mix_batch(arrays.asarray(images), arrays.asarray(labels), params, index.num_classes)
    return np.asarray(mixed[0]), np.asarray(mixed[1]), np.arange(count)


def mixing(context: Context, result: StepResult) -> None:
    """Groups with given shares and boxes; then batches of an epoch in groups smaller than a batch, of one rank of two."""
    index, sides = _few(context.material.index("train")), compared_with(context)
    for number, params in enumerate(MIXES):
        ours = mixed_by(context.port, context, index, params)
        for who, side in sides.items():
            theirs = mixed_by(side, context, index, params)
            if ours is not None and theirs is not None:
                result.extend(_mixed_rows(f"mixing.{params.kind}{number}.{who}", ours, theirs))
    for name, preset in MIXED.items():
        small = replace(preset, crop_size=64)
        grouped = functools.partial(batches, context=context, index=index, preset=small, epoch=1, mix_group=2)
        for rank, world in ((0, 1), (1, 2)):
            ours_too = list(islice(grouped(context.port, rank=rank, world_size=world), BATCHES))
            for who, side in sides.items():
                theirs_too = list(islice(grouped(side, rank=rank, world_size=world), BATCHES))
                result.extend(compare_batches(f"mixing.{name}.rank{rank}of{world}.{who}", ours_too, theirs_too))
    result.cover("mixing groups", "mixup", "cutmix")


def _mixed_rows(name: str, ours: Batch, theirs: Batch) -> Iterator[Quantity]:
    yield judge_equal(f"{name}.images", ours[0], theirs[0])
    yield judge_equal(f"{name}.labels", ours[1], theirs[1])
