"""Values that torchvision publishes: defaults of its presets and transforms, and the documented training of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchvision.models import MobileNet_V3_Small_Weights
from torchvision.transforms import AutoAugment, RandAugment, RandomHorizontalFlip, RandomResizedCrop

from mobilenetv3_common.published import ROOT

# references/classification/README.md, "MobileNetV3 Large & Small", which the weights' meta data name as their recipe:
#   torchrun --nproc_per_node=8 train.py --model $MODEL --epochs 600 --opt rmsprop --batch-size 128 --lr 0.064
#     --wd 0.00001 --lr-step-size 2 --lr-gamma 0.973 --auto-augment imagenet --random-erase 0.2
# and what train.py beside it adds by itself: RMSprop's alpha, eps and momentum, a step schedule by epochs, no warm-up.
DOCUMENTED = {
    "epochs": 600,
    "batch_size": 128,
    "optimizer": "rmsprop",
    "lr": 0.064,
    "scale_lr_from": None,
    "alpha": 0.9,
    "eps": 0.0316,
    "momentum": 0.9,
    "weight_decay": 1e-5,
    "norm_weight_decay": None,
    "bias_weight_decay": None,
    "lr_schedule": "step",
    "lr_unit": "epoch",
    "lr_step_epochs": 2,
    "lr_gamma": 0.973,
    "warmup_epochs": 0,
    "label_smoothing": 0.0,
    "ema_decay": 0.0,
    "clip_norm": None,
    "auto_augment": "imagenet",
    "random_erase": 0.2,
    "mixup_alpha": 0.0,
    "cutmix_alpha": 0.0,
}


def published() -> Mapping[str, Any]:
    """Default values of the presets, and AutoAugment's policy for ImageNet."""
    preset = MobileNet_V3_Small_Weights.IMAGENET1K_V1.transforms()
    crop = RandomResizedCrop(preset.crop_size)
    of_both = {"crop_size": preset.crop_size[0], "mean": tuple(preset.mean), "std": tuple(preset.std)}
    return {
        "EvalPreset.resize_size": preset.resize_size[0],
        **{f"{kind}.{name}": value for kind in ("EvalPreset", "TrainPreset") for name, value in of_both.items()},
        "TrainPreset.crop_scale": tuple(crop.scale),
        "TrainPreset.crop_ratio": tuple(crop.ratio),
        "TrainPreset.hflip_prob": RandomHorizontalFlip().p,
        "TrainPreset.ra_magnitude": RandAugment().magnitude,
        "IMAGENET_POLICY": tuple(AutoAugment().policies),
    }


def recipes() -> Mapping[Path, Mapping[str, Any]]:
    """The recipes of torchvision's weights."""
    models = ("mobilenet_v3_small", "mobilenet_v3_large")
    return {ROOT / "configs" / f"{model}_rmsprop.yaml": {"model": model, **DOCUMENTED} for model in models}
