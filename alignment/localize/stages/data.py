"""The first transform of the data pipeline that is wrong, each tried by itself on the same picture and parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from alignment.localize.finding import NO_HINT, Finding, Hint
from alignment.localize.hints.arrays import close
from alignment.localize.kinds import Kind
from alignment.steps.context import Context
from alignment.steps.data import BATCH_SIZE, EPOCHS, POLICIES, first_pictures, part
from alignment.steps.data import batches as loaded
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleKey, SampleParams

SIZE = 64
RAW = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
EVAL = EvalPreset(SIZE * 8 // 7, SIZE)
TRAIN = TrainPreset(SIZE)


def _arrays(context: Context, name: str, *args: Any) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.asarray(getattr(part(side), name)(*args)) for side in context.sides.values())  # type: ignore[return-value]


def _differ(pair: tuple[np.ndarray, np.ndarray]) -> bool:
    return pair[0].shape != pair[1].shape or pair[0].dtype != pair[1].dtype or bool((pair[0] != pair[1]).any())


def _measured(pair: tuple[np.ndarray, np.ndarray]) -> str:
    ours, theirs = pair
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {ours.shape} in the port, {theirs.dtype} {theirs.shape} in the reference"
    gap = np.abs(ours.astype(np.float64) - theirs)
    return f"{int((gap > 0).sum())} of {gap.size} values differ, by {gap.max():.3g} at most"


def _found(location: str, pair: tuple[np.ndarray, np.ndarray], hint: Hint = NO_HINT) -> Finding:
    kind, words = hint if hint[0] else pixel_hint(*pair)
    return Finding("data", location, kind, words, _measured(pair))


@functools.cache
def _picture(context_index: Any, number: int, backend: str) -> Image.Image:
    return decode_image(context_index.path(number), backend)


def _pictures(context: Context, count: int = 4) -> list[Image.Image]:
    index = first_pictures(context.index("val"))
    return [_picture(index, i * len(index) // count, context.image_backend) for i in range(count)]


def decoding(context: Context) -> Finding | None:
    """A file to pixels."""
    for preset in (EVAL, TRAIN):
        index = first_pictures(context.index("val"))
        for number in range(min(4, len(index))):
            pair = []
            for side in context.sides.values():
                dataset: Any = part(side).ImageDataset(index, preset, context.seed, context.image_backend)
                if not hasattr(dataset, "decode"):
                    return None  # a data set that does not show this step has it looked at with its samples
                pair.append(np.asarray(dataset.decode(index.path(number))))
            if _differ((pair[0], pair[1])):
                return _found("decode", (pair[0], pair[1]))
    return None


def _normalisation(context: Context) -> Finding | None:
    """Pictures that need no resizing and no crop, so that nothing but scaling to 0..1 and normalising is left."""
    for preset in (EvalPreset(SIZE, SIZE, **RAW), EvalPreset(SIZE, SIZE)):
        for picture in _pictures(context):
            exact = picture.resize((SIZE, SIZE))
            pair = _arrays(context, "eval_transform", exact, preset)
            if _differ(pair):
                return _found("normalize", pair, normalisation_hint(pair[0], np.asarray(exact), preset))
    return None


def evaluation(context: Context) -> Finding | None:
    """Normalise, centre crop, resize."""
    if finding := _normalisation(context):
        return finding
    for picture in _pictures(context):
        for more in range(8):  # odd and even margins, which are rounded in different ways
            for size in ((EVAL.resize_size + more, EVAL.resize_size), (EVAL.resize_size, EVAL.resize_size + more)):
                pair = _arrays(context, "eval_transform", picture.resize(size), EVAL)
                if _differ(pair):
                    return _found("center_crop", pair)
        pair = _arrays(context, "eval_transform", picture, EVAL)
        if _differ(pair):
            return _found("resize", pair, interpolation_hint(context, pair[0], picture))
    return None


def training(context: Context) -> Finding | None:
    """Normalise, crop, resize, flip, every augmentation, erase: one at a time."""
    for picture in _pictures(context):
        square = picture.resize((SIZE, SIZE))
        plain = SampleParams((0, 0, SIZE, SIZE), False, (), None)
        pair = _arrays(context, "train_transform", square, TRAIN, plain)
        if _differ(pair):
            return _found("normalize", pair, normalisation_hint(pair[0], np.asarray(square), TRAIN))
        for top, left in ((0, 0), (3, 7), (picture.height - SIZE, picture.width - SIZE)):
            pair = _arrays(context, "train_transform", picture, TRAIN, replace(plain, crop=(max(top, 0), max(left, 0), SIZE, SIZE)))
            if _differ(pair):
                return _found("crop", pair)
        whole = replace(plain, crop=(2, 1, picture.height - 5, picture.width - 4))
        pair = _arrays(context, "train_transform", picture, TRAIN, whole)
        if _differ(pair):
            return _found("resize", pair, interpolation_hint(context, pair[0], picture))
        pair = _arrays(context, "train_transform", square, TRAIN, replace(plain, flip=True))
        if _differ(pair):
            same = close(pair[0], _arrays(context, "train_transform", square, TRAIN, plain)[0], 1e-12)
            return _found("hflip", pair, (Kind.FLIP_MISSING, "the picture is not mirrored") if same else NO_HINT)
        for name, magnitude in _operations():
            pair = _arrays(context, "train_transform", square, TRAIN, replace(plain, ops=((name, magnitude),)))
            if _differ(pair):
                return _found(f"apply_op:{name}", pair, operation_hint(context, pair[0], square, name, magnitude))
        erased = replace(plain, erase=(5, 9, 20, 17))
        pair = _arrays(context, "train_transform", square, TRAIN, erased)
        if _differ(pair):
            inside = pair[0][:, 5:25, 9:26]
            words = f"the erased region holds {inside.min():.3g} to {inside.max():.3g}, expected 0 after normalisation"
            outside = pair[0].copy()
            outside[:, 5:25, 9:26] = 0
            return _found("erase", pair, (Kind.ERASE_VALUE, words) if not _differ((outside, pair[1])) else NO_HINT)
    return None


SIGNED = {"ShearX": 0.2, "ShearY": 0.2, "TranslateX": 9.0, "TranslateY": 9.0, "Rotate": 17.0} | dict.fromkeys(
    ("Brightness", "Color", "Contrast", "Sharpness"), 0.4
)


def _operations() -> list[tuple[str, float]]:
    both = [(name, sign * size) for name, size in SIGNED.items() for sign in (1, -1)]
    plain = [(name, 0.0) for name in ("Identity", "AutoContrast", "Equalize", "Invert")]
    return [*both, *plain, ("Posterize", 4.0), ("Solarize", 128.0), ("Solarize", 77.0)]


def samples(context: Context) -> Finding | None:
    """A data set's samples: pixels, label, and the parameters that it draws."""
    index = first_pictures(context.index("train"))
    for preset in (EVAL, replace(TRAIN, auto_augment="ra", random_erase_prob=0.5)):
        datasets = [part(s).ImageDataset(index, preset, context.seed, context.image_backend) for s in context.sides.values()]
        for number in range(min(6, len(index))):
            key = SampleKey(1, number, number)
            (ours, label, _), (theirs, expected, _) = (dataset[key] for dataset in datasets)
            if label != expected:
                kind = Kind.LABEL_OFF_BY_ONE if abs(label - expected) == 1 else Kind.LABEL
                return Finding("data", "labels", kind, f"label {label}, expected {expected}", f"picture {number}")
            pair = np.asarray(ours), np.asarray(theirs)
            if _differ(pair):
                hint = _drawn_otherwise(context, index, preset, key, pair[0])
                return _found("sampling" if hint[0] else "ImageDataset", pair, hint)
    return None


