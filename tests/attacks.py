"""Files of a few bytes that cost a careless decoder seconds, gigabytes, or its life."""

from __future__ import annotations

import io
import re
import zlib

from PIL import Image


def chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG."""
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def png(width: int, height: int) -> bytes:
    """A valid black-and-white PNG of one colour, made row by row: few bytes, many pixels."""
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([1, 0, 0, 0, 0])
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + (width + 7) // 8)) for _ in range(height)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg_of_scans(scans: int, side: int) -> bytes:
    """A progressive JPEG whose last scan stands there ``scans`` times."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (200, 30, 60)).save(buffer, "JPEG", progressive=True, quality=90)
    data = buffer.getvalue()
    starts = [m.start() for m in re.finditer(rb"\xff\xda", data)]
    last = data[starts[-1] : -2]
    return data[:-2] + last * scans + b"\xff\xd9"


def flat(kind: str, width: int, height: int, mode: str = "RGB", **options) -> bytes:
    """A picture of one colour in a format of Pillow's."""
    buffer = io.BytesIO()
    Image.new(mode, (width, height)).save(buffer, kind, **options)
    return buffer.getvalue()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n%%EOF\n"
BLP = b"BLP2" + (1).to_bytes(4, "little") + bytes([1, 8, 0, 0]) + (16).to_bytes(4, "little") * 2 + bytes(2000)
