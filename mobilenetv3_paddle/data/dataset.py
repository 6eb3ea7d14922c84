"""One picture at a time, by Paddle's transforms."""

from __future__ import annotations

import copy

import numpy as np
import paddle
from PIL import Image

from mobilenetv3_common.preprocess import eval_picture, eval_transform, eval_views
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.samples import Samples
from mobilenetv3_common.sampling import MixParams, SampleParams
from mobilenetv3_paddle.data.mixing import mix_batch
from mobilenetv3_paddle.data.transforms import train_picture, train_transform


class ImageDataset(Samples, paddle.io.Dataset):
    """The samples of one split as numpy arrays; see ``mobilenetv3_common.samples.Samples`` for the arguments.

    Attributes:
        levels: whether samples are left as they are before the normalisation, uint8 (crop_size, crop_size, 3): a quarter of the
            bytes to send from a worker.
    """

    arrays = np
    levels = False

    @property
    def ends_in_normalisation(self) -> bool:
        """Whether nothing is done to a sample after its normalisation, neither erased nor mixed, and it is one picture."""
        if isinstance(self.preset, EvalPreset):
            return self.preset.tta == "none"
        return not self.preset.mixes and self.preset.random_erase_prob == 0

    def unnormalised(self) -> ImageDataset:
        """The same samples with ``levels`` on."""
        made = copy.copy(self)
        made.levels = True
        return made

    def eval_transform(self, image: Image.Image, preset: EvalPreset) -> np.ndarray:
        if self.levels:
            return np.asarray(eval_picture(image, preset))
        return eval_transform(image, preset) if preset.tta == "none" else eval_views(image, preset)

    def train_transform(self, image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> np.ndarray:
        if self.levels:
            return np.asarray(train_picture(image, preset, params))
        return train_transform(image, preset, params)

    def mix_batch(
        self, images: np.ndarray, labels: np.ndarray, params: MixParams, num_classes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return mix_batch(images, labels, params, num_classes)
