"""Files of a few bytes that cost a careless decoder seconds, gigabytes, or its life."""

from __future__ import annotations

import io
import re
import struct
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


def bmp_of_runs(width: int, height: int, bits: int, body: bytes) -> bytes:
    """A BMP with run lengths (RLE8, RLE4), whose body is given."""
    palette, kind = b"\0\0\0\0" * (1 << bits), 1 if bits == 8 else 2
    start = 54 + len(palette)
    head = b"BM" + struct.pack("<IHHI", start + len(body), 0, 0, start)
    return head + struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, kind, len(body), 0, 0, 1 << bits, 0) + palette + body


def tiff(width: int, height: int, compression: int, data: bytes, bits: int = 1) -> bytes:
    """A greyscale TIFF of one strip, whose data is given."""
    tags = {256: width, 257: height, 258: bits, 259: compression, 262: 1, 273: 8, 277: 1, 278: height, 279: len(data)}
    data += b"\0" * (len(data) % 2)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + bytes(4)
