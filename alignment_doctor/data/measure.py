"""One picture as a row of figures: what decoding it tells."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import stand_in
from mobilenetv3_common.image import decode_bytes, orientation

THUMB = 16  # pixels a side
GOOD, UNREADABLE, NOT_A_PICTURE, DAMAGED = range(4)
PLAIN_FORMATS = ("JPEG", "PNG", "BMP", "PPM", "TIFF", "WEBP")
DEEP_MODES = ("F", "I", "I;16", "I;16B", "I;16L")  # more than 8 bits a channel

# One row a picture. ``mean`` and ``std`` are of red, green and blue, 0..255, over the picture's pixels; ``thumb`` is grey.
ROW = np.dtype(
    [
        ("bytes", "u8"),
        ("changed", "u8"),  # nanoseconds
        ("state", "u1"),
        ("finite", "?"),
        ("turned", "?"),  # by a camera's tag (EXIF), which training does not read
        ("digest", "u1", 32),  # SHA-256
        ("format", "S8"),
        ("mode", "S8"),
        ("width", "u4"),
        ("height", "u4"),
        ("mean", "f4", 3),
        ("std", "f4", 3),
        ("thumb", "u1", (THUMB, THUMB)),
    ]
)


def measure_files(root: Path, names: Sequence[str]) -> tuple[np.ndarray, dict[int, str]]:
    """Decode files as training does, to RGB, and measure them.

    Args:
        root: the data path.
        names: relative to it.

    Returns:
        Rows of type ``ROW``, (N,), and what is wrong with those that cannot be decoded, by their place in ``names``.
    """
    cv2.setNumThreads(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of damaged metadata and many pixels
        return _measured(root, names)


def _measured(root: Path, names: Sequence[str]) -> tuple[np.ndarray, dict[int, str]]:
    rows = np.zeros(len(names), dtype=ROW)
    rows["finite"] = True
    errors = {}
    folder = os.fspath(root)
    digests, sizes, figures = [], [], []  # put into the rows at once: one field of one row at a time takes as long as decoding
    for place, name in enumerate(names):
        try:
            data, status = _read(os.path.join(folder, name))
        except OSError as error:
            rows["state"][place] = UNREADABLE
            errors[place] = f"cannot be read: {error.strerror}"
            digests.append(bytes(32))
            sizes.append((0, 0))
            continue
        digests.append(hashlib.sha256(data).digest())
        sizes.append((status.st_size, status.st_mtime_ns))
        try:
            figures.append((place, *_decoded(data, name)))
        except _Broken as broken:
            rows["state"][place], errors[place] = broken.args
    rows["digest"] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
    rows["bytes"], rows["changed"] = np.array(sizes, dtype=np.uint64).reshape(-1, 2).T
    if figures:
        places, *columns = zip(*figures, strict=True)
        for field, values in zip(_FIGURES, columns, strict=True):
            rows[field][list(places)] = np.array(values)
    return rows, errors


def _read(path: str) -> tuple[bytes, os.stat_result]:
    """A file's bytes and its status; a file object takes twice as long for small pictures."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(file)
        data = os.read(file, status.st_size)
        while more := os.read(file, 1 << 20):
            data += more
        return data, status
    finally:
        os.close(file)


_FIGURES = ("format", "mode", "finite", "turned", "height", "width", "mean", "std", "thumb")


class _Broken(Exception):
    """A file that cannot be decoded: its state, and what is wrong with it."""


def _decoded(data: bytes, name: str) -> tuple[Any, ...]:
    """The values of ``_FIGURES`` of one file."""
    if not data:
        raise _Broken(DAMAGED, "is empty")
    try:
        with Image.open(io.BytesIO(data)) as image:
            format, mode = image.format or "", image.mode
            finite = mode not in DEEP_MODES or bool(np.isfinite(np.asarray(image)).all())
            turned = "exif" in image.info and orientation(image) != 1
            rgb = image if mode == "RGB" else image.convert("RGB")
            pixels = np.frombuffer(rgb.tobytes(), np.uint8).reshape(rgb.height, rgb.width, 3)
        if format not in PLAIN_FORMATS:
            decode_bytes(data, name)  # training may refuse what Pillow can open
    except UnidentifiedImageError as error:
        words = stand_in(data)
        raise _Broken(NOT_A_PICTURE, f"is {words}" if words else "is not a picture") from error
    except Image.DecompressionBombError as error:
        raise _Broken(DAMAGED, f"has too many pixels: {error}") from error
    except UserError as error:
        raise _Broken(DAMAGED, f"is refused by training: {error.line}") from error
    except (OSError, SyntaxError, ValueError, EOFError, RuntimeError, MemoryError) as error:
        raise _Broken(DAMAGED, f"is damaged or cut short: {error}") from error
    mean, std = cv2.meanStdDev(pixels)
    thumb = cv2.resize(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (THUMB, THUMB), interpolation=cv2.INTER_AREA)
    return format.encode(), mode.encode(), finite, turned, *pixels.shape[:2], mean[:, 0], std[:, 0], thumb
