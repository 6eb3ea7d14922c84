"""What the settings of a run become: optimizer, schedule, presets, moving average, against what their documents say, by hand."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

from alignment.kinds import Kind
from alignment.witness import Told
from mobilenetv3_common import config_file
from mobilenetv3_common.param_groups import GroupRule
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.train_config import TrainConfig

# Each number once: one that is left out, or taken for another, is seen.
NUMBERS: dict[str, Any] = {
    "momentum": 0.81,
    "alpha": 0.82,
    "beta1": 0.83,
    "beta2": 0.84,
    "eps": 0.015,
    "weight_decay": 0.021,
    "norm_weight_decay": 0.022,
    "bias_weight_decay": 0.023,
    "l1_decay": 0.024,
    "layer_decay": 0.95,
}


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as they are, those that are dataclasses themselves too."""
    return {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}


def optimizer() -> Iterator[Told]:
    """``TrainConfig.optimizer_config``: every number of the recipe reaches the optimizer, and lr by the rule of the batch."""
    config = TrainConfig(optimizer="adamw", lr=0.5, param_groups="features.0.*:lr=0.25,decay=0.5;classifier.*:frozen", **NUMBERS)
    rules = (GroupRule("features.0.*", 0.25, 0.5, False), GroupRule("classifier.*", 1.0, None, True))
    expected = {"name": "adamw", "lr": 0.5, "nesterov": False, "rules": rules, **NUMBERS}
    yield Told("every number of a recipe", fields_of(config.optimizer_config(96)), expected)
    yield Told("nesterov", TrainConfig(nesterov=True, momentum=0.9).optimizer_config(1).nesterov, True)
    none = TrainConfig(norm_weight_decay=None, bias_weight_decay=None, weight_decay=0.25).optimizer_config(1)
    yield Told("no decay of its own for norm layers", none.norm_weight_decay, None)
    yield Told("no decay of its own for biases", none.bias_weight_decay, None)
    zero = TrainConfig(norm_weight_decay=0.0, bias_weight_decay=0.0, weight_decay=0.25).optimizer_config(1)
    yield Told("a decay of 0 for norm layers is a decay", zero.norm_weight_decay, 0.0)
    yield Told("a decay of 0 for biases is a decay", zero.bias_weight_decay, 0.0)


def scaled_rates() -> Iterator[Told]:
    """The learning rate of a larger batch: Goyal et al. 2017 (linear), Krizhevsky 2014 (root)."""
    for pictures, linear, root in ((32, 0.125, 0.25), (128, 0.5, 0.5), (1152, 4.5, 1.5)):
        for rule, expected in (("linear", linear), ("sqrt", root)):
            config = TrainConfig(lr=0.5, scale_lr_from=128, scale_lr_by=rule)
            yield Told(f"{pictures} pictures an update, {rule}", config.optimizer_config(pictures).lr, expected)
    yield Told("without --scale-lr-from", TrainConfig(lr=0.5).optimizer_config(512).lr, 0.5)


def schedule() -> Iterator[Told]:
    """``TrainConfig.schedule_config``: epochs become units of the schedule."""
    given: dict[str, Any] = {
        "epochs": 40, "lr_schedule": "multistep", "lr_step_epochs": 3, "lr_milestones": "7,11,31", "lr_gamma": 0.5, "lr_min": 0.01,
        "lr_power": 1.5, "lr_restart_epochs": 4, "lr_restart_factor": 2, "lr_rise": 0.25, "lr_start_div": 20.0, "warmup_epochs": 5,
        "warmup_decay": 0.125,
    }  # fmt: skip
    as_given = {
        "name": "multistep", "gamma": 0.5, "lr_min": 0.01, "warmup_decay": 0.125, "power": 1.5, "restart_factor": 2, "rise": 0.25,
        "start_div": 20.0,
    }  # fmt: skip
    for unit, per in (("update", 13), ("epoch", 1)):
        times: dict[str, Any] = {"step_size": 3 * per, "total": 40 * per, "warmup": 5 * per, "restart": 4 * per}
        milestones = (7 * per, 11 * per, 31 * per)
        made = fields_of(TrainConfig(lr_unit=unit, **given).schedule_config(13))
        yield Told(f"by {unit}, 13 updates an epoch", made, {**as_given, **times, "milestones": milestones})
    for unit, expected in (("update", 0.5 ** (1 / 13)), ("epoch", 0.5)):
        config = TrainConfig(lr_schedule="exponential", lr_gamma=0.5, lr_unit=unit)
        yield Told(f"exponential by {unit}: lr_gamma is for an epoch", config.schedule_config(13).gamma, expected)


