"""One picture at a time, by MindSpore's transforms."""

from __future__ import annotations

import numpy as np
from PIL import Image

from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.samples import Samples
from mobilenetv3_common.sampling import MixParams, SampleParams
from projects.resnet50.in_mindspore.data.mixing import mix_batch
from projects.resnet50.in_mindspore.data.transforms import eval_transform, eval_views, train_transform


class ImageDataset(Samples):
    """The samples of one split as numpy arrays; see ``mobilenetv3_common.samples.Samples`` for the arguments."""

    arrays = np

    def eval_transform(self, image: Image.Image, preset: EvalPreset) -> np.ndarray:
        return eval_transform(image, preset) if preset.tta == "none" else eval_views(image, preset)

    def train_transform(self, image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> np.ndarray:
        return train_transform(image, preset, params)

    def mix_batch(
        self, images: np.ndarray, labels: np.ndarray, params: MixParams, num_classes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return mix_batch(images, labels, params, num_classes)