def _drawn_otherwise(context: Context, index: Any, preset: Any, key: SampleKey, ours: np.ndarray) -> Hint:
    """Whether the sample is the reference's own of another seed or epoch."""
    if not isinstance(preset, TrainPreset):
        return NO_HINT
    for what, seed, epoch in [("seed", context.seed + d, key.epoch) for d in (1, -1, 2)] + [
        ("epoch", context.seed, e) for e in (0, 2)
    ]:
        if seed >= 0:
            other = part(context.reference).ImageDataset(index, preset, seed, context.image_backend)[key._replace(epoch=epoch)][0]
            if close(ours, np.asarray(other), 1e-12):
                found, wanted = (seed, context.seed) if what == "seed" else (epoch, key.epoch)
                return (
                    Kind.OTHER_SEED if what == "seed" else Kind.OTHER_EPOCH
                ), f"random parameters of {what} {found}, expected those of {wanted}"
    return NO_HINT


def mixing(context: Context) -> Finding | None:
    """Mixup and cutmix of a batch whose samples are right."""
    index = first_pictures(context.index("train"))
    for name in ("mixup", "cutmix"):
        preset = replace(POLICIES[name], crop_size=SIZE)
        for ours, theirs in zip(*(loaded(s, context, index, preset, 0) for s in context.sides.values()), strict=False):
            for place, what in ((0, "images"), (1, "labels")):
                pair = ours[place], theirs[place]
                if _differ(pair):
                    return _found(f"mix_batch:{name}", pair, _mix_hint(context, index, preset, pair, what, ours, theirs))
    return None


