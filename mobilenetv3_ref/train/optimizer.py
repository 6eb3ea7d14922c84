"""Optimizers, torch's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from mobilenetv3_common.param_groups import check_rules, rate_factors, rule_of
from mobilenetv3_common.train_config import OptimizerConfig


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al., 2020, algorithm 2): Adam's direction and the weight decay, as long as the weights are; torch has none.

    As in timm and Paddle, parameters without weight decay take the direction as long as it is.

    Args:
        params: as for every torch optimizer.
        lr: learning rate.
        betas, eps: of Adam's direction.
        weight_decay: times the weights, part of the direction.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group, parameter in _with_gradients(self):
            state, gradient, (beta1, beta2) = self.state[parameter], parameter.grad, group["betas"]
            if not state:
                state["step"] = torch.tensor(0.0)
                state["first"], state["second"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            state["step"] += 1
            number = state["step"].item()
            first, second = state["first"], state["second"]
            first.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
            root = (second / (1.0 - beta2**number)).sqrt_().add_(group["eps"])
            direction = (first / (1.0 - beta1**number) / root).add_(parameter, alpha=group["weight_decay"])
            length, size = torch.linalg.vector_norm(direction), torch.linalg.vector_norm(parameter)
            trusted = (size > 0) & (length > 0) & (group["weight_decay"] > 0)
            ratio = torch.where(trusted, size / length, torch.ones_like(size))
            parameter.sub_(direction * (ratio * group["lr"]))


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al., 2023, algorithm 2): the sign of an interpolated momentum; torch has none.

    Args:
        params: as for every torch optimizer.
        lr: learning rate.
        betas: share of the momentum in the step's direction, and of the momentum that stays.
        weight_decay: decoupled.
    """

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group, parameter in _with_gradients(self):
            state, gradient, (beta1, beta2) = self.state[parameter], parameter.grad, group["betas"]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            direction = torch.lerp(gradient, state["momentum"], beta1).sign_()
            parameter.mul_(1.0 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=group["lr"])
            state["momentum"].mul_(beta2).add_(gradient, alpha=1.0 - beta2)


def _with_gradients(optimizer: torch.optim.Optimizer) -> list[tuple[dict, nn.Parameter]]:
    """Each parameter that has a gradient, with its group."""
    return [(group, p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer for a model's trainable parameters.

    BatchNorm's weights and biases, and the biases of other layers, have weight decays of their own where the config says so.

    Raises:
        NotImplementedError: ``config.name`` is one of ``OPTIMIZERS``, and missing in this package.
    """
    make = MAKERS.get(config.name)
    if make is None:
        raise NotImplementedError(f"{__name__} has no optimizer {config.name!r}")
    optimizer = make(config, parameter_groups(model, config))
    optimizer.register_step_pre_hook(_scale_rates)
    optimizer.register_step_post_hook(_share_rates)
    return optimizer


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the rates of all parameters from now on; the schedule does not show it."""
    for group in optimizer.param_groups:
        group["lr_factor"] *= factor


def _sgd(config: OptimizerConfig, groups: list[dict]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov)


def _rmsprop(config: OptimizerConfig, groups: list[dict]) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(groups, lr=config.lr, alpha=config.alpha, eps=config.eps, momentum=config.momentum)


def _adam(config: OptimizerConfig, groups: list[dict]) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)


def _adamw(config: OptimizerConfig, groups: list[dict]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)


def _adadelta(config: OptimizerConfig, groups: list[dict]) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(groups, lr=config.lr, rho=config.alpha, eps=config.eps)


def _lamb(config: OptimizerConfig, groups: list[dict]) -> torch.optim.Optimizer:
    return Lamb(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)


def _lion(config: OptimizerConfig, groups: list[dict]) -> torch.optim.Optimizer:
    return Lion(groups, lr=config.lr, betas=(config.beta1, config.beta2))


MAKERS: dict[str, Callable[[OptimizerConfig, list[dict]], torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "rmsprop": _rmsprop,
    "adam": _adam,
    "adamw": _adamw,
    "adadelta": _adadelta,
    "lamb": _lamb,
    "lion": _lion,
}


def _scale_rates(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
    """Before a step: each group's learning rate times its factor. Schedules see the rate that all groups share."""
    for group in optimizer.param_groups:
        group["shared_lr"] = group["lr"]
        group["lr"] = group["lr"] * group["lr_factor"]


def _share_rates(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
    """After it: the shared rate again."""
    for group in optimizer.param_groups:
        group["lr"] = group["shared_lr"]


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> list[dict]:
    """Parameters by weight decay, L1 penalty and factor of the learning rate, one group for all that have the same."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    check_rules(list(names.values()), config.rules)
    factors = rate_factors(list(names.values()), config.rules, config.layer_decay)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.BatchNorm2d, nn.SyncBatchNorm))]
    norm = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
    bias = {id(parameter) for name, parameter in model.named_parameters() if name.endswith("bias")} - norm
    decays = {
        "norm": config.weight_decay if config.norm_weight_decay is None else config.norm_weight_decay,
        "bias": config.weight_decay if config.bias_weight_decay is None else config.bias_weight_decay,
    }
    own = norm if config.norm_weight_decay is not None else set()
    own = own | bias if config.bias_weight_decay is not None else own
    groups: dict[tuple[float, float, float], list] = {}
    for parameter in trainable:
        decay = decays["norm"] if id(parameter) in norm else decays["bias"] if id(parameter) in bias else config.weight_decay
        rule = rule_of(names[id(parameter)], config.rules)
        decay = decay if rule.decay is None else rule.decay
        l1 = 0.0 if id(parameter) in own or rule.decay is not None else config.l1_decay
        groups.setdefault((decay, l1, factors[names[id(parameter)]]), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "l1_decay": l1, "lr_factor": factor}
        for (decay, l1, factor), parameters in groups.items()
    ]
