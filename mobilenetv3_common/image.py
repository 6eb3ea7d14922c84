"""Decoding: any picture file to an RGB Pillow image, with Pillow or OpenCV."""

from __future__ import annotations

import io
import os
import warnings

import numpy as np
from PIL import Image, UnidentifiedImageError

from mobilenetv3_common.errors import UserError

IMAGE_BACKENDS = ("pil", "cv2")
IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def quiet_opencv() -> None:
    """Turn OpenCV's own threads and OpenCL off in this process.

    Loader workers are processes already; OpenCV threads inside forked workers can deadlock (seed guide 001, item 7).
    """
    import cv2

    cv2.setNumThreads(0)
    cv2.ocl.setUseOpenCL(False)


def decode_image(path: str | os.PathLike, backend: str = "pil") -> Image.Image:
    """Decode a picture file to RGB, whatever its own mode (greyscale, palette, RGBA, CMYK).

    An orientation tag is ignored and an alpha channel is dropped, as torchvision's ``ImageFolder`` loader does.

    Args:
        path: the picture.
        backend: ``"pil"`` or ``"cv2"``.

    Returns:
        A Pillow image of mode RGB, at least 1x1.

    Raises:
        UserError: the file is missing, is not a picture, or is cut short.
    """
    return decode_bytes(_read(path), str(path), backend)


def _read(path: str | os.PathLike) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"cannot read picture {path}: {error.strerror}") from error


def decode_bytes(data: bytes, name: str, backend: str = "pil") -> Image.Image:
    """Like ``decode_image``, for the bytes of a file; ``name`` stands for the file in an error."""
    if backend not in IMAGE_BACKENDS:
        raise UserError(f"unknown image backend {backend!r}: use one of {', '.join(IMAGE_BACKENDS)}")
    if backend == "cv2" and not _needs_pillow(data):
        return _decode_cv2(data, name)
    return _decode_pil(data, name)


def decode_pixels(path: str | os.PathLike) -> np.ndarray:
    """Decode a picture file with OpenCV to RGB pixels, uint8 (H, W, 3); what OpenCV would get wrong goes through Pillow.

    Raises:
        UserError: as ``decode_image``.
    """
    data = _read(path)
    return np.asarray(_decode_pil(data, str(path))) if _needs_pillow(data) else _pixels_cv2(data, str(path))


def crop_and_resize(pixels: np.ndarray, box: tuple[int, int, int, int], size: int) -> np.ndarray:
    """Cut a box out of RGB pixels and scale it to ``size`` x ``size`` with OpenCV.

    Bilinear, over areas where it shrinks by more than two (bilinear alone would skip pixels there). It is not Pillow's
    antialiased filter: training pictures only, evaluation keeps to Pillow's.

    Args:
        pixels: uint8 (H, W, 3).
        box: top, left, height and width in pixels.
    """
    import cv2

    top, left, height, width = box
    area = min(height, width) > 2 * size
    cut = pixels[top : top + height, left : left + width]
    return cv2.resize(cut, (size, size), interpolation=cv2.INTER_AREA if area else cv2.INTER_LINEAR)


def _decode_pil(data: bytes, name: str) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # e.g. damaged EXIF, which decoding does not need
            with Image.open(io.BytesIO(data)) as image:
                return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise UserError(f"{name} is not a picture: remove it or replace it") from error
    except Image.DecompressionBombError as error:
        raise UserError(f"{name} has too many pixels: {error}") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise UserError(f"{name} is damaged ({error}): remove it or replace it") from error


def _needs_pillow(data: bytes) -> bool:
    """Whether OpenCV would decode this file silently wrong.

    OpenCV fills the missing part of a truncated JPEG with grey and converts CMYK and 16-bit files its own way.
    """
    if not data.startswith(b"\xff\xd8"):
        return True  # PNG and the rest: palettes, 16 bits and alpha follow Pillow's rules
    if data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
        return True  # no end-of-image marker after the last scan: Pillow says what is missing
    return _jpeg_components(data) == 4


def _jpeg_components(data: bytes) -> int:
    """Number of colour components of a JPEG, from its first start-of-frame marker; 0 where there is none."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return data[at + 9]
        at += 2 + length if marker != 0xFF else 1
    return 0


def _decode_cv2(data: bytes, name: str) -> Image.Image:
    return Image.fromarray(_pixels_cv2(data, name))


def _pixels_cv2(data: bytes, name: str) -> np.ndarray:
    import cv2

    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags)
    if pixels is None:
        raise UserError(f"{name} is not a picture that OpenCV can decode: remove it or replace it")
    return pixels
