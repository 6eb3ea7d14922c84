"""Faults of decoding, transforms, order, batches and mixing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

import mobilenetv3_common.preprocess
import mobilenetv3_paddle.data.transforms
from alignment.faults import replaced
from mobilenetv3_paddle.data import ImageDataset, build_loader

from .base import Kind, fault

transforms: Any = mobilenetv3_paddle.data.transforms
preprocess: Any = mobilenetv3_common.preprocess


@fault("data", 2, "decode", Kind.CHANNELS_REVERSED)
def bgr(stack, project):
    class Reversed(ImageDataset):
        def decode(self, path):
            return Image.fromarray(np.ascontiguousarray(np.asarray(super().decode(path))[:, :, ::-1]))

    return project.with_port("data", ImageDataset=Reversed)


def levels_fault(hint: Kind) -> Callable[[Callable], Callable]:
    """A fault of normalisation: the function gives what each of 256 levels becomes, float32 (3, 256)."""

    def register(levels: Callable) -> Callable:
        def make(stack, project):
            stack.enter_context(replaced(preprocess, "_normalized_levels", levels))
            return project

        fault("data", 2, "normalize", hint, levels.__name__)(make)
        return levels

    return register


def _levels(mean, std, scale=255.0):
    steps = np.arange(256, dtype=np.float32) / np.float32(scale)
    return np.stack([((steps - np.float32(m)) / np.float32(s)).astype(np.float32) for m, s in zip(mean, std, strict=True)])


@levels_fault(Kind.NOT_DIVIDED_BY_255)
def not_divided_by_255(mean, std):
    return _levels(mean, std, 1.0)


@levels_fault(Kind.WRONG_MEAN)
def mean_not_subtracted(mean, std):
    return _levels((0.0, 0.0, 0.0), std)


@levels_fault(Kind.WRONG_STD)
def one_std_for_all(mean, std):
    return _levels(mean, (0.226, 0.226, 0.226) if std != (1.0, 1.0, 1.0) else std)


@levels_fault(Kind.WRONG_MEAN_STD)
def mean_and_std_for_bgr(mean, std):
    return _levels(mean[::-1], std[::-1])


@fault("data", 2, "center_crop", Kind.CROP_OFF_BY_ONE)
def crop_rounded_down(stack, project):
    def center_crop(image, size):
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return image.crop((left, top, left + size, top + size))

    stack.enter_context(replaced(preprocess, "center_crop", center_crop))
    return project


@fault("data", 2, "resize", Kind.INTERPOLATION)
def nearest_resize(stack, project):
    def nearest(image, size):
        scale = size / min(image.size)
        return image.resize([int(side * scale) for side in image.size], Image.Resampling.NEAREST)

    stack.enter_context(replaced(preprocess, "resize", nearest))
    return project


@fault("data", 2, "hflip", Kind.FLIP_MISSING)
def flip_missing(stack, project):
    stack.enter_context(replaced(transforms.F, "hflip", lambda image: image))
    return project


@fault("data", 2, "apply_op:TranslateX", Kind.SIGN)
def translate_other_way(stack, project):
    translate = transforms._OPS["TranslateX"]
    stack.enter_context(replaced(transforms._OPS, "TranslateX", lambda image, pixels: translate(image, -pixels)))
    return project


@fault("data", 2, "apply_op:Posterize", Kind.MAGNITUDE)
def posterize_too_far(stack, project):
    posterize = transforms._OPS["Posterize"]
    stack.enter_context(replaced(transforms._OPS, "Posterize", lambda image, bits: posterize(image, bits - 1)))
    return project


@fault("data", 2, "erase", Kind.ERASE_VALUE)
def erased_before_normalising(stack, project):
    transform = transforms.train_transform

    def erased(image, preset, params):
        pixels = transform(image, preset, params)
        if params.erase is not None:
            top, left, height, width = params.erase
            black = -np.array(preset.mean, np.float32) / np.array(preset.std, np.float32)
            pixels[:, top : top + height, left : left + width] = black[:, None, None]
        return pixels

    class Erased(ImageDataset):
        def train_transform(self, image, preset, params):
            return erased(image, preset, params)

    return project.with_port("data", ImageDataset=Erased, train_transform=erased)


@fault("data", 2, "labels", Kind.LABEL_OFF_BY_ONE)
def labels_off_by_one(stack, project):
    class Shifted(ImageDataset):
        def __getitem__(self, key):
            pixels, label, key = super().__getitem__(key)
            return pixels, label + 1, key

    return project.with_port("data", ImageDataset=Shifted)


@fault("data", 2, "sampling", Kind.OTHER_SEED)
def other_seed(stack, project):
    class Other(ImageDataset):
        def __init__(self, index, preset, seed=0, backend="pil", **more):
            super().__init__(index, preset, seed + 1, backend, **more)

    return project.with_port("data", ImageDataset=Other)


@fault("data", 2, "order", Kind.NOT_SHUFFLED)
def not_shuffled(stack, project):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        return build_loader(dataset, dataclasses.replace(plan, shuffle=False), num_workers, mix_group)

    return project.with_port("data", build_loader=loader)


@fault("data", 2, "order", Kind.NOT_RESHUFFLED)
def epoch_never_set(stack, project):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        return build_loader(dataset, dataclasses.replace(plan, epoch=0), num_workers, mix_group)

    return project.with_port("data", build_loader=loader)


@fault("data", 2, "batches", Kind.BATCH_DROPPED)
def last_batch_dropped(stack, project):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        return list(build_loader(dataset, plan, num_workers, mix_group))[:-1]

    return project.with_port("data", build_loader=loader)


@fault("data", 2, "mix_batch:mixup", Kind.LAMBDA_SWAPPED)
def mixup_share_swapped(stack, project):
    class Swapped(ImageDataset):
        def mix_batch(self, images, labels, params, num_classes):
            return super().mix_batch(images, labels, dataclasses.replace(params, lam=1 - params.lam), num_classes)

    return project.with_port("data", ImageDataset=Swapped)
