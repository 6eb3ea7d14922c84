"""Faults of a whole run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from paddle import nn

from alignment.faults.base import fault
from alignment.faults.models import batch_norm_frozen
from alignment.sides import PaddleSide
from mobilenetv3_paddle.train import (
    build_run,
    evaluate_run,
    micro_batches,
    update,
)


def built(change: Callable[[Any], Any]) -> PaddleSide:
    """A run that is changed after it is built."""

    def build(config, ranks):
        run = build_run(config, ranks)
        change(run)
        return run

    return PaddleSide(train={"build_run": build})


def configured(**changes: Any) -> PaddleSide:
    """A run with another recipe than it is given."""
    return PaddleSide(train={"build_run": lambda config, ranks: build_run(dataclasses.replace(config, **changes), ranks)})


@fault("training", 6, "config.lr", "recipe")
def learning_rate_doubled(stack):
    return configured(lr=2.0**-8)


@fault("training", 6, "config.clip_norm", "recipe")
def recipe_without_clipping(stack):
    return configured(clip_norm=None)


@fault("training", 6, "loss", "smoothing_missing")
def run_without_smoothing(stack):
    return built(lambda run: setattr(run.criterion, "label_smoothing", 0.0))


@fault("training", 6, "loss", "dropout_missing")
def run_without_dropout(stack):
    def change(run):
        run.model.classifier[2] = nn.Identity()

    return built(change)


@fault("training", 6, "loss", "statistics_frozen")
def trained_in_evaluation_mode(stack):
    def change(run):
        batch_norm_frozen(run.model)

    return built(change)


@fault("training", 6, "micro_batches", "order")
def order_of_another_seed(stack):
    def batches(run):
        run.plan.seed += 1
        return micro_batches(run)

    return PaddleSide(train={"micro_batches": batches})


@fault("training", 6, "schedule", "schedule_never_stepped")
def run_never_steps_its_schedule(stack):
    def change(run):
        run.schedule.step = lambda: None

    return built(change)


@fault("training", 6, "update.weights", "gradient_not_cleared")
def gradients_kept(stack):
    def step(run, gathered):
        clear = run.optimizer.clear_grad
        run.optimizer.clear_grad = lambda: None
        update(run, gathered)
        run.optimizer.clear_grad = clear

    return PaddleSide(train={"update": step})


@fault("training", 6, "evaluate_run", "evaluation")
def evaluated_wrong(stack):
    return PaddleSide(train={"evaluate_run": lambda run, loader: dataclasses.replace(evaluate_run(run, loader), top1=0.99)})
