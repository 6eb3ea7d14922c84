"""Order and augmentation as pure functions of (seed, epoch, sample), never of a global random generator.

Both frameworks draw every random parameter here and apply it with their own image operations. So both see identical
batches, the numbers of workers and ranks change nothing, and a run resumed in mid-epoch continues exactly. Where a
distribution is torchvision's, the function's name says so and a statistical test holds it against torchvision's own.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import TrainPreset

# One stream a purpose: turning one augmentation on or off leaves the draws of the others as they were.
_STREAMS = {name: number for number, name in enumerate(("order", "crop", "flip", "augment", "erase", "mix", "dropout"))}


def generator(stream: str, seed: int, *key: int) -> np.random.Generator:
    """The random generator of one purpose for one (seed, epoch, sample); equal arguments give equal draws."""
    return np.random.Generator(np.random.PCG64([seed, _STREAMS[stream], *key]))


# --- order -----------------------------------------------------------------------------------------------------------


class SampleKey(NamedTuple):
    """What a loader worker needs to make one sample: which epoch, which picture, and its place in the epoch's order.

    ``repeat`` tells the repetitions of one picture apart, each of which has draws of its own; 0 is the first.
    """

    epoch: int
    sample: int
    position: int
    repeat: int = 0


def epoch_order(size: int, seed: int, epoch: int, shuffle: bool = True) -> np.ndarray:
    """The order of samples in an epoch: a permutation of 0 .. ``size`` - 1 (int64), or just that where not shuffled."""
    return generator("order", seed, epoch).permutation(size) if shuffle else np.arange(size)


REPEATS_ROUND = 256  # an epoch of repeated samples has a multiple of so many


@dataclass
class BatchPlan:
    """The batches of one rank for each epoch; used by both frameworks' loaders as their batch sampler.

    A global batch is ``batch_size * world_size`` consecutive samples of the epoch's order, of which every rank takes
    its own ``batch_size``. So N ranks together see, step for step, what one process with an N-fold batch sees.

    Training (``drop_last``) leaves the incomplete last global batch out, so every rank makes equally many steps. With
    ``pad`` it is kept: the ranks share it equally, and the epoch's first samples fill up what is missing to the next multiple
    of the number of ranks (as torch's ``DistributedSampler`` does; one rank needs none).
    Evaluation leaves out nothing and pads nothing: each sample is in exactly one batch of one rank, and ranks may have
    different numbers of batches.

    With ``repeats`` above 1 each sample comes so many times in a row, and the ranks take turns, so that the repetitions of a
    sample are on different ranks; an epoch has as many samples as before, rounded down to a multiple of 256 where there are
    so many. Those are the indices of ``RASampler`` in torchvision's references, and of ``RepeatAugSampler`` in timm.

    Attributes:
        size: samples of the data set.
        batch_size: of one rank.
        pad: keep the incomplete last batch of training, of equal size on every rank.
        repeats: of each sample, at least 1.

    Raises:
        UserError: a size below 1, a rank outside the world, or training data smaller than one global batch.
    """

    size: int
    batch_size: int
    seed: int = 0
    shuffle: bool = False
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1
    epoch: int = 0
    pad: bool = False
    repeats: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UserError(f"batch size must be at least 1, found {self.batch_size}")
        if not 0 <= self.rank < self.world_size:
            raise UserError(f"rank {self.rank} is outside a world of {self.world_size}")
        if self.drop_last and not self.pad and self.used < self.batch_size * self.world_size:
            raise UserError(
                f"{self.used} training pictures do not fill one batch of {self.batch_size} on {counted(self.world_size, 'rank')}: "
                "use a smaller batch size"
            )

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def used(self) -> int:
        """Samples of an epoch, before an incomplete last batch is left out or filled up."""
        if self.repeats == 1:
            return self.size
        return (self.size // REPEATS_ROUND * REPEATS_ROUND or self.size) // self.world_size * self.world_size

    def __len__(self) -> int:
        step = self.batch_size * self.world_size
        if self.pad:
            return -(-self.used // step)
        if self.drop_last:
            return self.used // step
        return len(range(self.rank * self.batch_size, self.used, step))

    def place(self, number: int) -> tuple[int, int]:
        """Where a batch of this rank begins among the epoch's places, and how many samples it has."""
        step = self.batch_size * self.world_size
        left = self.used - number * step
        if self.pad and left < step:
            share = -(-left // self.world_size)
            return number * step + self.rank * share, share
        start = number * step + self.rank * self.batch_size
        return start, min(self.batch_size, self.used - start)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        order = epoch_order(self.size, self.seed, self.epoch, self.shuffle)
        for number in range(len(self)):
            start, count = self.place(number)
            if self.repeats == 1:
                yield [SampleKey(self.epoch, int(order[at % self.size]), at) for at in range(start, start + count)]
                continue
            turns = [(number * self.batch_size + at) * self.world_size + self.rank for at in range(count)]
            yield [
                SampleKey(self.epoch, int(order[turn // self.repeats]), start + at, turn % self.repeats)
                for at, turn in enumerate(turns)
            ]


@dataclass
class RunPlan:
    """The batches of a whole run, epoch after epoch without a break, so that loader workers start once.

    Args:
        plan: the batches of one rank in one epoch.
        epochs: epochs in the run.
        first_epoch, first_batch: where to begin; what lies before is left out, not made.
        batches: of each epoch, where not all of the plan's.
    """

    plan: BatchPlan
    epochs: int
    first_epoch: int = 0
    first_batch: int = 0
    batches: int | None = None

    @property
    def batch_size(self) -> int:
        return self.plan.batch_size

    def __len__(self) -> int:
        return max(0, (self.epochs - self.first_epoch) * (self.batches or len(self.plan)) - self.first_batch)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        plan = copy.copy(self.plan)  # a loader reads ahead, and another one may be on its way through the same plan
        for epoch in range(self.first_epoch, self.epochs):
            plan.set_epoch(epoch)
            skip = self.first_batch if epoch == self.first_epoch else 0
            yield from itertools.islice(plan, skip, self.batches)


class DropoutStream:
    """Dropout's random numbers as a function of (seed, epoch, place in the epoch's order), for either framework.

    The sample at a place gets the same numbers whichever rank or batch it is in; the loop says with ``at`` where the
    batch begins.

    Args:
        seed: the run's seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.epoch = self.position = 0

    def at(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        """Uniform numbers in [0, 1), float64, for a batch of activations (N, features...)."""
        rng = generator("dropout", self.seed, self.epoch)
        rng.bit_generator.advance(self.position * math.prod(shape[1:]))  # type: ignore[attr-defined]  # one draw a number
        return rng.random(shape)


# --- augmentation of one picture ---------------------------------------------------------------------------------------

Box = tuple[int, int, int, int]  # top, left, height, width


@dataclass(frozen=True)
class SampleParams:
    """Every random parameter of one training sample.

    Attributes:
        crop: top, left, height and width in pixels of the decoded picture; what lies outside of it is black.
        flip: whether to mirror.
        ops: automatic augmentation as (operation, signed magnitude), in order; names are torchvision's.
        erase: top, left, height and width in the output, or None.
    """

    crop: Box
    flip: bool
    ops: tuple[tuple[str, float], ...]
    erase: Box | None


def sample_params(preset: TrainPreset, seed: int, key: SampleKey, height: int, width: int) -> SampleParams:
    """Draw the parameters of one sample.

    Args:
        preset: what is switched on and how strongly.
        seed: the run's seed.
        key: epoch, picture and repetition.
        height, width: size of the decoded picture in pixels, at least 1.
    """
    at = (seed, key.epoch, key.sample, *([key.repeat] if key.repeat else []))
    size = preset.crop_size
    ops: tuple[tuple[str, float], ...] = ()
    if preset.auto_augment is not None:
        rng = generator("augment", *at)
        if preset.auto_augment == "imagenet":
            ops = auto_augment_imagenet(rng, size, size)
        elif preset.auto_augment == "ra":
            ops = rand_augment(rng, size, size, magnitude=preset.ra_magnitude)
        else:
            ops = trivial_augment_wide(rng)
    erase = None
    if preset.random_erase_prob > 0:
        rng = generator("erase", *at)
        if rng.random() < preset.random_erase_prob:
            erase = random_erasing_box(rng, size, size)
    rng = generator("crop", *at)
    if preset.crop_padding is not None:
        crop = padded_crop_box(rng, height, width, preset.crop_padding)
    else:
        crop = random_resized_crop_box(rng, height, width, preset.crop_scale, preset.crop_ratio)
    flip = bool(generator("flip", *at).random() < preset.hflip_prob)
    return SampleParams(crop, flip, ops, erase)


def padded_crop_box(rng: np.random.Generator, height: int, width: int, padding: int) -> Box:
    """The distribution of torchvision's ``RandomCrop`` with ``padding``: a box of the picture's size, at a random place."""
    top, left = (int(rng.integers(2 * padding + 1)) - padding for _ in range(2))
    return top, left, height, width


def random_resized_crop_box(
    rng: np.random.Generator, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """The distribution of torchvision's ``RandomResizedCrop``: area uniform, aspect ratio log-uniform, ten tries.

    After ten crops that do not fit, the largest central crop within the allowed aspect ratios is taken.
    """
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    h, w = height, width
    if width / height < min(ratio):
        h = max(1, round(width / min(ratio)))
    elif width / height > max(ratio):
        w = max(1, round(height * max(ratio)))
    return (height - h) // 2, (width - w) // 2, h, w


def random_erasing_box(
    rng: np.random.Generator,
    height: int,
    width: int,
    scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
) -> Box | None:
    """The distribution of torchvision's ``RandomErasing``; None where ten tries give no box inside the picture."""
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if h < height and w < width:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    return None


# AutoAugment's ImageNet policy (Cubuk et al. 2019, table 9): (operation, probability, magnitude bin 0..9 or None) twice.
IMAGENET_POLICY = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
    (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
    (("Color", 0.4, 0), ("Equalize", 0.6, None)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
)


def _linspace32(start: float, stop: float, bins: int) -> list[float]:
    # torchvision keeps its magnitudes as float32.
    return [float(value) for value in np.linspace(start, stop, bins).astype(np.float32)]


@functools.cache
def magnitude_table(
    bins: int, shear: float, translate: tuple[float, float], rotate: float, enhance: float, posterize_bits: int
) -> dict[str, tuple[list[float], bool]]:
    """Magnitudes of every operation: name -> (one value a bin; empty where it has none, whether its sign is random).

    A table is made once and kept: copy it before changing it.
    """
    posterize = [float(8 - np.round(np.float32(i) / np.float32((bins - 1) / posterize_bits))) for i in range(bins)]
    return {
        "Identity": ([], False),
        "ShearX": (_linspace32(0, shear, bins), True),
        "ShearY": (_linspace32(0, shear, bins), True),
        "TranslateX": (_linspace32(0, translate[0], bins), True),
        "TranslateY": (_linspace32(0, translate[1], bins), True),
        "Rotate": (_linspace32(0, rotate, bins), True),
        "Brightness": (_linspace32(0, enhance, bins), True),
        "Color": (_linspace32(0, enhance, bins), True),
        "Contrast": (_linspace32(0, enhance, bins), True),
        "Sharpness": (_linspace32(0, enhance, bins), True),
        "Posterize": (posterize, False),
        "Solarize": (_linspace32(255, 0, bins), False),
        "AutoContrast": ([], False),
        "Equalize": ([], False),
    }


def policy_table(policy: str, height: int, width: int) -> dict[str, tuple[list[float], bool]]:
    """The magnitudes of AutoAugment, RandAugment (both translate in proportion to the picture) or TrivialAugment Wide.

    Args:
        policy: one of ``presets.AUTO_AUGMENT_POLICIES``.
        height, width: of the picture in pixels.
    """
    if policy == "ta_wide":
        return dict(magnitude_table(31, 0.99, (32.0, 32.0), 135.0, 0.99, 6))
    table = magnitude_table(31 if policy == "ra" else 10, 0.3, (150 / 331 * width, 150 / 331 * height), 30.0, 0.9, 4)
    return dict(table) if policy == "ra" else {**table, "Invert": ([], False)}


def auto_augment_imagenet(rng: np.random.Generator, height: int, width: int) -> tuple[tuple[str, float], ...]:
    """AutoAugment with the ImageNet policy: one of 25 pairs of operations, each with its own probability."""
    table = policy_table("imagenet", height, width)
    chosen = []
    for name, probability, magnitude_bin in IMAGENET_POLICY[rng.integers(len(IMAGENET_POLICY))]:
        # Draw everything, used or not, so that an operation's parameters do not depend on the one before it.
        applied, negative = rng.random() <= probability, bool(rng.integers(2))
        magnitudes, signed = table[name]
        if applied:
            magnitude = magnitudes[magnitude_bin] if magnitude_bin is not None else 0.0
            chosen.append((name, -magnitude if signed and negative else magnitude))
    return tuple(chosen)


def rand_augment(
    rng: np.random.Generator, height: int, width: int, num_ops: int = 2, magnitude: int = 9
) -> tuple[tuple[str, float], ...]:
    """RandAugment (Cubuk et al. 2020): ``num_ops`` operations with equal probability, one shared magnitude bin of 31."""
    table = policy_table("ra", height, width)
    return tuple(_draw_op(rng, table, magnitude) for _ in range(num_ops))


def trivial_augment_wide(rng: np.random.Generator) -> tuple[tuple[str, float], ...]:
    """TrivialAugment, wide space (Müller & Hutter 2021): one operation, its magnitude uniform over 31 bins."""
    return (_draw_op(rng, policy_table("ta_wide", 0, 0), None),)


def _draw_op(rng: np.random.Generator, table: dict, magnitude_bin: int | None) -> tuple[str, float]:
    name = list(table)[rng.integers(len(table))]
    magnitudes, signed = table[name]
    chosen_bin = int(rng.integers(31)) if magnitude_bin is None else magnitude_bin
    negative = bool(rng.integers(2))
    magnitude = magnitudes[chosen_bin] if magnitudes else 0.0
    return name, -magnitude if signed and negative else magnitude


# --- mixing of a batch -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MixParams:
    """How one group of samples is mixed; each sample with the one before it, the first with the last.

    Attributes:
        kind: ``"mixup"`` or ``"cutmix"``.
        lam: weight of a sample's own label, 0..1; for mixup also of its pixels.
        box: the region that cutmix takes from the other sample; None for mixup.
    """

    kind: str
    lam: float
    box: Box | None = None


def mix_params(preset: TrainPreset, seed: int, epoch: int, group: int, height: int, width: int) -> MixParams:
    """Draw the mixing of one group of samples: torchvision's ``MixUp`` or ``CutMix`` (or one of the two at random).

    Args:
        group: number of the group in the epoch. A group is a run of consecutive samples of the epoch's order, so the
            result does not depend on the number of ranks.
        height, width: of the batch's pictures, in pixels.
    """
    rng = generator("mix", seed, epoch, group)
    use_cutmix = preset.mixup_alpha <= 0 or (preset.cutmix_alpha > 0 and rng.random() < 0.5)
    alpha = preset.cutmix_alpha if use_cutmix else preset.mixup_alpha
    lam = float(rng.beta(alpha, alpha))
    if not use_cutmix:
        return MixParams("mixup", lam)
    centre_x, centre_y = int(rng.integers(width)), int(rng.integers(height))
    half = 0.5 * math.sqrt(1 - lam)
    half_w, half_h = int(half * width), int(half * height)
    left, right = max(centre_x - half_w, 0), min(centre_x + half_w, width)
    top, bottom = max(centre_y - half_h, 0), min(centre_y + half_h, height)
    area = (right - left) * (bottom - top)
    return MixParams("cutmix", 1 - area / (width * height), (top, left, bottom - top, right - left))


def mix_groups(keys: list[SampleKey], group_size: int) -> list[tuple[int, slice]]:
    """Split a batch into mixing groups.

    Returns:
        (group number in the epoch, slice of the batch) a group.

    Raises:
        UserError: the batch does not begin on a group's boundary.
    """
    if keys and keys[0].position % group_size:
        raise UserError(f"a batch that begins at sample {keys[0].position} cannot be split into mixing groups of {group_size}")
    return [(keys[at].position // group_size, slice(at, at + group_size)) for at in range(0, len(keys), group_size)]
