"""Files of pictures as strangers send them: attacks on decoders, odd modes, orientation, damaged files."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common import image as image_module
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import ORIENTATION, decode_bytes, decode_image, decode_pixels, picture_size
from mobilenetv3_common.picture_format import (
    FORMATS,
    PREDICTION,
    TRAINING,
    NotAPicture,
    Rules,
    TooLarge,
    jpeg_components,
    jpeg_scans,
    quick_size,
)
from mobilenetv3_common.preprocess import center_crop, eval_transform, resize, within_reach
from mobilenetv3_common.presets import EvalPreset
from tests.attacks import BLP, EPS, jpeg_of_scans, png
from tests.conftest import LITE_DATA, ROOT

PHOTO = LITE_DATA / "val" / "cat" / "cat_0.JPEG"
CAT = PHOTO.read_bytes()


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def cat():
    return decode_bytes(CAT, "cat")


# ---- attacks


@pytest.mark.parametrize(("width", "height"), [(200_000, 1), (1, 200_000), (20_000, 3)])
def test_a_row_of_pixels_costs_neither_time_nor_memory(width, height):
    code = (
        "import resource, sys\n"
        "from mobilenetv3_common.image import decode_bytes\n"
        "from mobilenetv3_common.preprocess import eval_transform\n"
        "from mobilenetv3_common.presets import EvalPreset\n"
        "data, used = sys.stdin.buffer.read(), lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "assert eval_transform(decode_bytes(data, 'x'), EvalPreset()).shape == (3, 224, 224)\n"
        "print((used() - before) // 1024)\n"
    )
    start = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", code], input=png(width, height), cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 200, "MiB"
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("backend", ["pil", "cv2"])
def test_a_jpeg_of_a_thousand_scans_is_refused_before_it_is_decoded(backend):
    attack = jpeg_of_scans(1000, 600)
    start = time.perf_counter()
    with pytest.raises(TooLarge, match=r"1010 scans of 600 x 600 pixels"):
        decode_bytes(attack, "the picture", backend)
    assert time.perf_counter() - start < 0.5


def test_scans_are_counted_and_those_of_a_thumbnail_are_not():
    progressive = encoded(cat(), "JPEG", progressive=True)
    assert jpeg_scans(CAT) == 1 and 6 <= jpeg_scans(progressive) <= 12
    exif = b"Exif\0\0" + b"\xff\xda\0\0" * 200  # in a segment of its own, and after the end of the picture
    tagged = CAT[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + CAT[2:] + b"\xff\xda" * 200
    assert jpeg_scans(tagged) == 1
    for ordinary in (progressive, tagged):
        assert decode_bytes(ordinary, "x").size == cat().size


def test_a_jpeg_of_fill_bytes_is_searched_once():
    fill = b"\xff" * 3_000_000
    start = time.perf_counter()
    assert jpeg_scans(b"\xff\xd8\xff\xda\0\2\xff\xda\0\2" + fill) == 2
    assert jpeg_components(b"\xff\xd8" + fill + CAT[2:]) == 3
    assert time.perf_counter() - start < 2


def test_a_refusal_for_pixels_names_the_limit_that_holds():
    """Pillow raises before anybody asks, with its own limit."""
    huge = b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b",\0\0\0\0\xff\xff\xff\xff\0\x08\2\0\0\0;"
    for data in (huge, png(20_000, 20_000)):
        with pytest.raises(TooLarge, match="more than 1,000,000: make it smaller"):
            decode_bytes(data, "x", rules=Rules(pixels=1_000_000))


def test_many_scans_of_many_pixels_are_refused_where_either_alone_is_not():
    rules = Rules(pixels=1_000_000)
    for width, scans in ((1000, 1), (1000, 12), (300, 90)):
        rules.check_size("x", width, width, scans)
    with pytest.raises(TooLarge, match="baseline"):
        rules.check_size("x", 20_000, 50, 101)
    with pytest.raises(TooLarge, match="more than 1,000,000"):
        rules.check_size("x", 1001, 1000, 1)
    with pytest.raises(TooLarge, match="baseline"):
        Rules().check_size("x", 13_000, 13_000, 20)


@pytest.mark.parametrize("rules", [TRAINING, PREDICTION])
@pytest.mark.parametrize("case", ["EPS", "BLP", "AVIF", "ICO", "TGA", "JPEG2000"])
def test_no_other_format_reaches_a_decoder(case, rules, monkeypatch):
    data = {"EPS": lambda: EPS, "BLP": lambda: BLP}.get(case, lambda: encoded(cat().resize((64, 64)), case))()
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("it reached Pillow"))
    with pytest.raises(NotAPicture, match="JPEG, PNG, WebP, BMP, GIF or TIFF"):
        decode_bytes(data, "the picture", rules=rules)


def test_a_format_is_known_by_its_bytes_and_opened_as_that_alone(monkeypatch):
    files, size, asked = {kind: encoded(cat(), kind) for kind in FORMATS}, cat().size, []
    real = Image.open
    monkeypatch.setattr(Image, "open", lambda file, formats: asked.append(formats) or real(file, formats=formats))
    for kind in FORMATS:
        assert decode_bytes(files[kind], "x", rules=PREDICTION).size == size
    assert asked == [[kind] for kind in FORMATS]


def test_portable_pixmaps_are_for_training_as_in_torchvision():
    pixmap = encoded(cat(), "PPM")
    assert np.array_equal(decode_bytes(pixmap, "x"), cat())
    with pytest.raises(NotAPicture):
        decode_bytes(pixmap, "x", rules=PREDICTION)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_many_frames_the_first_alone_is_decoded(kind):
    frames = [Image.new("RGB", (200, 200), (i % 251, 40, 90)) for i in range(150)]
    options = {"lossless": True, "method": 0} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    start = time.perf_counter()
    assert np.asarray(decode_bytes(data, "x"))[0, 0].tolist() == [0, 40, 90]
    assert time.perf_counter() - start < 0.3


def test_too_many_pixels_are_refused_by_the_head_of_the_file():
    data, rules = png(20_000, 2_000), Rules(pixels=30_000_000)
    for read in (decode_bytes, picture_size):
        with pytest.raises(TooLarge, match="20000 x 2000 pixels, more than 30,000,000"):
            read(data, "x", rules=rules)


def test_a_few_bytes_tell_the_size_for_planning():
    picture = cat().resize((321, 45))
    files = [encoded(picture, kind) for kind in FORMATS if kind != "TIFF"]
    files += [
        encoded(picture, "WEBP", lossless=True),
        encoded(picture.convert("RGBA"), "WEBP"),
        encoded(picture, "JPEG", progressive=True),
    ]
    assert [quick_size(data) for data in files] == [(321, 45)] * len(files)
    upside_down = bytearray(encoded(picture, "BMP"))
    upside_down[22:26] = (-45).to_bytes(4, "little", signed=True)
    assert quick_size(upside_down) == (321, 45)
    assert quick_size(encoded(picture, "TIFF")) is None
    assert quick_size(CAT[:2] + b"\xff\x01" + CAT[2:]) is None, "a marker without a length leads astray"
    start = time.perf_counter()
    assert quick_size(CAT[:2] + b"\xff\xfe\0\2" * 2_000_000 + CAT[2:]) is None
    assert time.perf_counter() - start < 0.05


# ---- what ordinary pictures become


def test_pictures_up_to_64_times_as_long_as_wide_become_what_they_always_did():
    draw = random.Random(0)
    sizes = [(draw.randint(1, 700), draw.randint(1, 700)) for _ in range(40)] + [(64, 1), (1, 64), (640, 10), (7, 447), (256, 4)]
    photo = cat()
    for width, height in sizes:
        picture = photo.resize((width, height))
        for preset in (EvalPreset(), EvalPreset(65, 64)):
            short, long = sorted((width, height))
            other = int(preset.resize_size * long / short)
            size = (preset.resize_size, other) if width <= height else (other, preset.resize_size)
            if long > 64 * short:
                continue
            plain = picture if short == preset.resize_size else picture.resize(size, Image.Resampling.BILINEAR)
            assert np.array_equal(resize(picture, preset.resize_size), plain), (width, height)


@pytest.mark.parametrize(("width", "height"), [(661, 10), (10, 801), (1300, 20), (1301, 20)])
def test_the_middle_of_a_longer_picture_is_what_the_whole_would_show(width, height):
    picture = cat().resize((width, height))
    short, long = sorted((width, height))
    other = int(32 * long / short)
    plain = picture.resize((32, other) if width <= height else (other, 32), Image.Resampling.BILINEAR)
    assert within_reach(picture).size != picture.size
    shown, expected = (np.asarray(center_crop(p, 28), dtype=int) for p in (resize(picture, 32), plain))
    assert np.abs(shown - expected).max() <= 12 and np.abs(shown - expected).mean() < 2


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("factor", [257, 256])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(kind, factor):
    grey = np.asarray(cat().convert("L"))
    deep = Image.fromarray(grey.astype(np.uint16) * factor)
    assert deep.mode == "I;16"
    assert np.array_equal(np.asarray(decode_bytes(encoded(deep, kind), "x"))[..., 0], grey)
    big_endian = Image.frombytes("I;16B", deep.size, np.asarray(deep).astype(">u2").tobytes())
    assert np.array_equal(np.asarray(decode_bytes(encoded(big_endian, "TIFF"), "x"))[..., 0], grey)


def test_thirty_two_bits_are_taken_where_they_hold_eight_and_refused_where_nobody_knows_white():
    grey = np.asarray(cat().convert("L"))
    assert np.array_equal(np.asarray(decode_bytes(encoded(Image.fromarray(grey.astype(np.int32)), "TIFF"), "x"))[..., 0], grey)
    for levels in (grey.astype(np.int32) * 300, grey.astype(np.float32) - 40, grey.astype(np.float32) / 255):
        with pytest.raises(UserError, match="32 bits a pixel and values from"):
            decode_bytes(encoded(Image.fromarray(levels), "TIFF"), "x")


@pytest.mark.parametrize("backend", ["pil", "cv2"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_a_camera_s_orientation_is_applied_in_prediction_and_not_in_training(turn, backend, tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = turn
    small = cat().resize((60, 40))
    (tmp_path / "turned.jpg").write_bytes(encoded(small, "JPEG", exif=exif, quality=95))
    (tmp_path / "plain.jpg").write_bytes(encoded(small, "JPEG", quality=95))
    plain = np.asarray(decode_image(tmp_path / "plain.jpg", backend))
    for read in (lambda path: decode_image(path, backend), decode_pixels if backend == "cv2" else lambda p: decode_image(p)):
        assert np.array_equal(read(tmp_path / "turned.jpg"), plain)
    right = {
        1: plain, 2: plain[:, ::-1], 3: plain[::-1, ::-1], 4: plain[::-1], 5: plain.transpose(1, 0, 2),
        6: np.rot90(plain, -1), 7: plain[::-1, ::-1].transpose(1, 0, 2), 8: np.rot90(plain),
    }[turn]  # fmt: skip
    assert np.array_equal(decode_image(tmp_path / "turned.jpg", backend, PREDICTION), right)


def test_senseless_orientation_is_none():
    for value in (0, 9, 60_000):
        exif = Image.Exif()
        exif[ORIENTATION] = value
        assert decode_bytes(encoded(cat(), "JPEG", exif=exif), "x", rules=PREDICTION).size == cat().size
    broken = CAT[:2] + b"\xff\xe1\0\x20Exif\0\0II*\0\xff\xff\xff\x7f" + bytes(16) + CAT[2:]
    assert decode_bytes(broken, "x", rules=PREDICTION).size == cat().size


# ---- damaged files


def seeds() -> list[bytes]:
    """Small pictures of every format, and in the variants whose decoders differ."""
    small = cat().resize((24, 18))
    found = [encoded(small, kind) for kind in FORMATS]
    found += [encoded(small, "JPEG", progressive=True), encoded(small.convert("CMYK"), "JPEG")]
    found += [encoded(small.convert("P"), "PNG"), encoded(small.convert("RGBA"), "PNG"), encoded(small.convert("LA"), "PNG")]
    found += [encoded(Image.fromarray(np.asarray(small.convert("L")).astype(np.uint16) * 257), kind) for kind in ("PNG", "TIFF")]
    found += [encoded(small, "TIFF", compression=way) for way in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")]
    found += [encoded(small, "WEBP", lossless=True), encoded(small.convert("RGBA"), "WEBP"), encoded(small.convert("1"), "BMP")]
    found += [encoded(small, kind, save_all=True, append_images=[small.rotate(90)]) for kind in ("GIF", "WEBP", "PNG", "TIFF")]
    return found


def damaged(data: bytes, draw: random.Random) -> bytes:
    """One to eight changes: bytes, runs, cuts, numbers at their limits, repeats."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        at = draw.randrange(max(1, len(out)) if draw.random() < 0.5 else min(max(1, len(out)), 80))
        kind = draw.randrange(6)
        if kind == 0:
            out[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            out[at : at + 4] = draw.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\1\0"))
        elif kind == 2:
            del out[at : at + draw.randrange(1, 20)]
        elif kind == 3:
            out[at:at] = out[at : at + draw.randrange(1, 60)]
        elif kind == 4:
            out[at : at + 1] = bytes([out[at] ^ (1 << draw.randrange(8))]) if at < len(out) else b""
        else:
            del out[draw.randrange(max(1, len(out))) :]
    return bytes(out)


@dataclass
class Fuzzed:
    """What came of damaged files, each under its number.

    Attributes:
        decoded, lines: a picture, or the line that refuses it.
        wrong: a picture of another mode, without pixels, or of another size after the transform.
        escaped: what was raised and is no ``UserError``.
        slowest: seconds of the slowest file.
    """

    decoded: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    escaped: dict[int, Exception] = field(default_factory=dict)
    slowest: float = 0.0


def fuzz(count: int, seed: int) -> Fuzzed:
    """Decode ``count`` damaged files, every fifth with OpenCV."""
    draw, given, rules, found = random.Random(seed), seeds(), Rules(orient=True, pixels=4_000_000), Fuzzed()
    for number in range(count):
        data = damaged(given[number % len(given)], draw)
        start = time.perf_counter()
        try:
            image = decode_bytes(data, "the picture", "cv2" if number % 5 == 0 else "pil", rules)
            sound = image.mode == "RGB" and min(image.size) >= 1
            sound = sound and eval_transform(image, EvalPreset(33, 32)).shape == (3, 32, 32)
            (found.decoded if sound else found.wrong).append(number)
        except UserError as error:
            found.lines.append(error.line)
        except Exception as error:  # noqa: BLE001 - that anything but a UserError escapes is what is counted
            found.escaped[number] = error
        found.slowest = max(found.slowest, time.perf_counter() - start)
    return found


def test_seventeen_thousand_damaged_files_are_decoded_or_refused_in_a_line():
    found = fuzz(17_000, 1)
    assert not found.escaped and not found.wrong
    assert found.slowest < 5, "seconds"
    assert all(line.startswith("the picture ") and len(line) < 400 for line in found.lines)
    assert len(found.decoded) + len(found.lines) == 17_000
    assert len(found.decoded) > 1000 and len(found.lines) > 1700, "some files of both kinds, or the damage is not worth a test"


def raised(*_):
    raise struct.error("unpack requires a buffer of 4 bytes")


@pytest.mark.parametrize(
    ("part", "broken", "seen"),
    [
        ("_one_line", lambda *_: contextlib.nullcontext(), "escaped"),
        ("_pixels_cv2", raised, "escaped"),
        ("_decode_pil", lambda *_: Image.new("L", (9, 9)), "wrong"),
        ("_pixels_cv2", lambda *_: np.zeros((9, 9), np.uint8), "wrong"),
    ],
)
def test_among_damaged_files_a_decoder_that_raises_or_gives_grey_is_seen(part, broken, seen, monkeypatch):
    monkeypatch.setattr(image_module, part, broken)
    found = fuzz(300, 1)
    assert {name: bool(getattr(found, name)) for name in ("escaped", "wrong")} == {
        "escaped": seen == "escaped",
        "wrong": seen == "wrong",
    }
