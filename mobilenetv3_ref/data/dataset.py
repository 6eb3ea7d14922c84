"""One picture at a time, by torchvision's transforms."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.samples import Samples
from mobilenetv3_common.sampling import MixParams, SampleParams
from mobilenetv3_ref.data.mixing import mix_batch
from mobilenetv3_ref.data.transforms import eval_transform, eval_views, train_transform


class _Arrays:
    """torch's own; a worker stacks a batch in the memory in which it hands it over."""

    int64 = torch.int64
    stack = staticmethod(torch.utils.data.default_collate)
    concatenate = staticmethod(torch.concatenate)
    asarray = staticmethod(torch.asarray)


class ImageDataset(Samples, torch.utils.data.Dataset):
    """The samples of one split as tensors; see ``mobilenetv3_common.samples.Samples`` for the arguments."""

    arrays = _Arrays

    def eval_transform(self, image: Image.Image, preset: EvalPreset) -> torch.Tensor:
        return eval_transform(image, preset) if preset.tta == "none" else eval_views(image, preset)

    def train_transform(self, image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> torch.Tensor:
        return train_transform(image, preset, params)

    def mix_batch(
        self, images: torch.Tensor, labels: torch.Tensor, params: MixParams, num_classes: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return mix_batch(images, labels, params, num_classes)
