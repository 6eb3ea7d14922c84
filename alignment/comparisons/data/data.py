"""Step 2, data: every pixel, label, file name and the order, for evaluation and for every training augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.context import Context
from alignment.comparisons.data import (
    draws as data_draws,
)
from alignment.comparisons.data import (
    errors as data_errors,
)
from alignment.comparisons.data import (
    pixels as data_pixels,
)
from alignment.comparisons.data import (
    plan as data_plan,
)
from alignment.comparisons.data import (
    presets as data_presets,
)
from alignment.comparisons.data.loading import Batch, batches, compare_batches, first_pictures
from alignment.comparisons.result import StepResult
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import TTA, EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleKey, sample_params

EPOCHS = 3
VIEWED, VIEW_SIZE = 4, 64  # pictures of which every view is compared, and their pixels
POLICIES = {**data_pixels.AUGMENTED, **data_pixels.MIXED}
TOPICS = {"basic": ("random resized crop", "horizontal flip"), "erasing": ("random erasing",)}
Check = Callable[[Context, StepResult], None]
CHECKS: tuple[Check, ...] = (
    data_presets.run,
    data_pixels.with_opencv,
    data_pixels.operations,
    data_pixels.mixing,
    data_pixels.training_pictures,
    data_plan.run,
    data_errors.run,
    data_draws.run,
)


def run(context: Context, policies: dict[str, TrainPreset] = POLICIES, checks: Sequence[Check] = CHECKS) -> StepResult:
    """Compare both loaders batch by batch, and the port with what is known from outside the project.

    Args:
        context: the two sides.
        policies: the augmentations whose batches are compared.
        checks: what is compared besides.
    """
    result = StepResult(2, "data")
    _evaluation(context, result)
    _views(context, result)
    _training(context, result, policies)
    for check in checks:
        check(context, result)
    return result


def _evaluation(context: Context, result: StepResult) -> None:
    index = first_pictures(context.material.index("val"))
    runs = {role: list(batches(side, context, index, EvalPreset(), epoch=0, workers=2)) for role, side in context.sides.items()}
    result.extend(compare_batches("eval", runs["port"], runs["reference"]))
    names = np.array([index.names[i] for batch in runs["port"] for i in batch[2]])
    result.quantities.append(judge_equal("eval.file_names", names, np.array(index.names)))
    if context.image_backend == "pil":
        result.extend(_against_independent(context, index, runs["port"]))
    _all_ranks(context, index, result)
    result.cover("evaluation pictures", "evaluation over ranks")
    pixels = np.concatenate([batch[0] for batch in runs["reference"]])
    result.require("pictures", len(index), len(index) >= 4, "4 or more")
    result.require("eval_pixel_std", round(float(pixels.std()), 3), 0.2 < pixels.std() < 5, "0.2 to 5")
    result.require("eval_labels", len(set(index.labels)), len(set(index.labels)) > 1, "more than one class")
    for role, records in result.records.items():
        records["eval.images"], records["eval.labels"], records["eval.order"] = runs[role][0]


def _views(context: Context, result: StepResult) -> None:
    """The views of each picture in evaluation, where the port's part makes any."""
    whole = context.material.index("val")
    index = whole.take([i * len(whole) // VIEWED for i in range(min(VIEWED, len(whole)))])
    for view in TTA:
        preset = EvalPreset(VIEW_SIZE * 8 // 7, VIEW_SIZE, tta=view)
        try:
            workers = 1 if view == "flip" else 0
            runs = {role: list(batches(side, context, index, preset, 0, workers)) for role, side in context.sides.items()}
        except UserError:  # a part without views
            continue
        if view != "none" and runs["reference"][0][0].ndim == 4:  # one picture each: the reference makes none
            continue
        result.extend(compare_batches(f"eval.views.{view}", runs["port"], runs["reference"]))


def _against_independent(context: Context, index: DatasetIndex, ours: list[Batch]) -> Iterator[Quantity]:
    """The port's pictures, and the list of files and labels, against those of code that shares nothing with the project."""
    other = context.project.independent
    if other is None:
        return
    truth = other.pictures(index)
    yield judge_equal(f"eval.images.{other.name}", np.concatenate([batch[0] for batch in ours]), truth)
    whole = context.material.index("val")  # the index above holds some of its pictures, spread over all classes
    listed = other.listed(whole, "val")
    if listed is not None:
        paths = np.array([str(whole.path(i)) for i in range(len(whole))])
        yield judge_equal(f"eval.file_names.{other.name}", paths, np.array(listed[0]))
        yield judge_equal(f"eval.labels.{other.name}", np.array(whole.labels), np.array(listed[1]))


def _all_ranks(context: Context, index: DatasetIndex, result: StepResult) -> None:
    """Three ranks of evaluation together see every picture once, with the pixels and labels that one rank sees."""
    merged: dict[int, tuple[np.ndarray, int]] = {}
    seen = []
    for rank in range(3):
        for images, labels, numbers in batches(context.port, context, index, EvalPreset(), 0, rank=rank, world_size=3):
            seen += numbers.tolist()
            merged |= {int(n): (image, int(label)) for n, image, label in zip(numbers, images, labels, strict=True)}
    result.quantities.append(judge_equal("eval.ranks.coverage", np.sort(np.array(seen)), np.arange(len(index))))
    labels = np.array([merged[i][1] if i in merged else -1 for i in range(len(index))])
    result.quantities.append(judge_equal("eval.ranks.labels", labels, np.array(index.labels)))


def _training(context: Context, result: StepResult, policies: dict[str, TrainPreset]) -> None:
    index = first_pictures(context.material.index("train"))
    for policy, preset in policies.items():
        first: dict[str, Batch] = {}
        epochs = []
        for epoch in range(EPOCHS):
            workers = 2 if policy == "autoaugment" and epoch == 0 else 0
            runs = {role: list(batches(s, context, index, preset, epoch, workers)) for role, s in context.sides.items()}
            result.extend(compare_batches(f"train.{policy}.epoch{epoch}", runs["port"], runs["reference"]))
            first = first or {role: b[0] for role, b in runs.items() if b}
            epochs.append(runs["reference"])
        for role, records in result.records.items():
            if role in first:
                records[f"train.{policy}.images"] = first[role][0][:1]
                records[f"train.{policy}.labels"] = first[role][1]
        _training_evidence(context, result, policy, preset, index, epochs)
        result.cover(*TOPICS.get(policy, (policy,)))


def _training_evidence(
    context: Context, result: StepResult, policy: str, preset: TrainPreset, index: DatasetIndex, epochs: list[list[Batch]]
) -> None:
    orders = [tuple(np.concatenate([batch[2] for batch in epoch]).tolist()) for epoch in epochs]
    result.require(f"{policy}_orders", len(set(orders)), len(set(orders)) == EPOCHS, f"{EPOCHS} different orders")
    drawn = []
    for epoch in range(EPOCHS):
        for number in range(len(index)):
            drawn.append(sample_params(preset, context.seed, SampleKey(epoch, number, 0), 300, 400))
    if policy == "basic":
        crops, flips = {p.crop for p in drawn}, sum(p.flip for p in drawn)
        result.require("different_crops", len(crops), len(crops) > len(drawn) // 2, "more than half of the samples")
        result.require("flips", flips, 0 < flips < len(drawn), "some but not all")
    if preset.auto_augment:
        ops = {name for p in drawn for name, _ in p.ops}
        result.require(f"{policy}_operations", len(ops), len(ops) >= 4, "4 or more kinds")
    if preset.random_erase_prob:
        erased = sum(p.erase is not None for p in drawn)
        result.require("erased", erased, 0 < erased < len(drawn), "some but not all")
    if preset.mixes:
        soft = max(float(np.sort(batch[1], axis=1)[:, -2].max()) for epoch in epochs for batch in epoch)
        result.require(f"{policy}_second_label", round(soft, 4), soft > 0.01, "a weight above 0.01")


def check_pictures(context: Context, splits: tuple[str, ...]) -> None:
    """Decode every picture that the steps will use, before any of them runs.

    Raises:
        UserError: a split cannot be listed, a label is out of range, or a picture is damaged; the message names it.
    """
    for split in splits:
        index = first_pictures(context.material.index(split))
        if index.rows is not None and context.project.independent is not None:
            other = context.project.independent.name
            raise UserError(f"{context.data_path} holds CIFAR-10's batches, which {other} does not read: give folders of pictures")
        for number in range(len(index)):
            decode_image(index.path(number), context.image_backend)
