"""What a file says about a model, believed only after a look: deploy.json and the metadata of a checkpoint."""

from __future__ import annotations

import math
import re
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import IMAGE_BACKENDS
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.train_config import MODELS
from mobilenetv3_common.train_config.pictures import PictureSettings

MOST_PIXELS_A_SIDE = 4096
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Senseless(ValueError):
    """A value that cannot be meant; the message names it."""


def text(value: Any, name: str) -> str:
    """A text that is not empty and has one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise Senseless(f"{name} is no line of text: {shown(value)}")
    return value


def one_of(value: Any, name: str, known: tuple[str, ...]) -> str:
    """One of the known words."""
    if value not in known or not isinstance(value, str):
        raise Senseless(f"{name} is none of {', '.join(known)}: {shown(value)}")
    return value


def whole(value: Any, name: str, least: int, most: int) -> int:
    """A whole number within bounds; True is none."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Senseless(f"{name} is no whole number from {least} to {most}: {shown(value)}")
    return value


def number(value: Any, name: str, least: float, most: float) -> float:
    """A finite number within bounds."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or not least <= value <= most:
        raise Senseless(f"{name} is no number from {least:g} to {most:g}: {shown(value)}")
    return float(value)


def digest(value: Any, name: str) -> str:
    """A SHA-256 in hexadecimal digits."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise Senseless(f"{name} is no SHA-256: {shown(value)}")
    return value


def table(value: Any, name: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Senseless(f"{name} is no table of names and values: {shown(value)}")
    return value


def classes(value: Any) -> tuple[str, ...]:
    """Class names: one at least, each a line of text. Two may be equal, as in ImageNet."""
    if not isinstance(value, (list, tuple)) or not value:
        raise Senseless(f"classes is no list of names: {shown(value)}")
    return tuple(text(name, f"name of class {number}") for number, name in enumerate(value))


def model(value: Any) -> str:
    """Name of an architecture."""
    return one_of(value, "model", MODELS)


def image_backend(value: Any) -> str:
    """Name of a decoder."""
    return one_of(value, "image_backend", IMAGE_BACKENDS)


def preset(resize_size: Any, crop_size: Any, mean: Any = None, std: Any = None) -> EvalPreset:
    """Preprocessing: sizes in pixels, the crop not larger than the picture; mean and deviation of three channels."""
    resize = whole(resize_size, "resize_size", 1, MOST_PIXELS_A_SIDE)
    crop = whole(crop_size, "crop_size", 1, MOST_PIXELS_A_SIDE)
    given: dict[str, Any] = {}
    for name, values, least in (("mean", mean, 0.0), ("std", std, 1e-3)):
        if values is None:
            continue
        if not isinstance(values, list) or len(values) != 3:
            raise Senseless(f"{name} is no list of three numbers: {shown(values)}")
        given[name] = tuple(number(value, name, least, 1.0) for value in values)
    try:
        return EvalPreset(resize, crop, **given)
    except UserError as error:
        raise Senseless(error.line) from error


def channels(value: Any, name: str) -> list[float]:
    """Mean or deviation as a checkpoint's settings have it: three numbers between commas."""
    if not isinstance(value, str) or len(value) > 200:
        raise Senseless(f"{name} is no text of three numbers: {shown(value)}")
    try:
        given: dict[str, Any] = {name: value}
        return list(PictureSettings(**given).normalisation[name])
    except UserError as error:
        raise Senseless(error.line) from error


def shown(value: Any) -> str:
    """A value for a message: one line, not long."""
    found = repr(value)
    return found if len(found) <= 60 else found[:57] + "..."
