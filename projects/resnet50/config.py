"""A training run of a ResNet as data: ``TrainConfig`` with this project's networks, frameworks and levels."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig, flag_of, option
from mobilenetv3_common.train_config.device import DeviceSettings
from mobilenetv3_common.train_config.model import ModelSettings

# Framework -> its package with data, metric, loss and train; the models are ``projects.resnet50.models.in_*``.
PACKAGES = {"mindspore": "projects.resnet50.in_mindspore", "paddle": "mobilenetv3_paddle", "ref": "mobilenetv3_ref"}
ENGINES = {"mindspore": "mindspore", "paddle": "paddle", "ref": "torch"}
MODELS = {
    "resnet50_cifar": (50, "cifar"),
    "resnet18_cifar": (18, "cifar"),
    "resnet50": (50, "imagenet"),
    "resnet18": (18, "imagenet"),
}
NOT_HERE = ("width_mult", "dropout", "teacher", "reset_classifier")  # of MobileNetV3 alone


@dataclass(frozen=True)
class ResNetModel(ModelSettings):
    """Which of three frameworks trains which ResNet."""

    framework: str = option("paddle", "which of the three trains; ref is torch", tuple(PACKAGES))
    model: str = option("resnet50_cifar", "architecture", tuple(MODELS))


@dataclass(frozen=True)
class ResNetDevice(DeviceSettings):
    """MindSpore's precisions beside the others'."""

    amp_level: str = option(
        "O0",
        "O0 float32; MindSpore: O1 convolutions and dense layers in float16, O2 all but normalisations, O3 all; Paddle and ref, on "
        "a GPU: O1 automatic mixed precision, O2 weights in half precision",
        ("O0", "O1", "O2", "O3"),
    )
    loss_scale: float | None = option(
        None, "MindSpore: factor of the loss, which stays; by default one that adapts, at O1 to O3", within="[1, 1e9]"
    )


@dataclass(frozen=True)
class ResNetConfig(ResNetDevice, ResNetModel, TrainConfig):
    """One training run. Each field is a key of a recipe and a flag of ``tools/resnet50.py train``.

    Raises:
        UserError: a value outside its range, or a combination that cannot work.
    """

    def check(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        for name in NOT_HERE:
            if getattr(self, name) != defaults[name]:
                raise UserError(f"{flag_of(name)} is MobileNetV3's: leave it out")
        if self.framework != "mindspore" and (self.amp_level == "O3" or self.loss_scale is not None):
            flag = "--amp-level O3" if self.amp_level == "O3" else "--loss-scale"
            raise UserError(f"{flag} is MindSpore's: leave it out, or use --framework mindspore")
