"""Optimizers, torch's own."""

from __future__ import annotations

import torch
from torch import nn

from mobilenetv3_common.train_config import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer for a model's trainable parameters.

    BatchNorm's weights and biases form a group of their own where ``config.norm_weight_decay`` is given.
    """
    groups = parameter_groups(model, config)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    if config.name == "rmsprop":
        return torch.optim.RMSprop(groups, lr=config.lr, alpha=config.alpha, eps=config.eps, momentum=config.momentum)
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> list[dict]:
    """Parameters with their weight decay: all in one group, or BatchNorm's apart."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.norm_weight_decay is None:
        return [{"params": trainable, "weight_decay": config.weight_decay}]
    layers = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    norm = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
    return [
        {"params": [p for p in trainable if id(p) not in norm], "weight_decay": config.weight_decay},
        {"params": [p for p in trainable if id(p) in norm], "weight_decay": config.norm_weight_decay},
    ]
