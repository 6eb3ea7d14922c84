"""Settings of the pictures: where they are, how they are decoded, loaded and cut for evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mobilenetv3_common.image import IMAGE_BACKENDS
from mobilenetv3_common.presets import TTA, EvalPreset
from mobilenetv3_common.train_config.section import Section, flag_of, option, require

Channels = tuple[float, float, float]


def channels(flag: str, text: str, least: float) -> Channels:
    """Three numbers between commas.

    Raises:
        UserError: they are not, or one is below ``least`` or above 1.
    """
    try:
        red, green, blue = (float(part) for part in text.split(","))
    except ValueError:
        red = green = blue = math.nan
    fits = all(least <= value <= 1 for value in (red, green, blue))
    require(fits, f"{flag} must be three numbers from {least:g} to 1 with commas between, as in 0.485,0.456,0.406", text)
    return red, green, blue


def normalised(mean: str | None, std: str | None) -> dict[str, Any]:
    """Mean and deviation as numbers, where they are given.

    Raises:
        UserError: they are not three numbers in their range.
    """
    given = (("mean", mean, 0.0), ("std", std, 1e-3))
    return {name: channels(flag_of(name), text, least) for name, text, least in given if text is not None}


@dataclass(frozen=True)
class PictureSettings(Section):
    """The data set, its decoding and loading, and the preprocessing of evaluation."""

    TITLE = "pictures"

    strict_classes: bool = option(False, "a class without a picture is an error; else it keeps its number, and is said")
    val_share: float | None = option(
        None, "hold this share of each class out, by the seed, where the data path has no validation pictures", within="(0, 1)"
    )
    data_path: str = option("", "ImageNet layout, list files or tar shards", metavar="DIR")
    image_backend: str = option("pil", "decoder of pictures", IMAGE_BACKENDS)
    on_bad_image: str = option("stop", "what a damaged picture does: stop the run, or be skipped and counted", ("stop", "skip"))
    check_data: bool = option(False, "decode every picture before the first update, and name those that cannot be read")
    reduced_decoding: bool = option(
        False,
        "training: decode a JPEG at 1/2, 1/4 or 1/8 where both sides keep --resize-size pixels; faster, but other pixels",
    )
    picture_cache: str | None = option(None, "training: keep decoded pictures in this folder; they stay the same", metavar="DIR")
    picture_cache_gb: float = option(10.0, "most bytes of --picture-cache, in 10^9", within="(0, 1e6]")
    workers: int = option(2, "loader processes a rank; 0 loads in the training process", within="[0, 1024]")
    resize_size: int = option(256, "evaluation: shorter side in pixels before the crop", within="[1, 4096]")
    crop_size: int = option(224, "pixels of the network's input", within="[1, 4096]")
    mean: str | None = option(None, "of red, green and blue, each from 0 to 1; ImageNet's by default", metavar="X,X,X")
    std: str | None = option(None, "standard deviation of red, green and blue; ImageNet's by default", metavar="X,X,X")
    tta: str = option("none", "evaluation: views of each picture whose probabilities are averaged", TTA)

    def check(self) -> None:
        require(
            self.resize_size >= self.crop_size, f"--resize-size must be at least --crop-size ({self.crop_size})", self.resize_size
        )
        self.eval_preset  # noqa: B018  # what the preset itself refuses

    @property
    def eval_preset(self) -> EvalPreset:
        return EvalPreset(self.resize_size, self.crop_size, tta=self.tta, **self.normalisation)

    @property
    def normalisation(self) -> dict[str, Any]:
        """``mean`` and ``std`` as numbers, where they are given.

        Raises:
            UserError: they are not three numbers in their range.
        """
        return normalised(self.mean, self.std)
