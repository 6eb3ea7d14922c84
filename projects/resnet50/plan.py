"""The checklist of tricks with which a migration begins (MindSpore's guide), filled from a recipe."""

from __future__ import annotations

from projects.resnet50.config import MODELS, ResNetConfig

HEAD = "| trick | what the recipe has |\n|---|---|"


def plan(config: ResNetConfig) -> str:
    """The filled form as a Markdown table: six rows, each in the terms of the flags that would change it."""
    rows = {
        "data augmentation": _augmentation(config),
        "learning rate schedule": _schedule(config),
        "optimizer": _optimizer(config),
        "training": _training(config),
        "network structure": _network(config),
        "training process": _process(config),
    }
    return "\n".join([HEAD, *(f"| {name} | {', '.join(words) or 'none'} |" for name, words in rows.items())])


def _augmentation(c: ResNetConfig) -> list[str]:
    if c.crop_padding is None:
        found = [f"random resized crop to {c.crop_size}, at least {c.min_crop_scale:g} of the area"]
    else:
        found = [f"random crop with {c.crop_padding} pixels of padding, scaled to {c.crop_size}"]
    found += [f"horizontal flip with probability {c.hflip_prob:g}"] if c.hflip_prob else []
    found += [f"{c.auto_augment} policy"] if c.auto_augment else []
    found += [f"random erasing with probability {c.random_erase:g}"] if c.random_erase else []
    found += [f"{name} with {value:g}" for name, value in (("mixup", c.mixup_alpha), ("cutmix", c.cutmix_alpha)) if value]
    own = f"normalisation by mean {c.mean or 'of ImageNet'} and deviation {c.std or 'of ImageNet'}"
    return [*found, own if c.mean or c.std else "normalisation", f"evaluation: shorter side {c.resize_size}, crop {c.crop_size}"]


def _schedule(c: ResNetConfig) -> list[str]:
    found = [f"{c.lr_schedule}, from {c.lr:g}" if c.lr_schedule != "constant" else f"constant {c.lr:g}"]
    found += [f"times {c.lr_gamma:g} every {c.lr_step_epochs} epochs"] if c.lr_schedule == "step" else []
    found += [f"times {c.lr_gamma:g} after {c.lr_milestones}"] if c.lr_schedule == "multistep" else []
    return found + ([f"{c.warmup_epochs} epochs of warm-up"] if c.warmup_epochs else [])


def _optimizer(c: ResNetConfig) -> list[str]:
    found = [c.optimizer]
    found += [f"momentum {c.momentum:g}{' (Nesterov)' if c.nesterov else ''}"] if c.optimizer in ("sgd", "rmsprop") else []
    if c.optimizer in ("adam", "adamw", "lamb", "lion"):
        found.append(f"betas {c.beta1:g} and {c.beta2:g}")
    found.append(f"weight decay {c.weight_decay:g}")
    for name, value in (("normalisation", c.norm_weight_decay), ("biases", c.bias_weight_decay)):
        found += [f"{value:g} for {name}"] if value is not None else []
    return found


def _training(c: ResNetConfig) -> list[str]:
    found = [f"batch size {c.batch_size}", f"{c.epochs} epochs", f"seed {c.seed}"]
    return found + ([f"{c.accumulate} batches an update"] if c.accumulate > 1 else [])


def _network(c: ResNetConfig) -> list[str]:
    depth, stem = MODELS[c.model]
    block = "Bottleneck" if depth >= 50 else "BasicBlock"
    first = "3x3 first convolution without pooling" if stem == "cifar" else "7x7 first convolution and pooling"
    return [f"ResNet-{depth}", block, first]


def _process(c: ResNetConfig) -> list[str]:
    found = [f"label smoothing {c.label_smoothing:g}"] if c.label_smoothing else []
    found += [f"moving average {c.ema_decay:g}"] if c.ema_decay else []
    found += [f"gradients clipped to {c.clip_norm:g}"] if c.clip_norm else []
    found += [f"mixed precision {c.amp_level}"] if c.amp_level != "O0" else []
    return found + (["BatchNorm over all ranks"] if c.sync_bn else [])
