"""Faults of a whole run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from paddle import nn

from alignment.project import Project
from mobilenetv3_paddle.train import (
    build_run,
    evaluate_run,
    micro_batches,
    update,
)

from .base import Kind, fault
from .models import batch_norm_frozen


def built(project: Project, change: Callable[[Any], Any]) -> Project:
    """The project whose port's runs are changed after they are built."""

    def build(config, ranks, builder=None):
        run = build_run(config, ranks, builder)
        change(run)
        return run

    return project.with_port("train", build_run=build)


def configured(project: Project, **changes: Any) -> Project:
    """The project whose port runs with another recipe than it is given."""

    def build(config, ranks, builder=None):
        return build_run(dataclasses.replace(config, **changes), ranks, builder)

    return project.with_port("train", build_run=build)


@fault("training", 6, "config.lr", Kind.RECIPE)
def learning_rate_doubled(stack, project):
    return configured(project, lr=2.0**-8)


@fault("training", 6, "config.clip_norm", Kind.RECIPE)
def recipe_without_clipping(stack, project):
    return configured(project, clip_norm=None)


@fault("training", 6, "loss", Kind.SMOOTHING_MISSING)
def run_without_smoothing(stack, project):
    return built(project, lambda run: setattr(run.criterion, "label_smoothing", 0.0))


@fault("training", 6, "loss", Kind.DROPOUT_MISSING)
def run_without_dropout(stack, project):
    def change(run):
        run.model.classifier[2] = nn.Identity()

    return built(project, change)


@fault("training", 6, "loss", Kind.STATISTICS_FROZEN)
def trained_in_evaluation_mode(stack, project):
    def change(run):
        batch_norm_frozen(run.model)

    return built(project, change)


@fault("training", 6, "micro_batches", Kind.ORDER)
def order_of_another_seed(stack, project):
    def batches(run):
        run.plan.seed += 1
        return micro_batches(run)

    return project.with_port("train", micro_batches=batches)


@fault("training", 6, "schedule", Kind.SCHEDULE_NEVER_STEPPED)
def run_never_steps_its_schedule(stack, project):
    def change(run):
        run.schedule.step = lambda: None

    return built(project, change)


@fault("training", 6, "update.weights", Kind.GRADIENT_NOT_CLEARED)
def gradients_kept(stack, project):
    def step(run, gathered):
        clear = run.optimizer.clear_grad
        run.optimizer.clear_grad = lambda: None
        update(run, gathered)
        run.optimizer.clear_grad = clear

    return project.with_port("train", update=step)


@fault("training", 6, "evaluate_run", Kind.EVALUATION)
def evaluated_wrong(stack, project):
    return project.with_port("train", evaluate_run=lambda run, loader: dataclasses.replace(evaluate_run(run, loader), top1=0.99))
