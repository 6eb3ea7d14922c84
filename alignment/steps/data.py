"""Step 2, data: every pixel, label, file name and the order, for evaluation and for every training augmentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.sides import Side
from alignment.steps.context import Context, StepResult
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import BatchPlan, SampleKey, sample_params

EPOCHS = 3
BATCH_SIZE = 4
MAX_PICTURES = 32
POLICIES = {
    "basic": TrainPreset(),
    "autoaugment": TrainPreset(auto_augment="imagenet"),
    "randaugment": TrainPreset(auto_augment="ra"),
    "trivialaugment": TrainPreset(auto_augment="ta_wide"),
    "erasing": TrainPreset(random_erase_prob=0.5),
    "mixup": TrainPreset(mixup_alpha=0.2),
    "cutmix": TrainPreset(cutmix_alpha=1.0),
}
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def run(context: Context, policies: dict[str, TrainPreset] = POLICIES) -> StepResult:
    """Compare both loaders batch by batch, and the evaluation pipeline with torchvision's own, end to end."""
    result = StepResult(2, "data")
    _evaluation(context, result)
    _training(context, result, policies)
    return result


def _evaluation(context: Context, result: StepResult) -> None:
    index = first_pictures(context.index("val"))
    runs = {
        side.name: list(batches(side, context, index, EvalPreset(), epoch=0, workers=2)) for side in (context.paddle, context.ref)
    }
    result.extend(compare_batches("eval", runs["paddle"], runs["ref"]))
    names = {side: np.array([index.names[i] for batch in b for i in batch[2]]) for side, b in runs.items()}
    result.quantities.append(judge_equal("eval.file_names", names["paddle"], np.array(index.names)))
    if context.image_backend == "pil":
        result.extend(_against_torchvision(context, index, runs["paddle"]))
    _all_ranks(context, index, result)
    pixels = np.concatenate([batch[0] for batch in runs["ref"]])
    result.require("pictures", len(index), len(index) >= 4, "4 or more")
    result.require("eval_pixel_std", round(float(pixels.std()), 3), 0.2 < pixels.std() < 5, "0.2 to 5")
    result.require("eval_labels", len(set(index.labels)), len(set(index.labels)) > 1, "more than one class")
    for side, records in (("paddle", result.paddle), ("ref", result.ref)):
        records["eval.images"], records["eval.labels"], records["eval.order"] = runs[side][0]


