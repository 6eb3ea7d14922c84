"""Faults of the optimizer, of accumulation, clipping and the schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn

from alignment.project import Project
from mobilenetv3_paddle.train import (
    accumulate_gradients,
    apply_update,
    build_optimizer,
    build_schedule,
)

from .base import Kind, fault

# --- optimizer -------------------------------------------------------------------------------------------------------------


def optimizer_with(project: Project, only: str = "", **changes: Any) -> Project:
    """The project whose port's optimizers (or one of them) get other settings than they are given."""

    def build(model, config):
        return build_optimizer(model, dataclasses.replace(config, **changes) if only in ("", config.name) else config)

    return project.with_port("train", build_optimizer=build)


def optimizer_replaced(project: Project, name: str, make: Callable[..., Any]) -> Project:
    """Another class in place of one optimizer: ``make`` gets the config, and parameters and weight decay by name."""

    def build(model, config):
        if config.name != name:
            return build_optimizer(model, config)
        return make(config, parameters=model.parameters(), weight_decay=config.weight_decay)

    return project.with_port("train", build_optimizer=build)


@fault("optimizer", 5, "optimizer.rmsprop", Kind.EPS_INSIDE_ROOT)
def eps_inside_the_root(stack, project):
    return optimizer_replaced(
        project, "rmsprop", lambda c, **more: paddle.optimizer.RMSProp(c.lr, c.alpha, c.eps, c.momentum, **more)
    )


@fault("optimizer", 5, "optimizer.rmsprop", Kind.ALPHA)
def rmsprop_alpha(stack, project):
    return optimizer_with(project, "rmsprop", alpha=0.99)


@fault("optimizer", 5, "optimizer.sgd", Kind.MOMENTUM_MISSING)
def momentum_missing(stack, project):
    return optimizer_with(project, "sgd", momentum=0.0)


@fault("optimizer", 5, "optimizer.sgd", Kind.NESTEROV)
def nesterov(stack, project):
    def build(model, config):
        optimizer = build_optimizer(model, config)
        if config.name == "sgd":
            optimizer._default_dict["use_nesterov"] = optimizer._use_nesterov = True  # the first is what parameter groups get
        return optimizer

    return project.with_port("train", build_optimizer=build)


@fault("optimizer", 5, "optimizer.sgd", Kind.WEIGHT_DECAY_MISSING)
def weight_decay_missing(stack, project):
    return optimizer_with(project, weight_decay=0.0)


@fault("optimizer", 5, "optimizer.sgd: features.0.1.weight", Kind.NORM_WEIGHT_DECAY)
def no_weight_decay_on_norm_layers(stack, project):
    return optimizer_with(project, norm_weight_decay=0.0)


@fault("optimizer", 5, "optimizer.adamw", Kind.L2_FOR_DECOUPLED)
def adam_with_l2(stack, project):
    return optimizer_replaced(project, "adamw", lambda c, **more: paddle.optimizer.Adam(c.lr, c.beta1, c.beta2, c.eps, **more))


@fault("optimizer", 5, "optimizer.adamw", Kind.OPTIMIZER_EPS)
def adamw_eps(stack, project):
    return optimizer_with(project, "adamw", eps=1e-8)


@fault("optimizer", 5, "apply_update", Kind.GRADIENT_NOT_CLEARED)
def gradient_not_cleared(stack, project):
    def step(model, optimizer, clip_norm=None):
        if clip_norm is not None:
            nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)
        optimizer.step()

    return project.with_port("train", apply_update=step)


@fault("optimizer", 5, "apply_update", Kind.NEVER_UPDATED)
def never_updated(stack, project):
    return project.with_port("train", apply_update=lambda model, optimizer, clip_norm=None: optimizer.clear_grad())


@fault("optimizer", 5, "apply_update", Kind.CLIPPING_MISSING)
def clipping_missing(stack, project):
    def step(model, optimizer, clip_norm=None):
        apply_update(model, optimizer)

    return project.with_port("train", apply_update=step)


@fault("optimizer", 5, "accumulate_gradients", Kind.SUM_FOR_MEAN)
def micro_batches_summed(stack, project):
    def accumulate(model, criterion, batches):
        total = 0.0
        for batch in batches:
            total = total + accumulate_gradients(model, criterion, [batch])
        return total / len(batches)

    return project.with_port("train", accumulate_gradients=accumulate)


# --- schedule --------------------------------------------------------------------------------------------------------------


def schedule_with(project: Project, **changes: Any) -> Project:
    """The project whose port's schedules get other settings than they are given."""
    return project.with_port(
        "train", build_schedule=lambda optimizer, c: build_schedule(optimizer, dataclasses.replace(c, **changes))
    )


@fault("schedule", 5, "build_schedule(step)", Kind.SCHEDULE_NEVER_STEPPED)
def schedule_never_stepped(stack, project):
    class Constant:
        def step(self):
            pass

    return project.with_port("train", build_schedule=lambda optimizer, config: Constant())


@fault("schedule", 5, "build_schedule(step)", Kind.SCHEDULE_OFF_BY_ONE)
def schedule_off_by_one(stack, project):
    def build(optimizer, config):
        schedule = build_schedule(optimizer, config)
        schedule.step()
        return schedule

    return project.with_port("train", build_schedule=build)


@fault("schedule", 5, "build_schedule(step)", Kind.SCHEDULE_FACTOR)
def schedule_factor(stack, project):
    return schedule_with(project, gamma=0.1)
