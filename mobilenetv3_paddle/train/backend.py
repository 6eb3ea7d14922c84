"""Paddle as the training loop sees it: this module implements ``mobilenetv3_common.training_backend.TrainingBackend``."""

from __future__ import annotations

import functools

import paddle
from paddle import nn

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.param_groups import check_rules, parse_rules, rule_of
from mobilenetv3_common.train_config import TrainConfig, flag_of
from mobilenetv3_common.training_backend import Builder
from mobilenetv3_paddle.data import ImageDataset, build_loader
from mobilenetv3_paddle.loss import CrossEntropyLoss, DistillationLoss
from mobilenetv3_paddle.models import MODELS, BatchNorm2D, share_dropout
from mobilenetv3_paddle.train.distributed import Ranks, average_statistics, meet, started
from mobilenetv3_paddle.train.ema import MovingAverage
from mobilenetv3_paddle.train.evaluate import count_right, judge_batch
from mobilenetv3_paddle.train.guard import Guard, first_offender
from mobilenetv3_paddle.train.optimizer import build_optimizer, scale_rates
from mobilenetv3_paddle.train.precision import Precision
from mobilenetv3_paddle.train.recompute import recompute_blocks
from mobilenetv3_paddle.train.schedule import build_schedule, follow_rates, learning_rate, load_schedule_state, schedule_state
from mobilenetv3_paddle.train.state import (
    load_model_arrays,
    load_optimizer_arrays,
    load_pretrained,
    model_arrays,
    optimizer_arrays,
)
from mobilenetv3_paddle.train.step import accumulate_gradients, apply_update

NAME = "paddle"

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
    """Refuse what torch alone has; mixed precision is ``Precision``'s matter.

    Raises:
        UserError: naming the setting.
    """
    for name in ("channels_last", "compile"):
        if getattr(config, name):
            raise UserError(f"{flag_of(name)} is for --framework ref alone: leave it out")


def build_model(config: TrainConfig, num_classes: int, builder: Builder | None = None) -> nn.Layer:
    """The network with its starting weights: fresh from the seed, or those of ``config.pretrained``.

    Args:
        config: of the run; its settings of BatchNorm are those of every ``BatchNorm2D`` in the network, and ``param_groups``
            may freeze parameters.
        num_classes: outputs.
        builder: makes the network for a number of classes; by default that of ``config.model``, ``config.width_mult`` and
            ``config.dropout``.

    Raises:
        UserError: the weights cannot be read or do not fit.
    """
    builder = builder or functools.partial(MODELS[config.model], width_mult=config.width_mult, dropout=config.dropout)
    paddle.seed(config.seed)
    model = builder(num_classes)
    if config.pretrained:
        load_pretrained(model, config.pretrained, config.reset_classifier, config.checkpoint_weights)
    for layer in model.sublayers(include_self=True):
        if isinstance(layer, BatchNorm2D):
            layer.synchronized = config.sync_bn
            layer.momentum = config.bn_momentum or layer.momentum
            for parameter in layer.parameters(include_sublayers=False):
                if config.freeze_bn:
                    parameter.stop_gradient = True
    rules = parse_rules(config.param_groups)
    check_rules([name for name, _ in model.named_parameters()], rules)
    for name, parameter in model.named_parameters():
        if rule_of(name, rules).frozen:
            parameter.stop_gradient = True
    if config.grad_checkpointing:
        recompute_blocks(model)
    return model


def place_model(model: nn.Layer, ranks: Ranks) -> nn.Layer:
    """The model itself: Paddle makes it on the device that ``started`` chose."""
    return model


def parallel(model: nn.Layer, ranks: Ranks) -> nn.Layer:
    """The model as training calls it: with several ranks, wrapped so that the backward pass averages gradients over them."""
    if ranks.world_size == 1:
        return model
    meet()
    return paddle.DataParallel(model)


def compiled(model: nn.Layer) -> nn.Layer:
    """The model itself: Paddle's compilers gain nothing here, and ``check_config`` refuses ``--compile``."""
    return model


def train_mode(model: nn.Layer, freeze_bn: bool) -> None:
    """Set a model to training mode; with ``freeze_bn`` its BatchNorm layers to evaluation mode."""
    model.train()
    if freeze_bn:
        for layer in model.sublayers(include_self=True):
            if isinstance(layer, BatchNorm2D):
                layer.eval()
