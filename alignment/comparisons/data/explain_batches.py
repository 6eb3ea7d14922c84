"""Samples, their random parameters, and the batches that are made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.data.data import EPOCHS
from alignment.comparisons.data.explain import EVAL, REPEATS, TRAIN, differ, found, made_by_reference
from alignment.comparisons.data.loading import BATCH_SIZE, first_pictures, part
from alignment.comparisons.data.loading import batches as loaded
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import explains
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import SampleKey, sample_params


def samples(context: Context) -> Finding | None:
    """A data set's samples: pixels, label, and the parameters that it draws."""
    index = first_pictures(context.material.index("train"))
    for preset in (EVAL, replace(TRAIN, auto_augment="ra", random_erase_prob=0.5)):
        datasets = [part(s).ImageDataset(index, preset, context.seed, context.image_backend) for s in context.sides.values()]
        for number in range(min(6, len(index))):
            key = SampleKey(1, number, number)
            (ours, label, _), (theirs, expected, _) = (dataset[key] for dataset in datasets)
            if label != expected:
                kind = Kind.LABEL_OFF_BY_ONE if abs(label - expected) == 1 else Kind.LABEL
                return Finding("data", "labels", kind, f"label {label}, expected {expected}", f"picture {number}")
            pair = np.asarray(ours), np.asarray(theirs)
            if differ(pair):
                hint = _drawn_otherwise(context, index, preset, key, *pair)
                return found("sampling" if hint[0] else "ImageDataset", pair, hint)
    return None


def _drawn_otherwise(context: Context, index: Any, preset: Any, key: SampleKey, ours: np.ndarray, right: np.ndarray) -> Hint:
    """Whether the sample is the reference's own with other random parameters: of another seed or epoch, or one changed."""
    if not isinstance(preset, TrainPreset):
        return NO_HINT
    dataset = part(context.port).ImageDataset(index, preset, context.seed, context.image_backend)
    if any(not np.array_equal(np.asarray(dataset[key][0]), ours) for _ in range(REPEATS)):
        return Kind.GLOBAL_GENERATOR, "two identical calls give different pictures: random numbers from a global generator"
    for what, seed, epoch in [("seed", context.seed + d, key.epoch) for d in (1, -1, 2)] + [
        ("epoch", context.seed, e) for e in (0, 2)
    ]:
        if seed >= 0:
            other = part(context.reference).ImageDataset(index, preset, seed, context.image_backend)[key._replace(epoch=epoch)][0]
            if explains(np.asarray(other), ours, right, 1e-12):
                found, wanted = (seed, context.seed) if what == "seed" else (epoch, key.epoch)
                kind = Kind.OTHER_SEED if what == "seed" else Kind.OTHER_EPOCH
                return kind, f"random parameters of {what} {found}, expected those of {wanted}"
    return _changed_parameter(context, index, preset, key, ours, right)


def _changed_parameter(
    context: Context, index: Any, preset: TrainPreset, key: SampleKey, ours: np.ndarray, right: np.ndarray
) -> Hint:
    """Which one of the drawn parameters is not applied, or is another."""
    picture = decode_image(index.path(key.sample))
    drawn = sample_params(preset, context.seed, key, picture.height, picture.width)
    made = lambda **changes: made_by_reference(context, "train_transform", picture, preset, replace(drawn, **changes))  # noqa: E731
    if context.image_backend != "pil" or differ((made(), right)):
        return NO_HINT  # the reference draws in another way
    for words, changes in (
        ("the flip is inverted", {"flip": not drawn.flip}),
        ("no automatic augmentation", {"ops": ()}),
        ("the first operation alone", {"ops": drawn.ops[:1]}),
        ("the operations in the reverse order", {"ops": drawn.ops[::-1]}),
        ("magnitudes without their random sign", {"ops": tuple((name, abs(size)) for name, size in drawn.ops)}),
        ("nothing is erased", {"erase": None}),
        ("the whole picture, not a crop", {"crop": (0, 0, picture.height, picture.width)}),
    ):
        if explains(made(**changes), ours, right, 1e-12):
            return Kind.SAMPLED, words
    return NO_HINT


def order(context: Context) -> Finding | None:
    """Batches of a whole epoch, without workers and with them: how many, and which pictures in which order."""
    index = first_pictures(context.material.index("train"))
    for preset, workers in ((EVAL, 0), (TRAIN, 0), (EVAL, 2)):
        orders: dict[str, list[tuple[int, ...]]] = {}
        for role, side in context.sides.items():
            runs = [list(loaded(side, context, index, preset, epoch, workers)) for epoch in range(1 if workers else EPOCHS)]
            orders[role] = [tuple(int(n) for batch in run for n in batch[2]) for run in runs]
        if orders["port"] == orders["reference"]:
            continue
        ours, theirs = orders["port"], orders["reference"]
        measured = f"epoch 0: {ours[0][:6]}..., expected {theirs[0][:6]}..."
        if len(ours[0]) < len(theirs[0]):
            words = f"{len(ours[0])} of {len(theirs[0])} pictures: the last, short batch is dropped"
            return Finding("data", "batches", Kind.BATCH_DROPPED, words, measured)
        kind, words = Kind.ORDER, "another order with workers, the right one without" if workers else "another order"
        if not workers and len(set(ours)) == 1 and len(set(theirs)) > 1:
            kind, words = Kind.NOT_RESHUFFLED, "every epoch has the same order: set_epoch is never called"
        if ours[0] == tuple(sorted(ours[0])) and ours[0] != theirs[0]:
            kind, words = Kind.NOT_SHUFFLED, "not shuffled"
        size = BATCH_SIZE if preset is TRAIN else BATCH_SIZE + 1
        parts = [theirs[0][i : i + size][::-1] for i in range(0, len(theirs[0]), size)]
        if ours[0] in (theirs[0][::-1], tuple(n for part in parts for n in part)):
            kind, words = Kind.REVERSED, "the order is reversed"
        return Finding("data", "order", kind, words, measured)
    return None


def ranks(context: Context) -> Finding | None:
    """Which picture goes to which rank."""
    index = first_pictures(context.material.index("val"))
    parts = []
    for rank in range(3):
        parts.append([int(n) for batch in loaded(context.port, context, index, EVAL, 0, rank=rank, world_size=3) for n in batch[2]])
    seen = sorted(n for part in parts for n in part)
    if seen == list(range(len(index))):
        return None
    measured = f"3 ranks see {len(seen)} samples of {len(index)}, {len(set(seen))} different ones"
    if parts[0] == parts[1] == parts[2]:
        return Finding(
            "data", "ranks", Kind.NOT_SHARDED, "every rank sees the same pictures: the batches are not shared out", measured
        )
    return Finding("data", "ranks", Kind.SHARDS_OVERLAP, "ranks share pictures, or pad, or leave some out", measured)
