"""What a picture goes through before a trained network sees it: one piece of code for evaluation, prediction, every inference
engine and the service. It needs Pillow, OpenCV's look-up and numpy, and no framework; alignment step 2 holds it pixel for
pixel against torchvision's."""

from __future__ import annotations

import functools

import cv2
import numpy as np
from PIL import Image

from mobilenetv3_common.presets import EvalPreset, TrainPreset

MOST_RATIO = 64  # length by width, of what is scaled


def eval_transform(image: Image.Image, preset: EvalPreset) -> np.ndarray:
    """Resize, centre crop, scale to 0..1, normalise (torchvision's ``ImageClassification`` preset).

    Args:
        image: an RGB picture of any size.
        preset: sizes in pixels, mean and standard deviation a channel.

    Returns:
        float32, shape (3, crop_size, crop_size), channels red, green, blue.
    """
    return normalize(eval_picture(image, preset), preset)


def eval_picture(image: Image.Image, preset: EvalPreset) -> Image.Image:
    """``eval_transform`` up to the normalisation: an RGB picture of ``crop_size`` x ``crop_size``."""
    return center_crop(resize(image, preset.resize_size), preset.crop_size)


def eval_views(image: Image.Image, preset: EvalPreset) -> np.ndarray:
    """The views of a picture that ``preset.tta`` names, in torchvision's order.

    ``"flip"`` is the centre crop and its mirror image, ``"five_crop"`` the four corners and the centre, ``"ten_crop"`` those of
    the picture and of its mirror image.

    Returns:
        float32, shape (views, 3, crop_size, crop_size).
    """
    resized, size = resize(image, preset.resize_size), preset.crop_size
    if preset.tta == "flip":
        centre = center_crop(resized, size)
        views = [centre, centre.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    else:
        views = _five_crops(resized, size)
        if preset.tta == "ten_crop":
            views += _five_crops(resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT), size)
    return np.stack([normalize(view, preset) for view in views])


def _five_crops(image: Image.Image, size: int) -> list[Image.Image]:
    right, bottom = image.width - size, image.height - size
    corners = [(0, 0), (right, 0), (0, bottom), (right, bottom)]
    return [*(image.crop((left, top, left + size, top + size)) for left, top in corners), center_crop(image, size)]


def resize(image: Image.Image, size: int) -> Image.Image:
    """The shorter side to ``size`` pixels, bilinear and antialiased; the longer one in proportion, rounded down.

    Of a picture more than 64 times as long as wide the middle alone is scaled (``within_reach``).
    """
    image = within_reach(image)
    width, height = image.size
    short, long = sorted((width, height))
    if short == size:
        return image
    other = int(size * long / short)
    return image.resize((size, other) if width <= height else (other, size), Image.Resampling.BILINEAR)


def within_reach(image: Image.Image) -> Image.Image:
    """A picture as it is, or its middle where it is more than 64 times as long as wide, so that it is 64 times.

    Nothing farther out is seen after the centre crop, but scaled in proportion it would take memory without bound: 5 GiB for
    a row of 20,000 pixels, which is a file of a hundred bytes.
    """
    short, long = sorted(image.size)
    kept = MOST_RATIO * short
    if long <= kept:
        return image
    kept += (long - kept) % 2  # the middle stays where it is
    start = (long - kept) // 2
    wide = image.width == long
    return image.crop((start, 0, start + kept, short) if wide else (0, start, short, start + kept))


def center_crop(image: Image.Image, size: int) -> Image.Image:
    """The middle ``size`` x ``size`` pixels; an odd margin is rounded as torchvision rounds it, half to even."""
    left, top = (round((side - size) / 2.0) for side in image.size)
    return image.crop((left, top, left + size, top + size))


def normalize(image: Image.Image | np.ndarray, preset: EvalPreset | TrainPreset) -> np.ndarray:
    """An RGB picture, or its pixels, as float32 (3, H, W): divided by 255, less the mean, by the deviation of each channel."""
    return normalize_batch(np.asarray(image)[None], preset)[0]


def normalize_batch(pictures: np.ndarray, preset: EvalPreset | TrainPreset) -> np.ndarray:
    """``normalize`` of N pictures of one size: uint8 (N, H, W, 3) to float32 (N, 3, H, W)."""
    output = np.empty((len(pictures), 3, *pictures.shape[1:3]), dtype=np.float32)
    for pixels, planes in zip(pictures, output, strict=True):
        for levels, channel, plane in zip(_normalized_levels(preset.mean, preset.std), cv2.split(pixels), planes, strict=True):
            cv2.LUT(channel, levels, plane)  # a look-up takes a fifth of the time of the arithmetic, to the same last bit
    return output


def in_planes(picture: Image.Image | np.ndarray, planes: np.ndarray | None = None) -> np.ndarray:
    """The pixels of an RGB picture, (H, W, 3), channel by channel: uint8 (3, H, W), into ``planes`` where they are given."""
    pixels = np.asarray(picture)
    if planes is None:
        planes = np.empty((3, *pixels.shape[:2]), np.uint8)
    if planes.shape != (3, *pixels.shape[:2]):  # OpenCV would leave them as they are
        raise ValueError(f"planes of shape {planes.shape} do not hold {pixels.shape[0]} x {pixels.shape[1]} pixels")
    cv2.split(pixels, list(planes))
    return planes


def normalize_planes(planes: np.ndarray, preset: EvalPreset | TrainPreset) -> np.ndarray:
    """``normalize`` of pictures that are stored channel by channel: uint8 (N, 3, H, W) to float32 of that shape."""
    output = np.empty(planes.shape, dtype=np.float32)
    by_picture = len(planes), -1
    for channel, levels in enumerate(_normalized_levels(preset.mean, preset.std)):
        # One call for all pictures: after each call a thread waits for Python's lock again.
        cv2.LUT(planes[:, channel].reshape(by_picture), levels, output[:, channel].reshape(by_picture))
    return output


@functools.cache
def _normalized_levels(mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    """What each of the 256 levels of each channel becomes, float32 (3, 256)."""
    levels = np.arange(256, dtype=np.float32) / np.float32(255)
    return np.stack([(levels - np.float32(m)) / np.float32(s) for m, s in zip(mean, std, strict=True)])
