"""One training run: all sections of settings, and what concerns more than one of them."""

from __future__ import annotations

from dataclasses import dataclass

from mobilenetv3_common.param_groups import parse_rules
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.train_config.augmentation import AugmentationSettings
from mobilenetv3_common.train_config.batches import BatchSettings
from mobilenetv3_common.train_config.device import DeviceSettings
from mobilenetv3_common.train_config.learning_rate import LearningRateSettings, ScheduleConfig
from mobilenetv3_common.train_config.model import MODELS, ModelSettings
from mobilenetv3_common.train_config.optimizer import OptimizerConfig, OptimizerSettings
from mobilenetv3_common.train_config.pictures import PictureSettings
from mobilenetv3_common.train_config.regularisation import RegularisationSettings
from mobilenetv3_common.train_config.run import RunSettings
from mobilenetv3_common.train_config.section import require

MANY = 1000  # updates an epoch with which a config checks its schedule before the data are known


@dataclass(frozen=True)
class TrainConfig(
    # Python collects the fields of the last base first: read from the bottom.
    RunSettings,
    DeviceSettings,
    RegularisationSettings,
    LearningRateSettings,
    OptimizerSettings,
    BatchSettings,
    AugmentationSettings,
    PictureSettings,
    ModelSettings,
):
    """One training run. Each field is a key of a recipe in ``configs/`` and a flag of ``tools/train.py``.

    A setting is read as ``config.lr``, whichever section it stands in; code that needs one section alone takes that class.

    Raises:
        UserError: a value outside its range, or a combination that cannot work.
    """

    def check(self) -> None:
        require(self.warmup_epochs < self.epochs, f"--warmup-epochs must be below --epochs ({self.epochs})", self.warmup_epochs)
        ends = self.mix_off_epochs == 0 or (self.mix_off_epochs < self.epochs and self.train_preset.mixes)
        require(ends, f"--mix-off-epochs needs mixup or cutmix, and must be below --epochs ({self.epochs})", self.mix_off_epochs)
        require(not self.eval_raw or self.ema_decay > 0, "--eval-raw needs a moving average (--ema-decay)", self.ema_decay)
        whole = self.crop_padding is None or not self.reduced_decoding
        require(
            whole, "--crop-padding counts pixels of the picture as it is stored: leave --reduced-decoding out", self.crop_padding
        )
        if self.mix_group is not None:
            fits = self.batch_size % self.mix_group == 0
            require(fits, f"--mix-group must divide --batch-size ({self.batch_size})", self.mix_group)
        require(
            not self.lonely_batch(self.batch_size),
            f"--batch-size 1 with --crop-size {self.crop_size} leaves BatchNorm one value a channel, whose variance is 0: "
            "--batch-size must be at least 2, or give --freeze-bn",
            self.batch_size,
        )
        # What the parts themselves refuse.
        self.optimizer_config(1)
        self.schedule_config(MANY)
        self.train_preset  # noqa: B018

    def lonely_batch(self, pictures: int) -> bool:
        """Whether a batch of so many pictures leaves BatchNorm one value a channel."""
        small = self.model in MODELS and self.crop_size <= 32
        return small and pictures == 1 and not (self.sync_bn or self.freeze_bn)

    def optimizer_config(self, global_batch: int) -> OptimizerConfig:
        """The optimizer for ``global_batch`` pictures an update."""
        rules = parse_rules(self.param_groups)
        return OptimizerConfig(self.optimizer, self.scaled_lr(global_batch), rules=rules, **self.optimizer_numbers)

    def schedule_config(self, updates_per_epoch: int) -> ScheduleConfig:
        """The schedule of the learning rate, for an epoch of so many updates."""
        return self.schedule_for(self.epochs, updates_per_epoch)

    @property
    def train_preset(self) -> TrainPreset:
        return TrainPreset(
            crop_size=self.crop_size,
            crop_scale=(self.min_crop_scale, 1.0),
            hflip_prob=self.hflip_prob,
            auto_augment=self.auto_augment,
            random_erase_prob=self.random_erase,
            mixup_alpha=self.mixup_alpha,
            cutmix_alpha=self.cutmix_alpha,
            reduce_to=self.resize_size if self.reduced_decoding else None,
            mix_epochs=self.epochs - self.mix_off_epochs if self.mix_off_epochs else None,
            crop_padding=self.crop_padding,
            **self.normalisation,
        )