def _mix_hint(context: Context, index: Any, preset: Any, pair: Any, what: str, ours: Any, theirs: Any) -> Hint:
    plain = replace(preset, mixup_alpha=0.0, cutmix_alpha=0.0)
    raw = next(iter(loaded(context.reference, context, index, plain, 0)))[0]
    before = np.roll(raw, 1, axis=0)
    if what == "images" and pair[0].shape == raw.shape and preset.mixup_alpha:
        gap = (raw - before).ravel().astype(np.float64)
        shares = [float((x - before).ravel().astype(np.float64) @ gap / (gap @ gap)) for x in pair]
        if abs(shares[0] + shares[1] - 1) < 1e-4 and abs(shares[0] - shares[1]) > 1e-4:
            return Kind.LAMBDA_SWAPPED, f"a sample's own share is {shares[0]:.4f}, expected {shares[1]:.4f} = 1 - it"
        return Kind.LAMBDA, f"a sample's own share is {shares[0]:.4f}, expected {shares[1]:.4f}"
    if what == "labels" or not _differ((ours[0], theirs[0])):
        return Kind.MIXED_LABELS, "the labels are mixed otherwise than the pictures"
    return NO_HINT


def batches(context: Context) -> Finding | None:
    """Batches of a whole epoch: how many, and which pictures in which order."""
    index = first_pictures(context.index("train"))
    for preset in (EVAL, TRAIN):
        orders: dict[str, list[tuple[int, ...]]] = {}
        for role, side in context.sides.items():
            runs = [list(loaded(side, context, index, preset, epoch)) for epoch in range(EPOCHS)]
            orders[role] = [tuple(int(n) for batch in run for n in batch[2]) for run in runs]
        if orders["port"] == orders["reference"]:
            continue
        ours, theirs = orders["port"], orders["reference"]
        measured = f"epoch 0: {ours[0][:6]}..., expected {theirs[0][:6]}..."
        if len(ours[0]) < len(theirs[0]):
            words = f"{len(ours[0])} of {len(theirs[0])} pictures: the last, short batch is dropped"
            return Finding("data", "batches", Kind.BATCH_DROPPED, words, measured)
        kind, words = Kind.ORDER, "another order"
        if len(set(ours)) == 1 and len(set(theirs)) > 1:
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
    index = first_pictures(context.index("val"))
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


# --- hints -----------------------------------------------------------------------------------------------------------------


