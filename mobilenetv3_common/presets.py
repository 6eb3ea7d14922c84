"""Preprocessing as data: what a picture goes through before the network sees it, for evaluation and for training.

The values are those of torchvision's reference recipe for MobileNetV3 (references/classification, presets.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from mobilenetv3_common.errors import UserError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
TTA = ("none", "flip", "five_crop", "ten_crop")
AUTO_AUGMENT_POLICIES = ("imagenet", "ra", "ta_wide")


@dataclass(frozen=True)
class EvalPreset:
    """Shorter side to ``resize_size`` pixels (bilinear), centre crop of ``crop_size``, scale to 0..1, normalise.

    ``tta`` asks for several views of a picture instead of the centre crop: one of ``TTA``.
    """

    resize_size: int = 256
    crop_size: int = 224
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    tta: str = "none"

    def __post_init__(self) -> None:
        if self.crop_size < 1 or self.resize_size < self.crop_size:
            raise UserError(f"resize size {self.resize_size} must be at least crop size {self.crop_size}, and both at least 1")


@dataclass(frozen=True)
class TrainPreset:
    """Random crop, horizontal flip, an automatic augmentation, normalise, random erasing; then batch mixing.

    Attributes:
        crop_size: output height and width in pixels.
        crop_scale: range of the crop's area as a share of the picture's.
        crop_ratio: range of the crop's width / height.
        crop_padding: in place of the random resized crop, a crop of the picture's own size out of the picture with so many black
            pixels on each side, which is then scaled; None for the random resized crop.
        hflip_prob: probability of a horizontal flip, 0..1.
        auto_augment: None, ``"imagenet"`` (AutoAugment), ``"ra"`` (RandAugment) or ``"ta_wide"`` (TrivialAugment Wide).
        ra_magnitude: RandAugment's magnitude bin, 0..30.
        random_erase_prob: probability of random erasing, 0..1.
        mixup_alpha, cutmix_alpha: parameter of the Beta distribution; 0 turns the mixing off. Where both are on, each
            group of samples gets one of the two with equal probability.
        reduce_to: decode JPEGs at 1/2, 1/4 or 1/8 of their size as long as both sides keep so many pixels; None never does.
        mix_epochs: epochs after which nothing is mixed any more; None for never.
    """

    crop_size: int = 224
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    hflip_prob: float = 0.5
    auto_augment: str | None = None
    ra_magnitude: int = 9
    random_erase_prob: float = 0.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    mix_epochs: int | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    reduce_to: int | None = None
    crop_padding: int | None = None

    def __post_init__(self) -> None:
        if self.auto_augment is not None and self.auto_augment not in AUTO_AUGMENT_POLICIES:
            raise UserError(f"unknown auto-augment policy {self.auto_augment!r}: use one of {', '.join(AUTO_AUGMENT_POLICIES)}")
        for name in ("hflip_prob", "random_erase_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie between 0 and 1, found {getattr(self, name)}")
        for name in ("mixup_alpha", "cutmix_alpha"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be 0 or more, found {getattr(self, name)}")
        if self.crop_size < 1 or not 0 <= self.ra_magnitude <= 30:
            raise UserError("crop_size must be at least 1 and ra_magnitude lie between 0 and 30")

    @property
    def mixes(self) -> bool:
        """Whether batches are mixed, so that labels become rows of class probabilities."""
        return self.mixup_alpha > 0 or self.cutmix_alpha > 0

    def mixes_in(self, epoch: int) -> bool:
        """Whether the batches of an epoch, counted from 0, are mixed."""
        return self.mixes and (self.mix_epochs is None or epoch < self.mix_epochs)
