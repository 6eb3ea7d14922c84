"""Preprocessing of one training picture with Pillow and paddle.vision; evaluation's is shared with prediction.

Paddle has no AutoAugment, RandAugment or TrivialAugment; their operations are written here on Pillow and held pixel for
pixel against torchvision's by alignment step 2.
"""

from __future__ import annotations

import math

import numpy as np
from paddle.vision.transforms import functional as F
from PIL import Image, ImageEnhance, ImageOps

from mobilenetv3_common.image import crop_and_resize
from mobilenetv3_common.preprocess import normalize
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import SampleParams


def train_transform(image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> np.ndarray:
    """Apply drawn parameters: crop and resize, flip, automatic augmentation, normalise, erase.

    Args:
        image: an RGB picture, or its pixels, uint8 (H, W, 3), which OpenCV then crops and scales; ``params`` were drawn for
            its size.
        preset: sizes, mean and standard deviation.
        params: what to do, from ``mobilenetv3_common.sampling.sample_params``.

    Returns:
        float32, shape (3, crop_size, crop_size). An erased region is 0 after normalisation.
    """
    pixels = normalize(train_picture(image, preset, params), preset)
    if params.erase is not None:
        top, left, height, width = params.erase
        pixels[:, top : top + height, left : left + width] = 0.0
    return pixels


def train_picture(image: Image.Image | np.ndarray, preset: TrainPreset, params: SampleParams) -> Image.Image:
    """``train_transform`` up to the normalisation: an RGB picture of ``crop_size`` x ``crop_size``; nothing is erased."""
    if isinstance(image, np.ndarray):
        picture = Image.fromarray(crop_and_resize(image, params.crop, preset.crop_size))
    else:
        picture = F.resize(F.crop(image, *params.crop), (preset.crop_size, preset.crop_size), "bilinear")
    if params.flip:
        picture = F.hflip(picture)
    for name, magnitude in params.ops:
        picture = apply_op(picture, name, magnitude)
    return picture


def apply_op(image: Image.Image, name: str, magnitude: float) -> Image.Image:
    """One operation of the automatic augmentation policies; geometric ones are bilinear and fill with black.

    Args:
        image: an RGB picture.
        name: operation, named as in torchvision's ``autoaugment``.
        magnitude: signed; a tangent (Shear), pixels (Translate), degrees (Rotate), change of the factor 1 (Brightness,
            Color, Contrast, Sharpness), bits kept (Posterize) or a threshold 0..255 (Solarize).

    Raises:
        KeyError: an unknown operation.
    """
    return _OPS[name](image, magnitude)


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=(0, 0, 0))


def _shear_angle(magnitude: float) -> float:
    # torchvision hands the shear over in degrees; the way there and back is kept, as it changes the last bit.
    return math.radians(math.degrees(math.atan(magnitude)))


def _shear_x(image: Image.Image, magnitude: float) -> Image.Image:
    return _affine(image, (1.0, math.tan(_shear_angle(magnitude)), 0.0, 0.0, 1.0, 0.0))


def _shear_y(image: Image.Image, magnitude: float) -> Image.Image:
    angle = _shear_angle(magnitude)
    return _affine(image, (1.0, 0.0, 0.0, math.sin(angle) / math.cos(angle), 1.0, 0.0))


_OPS = {
    "Identity": lambda image, _: image,
    "ShearX": _shear_x,
    "ShearY": _shear_y,
    "TranslateX": lambda image, pixels: _affine(image, (1.0, 0.0, -int(pixels), 0.0, 1.0, 0.0)),
    "TranslateY": lambda image, pixels: _affine(image, (1.0, 0.0, 0.0, 0.0, 1.0, -int(pixels))),
    "Rotate": lambda image, degrees: image.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=(0, 0, 0)),
    "Brightness": lambda image, change: ImageEnhance.Brightness(image).enhance(1.0 + change),
    "Color": lambda image, change: ImageEnhance.Color(image).enhance(1.0 + change),
    "Contrast": lambda image, change: ImageEnhance.Contrast(image).enhance(1.0 + change),
    "Sharpness": lambda image, change: ImageEnhance.Sharpness(image).enhance(1.0 + change),
    "Posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "Solarize": lambda image, threshold: ImageOps.solarize(image, threshold),
    "AutoContrast": lambda image, _: ImageOps.autocontrast(image),
    "Equalize": lambda image, _: ImageOps.equalize(image),
    "Invert": lambda image, _: ImageOps.invert(image),
}
