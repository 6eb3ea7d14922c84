"""PyTorch as the training loop sees it: this module implements ``mobilenetv3_common.training_backend.TrainingBackend``."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.param_groups import check_rules, parse_rules, rule_of
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training_backend import Builder
from mobilenetv3_ref.data import ImageDataset, build_loader
from mobilenetv3_ref.loss import CrossEntropyLoss, DistillationLoss
from mobilenetv3_ref.models import MODELS, SharedDropout, share_dropout
from mobilenetv3_ref.train.distributed import Ranks, average_statistics, started
from mobilenetv3_ref.train.ema import MovingAverage
from mobilenetv3_ref.train.evaluate import count_right, judge_batch
from mobilenetv3_ref.train.guard import Guard, first_offender
from mobilenetv3_ref.train.optimizer import build_optimizer, scale_rates
from mobilenetv3_ref.train.precision import Precision
from mobilenetv3_ref.train.recompute import recompute_blocks
from mobilenetv3_ref.train.schedule import build_schedule, follow_rates, learning_rate, load_schedule_state, schedule_state
from mobilenetv3_ref.train.state import (
    load_model_arrays,
    load_optimizer_arrays,
    load_pretrained,
    model_arrays,
    optimizer_arrays,
)
from mobilenetv3_ref.train.step import accumulate_gradients, apply_update

NAME = "ref"

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
    """Refuse synchronised BatchNorm on a CPU, and what cannot be compiled; mixed precision is ``Precision``'s matter.

    Raises:
        UserError: naming the setting.
    """
    if config.sync_bn and ranks.device == "cpu":
        raise UserError("--sync-bn: torch's SyncBatchNorm needs a GPU; use --freeze-bn, or leave it out")
    if config.compile and config.grad_checkpointing:
        raise UserError("--compile and --grad-checkpointing exclude each other (torch.compile plans memory itself): leave one out")


def build_model(config: TrainConfig, num_classes: int, builder: Builder | None = None) -> nn.Module:
    """The network with its starting weights: fresh from the seed, or those of ``config.pretrained``.

    Args:
        config: of the run; its settings of BatchNorm are those of every ``BatchNorm2d`` in the network, and ``param_groups``
            may freeze parameters.
        num_classes: outputs.
        builder: makes the network for a number of classes; by default that of ``config.model``, ``config.width_mult`` and
            ``config.dropout``.

    Raises:
        UserError: the weights cannot be read or do not fit.
    """
    builder = builder or functools.partial(MODELS[config.model], width_mult=config.width_mult, dropout=config.dropout)
    torch.manual_seed(config.seed)
    model = builder(num_classes)
    if config.pretrained:
        load_pretrained(model, config.pretrained, config.reset_classifier, config.checkpoint_weights)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = config.bn_momentum or layer.momentum
            for parameter in layer.parameters(recurse=False):
                if config.freeze_bn:
                    parameter.requires_grad = False
    rules = parse_rules(config.param_groups)
    check_rules([name for name, _ in model.named_parameters()], rules)
    for name, parameter in model.named_parameters():
        if rule_of(name, rules).frozen:
            parameter.requires_grad = False
    if config.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    if config.grad_checkpointing:
        recompute_blocks(model)
    return in_channels_last(model) if config.channels_last else model


def in_channels_last(model: nn.Module) -> nn.Module:
    """The model itself, its weights and each batch that it is given with channels last in memory; values stay."""
    model.register_forward_pre_hook(lambda layer, inputs: tuple(x.contiguous(memory_format=torch.channels_last) for x in inputs))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def place_model(model: nn.Module, ranks: Ranks) -> nn.Module:
    """The model on the ranks' device."""
    return model.to(ranks.torch_device)


def parallel(model: nn.Module, ranks: Ranks) -> nn.Module:
    """The model as training calls it: with several ranks, wrapped so that the backward pass averages gradients over them."""
    return DistributedDataParallel(model, broadcast_buffers=False) if ranks.world_size > 1 else model


def compiled(model: nn.Module) -> nn.Module:
    """The model as training calls it with ``--compile``: the same weights; dropout's numbers are drawn outside of the graphs."""
    for layer in model.modules():
        if isinstance(layer, SharedDropout):
            layer.forward = torch.compiler.disable(layer.forward)  # type: ignore[method-assign]
    return torch.compile(model)


def train_mode(model: nn.Module, freeze_bn: bool) -> None:
    """Set a model to training mode; with ``freeze_bn`` its BatchNorm layers to evaluation mode."""
    model.train()
    if freeze_bn:
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
