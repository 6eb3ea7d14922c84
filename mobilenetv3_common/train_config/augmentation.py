"""Settings of the random augmentation of training pictures."""

from __future__ import annotations

from dataclasses import dataclass

from mobilenetv3_common.presets import AUTO_AUGMENT_POLICIES
from mobilenetv3_common.train_config.section import COUNT, SHARE, Section, flag_of, option, require


@dataclass(frozen=True)
class AugmentationSettings(Section):
    """Random crops, flips and policies of each picture, and mixing of pictures."""

    TITLE = "augmentation"

    min_crop_scale: float = option(0.08, "smallest random crop as a share of the picture's area, above 0 to 1", within="(0, 1]")
    crop_padding: int | None = option(
        None,
        "in place of the random resized crop: put so many black pixels around a picture, and cut its own size out of that",
        within="[0, 4096]",
    )
    hflip_prob: float = option(0.5, "probability of a horizontal flip", within=SHARE)
    auto_augment: str | None = option(None, "automatic augmentation: imagenet, ra or ta_wide")
    random_erase: float = option(0.0, "probability of random erasing", within=SHARE)
    mixup_alpha: float = option(0.0, "parameter of mixup, 0 for none", within="[0, 1000]")
    cutmix_alpha: float = option(0.0, "parameter of cutmix, 0 for none", within="[0, 1000]")
    mix_off_epochs: int = option(0, "last epochs without mixup and cutmix", within="[0, 1e6]")
    mix_group: int | None = option(None, "samples a mixing group; by default the batch of one rank", within=COUNT)

    def check(self) -> None:
        for name in ("mixup_alpha", "cutmix_alpha"):  # numpy's beta distribution gives NaN at the smallest numbers
            value = getattr(self, name)
            require(value == 0 or value >= 1e-3, f"{flag_of(name)} must be 0, or at least 0.001", value)
        policies = AUTO_AUGMENT_POLICIES
        fits = self.auto_augment is None or self.auto_augment in policies
        require(fits, f"--auto-augment must be one of {', '.join(policies)}", self.auto_augment)
