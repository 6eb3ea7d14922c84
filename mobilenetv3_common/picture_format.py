"""What a picture's file is before anything decodes it: its format by its first bytes, its size, the scans of a JPEG.

A name says nothing about a file, and Pillow opens forty formats, some of them by other programs. Only the formats that are
named here reach a decoder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import stand_in

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
MOST_PIXELS = 178_956_970  # Pillow's own limit: a third of a gigabyte in RGB
MOST_SCANS = 100  # a progressive JPEG has about 10
MOST_WORK = 2_000_000_000  # pixels times scans: each scan of a progressive JPEG goes over the whole picture
ROW_WORK = 7000  # pixels that take as long as a row may: libtiff reports each damaged row of a fax
RUN_WORK = 200  # times that a pixel of run lengths in a BMP takes longer than others: Pillow unpacks them in Python

_SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "BMP": (b"BM",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "PPM": (b"P4", b"P5", b"P6"),
}
_MARKER = re.compile(
    rb"\xff([^\x00\xff\xd0-\xd7])"
)  # after any fill bytes 0xFF, in the data of a scan: neither a stuffed zero nor a restart

_FILL = re.compile(rb"\xff+")


class NotAPicture(UserError):
    """The file is of none of the formats that are read."""


class TooLarge(UserError):
    """The picture has more pixels or scans than are decoded."""


@dataclass(frozen=True)
class Rules:
    """Which pictures are decoded, and how.

    Attributes:
        formats: Pillow's names of the formats that are read; the first bytes of a file decide, not its name.
        orient: whether the orientation that a camera noted (EXIF) is applied.
        pixels: most pixels, width times height.
        scans: most scans of a progressive JPEG.
        reduce_to: decode a JPEG at 1/2, 1/4 or 1/8 of its size as long as both sides keep so many pixels; None never does.
    """

    formats: tuple[str, ...] = FORMATS
    orient: bool = False
    pixels: int = MOST_PIXELS
    scans: int = MOST_SCANS
    reduce_to: int | None = None

    def reduction(self, width: int, height: int) -> int:
        """What a JPEG's sides are divided by (rounded up) while it is decoded: 1, 2, 4 or 8."""
        shorter = min(width, height)
        return next(by for by in (8, 4, 2, 1) if by == 1 or (self.reduce_to is not None and shorter // by >= self.reduce_to))

    def check_size(self, name: str, width: int, height: int, scans: int, pixel_work: int = 1) -> None:
        """Raise ``TooLarge`` where a picture takes more than these rules allow; ``pixel_work`` is that function's."""
        if width * height > self.pixels:
            raise TooLarge(f"{name} has {width} x {height} pixels, more than {self.pixels:,}: make it smaller")
        most = max(MOST_WORK, 10 * self.pixels)
        if scans > self.scans or scans * width * height > most:
            raise TooLarge(f"{name} has {scans} scans of {width} x {height} pixels, too many to decode: save it as a baseline JPEG")
        if (pixel_work * width + ROW_WORK) * height > most:
            raise TooLarge(f"{name} has {width} x {height} pixels, which take too long to decode in this format: save it as a PNG")


TRAINING = Rules((*FORMATS, "PPM"))  # as torchvision's loader, which ignores the orientation
PREDICTION = Rules(orient=True)


def format_of(data: bytes, name: str, rules: Rules) -> str:
    """Pillow's name of a file's format.

    Raises:
        NotAPicture: it is none of ``rules.formats``.
    """
    if "WEBP" in rules.formats and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    for kind in rules.formats:
        if data.startswith(_SIGNATURES.get(kind, ())):
            return kind
    if words := stand_in(data):
        raise NotAPicture(f"{name} is not a picture, but {words}")
    raise NotAPicture(f"{name} is not a picture (JPEG, PNG, WebP, BMP, GIF or TIFF): remove it or replace it")


def pixel_work(data: bytes) -> int:
    """How many times longer than others a pixel of this file takes to decode."""
    runs = data.startswith(b"BM") and data[14:18] != b"\x0c\0\0\0" and data[30:34] in (b"\1\0\0\0", b"\2\0\0\0")
    return RUN_WORK if runs else 1


def quick_size(data: bytes) -> tuple[int, int] | None:
    """Width and height as a few bytes of the head say them, at a cost that does not grow with the file.

    Nothing is checked: it is for planning. None where that is not possible, as always for a TIFF.
    """

    def number(start: int, length: int, order: Literal["little", "big"] = "little") -> int:
        return int.from_bytes(data[start : start + length], order)

    if data.startswith(_SIGNATURES["PNG"]):
        return number(16, 4, "big"), number(20, 4, "big")
    if data.startswith(_SIGNATURES["GIF"]):
        return number(6, 2), number(8, 2)
    if data.startswith(b"BM"):
        return number(18, 4), abs(number(22, 4) - (number(25, 1) > 127) * 2**32)
    if data[8:16] == b"WEBPVP8X":
        return number(24, 3) + 1, number(27, 3) + 1
    if data[8:16] == b"WEBPVP8L":
        return (number(21, 4) & 0x3FFF) + 1, (number(21, 4) >> 14 & 0x3FFF) + 1
    if data[8:16] == b"WEBPVP8 ":
        return number(26, 2) & 0x3FFF, number(28, 2) & 0x3FFF
    frame = _start_of_frame(data, 500) if data.startswith(_SIGNATURES["JPEG"]) else 0
    return (number(frame + 7, 2, "big"), number(frame + 5, 2, "big")) if frame else None


def jpeg_components(data: bytes) -> int:
    """Number of colour components of a JPEG, from its first start-of-frame marker; 0 where there is none."""
    frame = _start_of_frame(data)
    return data[frame + 9] if frame else 0


def _start_of_frame(data: bytes, segments: int = 10**9) -> int:
    """Where a JPEG's first start-of-frame marker stands, among so many segments; 0 where it does not."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF and segments:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return at
        if marker <= 0x01 or 0xD0 <= marker <= 0xD9:  # no length follows, and none of them belongs here
            return 0
        at = at + 2 + length if marker != 0xFF else _FILL.match(data, at).end() - 1  # type: ignore[union-attr]
        segments -= 1
    return 0


def jpeg_scans(data: bytes) -> int:
    """Number of scans of a JPEG up to its end-of-image marker; those of a thumbnail within it do not count.

    A file with no more than one start-of-scan marker is not searched further, which would take a sixth of a sample's time.
    """
    codes = np.frombuffer(data, np.uint8)
    if (most := int(np.count_nonzero((codes[:-1] == 0xFF) & (codes[1:] == 0xDA)))) < 2:  # less time than data.count
        return most
    at, scans = 2, 0
    while found := _MARKER.search(data, at):
        marker, at = found[1][0], found.end()
        if marker == 0xD9:
            break
        scans += marker == 0xDA
        if marker != 0x01:  # all others that occur here are followed by the length of their segment
            at += int.from_bytes(data[at : at + 2], "big")
    return scans
