"""One picture at a time: decode, draw parameters, transform."""

from __future__ import annotations

import torch

from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleKey, sample_params
from mobilenetv3_ref.data.transforms import eval_transform, train_transform


class ImageDataset(torch.utils.data.Dataset):
    """The samples of one split, made on demand.

    Args:
        index: which pictures with which labels.
        preset: an :class:`EvalPreset` or a :class:`TrainPreset`; the latter draws its parameters from
            (``seed``, epoch, picture), so a sample is the same in whichever worker or rank it is made.
        seed: the run's seed, 0 or more.
        backend: decoder, ``"pil"`` or ``"cv2"``.
    """

    def __init__(self, index: DatasetIndex, preset: EvalPreset | TrainPreset, seed: int = 0, backend: str = "pil") -> None:
        self.index = index
        self.preset = preset
        self.seed = seed
        self.backend = backend

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, key: SampleKey) -> tuple[torch.Tensor, int, SampleKey]:
        """Make one sample.

        Returns:
            Pixels, float32 (3, crop_size, crop_size); the label; the key.

        Raises:
            UserError: the picture cannot be decoded; the message names it.
        """
        image = decode_image(self.index.path(key.sample), self.backend)
        label = self.index.labels[key.sample]
        if isinstance(self.preset, EvalPreset):
            return eval_transform(image, self.preset), label, key
        params = sample_params(self.preset, self.seed, key, image.height, image.width)
        return train_transform(image, self.preset, params), label, key
