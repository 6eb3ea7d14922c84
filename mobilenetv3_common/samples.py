"""Samples and batches: decode a picture, draw its parameters, transform it; stack the samples and mix them.

Order, drawing and grouping stand here once. What happens to the pixels is each framework's own: the ``ImageDataset`` of its
data package is a ``Samples`` with its transforms.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from PIL import Image

from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image, decode_pixels
from mobilenetv3_common.picture_cache import PictureCache
from mobilenetv3_common.picture_format import TRAINING
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import MixParams, SampleKey, SampleParams, mix_groups, mix_params, sample_params

Pixels = Any  # an array of numpy or a tensor of torch, as ``Samples.arrays`` makes them
Sample = tuple[Pixels, int, SampleKey]


class Arrays(Protocol):
    """What a batch is stacked with: the module numpy or torch, which have these names in common."""

    int64: Any

    @property
    def stack(self) -> Any:
        """N arrays of one shape to one array with a first axis of length N."""

    @property
    def concatenate(self) -> Any:
        """Arrays joined along their first axis."""

    @property
    def asarray(self) -> Any:
        """A list of numbers to an array of the given ``dtype``."""


class Samples(ABC):
    """The samples of one split, made on demand.

    Args:
        index: which pictures with which labels.
        preset: an ``EvalPreset`` or a ``TrainPreset``; the latter draws its parameters from
            (``seed``, epoch, picture), so a sample is the same in whichever worker or rank it is made.
        seed: the run's seed, 0 or more.
        backend: decoder, ``"pil"`` or ``"cv2"``.
        on_bad_image: ``"stop"`` raises at a damaged picture; ``"skip"`` warns and takes the next readable one in its place.

    Attributes:
        arrays: what batches are stacked with.
        cache: of decoded pictures; none by default.
    """

    arrays: Arrays
    cache: PictureCache | None = None

    def __init__(
        self,
        index: DatasetIndex,
        preset: EvalPreset | TrainPreset,
        seed: int = 0,
        backend: str = "pil",
        on_bad_image: str = "stop",
    ) -> None:
        self.index = index
        self.preset = preset
        self.seed = seed
        self.backend = backend
        self.on_bad_image = on_bad_image
        self._said: set[int] = set()  # damaged pictures that were named in this process

    @abstractmethod
    def eval_transform(self, image: Image.Image, preset: EvalPreset) -> Pixels:
        """An RGB picture of any size to float32 pixels (3, crop_size, crop_size); with ``tta`` (views, 3, crop_size, crop_size)."""

    @abstractmethod
    def train_transform(self, image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> Pixels:
        """A picture with drawn parameters to float32 pixels (3, crop_size, crop_size).

        Args:
            image: an RGB picture, or its pixels, uint8 (H, W, 3), where OpenCV has decoded it.
            preset: sizes, mean and standard deviation.
            params: drawn for the picture's size.
        """

    @abstractmethod
    def mix_batch(self, images: Pixels, labels: Pixels, params: MixParams, num_classes: int) -> tuple[Pixels, Pixels]:
        """Mix one group: float32 (N, 3, H, W) and int64 (N,) to float32 (N, 3, H, W) and float32 (N, num_classes)."""

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, key: SampleKey) -> Sample:
        """Make one sample.

        Returns:
            Pixels, float32 (3, crop_size, crop_size); the label; the key, whose sample number is negative (``~number``)
            where another picture stands in for a damaged one.

        Raises:
            UserError: the picture cannot be decoded; the message names it.
        """
        for number in range(len(self)):
            sample = (key.sample + number) % len(self)
            try:
                image = self._picture(sample)
                break
            except UserError as error:
                if self.on_bad_image != "skip":
                    raise
                if sample not in self._said:
                    self._said.add(sample)
                    print(f"warning: skipped: {error.line}", file=sys.stderr, flush=True)
        else:
            raise UserError(f"no picture in {self.index.root} can be read")
        label = self.index.labels[sample]
        shown = key if number == 0 else key._replace(sample=~key.sample)
        if isinstance(self.preset, EvalPreset):
            assert isinstance(image, Image.Image)
            return self.eval_transform(image, self.preset), label, shown
        height, width = image.shape[:2] if isinstance(image, np.ndarray) else (image.height, image.width)
        params = sample_params(self.preset, self.seed, key, height, width)
        return self.train_transform(image, self.preset, params), label, shown

    def _picture(self, sample: int) -> Image.Image | np.ndarray:
        """A decoded picture, by its number; from the cache where that has it."""
        path = self.index.path(sample)
        if self.cache is None:
            return self.decode(path)
        pixels = self.cache.get(sample, path)
        if pixels is None:
            image = self.decode(path)
            self.cache.put(sample, path, np.asarray(image))
            return image
        return pixels if self._as_array else Image.fromarray(pixels)

    @property
    def _as_array(self) -> bool:
        return self.backend == "cv2" and isinstance(self.preset, TrainPreset)

    def decode(self, path: os.PathLike) -> Image.Image | np.ndarray:
        """A file, or a member of a shard, to an RGB picture; in training OpenCV's pixels stay an array, which it crops too.

        Raises:
            UserError: it cannot be decoded; the message names it.
        """
        rules = replace(TRAINING, reduce_to=self.preset.reduce_to) if isinstance(self.preset, TrainPreset) else TRAINING
        return decode_pixels(path, rules) if self._as_array else decode_image(path, self.backend, rules)


def collate(samples: Sequence[Sample], dataset: Samples, mix_group: int) -> tuple[Pixels, Pixels, Pixels]:
    """Stack samples into a batch and mix it where the preset says so.

    Args:
        samples: of one batch, in the plan's order.
        dataset: which made them.
        mix_group: samples a mixing group.

    Returns:
        images float32 (N, 3, H, W); labels int64 (N,), or float32 (N, classes) where mixed; picture numbers int64 (N,).
    """
    arrays, preset = dataset.arrays, dataset.preset
    images = arrays.stack([pixels for pixels, _, _ in samples])
    labels = arrays.asarray([label for _, label, _ in samples], dtype=arrays.int64)
    keys = [key for _, _, key in samples]
    numbers = arrays.asarray([key.sample for key in keys], dtype=arrays.int64)
    if isinstance(preset, TrainPreset) and preset.mixes_in(keys[0].epoch):
        parts = []
        for group, part in mix_groups(keys, mix_group):
            params = mix_params(preset, dataset.seed, keys[0].epoch, group, *images.shape[2:])
            parts.append(dataset.mix_batch(images[part], labels[part], params, dataset.index.num_classes))
        images, labels = (arrays.concatenate(of_groups) for of_groups in zip(*parts, strict=True))
    return images, labels, numbers
