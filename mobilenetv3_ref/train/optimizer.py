"""Optimizers, torch's own."""

from __future__ import annotations

import torch
from torch import nn

from mobilenetv3_common.train_config import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer for a model's trainable parameters.

    BatchNorm's weights and biases, and the biases of other layers, have weight decays of their own where the config says so.
    """
    groups = parameter_groups(model, config)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    if config.name == "rmsprop":
        return torch.optim.RMSprop(groups, lr=config.lr, alpha=config.alpha, eps=config.eps, momentum=config.momentum)
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> list[dict]:
    """Parameters by their weight decay, one group for each that differs."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.BatchNorm2d, nn.SyncBatchNorm))]
    norm = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
    bias = {id(parameter) for name, parameter in model.named_parameters() if name.endswith("bias")} - norm
    decays = {
        "norm": config.weight_decay if config.norm_weight_decay is None else config.norm_weight_decay,
        "bias": config.weight_decay if config.bias_weight_decay is None else config.bias_weight_decay,
    }
    groups: dict[float, list] = {}
    for parameter in trainable:
        decay = decays["norm"] if id(parameter) in norm else decays["bias"] if id(parameter) in bias else config.weight_decay
        groups.setdefault(decay, []).append(parameter)
    return [{"params": parameters, "weight_decay": decay} for decay, parameters in groups.items()]