def _against_torchvision(context: Context, index: DatasetIndex, runs: list[Batch]) -> Iterator[Quantity]:
    """The evaluation pipeline against torchvision's ImageFolder loader and published preset, which share no code with it."""
    from torchvision.datasets.folder import default_loader, make_dataset
    from torchvision.transforms._presets import ImageClassification

    preset = ImageClassification(crop_size=224)
    truth = np.stack([preset(default_loader(str(index.path(i)))).numpy() for i in range(len(index))])
    yield judge_equal("eval.images.torchvision", np.concatenate([batch[0] for batch in runs]), truth)
    folder = index.root / "val"
    if folder.is_dir() and not (index.root / "val_list.txt").exists():
        listed = make_dataset(str(folder), extensions=(".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))
        whole = context.index("val")  # the index above holds some of its pictures, spread over all classes
        ours = np.array([str(whole.path(i)) for i in range(len(whole))])
        yield judge_equal("eval.file_names.torchvision", ours, np.array([path for path, _ in listed]))
        yield judge_equal("eval.labels.torchvision", np.array(whole.labels), np.array([label for _, label in listed]))


def _all_ranks(context: Context, index: DatasetIndex, result: StepResult) -> None:
    """Three ranks of evaluation together see every picture once, with the pixels and labels that one rank sees."""
    merged: dict[int, tuple[np.ndarray, int]] = {}
    seen = []
    for rank in range(3):
        for images, labels, numbers in batches(context.paddle, context, index, EvalPreset(), 0, rank=rank, world_size=3):
            seen += numbers.tolist()
            merged |= {int(n): (image, int(label)) for n, image, label in zip(numbers, images, labels, strict=True)}
    result.quantities.append(judge_equal("eval.ranks.coverage", np.sort(np.array(seen)), np.arange(len(index))))
    labels = np.array([merged[i][1] if i in merged else -1 for i in range(len(index))])
    result.quantities.append(judge_equal("eval.ranks.labels", labels, np.array(index.labels)))


def _training(context: Context, result: StepResult, policies: dict[str, TrainPreset]) -> None:
    index = first_pictures(context.index("train"))
    for policy, preset in policies.items():
        first: dict[str, Batch] = {}
        epochs = []
        for epoch in range(EPOCHS):
            workers = 2 if policy == "autoaugment" and epoch == 0 else 0
            runs = {s.name: list(batches(s, context, index, preset, epoch, workers)) for s in (context.paddle, context.ref)}
            result.extend(compare_batches(f"train.{policy}.epoch{epoch}", runs["paddle"], runs["ref"]))
            first = first or {side: b[0] for side, b in runs.items() if b}
            epochs.append(runs["ref"])
        for side, records in (("paddle", result.paddle), ("ref", result.ref)):
            if side in first:
                records[f"train.{policy}.images"] = first[side][0][:1]
                records[f"train.{policy}.labels"] = first[side][1]
        _training_evidence(context, result, policy, preset, index, epochs)


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


def first_pictures(index: DatasetIndex) -> DatasetIndex:
    """At most MAX_PICTURES, spread evenly over the split."""
    if len(index) <= MAX_PICTURES:
        return index
    chosen = [i * len(index) // MAX_PICTURES for i in range(MAX_PICTURES)]
    return replace(index, names=tuple(index.names[i] for i in chosen), labels=tuple(index.labels[i] for i in chosen))


def batches(
    side: Side,
    context: Context,
    index: DatasetIndex,
    preset: EvalPreset | TrainPreset,
    epoch: int,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[Batch]:
    """One epoch of one side's loader: images (N, 3, H, W), labels, picture numbers."""
    training = isinstance(preset, TrainPreset)
    size = BATCH_SIZE if training else BATCH_SIZE + 1  # evaluation ends with a short batch
    plan = BatchPlan(len(index), size, context.seed, shuffle=training, rank=rank, world_size=world_size)
    plan.set_epoch(epoch)
    dataset = side.data.ImageDataset(index, preset, context.seed, context.image_backend)
    for images, labels, numbers in side.data.build_loader(dataset, plan, workers):
        yield side.array(images), side.array(labels), side.array(numbers)


def compare_batches(name: str, paddle: list[Batch], ref: list[Batch]) -> Iterator[Quantity]:
    """Rows for pixels, labels and order over all batches of an epoch, batch by batch on failure."""
    count = Quantity(f"{name}.batches", [len(ref)])
    yield count if len(paddle) == len(ref) else count.fail(f"{len(paddle)} batches in paddle, {len(ref)} in ref")
    for part, kind in enumerate(("images", "labels", "order")):
        rows = [judge_equal(f"{name}.{kind}.batch{i}", p[part], r[part]) for i, (p, r) in enumerate(zip(paddle, ref, strict=False))]
        failed = [row for row in rows if not row.passed]
        row = Quantity(f"{name}.{kind}", [len(rows), *(rows[0].shape if rows else [])])
        differences = [r.max_abs_diff for r in rows if r.max_abs_diff is not None]
        row.max_abs_diff = max(differences, default=None)
        row.mean_abs_diff = float(np.mean([r.mean_abs_diff for r in rows if r.mean_abs_diff is not None])) if differences else None
        if failed:
            row.fail(f"{failed[0].name}: {failed[0].reason}")
        yield row


def check_pictures(context: Context, splits: tuple[str, ...]) -> None:
    """Decode every picture that the steps will use, before any of them runs.

    Raises:
        UserError: a split cannot be listed, a label is out of range, or a picture is damaged; the message names it.
    """
    for split in splits:
        index = first_pictures(context.index(split))
        for number in range(len(index)):
            decode_image(index.path(number), context.image_backend)