def presets() -> Iterator[Told]:
    """``TrainConfig.train_preset`` and ``eval_preset``: every setting reaches the pictures."""
    given: dict[str, Any] = {
        "epochs": 9, "crop_size": 160, "resize_size": 184, "min_crop_scale": 0.35, "hflip_prob": 0.25, "auto_augment": "ra",
        "random_erase": 0.125, "mixup_alpha": 0.2, "cutmix_alpha": 0.75, "mix_off_epochs": 2, "crop_padding": 3,
    }  # fmt: skip
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    expected: dict[str, Any] = {
        "crop_size": 160, "crop_scale": (0.35, 1.0), "crop_ratio": (0.75, 4 / 3), "hflip_prob": 0.25, "auto_augment": "ra",
        "ra_magnitude": 9, "random_erase_prob": 0.125, "mixup_alpha": 0.2, "cutmix_alpha": 0.75, "mix_epochs": 7, "mean": mean,
        "std": std, "reduce_to": None, "crop_padding": 3,
    }  # fmt: skip
    yield Told("training", fields_of(TrainConfig(**given).train_preset), expected)
    reduced = TrainConfig(reduced_decoding=True, **(given | {"crop_padding": None})).train_preset
    yield Told("--reduced-decoding keeps --resize-size pixels", reduced.reduce_to, 184)
    yield Told("mixing to the end", TrainConfig(mixup_alpha=0.2).train_preset.mix_epochs, None)
    evaluation = {"resize_size": 184, "crop_size": 160, "mean": mean, "std": std, "tta": "flip"}
    yield Told("evaluation", fields_of(TrainConfig(tta="flip", **given).eval_preset), evaluation)
    own = TrainConfig(mean="0.25,0.5,0.75", std="0.125, 0.5,1")
    for name, preset in (("training", own.train_preset), ("evaluation", own.eval_preset)):
        yield Told(f"{name}, its own mean and deviation", [preset.mean, preset.std], [(0.25, 0.5, 0.75), (0.125, 0.5, 1.0)])


def mixing() -> Iterator[Told]:
    """``TrainPreset.mixes_in``: the last epochs are not mixed."""
    for off, expected in ((0, [True] * 5), (2, [True, True, True, False, False]), (4, [True, False, False, False, False])):
        preset = TrainConfig(epochs=5, cutmix_alpha=1.0, mix_off_epochs=off).train_preset
        yield Told(f"5 epochs, the last {off} without mixing", [preset.mixes_in(epoch) for epoch in range(5)], expected)
    plain = TrainPreset()
    yield Told("nothing to mix with", [plain.mixes, plain.mixes_in(0)], [False, False])
    yield Told("mixup alone", TrainPreset(mixup_alpha=0.5).mixes, True)
    yield Told("cutmix alone", TrainPreset(cutmix_alpha=0.5).mixes, True)


def average() -> Iterator[Told]:
    """``TrainConfig.average_decay``: torch's ``ModelEmaV2`` as timm warms it up, min(decay, (1 + n) / (10 + n))."""
    plain = TrainConfig(ema_decay=0.875)
    yield Told("without warm-up", [plain.average_decay(n) for n in (1, 10, 1000)], [0.875] * 3)
    warm = TrainConfig(ema_decay=0.875, ema_warmup=True)
    updates = (1, 2, 8, 61, 62, 63, 1000)
    yield Told("with warm-up", [warm.average_decay(n) for n in updates], [min(0.875, (1 + n) / (10 + n)) for n in updates])
    every = TrainConfig(ema_decay=0.875, ema_warmup=True, ema_every=4)
    yield Told("every 4 updates", [every.average_decay(n) for n in (4, 8, 400)], [2 / 11, 3 / 12, 0.875])
    yield Told("first weights left, 5 steps", plain.first_weights_left(5), 0.875**4)
    yield Told("first weights left, with warm-up", warm.first_weights_left(3), 3 / 12 * 4 / 13)


