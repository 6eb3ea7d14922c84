"""Faults of the optimizer, of accumulation, clipping and the schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn

from alignment.faults.base import fault
from alignment.sides import PaddleSide
from mobilenetv3_paddle.train import (
    accumulate_gradients,
    build_optimizer,
    build_schedule,
)

# --- optimizer -------------------------------------------------------------------------------------------------------------


def optimizer_with(only: str = "", **changes: Any) -> PaddleSide:
    def build(model, config):
        return build_optimizer(model, dataclasses.replace(config, **changes) if only in ("", config.name) else config)

    return PaddleSide(train={"build_optimizer": build})


def optimizer_replaced(name: str, make: Callable[..., Any]) -> PaddleSide:
    """Another class in place of one optimizer: ``make`` gets the config, and parameters and weight decay by name."""

    def build(model, config):
        if config.name != name:
            return build_optimizer(model, config)
        return make(config, parameters=model.parameters(), weight_decay=config.weight_decay)

    return PaddleSide(train={"build_optimizer": build})


@fault("optimizer", 5, "optimizer.rmsprop", "eps_inside_root")
def eps_inside_the_root(stack):
    return optimizer_replaced("rmsprop", lambda c, **more: paddle.optimizer.RMSProp(c.lr, c.alpha, c.eps, c.momentum, **more))


@fault("optimizer", 5, "optimizer.rmsprop", "alpha")
def rmsprop_alpha(stack):
    return optimizer_with("rmsprop", alpha=0.99)


@fault("optimizer", 5, "optimizer.sgd", "momentum_missing")
def momentum_missing(stack):
    return optimizer_with("sgd", momentum=0.0)


@fault("optimizer", 5, "optimizer.sgd", "nesterov")
def nesterov(stack):
    def build(model, config):
        optimizer = build_optimizer(model, config)
        if config.name == "sgd":
            optimizer._default_dict["use_nesterov"] = optimizer._use_nesterov = True  # the first is what parameter groups get
        return optimizer

    return PaddleSide(train={"build_optimizer": build})


@fault("optimizer", 5, "optimizer.sgd", "weight_decay_missing")
def weight_decay_missing(stack):
    return optimizer_with(weight_decay=0.0)


@fault("optimizer", 5, "optimizer.sgd: features.0.1.weight", "norm_weight_decay")
def no_weight_decay_on_norm_layers(stack):
    return optimizer_with(norm_weight_decay=0.0)


@fault("optimizer", 5, "optimizer.adamw", "l2_for_decoupled")
def adam_with_l2(stack):
    return optimizer_replaced("adamw", lambda c, **more: paddle.optimizer.Adam(c.lr, c.beta1, c.beta2, c.eps, **more))


@fault("optimizer", 5, "optimizer.adamw", "optimizer_eps")
def adamw_eps(stack):
    return optimizer_with("adamw", eps=1e-8)


@fault("optimizer", 5, "apply_update", "gradient_not_cleared")
def gradient_not_cleared(stack):
    def step(model, optimizer, clip_norm=None):
        if clip_norm is not None:
            nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)
        optimizer.step()

    return PaddleSide(train={"apply_update": step})


@fault("optimizer", 5, "apply_update", "never_updated")
def never_updated(stack):
    return PaddleSide(train={"apply_update": lambda model, optimizer, clip_norm=None: optimizer.clear_grad()})


@fault("optimizer", 5, "apply_update", "clipping_missing")
def clipping_missing(stack):
    def step(model, optimizer, clip_norm=None):
        optimizer.step()
        optimizer.clear_grad()

    return PaddleSide(train={"apply_update": step})


@fault("optimizer", 5, "accumulate_gradients", "sum_for_mean")
def micro_batches_summed(stack):
    def accumulate(model, criterion, batches):
        total = 0.0
        for batch in batches:
            total = total + accumulate_gradients(model, criterion, [batch])
        return total / len(batches)

    return PaddleSide(train={"accumulate_gradients": accumulate})


# --- schedule --------------------------------------------------------------------------------------------------------------


def schedule_with(**changes: Any) -> PaddleSide:
    return PaddleSide(train={"build_schedule": lambda optimizer, c: build_schedule(optimizer, dataclasses.replace(c, **changes))})


@fault("schedule", 5, "build_schedule(step)", "schedule_never_stepped")
def schedule_never_stepped(stack):
    class Constant:
        def step(self):
            pass

    return PaddleSide(train={"build_schedule": lambda optimizer, config: Constant()})


@fault("schedule", 5, "build_schedule(step)", "schedule_off_by_one")
def schedule_off_by_one(stack):
    def build(optimizer, config):
        schedule = build_schedule(optimizer, config)
        schedule.step()
        return schedule

    return PaddleSide(train={"build_schedule": build})


@fault("schedule", 5, "build_schedule(step)", "schedule_factor")
def schedule_factor(stack):
    return schedule_with(gamma=0.1)
