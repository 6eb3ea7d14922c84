"""Preprocessing of one picture with torchvision's own image operations: evaluation and training presets."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op

from mobilenetv3_common.image import crop_and_resize
from mobilenetv3_common.preprocess import within_reach
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleParams


def eval_transform(image: Image.Image, preset: EvalPreset) -> torch.Tensor:
    """Resize, centre crop, scale to 0..1, normalise.

    Args:
        image: an RGB picture of any size.
        preset: sizes in pixels, mean and standard deviation a channel.

    Returns:
        float32, shape (3, crop_size, crop_size), channels red, green, blue.
    """
    image = F.resize(within_reach(image), preset.resize_size, InterpolationMode.BILINEAR)
    image = F.center_crop(image, preset.crop_size)
    return normalize(image, preset)


def eval_views(image: Image.Image, preset: EvalPreset) -> torch.Tensor:
    """The views of a picture that ``preset.tta`` names: the centre crop and its mirror image, or five or ten crops.

    Returns:
        float32, shape (views, 3, crop_size, crop_size).
    """
    image = F.resize(within_reach(image), preset.resize_size, InterpolationMode.BILINEAR)
    size = [preset.crop_size, preset.crop_size]
    if preset.tta == "flip":
        centre = F.center_crop(image, size)
        views = [centre, F.hflip(centre)]
    else:
        views = list(F.ten_crop(image, size) if preset.tta == "ten_crop" else F.five_crop(image, size))
    return torch.stack([normalize(view, preset) for view in views])


def train_transform(image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> torch.Tensor:
    """Apply drawn parameters: crop and resize, flip, automatic augmentation, normalise, erase.

    Args:
        image: an RGB picture, or its pixels, uint8 (H, W, 3), which OpenCV then crops and scales; ``params`` were drawn for
            its size.
        preset: sizes, mean and standard deviation.
        params: what to do, from ``mobilenetv3_common.sampling.sample_params``.

    Returns:
        float32, shape (3, crop_size, crop_size). An erased region is 0 after normalisation.
    """
    if isinstance(image, np.ndarray):
        picture = Image.fromarray(crop_and_resize(image, params.crop, preset.crop_size))
    else:
        picture = F.resized_crop(image, *params.crop, [preset.crop_size, preset.crop_size], InterpolationMode.BILINEAR)
    if params.flip:
        picture = F.hflip(picture)
    for name, magnitude in params.ops:
        picture = apply_op(picture, name, magnitude)
    pixels = normalize(picture, preset)
    if params.erase is not None:
        pixels = F.erase(pixels, *params.erase, v=torch.zeros(1, 1, 1))
    return pixels


def normalize(image: Image.Image, preset: EvalPreset | TrainPreset) -> torch.Tensor:
    """An RGB picture as float32 (3, H, W): divided by 255, less the mean, by the standard deviation of each channel."""
    pixels = F.convert_image_dtype(F.pil_to_tensor(image), torch.float32)
    return F.normalize(pixels, preset.mean, preset.std, inplace=True)


def apply_op(image: Image.Image, name: str, magnitude: float) -> Image.Image:
    """One operation of the automatic augmentation policies; geometric ones are bilinear and fill with black.

    Args:
        image: an RGB picture.
        name: operation, named as in torchvision's ``autoaugment``.
        magnitude: signed; a tangent (Shear), pixels (Translate), degrees (Rotate), change of the factor 1 (Brightness,
            Color, Contrast, Sharpness), bits kept (Posterize) or a threshold 0..255 (Solarize).

    Raises:
        ValueError: an unknown operation.
    """
    return _apply_op(image, name, magnitude, interpolation=InterpolationMode.BILINEAR, fill=None)