# What a run without flags does: every default that decides a number. A changed default is a change of every documented result.
DEFAULTS: dict[str, Any] = {
    "model": "mobilenet_v3_small", "width_mult": 1.0, "dropout": 0.2, "pretrained": None, "image_backend": "pil",
    "reduced_decoding": False, "resize_size": 256, "crop_size": 224, "tta": "none", "val_share": None, "min_crop_scale": 0.08,
    "crop_padding": None, "mean": None, "std": None, "hflip_prob": 0.5, "auto_augment": None, "random_erase": 0.0,
    "mixup_alpha": 0.0, "cutmix_alpha": 0.0, "mix_off_epochs": 0, "mix_group": None, "epochs": 10, "batch_size": 32,
    "min_updates": 1, "drop_last": True, "repeat_augment": 1, "accumulate": 1,
    "optimizer": "sgd", "param_groups": None, "momentum": 0.9, "nesterov": False, "alpha": 0.9, "beta1": 0.9, "beta2": 0.999,
    "eps": 1e-8, "weight_decay": 1e-4, "norm_weight_decay": None, "bias_weight_decay": None, "l1_decay": 0.0, "layer_decay": 1.0,
    "lr": 0.1, "scale_lr_from": None, "scale_lr_by": "linear", "lr_schedule": "cosine", "lr_unit": "update", "lr_step_epochs": 30,
    "lr_milestones": None, "lr_gamma": 0.1, "lr_min": 0.0, "lr_power": 1.0, "lr_restart_epochs": 10, "lr_restart_factor": 1,
    "lr_rise": 0.3, "lr_start_div": 25.0, "warmup_epochs": 0, "warmup_decay": 0.01, "label_smoothing": 0.0, "class_weights": None,
    "teacher": None, "distill_alpha": 0.5, "distill_temperature": 4.0, "clip_norm": None, "ema_decay": 0.0, "ema_warmup": False,
    "ema_every": 1, "sync_bn": False, "bn_momentum": None, "freeze_bn": False, "amp_level": "O0", "seed": 0, "eval_every": 1,
    "early_stop": 0, "eval_raw": False, "roll_back": 0, "roll_back_factor": 0.5, "checkpoint_weights": "auto",
    "reset_classifier": False,
}  # fmt: skip


def defaults() -> Iterator[Told]:
    """The fields of ``TrainConfig`` where neither a recipe nor a flag gives them."""
    config = TrainConfig()
    for name, expected in DEFAULTS.items():
        yield Told(f"--{name.replace('_', '-')} is not given", getattr(config, name, "missing"), expected, kind=Kind.RECIPE)


def flags() -> Iterator[Told]:
    """Each flag sets the setting of its own name, and no other one."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    config_file.add_flags(parser, TrainConfig)
    types = config_file.field_types(TrainConfig)
    for entry in dataclasses.fields(TrainConfig):
        of_type, flag = types[entry.name][0], "--" + entry.name.replace("_", "-")
        if of_type is bool:
            for word, value in ((flag, True), (flag.replace("--", "--no-"), False)):
                yield Told(word, vars(parser.parse_args([word])), {entry.name: value})
            continue
        value = (entry.metadata["choices"] or [{int: 3, float: 0.375, str: "text"}[of_type]])[-1]
        yield Told(f"{flag} {value}", vars(parser.parse_args([flag, str(value)])), {entry.name: value})


def precedence() -> Iterator[Told]:
    """Flags stand above the recipe, the recipe above the defaults."""
    recipe = "configs/mobilenet_v3_small_rmsprop.yaml"
    made = config_file.make_config(TrainConfig, recipe, {"lr": 0.5, "momentum": 0.25})
    expected = {"optimizer": "rmsprop", "lr": 0.5, "momentum": 0.25, "eps": 0.0316, "hflip_prob": 0.5}
    yield Told("a recipe with --lr and --momentum", {name: getattr(made, name) for name in expected}, expected)
