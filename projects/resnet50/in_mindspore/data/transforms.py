"""Preprocessing of one picture with MindSpore's own image operations, as they treat Pillow's pictures.

Of arrays the same operations give other pixels: ``vision.Resize`` does not smooth what it shrinks, and brightness, contrast,
equalisation and others round otherwise (docs/three_frameworks.md). ``vision.Affine`` and ``vision.Rotate`` take arrays alone, so
rotations and shears are Pillow's.
"""

from __future__ import annotations

import math

import numpy as np
from mindspore.dataset import vision
from mindspore.dataset.vision import Inter
from PIL import Image, ImageEnhance

from mobilenetv3_common.image import crop_and_resize
from mobilenetv3_common.preprocess import within_reach
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleParams


def eval_transform(image: Image.Image, preset: EvalPreset) -> np.ndarray:
    """Resize, centre crop, scale to 0..1, normalise.

    Args:
        image: an RGB picture of any size.
        preset: sizes in pixels, mean and standard deviation a channel.

    Returns:
        float32, shape (3, crop_size, crop_size), channels red, green, blue.
    """
    return normalize(middle(resize(image, preset.resize_size), preset.crop_size), preset)


def eval_views(image: Image.Image, preset: EvalPreset) -> np.ndarray:
    """The views of a picture that ``preset.tta`` names: the centre crop and its mirror image, or five or ten crops.

    Returns:
        float32, shape (views, 3, crop_size, crop_size).
    """
    resized, size = resize(image, preset.resize_size), preset.crop_size
    if preset.tta == "flip":
        centre = middle(resized, size)
        views = [centre, mirrored(centre)]
    else:
        views = corners_and_middle(resized, size)
        views += corners_and_middle(mirrored(resized), size) if preset.tta == "ten_crop" else []
    return np.stack([normalize(view, preset) for view in views])


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
    size = preset.crop_size
    if isinstance(image, np.ndarray):
        picture = Image.fromarray(crop_and_resize(image, params.crop, size))
    else:
        picture = vision.Resize((size, size), Inter.BILINEAR)(cropped(image, *params.crop))
    if params.flip:
        picture = mirrored(picture)
    for name, magnitude in params.ops:
        picture = apply_op(picture, name, magnitude)
    pixels = normalize(picture, preset)
    if params.erase is not None:
        top, left, height, width = params.erase
        pixels[:, top : top + height, left : left + width] = 0.0
    return pixels


def resize(image: Image.Image, size: int) -> Image.Image:
    """The shorter side to ``size`` pixels; the longer one in proportion, rounded down.

    (``vision.Resize(size)`` rounds the longer side otherwise for some pictures: both sides are given.)
    """
    image = within_reach(image)
    short = min(image.size)
    height, width = (size if side == short else int(size * side / short) for side in (image.height, image.width))
    return image if short == size else vision.Resize((height, width), Inter.BILINEAR)(image)


def middle(image: Image.Image, size: int) -> Image.Image:
    """The middle ``size`` x ``size`` pixels; an odd margin is rounded half to even. (``vision.CenterCrop`` rounds it down.)"""
    return cropped(image, round((image.height - size) / 2.0), round((image.width - size) / 2.0), size, size)


def corners_and_middle(image: Image.Image, size: int) -> list[Image.Image]:
    """The four corners, row by row, and the middle."""
    tops, lefts = (0, image.height - size), (0, image.width - size)
    return [*(cropped(image, top, left, size, size) for top in tops for left in lefts), middle(image, size)]


def cropped(image: Image.Image, top: int, left: int, height: int, width: int) -> Image.Image:
    return image.crop((left, top, left + width, top + height))


def mirrored(image: Image.Image) -> Image.Image:
    return vision.RandomHorizontalFlip(1.0)(image)


def normalize(image: Image.Image, preset: EvalPreset | TrainPreset) -> np.ndarray:
    """An RGB picture as float32 (3, H, W): divided by 255, less the mean, by the standard deviation of each channel."""
    return vision.Normalize(list(preset.mean), list(preset.std), is_hwc=False)(vision.ToTensor()(image))


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


def _moved(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=0)


def _shear_x(image: Image.Image, tangent: float) -> Image.Image:
    angle = math.radians(math.degrees(math.atan(tangent)))  # torchvision hands degrees over, which changes the last bit
    return _moved(image, 1.0, math.tan(angle), 0.0, 0.0, 1.0, 0.0)


def _shear_y(image: Image.Image, tangent: float) -> Image.Image:
    angle = math.radians(math.degrees(math.atan(tangent)))
    return _moved(image, 1.0, 0.0, 0.0, math.sin(angle) / math.cos(angle), 1.0, 0.0)


_OPS = {
    "Identity": lambda image, _: image,
    "ShearX": _shear_x,
    "ShearY": _shear_y,
    "TranslateX": lambda image, pixels: _moved(image, 1.0, 0.0, -int(pixels), 0.0, 1.0, 0.0),
    "TranslateY": lambda image, pixels: _moved(image, 1.0, 0.0, 0.0, 0.0, 1.0, -int(pixels)),
    "Rotate": lambda image, degrees: image.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=0),
    "Brightness": lambda image, change: vision.AdjustBrightness(1.0 + change)(image),
    "Color": lambda image, change: vision.AdjustSaturation(1.0 + change)(image),
    "Contrast": lambda image, change: vision.AdjustContrast(1.0 + change)(image),
    "Sharpness": lambda image, change: ImageEnhance.Sharpness(image).enhance(1.0 + change),  # AdjustSharpness takes arrays alone
    "Posterize": lambda image, bits: Image.fromarray(vision.Posterize(int(bits))(image)),
    "Solarize": lambda image, threshold: Image.fromarray(vision.Solarize((math.ceil(threshold), 255))(image)),
    "AutoContrast": lambda image, _: vision.AutoContrast()(image),
    "Equalize": lambda image, _: vision.Equalize()(image),
    "Invert": lambda image, _: vision.Invert()(image),
}
