"""MindSpore as the training loop sees it: this module implements ``mobilenetv3_common.training_backend.TrainingBackend``."""

from __future__ import annotations

import functools
from typing import Any

import mindspore
from mindspore import nn, ops

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.param_groups import check_rules, parse_rules, rule_of
from mobilenetv3_common.train_config import TrainConfig, flag_of
from mobilenetv3_common.training_backend import Builder
from projects.resnet50.in_mindspore.data import ImageDataset, build_loader
from projects.resnet50.in_mindspore.loss import CrossEntropyLoss
from projects.resnet50.in_mindspore.train.distributed import Ranks, average_statistics, started
from projects.resnet50.in_mindspore.train.dropout import share_dropout
from projects.resnet50.in_mindspore.train.ema import MovingAverage
from projects.resnet50.in_mindspore.train.evaluate import count_right, judge_batch
from projects.resnet50.in_mindspore.train.guard import Guard, first_offender
from projects.resnet50.in_mindspore.train.optimizer import build_optimizer, parameter_names, scale_rates
from projects.resnet50.in_mindspore.train.precision import Precision
from projects.resnet50.in_mindspore.train.schedule import (
    build_schedule,
    follow_rates,
    learning_rate,
    load_schedule_state,
    schedule_state,
)
from projects.resnet50.in_mindspore.train.state import (
    load_model_arrays,
    load_optimizer_arrays,
    load_pretrained,
    model_arrays,
    optimizer_arrays,
)
from projects.resnet50.in_mindspore.train.step import accumulate_gradients, apply_update
from projects.resnet50.models import in_mindspore

NAME = "mindspore"

__all__ = [
    "NAME",
    "CrossEntropyLoss",
    "DistillationLoss",
    "Guard",
    "ImageDataset",
    "MovingAverage",
    "Precision",
    "accumulate_gradients",
    "apply_update",
    "average_statistics",
    "build_loader",
    "build_model",
    "build_optimizer",
    "build_schedule",
    "check_config",
    "compiled",
    "count_right",
    "first_offender",
    "follow_rates",
    "judge_batch",
    "learning_rate",
    "load_model_arrays",
    "load_optimizer_arrays",
    "load_schedule_state",
    "model_arrays",
    "optimizer_arrays",
    "parallel",
    "place_model",
    "scale_rates",
    "schedule_state",
    "share_dropout",
    "started",
    "train_mode",
]


def check_config(config: TrainConfig, ranks: Ranks) -> None:
    """Refuse what the ResNets in MindSpore are not trained with.

    Raises:
        UserError: naming the setting.
    """
    for name in ("sync_bn", "teacher", "reset_classifier", "grad_checkpointing", "channels_last", "compile"):
        if getattr(config, name):
            raise UserError(f"{flag_of(name)} is not there in MindSpore: leave it out")


def DistillationLoss(criterion: nn.Cell, teacher: nn.Cell, temperature: float = 4.0, alpha: float = 0.5) -> Any:
    """There is none.

    Raises:
        UserError: always; ``check_config`` has refused a teacher before.
    """
    raise UserError("--teacher is not there in MindSpore: leave it out")


def build_model(config: TrainConfig, num_classes: int, builder: Builder | None = None) -> nn.Cell:
    """The network with its starting weights: fresh from the seed, or those of ``config.pretrained``.

    Args:
        config: of the run; its settings of BatchNorm are those of every ``BatchNorm2d`` in the network, and ``param_groups``
            may freeze parameters.
        num_classes: outputs.
        builder: makes the network for a number of classes; by default ResNet-50 for pictures of 32 pixels.

    Raises:
        UserError: the weights cannot be read or do not fit.
    """
    builder = builder or functools.partial(in_mindspore.resnet50, stem="cifar")
    mindspore.set_seed(config.seed)
    model = builder(num_classes)
    if config.pretrained:
        load_pretrained(model, config.pretrained)
    names, rules = parameter_names(model), parse_rules(config.param_groups)
    check_rules([*names.values()], rules)
    for _, cell in model.cells_and_names():
        if isinstance(cell, nn.BatchNorm2d):
            set_normalisation(cell, config)
        for parameter in cell._params.values():
            if id(parameter) in names and rule_of(names[id(parameter)], rules).frozen:
                parameter.requires_grad = False
    return model


def set_normalisation(layer: nn.BatchNorm2d, config: TrainConfig) -> None:
    """Give a layer the config's momentum, which is the new value's share, and freeze it where the config says so."""
    if config.bn_momentum:
        layer.momentum = config.bn_momentum  # the attribute is the new value's share, the constructor's argument the old one's
        layer.bn_train = ops.BatchNorm(True, layer.eps, config.bn_momentum, layer.format)
    if config.freeze_bn:
        layer.gamma.requires_grad = layer.beta.requires_grad = False


def place_model(model: nn.Cell, ranks: Ranks) -> nn.Cell:
    """The model itself, which can be told ``train`` and ``eval`` from now on: a Cell has ``set_train`` alone."""
    model.train, model.eval = functools.partial(model.set_train, True), functools.partial(model.set_train, False)
    return model


def parallel(model: nn.Cell, ranks: Ranks) -> nn.Cell:
    """The model itself, which knows the ranks from now on: ``accumulate_gradients`` averages its gradients over them."""
    model.ranks = ranks
    return model


def compiled(model: nn.Cell) -> nn.Cell:
    """The model itself: ``check_config`` refuses ``--compile``."""
    return model


def train_mode(model: nn.Cell, freeze_bn: bool) -> None:
    """Set a model to training mode; with ``freeze_bn`` its BatchNorm layers to evaluation mode."""
    model.set_train(True)
    for _, cell in model.cells_and_names() if freeze_bn else ():
        if isinstance(cell, nn.BatchNorm2d):
            cell.set_train(False)
