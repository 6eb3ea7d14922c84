"""The first batch, the order of the pictures, and the pictures of evaluation."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from alignment_doctor.check.subject import RunSubject
from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from mobilenetv3_common.counted import counted
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.loader_workers import delivered
from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.samples import Samples
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey

COMPARED = 4  # pictures
VIEWS = 16  # pictures of each of two workers: by chance all of them are mirrored alike once in 65,536 runs
CHANCE = math.log(1e5)  # the same order by chance once in so many runs
SAME_PIXEL = 0.02  # of a deviation: less than one level of 255
HINTS = {
    "blue and red are exchanged": lambda pixels: pixels[::-1],
    "they are mirrored": lambda pixels: pixels[:, :, ::-1],
}


@check(
    "check.input",
    "002 dp.01",
    "001 data 1-4",
    "004 data",
    measures="type, shape, range, mean and deviation of the first training batch",
    fix="scale pictures to 0..1 once, and normalise them once by mean and deviation in that unit, as float32 (N, 3, H, W)",
)
def batch(subject: RunSubject) -> Outcome:
    images, size = subject.images, subject.config.crop_size
    if images.ndim != 4 or images.shape[1:] != (3, size, size):
        return found(f"shape {images.shape}, expected (N, 3, {size}, {size})", ["images"])
    if images.dtype != np.float32 or not np.isfinite(images).all():
        return found(
            f"{images.dtype}, {'' if np.isfinite(images).all() else 'not '}all finite; expected finite float32", ["images"]
        )
    low, high, mean, std = (float(f(images)) for f in (np.min, np.max, np.mean, np.std))
    said = f"{low:.2f} to {high:.2f}, mean {mean:.2f}, deviation {std:.2f}"
    if high > 20:
        return found(f"{said}: levels of 0..255 were not divided by 255, or were normalised in another unit", ["images"])
    if low >= 0:
        return found(f"{said}: nothing was subtracted", ["images"])
    if std < 0.05 or std > 3 or abs(mean) > 2:
        return found(f"{said}: divided or normalised twice, or by other numbers than the data's", ["images"])
    return nothing(said)


@check(
    "check.labels",
    "002 ds.02",
    "004 data",
    measures="labels of the first batch",
    fix="number classes from 0 without gaps; rows of probabilities must sum to 1",
)
def labels(subject: RunSubject) -> Outcome:
    given = subject.labels
    if given.ndim == 2:
        wrong = np.abs(given.sum(1) - 1) > 1e-3
        return judged(
            [f"sample {n}: sum {given[n].sum():.3f}" for n in np.flatnonzero(wrong)], "rows", f"{len(given)} rows sum to 1"
        )
    wrong = (given < 0) | (given >= subject.num_classes)
    where = [f"sample {n}: label {given[n]}" for n in np.flatnonzero(wrong)]
    return judged(where, f"outside 0..{subject.num_classes - 1}", f"{len(given)} labels within 0..{subject.num_classes - 1}")


@check(
    "check.order",
    "002 dp.03",
    measures="the order of the pictures in the first two epochs; in more where few pictures repeat an order by chance",
    fix="shuffle, and tell the sampler the epoch (set_epoch): otherwise every epoch has the same order",
)
def order(subject: RunSubject) -> Outcome:
    first = _order(subject, 0)
    if len(first) < 4:
        return not_applicable(f"an epoch has {len(first)} pictures")
    if len(set(first)) < 2:
        return not_applicable("an epoch has one picture, again and again")
    epochs = 1 + math.ceil(CHANCE / math.log(math.factorial(min(len(set(first)), 20))))
    others = [_order(subject, epoch) for epoch in range(1, max(2, epochs))]
    if all(first == other for other in others):
        return found(f"{'both' if len(others) == 1 else f'{epochs}'} epochs have the same order", [f"epochs 0 and {len(others)}"])
    if len(others) == 1 and first == sorted(first):
        return found("the pictures come in the order of their files", ["epoch 0"])
    meant = subject.config.repeat_augment
    often = [f"picture {sample}: {count} times" for sample, count in Counter(first).items() if count > meant]
    seen = f"{len(often)} pictures come more than {counted(meant, 'time')} in an epoch"
    return judged(often, seen, "another order in each epoch")


def _order(subject: RunSubject, epoch: int) -> list[int]:
    """The pictures of an epoch."""
    plan = subject.run.plan
    plan.set_epoch(epoch)
    made = [key.sample for keys in plan for key in keys]
    plan.set_epoch(0)
    return made


@check(
    "check.augmentation",
    "004 data",
    "002 dp.03",
    measures="one training picture in three epochs",
    fix="draw the random parameters anew in each epoch and worker: a generator that each worker seeds alike repeats itself",
)
def augmentation(subject: RunSubject) -> Outcome:
    preset = subject.config.train_preset
    if not _augments(preset):
        return not_applicable("the settings switch no random augmentation on")
    dataset, changed = _training_pictures(subject, preset), 0
    for sample in range(min(COMPARED, len(subject.run.train_index))):
        made = [np.asarray(dataset[SampleKey(epoch, sample, 0)][0]) for epoch in range(3)]
        changed += not all(np.array_equal(made[0], other) for other in made[1:])
    return nothing("differs between epochs") if changed else found("equal in every epoch", ["training pictures"])


@check(
    "check.workers",
    "004 data",
    "002 dp.03",
    measures="the same training pictures in two epochs, each made by a worker process of its own",
    fix="make the generator from seed, epoch and picture, or seed it in worker_init_fn: the dataset's is copied into each worker",
)
def workers(subject: RunSubject) -> Outcome:
    preset = replace(subject.config.train_preset, mixup_alpha=0.0, cutmix_alpha=0.0)
    if subject.workers < 2:
        return not_applicable(f"--workers {subject.workers}: no two workers make pictures")
    if not _augments(preset):
        return not_applicable("the settings switch no random augmentation on")
    dataset, count = _training_pictures(subject, preset), min(VIEWS, len(subject.run.train_index))
    epochs = RunPlan(BatchPlan(count, count, subject.config.seed), 2)  # a batch an epoch, and each worker makes one batch
    loaded = delivered(subject.backend.build_loader(dataset, epochs, 2))
    one, two = (subject.engine.array(images) for images, *_ in loaded)
    if not np.array_equal(one, two):
        return nothing(f"{count} pictures of two workers differ")
    first, second = (np.stack([np.asarray(dataset[key][0]) for key in keys]) for keys in epochs)
    if np.array_equal(first, second):
        return not_applicable("the pictures are equal within one process, too: see check.augmentation")
    return found(f"{count} pictures of two workers are equal, and differ within one process", ["training pictures"])


def _augments(preset: TrainPreset) -> bool:
    """Whether some random change of single pictures is switched on."""
    return (
        (preset.crop_scale[0] < 1 if preset.crop_padding is None else preset.crop_padding > 0)
        or preset.hflip_prob not in (0, 1)
        or preset.auto_augment is not None
        or preset.random_erase_prob > 0
    )


def _training_pictures(subject: RunSubject, preset: TrainPreset) -> Samples:
    config = subject.config
    return subject.backend.ImageDataset(subject.run.train_index, preset, config.seed, config.image_backend, config.on_bad_image)


@check(
    "check.evaluation_pictures",
    "002 dp.02",
    "001 data 1-3",
    measures="pictures of evaluation against decoding, resize, centre crop and normalisation written out",
    fix="prepare pictures in evaluation as in training, without its random parts: RGB, the same unit, mean and deviation",
)
def evaluation_pictures(subject: RunSubject) -> Outcome:
    config, index = subject.config, subject.run.val_index
    if config.image_backend != "pil":
        return not_applicable(f"the decoder {config.image_backend} has other rounding")
    preset = replace(config.eval_preset, tta="none")  # further views are made of the same picture
    dataset = subject.backend.ImageDataset(index, preset, config.seed)
    where = []
    for sample in range(min(COMPARED, len(index))):
        own = np.asarray(dataset[SampleKey(0, sample, 0)][0])
        right = eval_transform(decode_image(index.path(sample)), preset)
        if own.shape == right.shape and float(np.abs(own - right).max()) <= SAME_PIXEL:
            continue
        hints = [h for h, mend in HINTS.items() if own.shape == right.shape and np.abs(mend(own) - right).max() <= SAME_PIXEL]
        where.append(f"{index.names[sample]}{': ' + hints[0] if hints else ''}")
    return judged(where, f"{len(where)} pictures differ", "agree")
