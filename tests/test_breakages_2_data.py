"""A check that cannot fail is a defect: breakages of what step 2 compares, each of which must fail the step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mobilenetv3_paddle.data.dataset
import mobilenetv3_paddle.data.loader
import mobilenetv3_paddle.data.transforms
from alignment.sides import PaddleSide
from alignment.steps import data
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_paddle.data import ImageDataset, build_loader
from mobilenetv3_paddle.data.transforms import normalize


def changed_pixels(change):
    """A Paddle side whose dataset changes every sample's pixels."""

    class Changed(ImageDataset):
        def __getitem__(self, key):
            pixels, label, key = super().__getitem__(key)
            return change(pixels).astype(np.float32), label, key

    return lambda monkeypatch: PaddleSide(data={"ImageDataset": Changed})


class ShiftedLabels(ImageDataset):
    def __getitem__(self, key):
        pixels, label, key = super().__getitem__(key)
        return pixels, label + 1, key


class OtherSeed(ImageDataset):
    def __init__(self, index, preset, seed=0, backend="pil"):
        super().__init__(index, preset, seed + 1, backend)


def reversed_order(dataset, plan, num_workers=0, mix_group=None):
    batches = list(build_loader(dataset, plan, num_workers, mix_group))
    return [[tensor.flip([0]) for tensor in batch] for batch in batches]


def last_batch_dropped(dataset, plan, num_workers=0, mix_group=None):
    return list(build_loader(dataset, plan, num_workers, mix_group))[:-1]


def floor_crop(monkeypatch):
    def centre_crop(image, size):
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return image.crop((left, top, left + size, top + size))

    monkeypatch.setattr(mobilenetv3_paddle.data.transforms.F, "center_crop", centre_crop)
    return PaddleSide()


def patched_op(name, operation):
    def breaker(monkeypatch):
        monkeypatch.setitem(mobilenetv3_paddle.data.transforms._OPS, name, operation)
        return PaddleSide()

    return breaker


def no_flip(monkeypatch):
    monkeypatch.setattr(mobilenetv3_paddle.data.transforms.F, "hflip", lambda image: image)
    return PaddleSide()


def nearest_resize(monkeypatch):
    original = mobilenetv3_paddle.data.transforms.F.resize
    monkeypatch.setattr(mobilenetv3_paddle.data.transforms.F, "resize", lambda image, size, _: original(image, size, "nearest"))
    return PaddleSide()


def lam_swapped(monkeypatch):
    original = mobilenetv3_paddle.data.loader.mix_batch

    def swapped(images, labels, params, classes):
        return original(images, labels, dataclasses.replace(params, lam=1 - params.lam), classes)

    monkeypatch.setattr(mobilenetv3_paddle.data.loader, "mix_batch", swapped)
    return PaddleSide()


def erased_before_normalising(monkeypatch):
    original = mobilenetv3_paddle.data.dataset.train_transform

    def transform(image, preset, params):
        pixels = original(image, preset, params)
        if params.erase is not None:
            top, left, height, width = params.erase
            black = normalize(image.resize((1, 1)).point(lambda _: 0), preset)
            pixels[:, top : top + height, left : left + width] = black
        return pixels

    monkeypatch.setattr(mobilenetv3_paddle.data.dataset, "train_transform", transform)
    return PaddleSide()


MEAN, STD = (np.array(v, np.float32).reshape(3, 1, 1) for v in (TrainPreset().mean, TrainPreset().std))
DATA = {
    "BGR": changed_pixels(lambda x: x[::-1].copy()),
    "not divided by 255": changed_pixels(lambda x: ((x * STD + MEAN) * 255 - MEAN) / STD),
    "mean not subtracted": changed_pixels(lambda x: x + MEAN / STD),
    "one std for all channels": changed_pixels(lambda x: x * STD / 0.226),
    "one pixel of one picture": changed_pixels(lambda x: x + 1e-6 * (np.arange(x.size).reshape(x.shape) == 77)),
    "mirrored": changed_pixels(lambda x: x[:, :, ::-1].copy()),
    "centre crop rounded down": floor_crop,
    "nearest for bilinear": nearest_resize,
    "flip missing": no_flip,
    "labels off by one": lambda _: PaddleSide(data={"ImageDataset": ShiftedLabels}),
    "another seed": lambda _: PaddleSide(data={"ImageDataset": OtherSeed}),
    "another order in the batch": lambda _: PaddleSide(data={"build_loader": reversed_order}),
    "last batch dropped": lambda _: PaddleSide(data={"build_loader": last_batch_dropped}),
    "rotation with nearest": patched_op("Rotate", lambda image, degrees: image.rotate(degrees)),
    "posterize one bit more": patched_op("Posterize", lambda image, bits: image),
    "mixup lambda swapped": lam_swapped,
    "erased with black before normalising": erased_before_normalising,
}
FEW_POLICIES = {k: data.POLICIES[k] for k in ("autoaugment", "erasing", "mixup")}


def test_step_2_passes(context):
    assert data.run(context(), FEW_POLICIES).passed


@pytest.mark.parametrize("breakage", DATA)
def test_step_2_fails(context, breakage, monkeypatch):
    policies = (
        FEW_POLICIES
        if breakage in ("mixup lambda swapped", "erased with black before normalising")
        else {"autoaugment": FEW_POLICIES["autoaugment"]}
    )
    assert not data.run(context(DATA[breakage](monkeypatch)), policies).passed
