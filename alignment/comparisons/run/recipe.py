"""The recipe that step 6 trains by: the project's, or one that is given, made small."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from alignment.comparisons.context import Context
from alignment.comparisons.topics import AUGMENTATIONS
from alignment.comparisons.update.groups import update_topics
from mobilenetv3_common.param_groups import parse_rules
from mobilenetv3_common.train_config import TrainConfig

# Numbers that float32 holds exactly, so that both frameworks' kernels have the same; an eps above the gradients'
# rounding, which Adam would otherwise turn into full-size steps; and statistics that follow a run of a few hundred updates.
RECIPE = TrainConfig(
    num_classes=10,
    resize_size=32,
    crop_size=32,
    min_crop_scale=0.75,
    hflip_prob=0.0,
    random_erase=0.25,
    batch_size=8,
    workers=0,
    optimizer="adamw",
    lr=2.0**-9,
    beta1=0.875,
    beta2=0.96875,
    eps=2.0**-10,
    weight_decay=2.0**-7,
    bn_momentum=0.125,
    label_smoothing=0.125,
    clip_norm=2.0,
    dropout=0.25,
)

# Of a given recipe: what stays as it is in ``RECIPE``, since the pictures are digits and the machine a CPU ...
REPLACED = (
    "framework", "num_classes", "pretrained", "reset_classifier", "data_path", "on_bad_image", "workers", "resize_size",
    "crop_size", "batch_size", "mix_group", "sync_bn", "device", "amp_level", "amp_dtype", "threads", "seed", "output_dir",
    "resume", "print_every", "save_every", "keep", "keep_best", "early_stop", "eval_raw", "eval_every", "check_every",
    "roll_back", "deterministic", "channels_last", "compile", "log_to",
)  # fmt: skip
BITS = 4  # ... and to how many significant bits its numbers are rounded, so that float32 holds what is computed from them
MOST_BETA, LEAST_EPS = 0.96875, 2.0**-10  # as in ``RECIPE``: powers of beta, and gradients that are zero but for rounding
MOST_ACCUMULATED = 2


def recipe(context: Context, epochs: int) -> TrainConfig:
    """The recipe of step 6 in so many epochs: the one that is given, in small, or the project's own."""
    if context.recipe is not None:
        return in_small(context.recipe, context.model, epochs)
    return replace(RECIPE, **{"model": context.model, **context.project.recipe, "epochs": epochs})


def in_small(config: TrainConfig, model: str, epochs: int) -> TrainConfig:
    """A recipe as step 6 trains it on digits.

    Optimizer, schedule, warm-up, mixing, augmentation, smoothing, dropout, clipping, accumulation, moving average and frozen
    layers stay. Epochs shrink, with the schedule's steps and warm-up in proportion; the learning rate follows the batch.
    Numbers are rounded to four significant bits, and AdamW's betas and eps kept within what float64 can compare.

    Args:
        config: of any size.
        model: that is aligned.
        epochs: of the small recipe.
    """
    share = epochs / config.epochs
    warmup = min(max(1, round(config.warmup_epochs * share)), epochs - 1) if config.warmup_epochs else 0
    later = sorted({max(warmup + 1, round(epoch * share)) for epoch in config.milestones})
    milestones = ",".join(map(str, later))
    scale = 1.0 if config.scale_lr_from else RECIPE.batch_size / config.batch_size
    own = {field.name: getattr(config, field.name) for field in fields(config)}
    numbers: dict[str, Any] = {name: rounded(value) for name, value in own.items() if isinstance(value, float)}
    changes: dict[str, Any] = {
        "model": model,
        "epochs": epochs,
        "warmup_epochs": warmup,
        "lr_step_epochs": max(1, round(config.lr_step_epochs * share)),
        "lr_restart_epochs": max(1, round(config.lr_restart_epochs * share)),
        "lr_milestones": milestones or None,
        "mix_off_epochs": min(max(1, round(config.mix_off_epochs * share)), epochs - 1) if config.mix_off_epochs else 0,
        "lr": rounded(config.lr * scale),
        "lr_min": rounded(config.lr_min * scale),
        "accumulate": min(config.accumulate, MOST_ACCUMULATED),
        "beta1": min(numbers["beta1"], MOST_BETA),
        "beta2": min(numbers["beta2"], MOST_BETA),
        "eps": max(numbers["eps"], LEAST_EPS),
    }
    return replace(config, **{**numbers, **{name: getattr(RECIPE, name) for name in REPLACED}, **changes})


def rounded(value: float, bits: int = BITS) -> float:
    """The nearest number with so many significant bits; near 1 its distance from 1 is rounded so."""
    if value == 0:
        return value
    if 0.5 < value < 1:
        return 1.0 - rounded(1.0 - value, bits)
    unit = 2.0 ** (math.floor(math.log2(abs(value))) + 1 - bits)
    return round(value / unit) * unit


def topics(config: TrainConfig) -> list[str]:
    """What a recipe covers."""
    found = {
        **dict.fromkeys(update_topics(config.optimizer_config(1)), True),
        f"{config.lr_schedule} schedule": True,
        "warm-up" if config.lr_unit == "update" else "warm-up by epoch": config.warmup_epochs,
        "norm weight decay": config.norm_weight_decay is not None,
        "bias weight decay": config.bias_weight_decay is not None,
        "gradient clipping": config.clip_norm,
        "accumulation": config.accumulate > 1,
        "scaled learning rate": config.scale_lr_from and config.scale_lr_by == "linear",
        "square-root scaling": config.scale_lr_from and config.scale_lr_by == "sqrt",
        "moving average": config.ema_decay,
        "freezing": config.freeze_bn,
        "freezing by name": any(rule.frozen for rule in parse_rules(config.param_groups)),
        "gradient checkpointing": config.grad_checkpointing,
        "label smoothing": config.label_smoothing,
        "dropout": config.dropout,
        "mixup": config.mixup_alpha,
        "cutmix": config.cutmix_alpha,
        "mixing off at the end": config.mix_off_epochs,
        "random erasing": config.random_erase,
        "horizontal flip": config.hflip_prob,
        AUGMENTATIONS.get(config.auto_augment or "", "no automatic augmentation"): config.auto_augment,
    }
    return [topic for topic, holds in found.items() if holds]
