"""Decoding, sizes and orientation of pictures, against Pillow, OpenCV and torchvision as they are called by hand."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

from alignment.kinds import Kind
from alignment.witness import Told
from mobilenetv3_common import image, preprocess
from mobilenetv3_common.picture_format import PREDICTION, TRAINING, Rules
from mobilenetv3_common.presets import EvalPreset

ORIENTATION = 0x0112


def drawn(width: int, height: int, seed: int = 0) -> Image.Image:
    """A smooth picture in which no two corners, rows, columns and colours are alike."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin(x / (5 + c) + seed) * np.cos(y / (9 - 2 * c)) + 20 * (x > width / 2) for c in range(3)]
    waves[0] = waves[0] * (0.3 + 0.7 * x / width)
    waves[2] = waves[2] * (0.3 + 0.7 * y / height)
    return Image.fromarray(np.clip(np.stack(waves, 2), 0, 255).astype(np.uint8))


def encoded(picture: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    """The bytes of a file of a picture."""
    file = io.BytesIO()
    picture.save(file, kind, **({"quality": 92} if kind == "JPEG" else {}), **options)
    return file.getvalue()


def tagged(number: int) -> bytes:
    """A JPEG that a camera took in one of the eight orientations."""
    exif = Image.Exif()
    exif[ORIENTATION] = number
    return encoded(drawn(40, 24), exif=exif)


def orientation() -> Iterator[Told]:
    """``image.decode_bytes``: the eight orientations of EXIF as Pillow's ``ImageOps.exif_transpose`` applies them."""
    for number in range(1, 9):
        data = tagged(number)
        with Image.open(io.BytesIO(data)) as opened:
            upright = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
            as_stored = np.asarray(opened.convert("RGB"))
        for backend in ("pil", "cv2"):
            case = f"orientation {number}, {backend}"
            made = np.asarray(image.decode_bytes(data, "x.jpg", backend, PREDICTION))
            yield Told(f"{case}: size in prediction", made.shape, upright.shape)
            yield Told(f"{case}: upright in prediction", _apart(made, upright) < 3, True)
            plain = np.asarray(image.decode_bytes(data, "x.jpg", backend, TRAINING))
            yield Told(f"{case}: as stored in training", plain.shape == as_stored.shape and _apart(plain, as_stored) < 3, True)


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Mean difference of levels: two decoders of one JPEG differ by rounding alone."""
    return float(np.abs(ours.astype(float) - theirs.astype(float)).mean()) if ours.shape == theirs.shape else 255.0


# Width, height, pixels to keep -> what the sides are divided by: the largest of 1, 2, 4, 8 that keeps them on the shorter side.
REDUCED = {
    (400, 200, 100): 2, (200, 400, 100): 2, (400, 200, 101): 1, (200, 400, 101): 1, (800, 300, 64): 4, (300, 800, 64): 4,
    (800, 600, 64): 8, (600, 800, 64): 8, (512, 512, 64): 8, (511, 511, 64): 4, (90, 500, 100): 1, (500, 90, 45): 2,
    (99, 99, None): 1,
}  # fmt: skip
FLAGS = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}


def reduced() -> Iterator[Told]:
    """Reduced decoding: by the shorter side; OpenCV's own reduced flags and Pillow's own ``draft``, red first."""
    for (width, height, least), by in REDUCED.items():
        rules = Rules(TRAINING.formats, reduce_to=least)
        case = f"{width} x {height}, {least} pixels kept"
        yield Told(f"{case}: divided by", rules.reduction(width, height), by)
    for width, height, least in ((400, 200, 100), (200, 400, 100), (300, 800, 64), (800, 600, 64), (400, 200, 101)):
        rules, by = Rules(TRAINING.formats, reduce_to=least), REDUCED[width, height, least]
        data, case = encoded(drawn(width, height)), f"{width} x {height} divided by {by}"
        blue_first: Any = cv2.imdecode(np.frombuffer(data, np.uint8), FLAGS[by] | cv2.IMREAD_IGNORE_ORIENTATION)
        made = np.asarray(image.decode_bytes(data, "x.jpg", "cv2", rules))
        place, kind = "image._pixels_cv2", Kind.CHANNELS_REVERSED if np.array_equal(made, blue_first) else None
        yield Told(f"{case}, OpenCV", made, blue_first[:, :, ::-1], place, kind)
        with Image.open(io.BytesIO(data)) as opened:
            opened.draft("RGB", (width // by, height // by))
            drafted = np.asarray(opened.convert("RGB"))
        yield Told(f"{case}, Pillow", np.asarray(image.decode_bytes(data, "x.jpg", "pil", rules)), drafted, "image._decode_pil")


def _resized(picture: Image.Image, box: tuple[int, int, int, int], size: int, method: int) -> np.ndarray:
    top, left, height, width = box
    window = picture.crop((left, top, left + width, top + height))  # black beyond the border
    return np.asarray(cv2.resize(np.asarray(window), (size, size), interpolation=method))


def crops() -> Iterator[Told]:
    """``image.crop_and_resize``: over areas where both sides shrink by more than two, else bilinear."""
    picture = drawn(120, 90)
    for box, method, words in (
        ((3, 5, 80, 100), cv2.INTER_AREA, "both sides shrink by more than two"),
        ((3, 5, 40, 100), cv2.INTER_LINEAR, "the width alone shrinks by more than two"),
        ((3, 5, 80, 40), cv2.INTER_LINEAR, "the height alone shrinks by more than two"),
        ((0, 0, 40, 40), cv2.INTER_LINEAR, "both sides shrink by two"),
        ((10, 20, 12, 15), cv2.INTER_LINEAR, "both sides grow"),
        ((-4, 3, 90, 120), cv2.INTER_AREA, "a crop beyond two sides of the picture"),
        ((2, -4, 90, 120), cv2.INTER_AREA, "a crop beyond the other two"),
    ):
        made = image.crop_and_resize(np.asarray(picture), box, 20)
        yield Told(f"{words}: box {box} to 20 pixels", made, _resized(picture, box, 20, method))


def formats() -> Iterator[Told]:
    """``image.decode_image``: every mode to RGB as torchvision's loader, ``Image.convert("RGB")``, has it."""
    rng = np.random.default_rng(3)
    modes = {
        "L": Image.fromarray(rng.integers(0, 256, (9, 13), np.uint8)),
        "RGBA": Image.fromarray(rng.integers(0, 256, (9, 13, 4), np.uint8), "RGBA"),
        "P": drawn(13, 9).quantize(16),
        "1": Image.fromarray(rng.integers(0, 256, (9, 13), np.uint8)).convert("1"),
        "LA": Image.fromarray(rng.integers(0, 256, (9, 13, 2), np.uint8), "LA"),
        "RGB": drawn(13, 9),
    }
    for mode, picture in modes.items():
        for backend in ("pil", "cv2"):
            made = np.asarray(image.decode_bytes(encoded(picture, "PNG"), "x.png", backend))
            yield Told(f"PNG of mode {mode}, {backend}", made, np.asarray(picture.convert("RGB")))
    levels = rng.integers(0, 65536, (9, 13), dtype=np.uint16)
    expected = np.repeat((levels >> 8).astype(np.uint8)[..., None], 3, 2)
    yield Told(
        "16 bits: the upper 8 are kept", np.asarray(image.decode_bytes(encoded(Image.fromarray(levels), "PNG"), "x.png")), expected
    )
    for mode in ("CMYK", "L", "RGB"):
        data = encoded(drawn(24, 16).convert(mode))
        with Image.open(io.BytesIO(data)) as opened:
            stored = np.asarray(opened.convert("RGB"))
        made = np.asarray(image.decode_bytes(data, "x.jpg", "cv2"))
        yield Told(f"JPEG of mode {mode}, cv2, within rounding", _apart(made, stored) < 3, True)
        if mode == "CMYK":
            yield Told("JPEG of mode CMYK: Pillow's own levels with either decoder", made, stored)
    grey = encoded(drawn(33, 21).convert("L"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.jpg")
        path.write_bytes(grey)
        with Image.open(path) as opened:
            whole = np.asarray(opened.convert("RGB"))
        yield Told("grey JPEG, decode_pixels", image.decode_pixels(path), whole)
        yield Told("grey JPEG, decode_image", np.asarray(image.decode_image(path, "pil")), whole)


def views() -> Iterator[Told]:
    """``preprocess``: torchvision's ``resize``, ``center_crop``, ``five_crop``, ``ten_crop`` and ``normalize``."""
    import mobilenetv3_ref  # noqa: F401  # makes torchvision importable beside a CPU build of torch

    import torch  # isort: skip
    from torchvision.transforms import functional as F

    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

    def normal(picture: Image.Image) -> np.ndarray:
        return F.normalize(F.convert_image_dtype(F.pil_to_tensor(picture), torch.float32), mean, std).numpy()

    for width, height in ((50, 41), (41, 67), (48, 48), (301, 90)):
        picture, case = drawn(width, height), f"{width} x {height}"
        resized = F.resize(picture, 40)
        centre = F.center_crop(resized, 33)
        views = {
            "none": [centre],
            "flip": [centre, F.hflip(centre)],
            "five_crop": F.five_crop(resized, 33),
            "ten_crop": F.ten_crop(resized, 33),
        }
        for tta, expected in views.items():
            preset = EvalPreset(40, 33, tta=tta)
            made = preprocess.eval_transform(picture, preset)[None] if tta == "none" else preprocess.eval_views(picture, preset)
            yield Told(f"{case}, {tta}", made, np.stack([normal(one) for one in expected]))
        batch = np.stack([np.asarray(centre)] * 2)
        preset = EvalPreset(40, 33)
        yield Told(f"{case}, two pictures at once", preprocess.normalize_batch(batch, preset)[1], normal(centre))
        planes = np.stack([preprocess.in_planes(centre)])
        yield Told(f"{case}, by planes", preprocess.normalize_planes(planes, preset)[0], normal(centre))


def cached() -> Iterator[Told]:
    """``picture_cache``: what comes out is what was put in."""
    from mobilenetv3_common.picture_cache import PictureCache

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.png")
        path.write_bytes(encoded(drawn(17, 11), "PNG"))
        cache = PictureCache(str(Path(folder, "cache")), "content", 3, 10**6)
        pixels = np.asarray(drawn(17, 11))
        cache.put(1, path, pixels)
        yield Told("a picture that was put in", cache.get(1, path), pixels)
        yield Told("one that was not", cache.get(2, path), None)