def pixel_hint(ours: np.ndarray, theirs: np.ndarray) -> Hint:
    """What two pictures (C, H, W) or (H, W, C) have to do with each other."""
    if ours.shape != theirs.shape or ours.ndim != 3:
        return (Kind.SHAPE, f"shape {ours.shape}, expected {theirs.shape}") if ours.shape != theirs.shape else NO_HINT
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if b.shape[-1] == 3:
        a, b = a.transpose(2, 0, 1), b.transpose(2, 0, 1)
    if close(a, b[::-1]):
        return Kind.CHANNELS_REVERSED, "RGB and BGR: the channels are reversed"
    if close(a, b[:, :, ::-1]):
        return Kind.MIRRORED, "mirrored left to right"
    if close(a, b[:, ::-1]):
        return Kind.UPSIDE_DOWN, "upside down"
    for dy, dx in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1), (1, -1), (-1, 1)):
        inner = np.s_[:, 2:-2, 2:-2]
        if close(a[inner], np.roll(b, (dy, dx), (1, 2))[inner]):
            return Kind.CROP_OFF_BY_ONE, f"crop off by one: moved by {dy} row(s) and {dx} column(s)"
    different = (a != b).any(axis=0)
    if different.sum() <= max(1, different.size // 100):
        return Kind.FEW_ELEMENTS, f"{int(different.sum())} of {different.size} pixels differ"
    slopes = [np.polyfit(y.ravel(), x.ravel(), 1) for x, y in zip(a, b, strict=True)]
    fitted = np.stack([np.polyval(c, y) for c, y in zip(slopes, b, strict=True)])
    if close(a, fitted, 1e-5):
        return Kind.AFFINE, "each channel is " + ", ".join(f"{c[0]:.4g} x + {c[1]:.4g}" for c in slopes) + " of the reference's x"
    return NO_HINT


def normalisation_hint(ours: np.ndarray, levels: np.ndarray, preset: EvalPreset | TrainPreset) -> Hint:
    """Which mean, standard deviation and scale would give what the port gives for known levels 0..255 (H, W, 3)."""
    raw = levels.transpose(2, 0, 1).astype(np.float64)
    if ours.shape != raw.shape:
        return NO_HINT
    for flipped in (False, True):
        given = raw[::-1] if flipped else raw
        fits = [np.polyfit(x.ravel(), y.ravel().astype(np.float64), 1) for x, y in zip(given, ours, strict=True)]
        fitted = np.stack([np.polyval(c, x) for c, x in zip(fits, given, strict=True)])
        if not close(ours, fitted, 1e-4):
            continue
        slope, offset = np.array([c[0] for c in fits]), np.array([c[1] for c in fits])
        std, mean = 1 / (slope * 255), -offset / (slope * 255)
        wanted, centre = np.array(preset.std), np.array(preset.mean)
        shown = lambda values: "(" + ", ".join(f"{round(v, 5) + 0.0:g}" for v in values) + ")"  # noqa: E731
        if flipped:
            return Kind.CHANNELS_REVERSED, "RGB and BGR: the channels are reversed before normalising"
        if np.allclose(std * 255, wanted, rtol=1e-3):
            return Kind.NOT_DIVIDED_BY_255, "missing /255: the levels 0..255 are normalised as they are"
        if np.allclose(std, wanted, rtol=1e-3):
            return Kind.WRONG_MEAN, f"wrong mean: {shown(mean)}, expected {shown(centre)}"
        if np.allclose(std, wanted[::-1], rtol=1e-3) or np.allclose(mean, centre[::-1], rtol=1e-3, atol=1e-6):
            return Kind.WRONG_MEAN_STD, "mean and standard deviation in BGR order"
        return Kind.WRONG_STD, f"wrong standard deviation: {shown(std)}, expected {shown(wanted)}; mean {shown(mean)}"
    return NO_HINT


def interpolation_hint(context: Context, ours: np.ndarray, picture: Image.Image) -> Hint:
    """Whether another way to resize gives what the port gives."""
    filters = Image.Resampling
    for preset in (EVAL,):
        short = min(picture.size)
        width, height = (round(n * preset.resize_size / short) for n in picture.size)
        sizes = {
            (width, height),
            (int(picture.width * preset.resize_size / short), int(picture.height * preset.resize_size / short)),
        }
        for method in (filters.NEAREST, filters.BICUBIC, filters.LANCZOS, filters.BOX, filters.HAMMING):
            for target in sizes:
                made = np.asarray(part(context.reference).eval_transform(picture.resize(target, method), preset))
                if close(ours, made, 1e-6):
                    return Kind.INTERPOLATION, f"{method.name.lower()} interpolation, expected bilinear"
        for method in (filters.NEAREST, filters.BICUBIC, filters.LANCZOS, filters.BOX, filters.HAMMING):
            box = (1, 2, 1 + picture.width - 4, 2 + picture.height - 5)
            exact = picture.resize((SIZE, SIZE), method, box=box)
            if close(ours, np.asarray(part(context.reference).eval_transform(exact, EvalPreset(SIZE, SIZE))), 1e-6):
                return Kind.INTERPOLATION, f"{method.name.lower()} interpolation, expected bilinear"
    return Kind.INTERPOLATION_OR_SIZE, "resized otherwise: another interpolation or target size"


def operation_hint(context: Context, ours: np.ndarray, square: Image.Image, name: str, magnitude: float) -> Hint:
    """Whether the operation was done with another magnitude, or another operation in its place."""
    made: Callable[[str, float], np.ndarray] = lambda op, size: np.asarray(  # noqa: E731
        part(context.reference).train_transform(square, TRAIN, SampleParams((0, 0, SIZE, SIZE), False, ((op, size),), None))
    )
    if close(ours, made("Identity", 0.0), 1e-9):
        return Kind.DOES_NOTHING, f"{name} does nothing"
    if name in SIGNED and close(ours, made(name, -magnitude), 1e-9):
        return Kind.SIGN, f"{name} goes the other way: its magnitude has the wrong sign"
    for other, size in _operations():
        if (other, size) != (name, magnitude) and close(ours, made(other, size), 1e-9):
            return (
                Kind.MAGNITUDE if other == name else Kind.OTHER_OPERATION,
                f"it does {other} by {size:g}, expected {name} by {magnitude:g}",
            )
    others = range(1, 9) if name == "Posterize" else (magnitude * part for part in (0.5, 2.0, 0.1, 10.0))
    for size in others if magnitude else ():
        if close(ours, made(name, size), 1e-9):
            return Kind.MAGNITUDE, f"{name} by {size:g}, expected {magnitude:g}"
    return Kind.OPERATION, f"{name} is computed otherwise"
