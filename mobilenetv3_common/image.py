"""Decoding: any picture file to an RGB Pillow image, with Pillow or OpenCV."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import warnings
from collections.abc import Iterator

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.picture_format import (
    TRAINING,
    NotAPicture,
    Rules,
    TooLarge,
    format_of,
    jpeg_components,
    jpeg_scans,
    pixel_work,
    quick_size,
)
from mobilenetv3_common.shards import Member
from mobilenetv3_common.terminal import printable

IMAGE_BACKENDS = ("pil", "cv2")
JPEG_NAMES = (".jpg", ".jpeg", ".jpe", ".jfif", ".pjpeg", ".pjp")  # all of them are JPEG files
IMAGE_EXTENSIONS = (
    *JPEG_NAMES,
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)  # torchvision's ImageFolder's, and JPEG's
PICTURE_EXTENSIONS = (*JPEG_NAMES, ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")  # of folders that are predicted
# Pictures that are not read: they are said, so that a class does not look larger than it is.
OTHER_PICTURES = (
    ".avif", ".heic", ".heif", ".gif", ".jp2", ".j2k", ".jxl", ".tga", ".npy", ".npz", ".exr", ".hdr", ".dng", ".cr2", ".nef",
    ".arw", ".psd", ".ico", ".svg", ".mpo", ".apng", ".pnm", ".dib", ".jxr", ".heics", ".avifs", ".cr3", ".raw", ".xcf",
    ".jpeg2000", ".jpf", ".jpx", ".jpm", ".j2c", ".jpc", ".jph", ".jls", ".icns", ".dds", ".pcx", ".sgi", ".rgb", ".pbm", ".pam",
    ".xbm", ".xpm", ".pfm", ".qoi", ".fits", ".dcm", ".wmf", ".emf", ".eps", ".orf", ".rw2", ".raf", ".pef", ".srw", ".nrw", ".cur",
)  # fmt: skip
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}  # fmt: skip
ORIENTATION = 0x0112  # of EXIF
_REDUCED = {1: 0, 2: 16, 4: 32, 8: 64}  # OpenCV's IMREAD_REDUCED_COLOR_N without IMREAD_COLOR


def quiet_opencv() -> None:
    """Turn OpenCV's own threads and OpenCL off in this process.

    Loader workers are processes already; OpenCV threads inside forked workers can deadlock (seed guide 001, item 7).
    """
    import cv2

    cv2.setNumThreads(0)
    cv2.ocl.setUseOpenCL(False)


def decode_image(path: str | os.PathLike, backend: str = "pil", rules: Rules = TRAINING) -> Image.Image:
    """Decode a picture file to RGB, whatever its own mode (greyscale, palette, RGBA, CMYK); of several frames the first.

    An alpha channel is dropped, as torchvision's ``ImageFolder`` loader does; of 16 bits the upper 8 are kept. An
    orientation tag is ignored, as there, unless ``rules`` say otherwise (but Pillow itself applies a TIFF's).

    Args:
        path: the picture.
        backend: ``"pil"`` or ``"cv2"``.
        rules: formats and sizes that are decoded; whether the picture is turned upright.

    Returns:
        A Pillow image of mode RGB, at least 1x1.

    Raises:
        UserError: the file is missing, is damaged or cut short.
        NotAPicture: it is of another format.
        TooLarge: it has too many pixels or scans.
    """
    return decode_bytes(read_picture(path), printable(path), backend, rules)


def read_picture(path: str | os.PathLike) -> bytes:
    """A picture's file, not decoded; ``path`` may be a member of a tar shard.

    Raises:
        UserError: it cannot be read, or is no regular file.
    """
    try:
        if isinstance(path, Member):
            return path.read()
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe that nobody writes into would hang
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"cannot read picture {path}: it is no regular file")
            return file.read()
    except OSError as error:
        raise UserError(f"cannot read picture {printable(path)}: {error.strerror}") from error


def decode_bytes(data: bytes, name: str, backend: str = "pil", rules: Rules = TRAINING) -> Image.Image:
    """Like ``decode_image``, for the bytes of a file; ``name`` stands for the file in an error."""
    if backend not in IMAGE_BACKENDS:
        raise UserError(f"unknown image backend {backend!r}: use one of {', '.join(IMAGE_BACKENDS)}")
    kind = format_of(data, name, rules)
    if backend == "cv2" and not _needs_pillow(data):
        return Image.fromarray(_pixels_cv2(data, name, rules))
    return _decode_pil(data, name, kind, rules)


def decode_pixels(path: str | os.PathLike, rules: Rules = TRAINING) -> np.ndarray:
    """Decode a picture file with OpenCV to RGB pixels, uint8 (H, W, 3); what OpenCV would get wrong goes through Pillow.

    Raises:
        UserError: as ``decode_image``.
    """
    data, name = read_picture(path), printable(path)
    kind = format_of(data, name, rules)
    return np.asarray(_decode_pil(data, name, kind, rules)) if _needs_pillow(data) else _pixels_cv2(data, name, rules)


def picture_size(data: bytes, name: str, rules: Rules) -> tuple[int, int, int]:
    """Width, height and scans (0 but for a JPEG) as the head of a file says them; nothing is decoded.

    Raises:
        UserError: as ``decode_image``.
    """
    kind = format_of(data, name, rules)
    with _one_line(name, rules), Image.open(io.BytesIO(data), formats=[kind]) as header:
        (width, height), scans = header.size, jpeg_scans(data) if kind == "JPEG" else 0
    rules.check_size(name, width, height, scans, pixel_work(data))
    return width, height, scans


def crop_and_resize(pixels: np.ndarray, box: tuple[int, int, int, int], size: int) -> np.ndarray:
    """Cut a box out of RGB pixels and scale it to ``size`` x ``size`` with OpenCV.

    Bilinear, over areas where it shrinks by more than two (bilinear alone would skip pixels there). It is not Pillow's
    antialiased filter: training pictures only, evaluation keeps to Pillow's.

    Args:
        pixels: uint8 (H, W, 3).
        box: top, left, height and width in pixels; what lies outside of the picture is black.
    """
    import cv2

    top, left, height, width = box
    area = min(height, width) > 2 * size
    below, right = top + height - pixels.shape[0], left + width - pixels.shape[1]
    if min(top, left, -below, -right) < 0:
        beyond = [(max(first, 0), max(last, 0)) for first, last in ((-top, below), (-left, right))]
        pixels = np.pad(pixels, (*beyond, (0, 0)))
        top, left = max(top, 0), max(left, 0)
    cut = pixels[top : top + height, left : left + width]
    return cv2.resize(cut, (size, size), interpolation=cv2.INTER_AREA if area else cv2.INTER_LINEAR)


@contextlib.contextmanager
def _one_line(name: str, rules: Rules) -> Iterator[None]:
    """Whatever a decoder raises on a damaged file becomes a ``UserError``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # e.g. damaged EXIF, which decoding does not need
            yield
    except UserError:
        raise
    except UnidentifiedImageError as error:
        raise NotAPicture(f"{name} is damaged or not a picture: remove it or replace it") from error
    except Image.DecompressionBombError as error:  # its message has Pillow's own limit, which is another
        raise TooLarge(f"{name} has too many pixels, more than {rules.pixels:,}: make it smaller") from error
    except MemoryError as error:
        raise TooLarge(f"{name} has too many pixels: they do not fit into memory") from error
    except Exception as error:  # a damaged file raises anything from SyntaxError to struct.error
        raise UserError(f"{name} is damaged ({str(error) or type(error).__name__}): remove it or replace it") from error


def _decode_pil(data: bytes, name: str, kind: str, rules: Rules) -> Image.Image:
    with _one_line(name, rules), Image.open(io.BytesIO(data), formats=[kind]) as image:
        rules.check_size(name, *image.size, jpeg_scans(data) if kind == "JPEG" else 0, pixel_work(data))
        if kind == "JPEG" and (by := rules.reduction(*image.size)) > 1:
            image.draft(image.mode, (image.width // by, image.height // by))
        image.load()
        turn = _TURNS.get(orientation(image)) if rules.orient else None
        rgb = _rgb(image, name)
        return rgb if turn is None else rgb.transpose(turn)


def orientation(image: Image.Image) -> int:
    """How a camera held the picture, 1 to 8; 1, upright, where nothing readable says it."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged EXIF is no reason to refuse a picture
        return 1


def _rgb(image: Image.Image, name: str) -> Image.Image:
    """A loaded picture of any mode to RGB with 8 bits a channel."""
    if image.mode == "RGB":
        return image  # without the copy that convert makes
    if image.mode.startswith("I;16"):
        levels = np.asarray(image)
        bits = int(image.tag_v2.get(258, (16,))[0]) if isinstance(image, TiffImageFile) else 16
        return Image.fromarray((levels >> (bits - 8)).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        levels = np.asarray(image)
        shares = image.mode == "F" and 0 < levels.max() <= 1  # of white, or levels that are all black
        if shares or not (levels.min() >= 0 and levels.max() <= 255):
            what = f"{name} has 32 bits a pixel and values from {levels.min():g} to {levels.max():g}"
            raise UserError(f"{what}, so that nothing says what is white: save it with 8 or 16 bits")
    return image.convert("RGB")


def _needs_pillow(data: bytes) -> bool:
    """Whether OpenCV would decode this file silently wrong.

    OpenCV fills the missing part of a truncated JPEG with grey and converts CMYK and 16-bit files its own way.
    """
    if not data.startswith(b"\xff\xd8"):
        return True  # PNG and the rest: palettes, 16 bits and alpha follow Pillow's rules
    if data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
        return True  # no end-of-image marker after the last scan: Pillow says what is missing
    return jpeg_components(data) == 4


def _pixels_cv2(data: bytes, name: str, rules: Rules) -> np.ndarray:
    import cv2

    if size := quick_size(data):  # a tenth of the time of opening it with Pillow
        width, height = size
        rules.check_size(name, width, height, jpeg_scans(data))
    else:
        width, height, _ = picture_size(data, name, rules)
    with _one_line(name, rules):
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION | _REDUCED[rules.reduction(width, height)]
        pixels = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags)
    if pixels is None:
        raise UserError(f"{name} is not a picture that OpenCV can decode: remove it or replace it")
    if not rules.orient:
        return pixels
    with _one_line(name, rules), Image.open(io.BytesIO(data), formats=["JPEG"]) as header:
        turn = _TURNS.get(orientation(header))
    return pixels if turn is None else np.asarray(Image.fromarray(pixels).transpose(turn))
