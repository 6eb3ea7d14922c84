"""One picture at a time: decode, draw parameters, transform."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image, decode_pixels
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleKey, sample_params
from mobilenetv3_ref.data.transforms import eval_transform, train_transform


class ImageDataset(torch.utils.data.Dataset):
    """The samples of one split, made on demand.

    Args:
        index: which pictures with which labels.
        preset: an ``EvalPreset`` or a ``TrainPreset``; the latter draws its parameters from
            (``seed``, epoch, picture), so a sample is the same in whichever worker or rank it is made.
        seed: the run's seed, 0 or more.
        backend: decoder, ``"pil"`` or ``"cv2"``.
        on_bad_image: ``"stop"`` raises at a damaged picture; ``"skip"`` warns and takes the next readable one in its place.
    """

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

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, key: SampleKey) -> tuple[torch.Tensor, int, SampleKey]:
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
                image = self._decode(self.index.path(sample))
                break
            except UserError as error:
                if self.on_bad_image != "skip":
                    raise
                print(f"warning: skipped: {error.line}", file=sys.stderr, flush=True)
        else:
            raise UserError(f"no picture in {self.index.root} can be read")
        label = self.index.labels[sample]
        shown = key if number == 0 else key._replace(sample=~key.sample)
        if isinstance(self.preset, EvalPreset):
            assert isinstance(image, Image.Image)
            return eval_transform(image, self.preset), label, shown
        height, width = image.shape[:2] if isinstance(image, np.ndarray) else (image.height, image.width)
        params = sample_params(self.preset, self.seed, key, height, width)
        return train_transform(image, self.preset, params), label, shown

    def _decode(self, path: Path) -> Image.Image | np.ndarray:
        """OpenCV's pixels stay an array in training, where OpenCV crops and scales them too."""
        if self.backend == "cv2" and isinstance(self.preset, TrainPreset):
            return decode_pixels(path)
        return decode_image(path, self.backend)
