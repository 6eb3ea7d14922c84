"""Training runs of step 5: what all lanes do, and what one lane shows of each update."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from alignment.comparisons.model.forward import NamedOutputs
from alignment.models.observe import traced_kinks
from alignment.models.tracing import Network
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

LABEL_SMOOTHING = 0.1
HALVE_EVERY_3 = ScheduleConfig("step", step_size=3, gamma=0.5)


@dataclass(frozen=True)
class Run:
    """One training run that all lanes make: optimizer, mode and what surrounds the update.

    The float32 lanes stop after ``float32_iterations``; the exact ones go through all ``iterations``. Learning rate and clip norm
    are those of networks with gradients of a usual size; ``fitted`` adapts them to others.
    """

    name: str
    optimizer: OptimizerConfig
    training: bool
    iterations: int = 10
    float32_iterations: int = 2
    accumulate: int = 1
    batch_size: int = 4
    clip_norm: float | None = None
    schedule: ScheduleConfig = HALVE_EVERY_3


SGD = OptimizerConfig("sgd", lr=1e-5, momentum=0.9, weight_decay=1e-3)
RMSPROP = OptimizerConfig("rmsprop", lr=1e-4, momentum=0.9, alpha=0.9, eps=0.0316, weight_decay=1e-3)
# AdamW divides a small gradient's rounding by eps: with eps 1e-3 one element that chanced to be 1e-6 among gradients of
# 1 moved the whole next iteration by 1e-12, which one-ulp changes, sparing that element, did not show. And 1 - 0.999^t
# loses three digits, in either framework its own, unless the powers of beta are exact.
ADAMW = OptimizerConfig("adamw", lr=3e-4, beta1=0.875, beta2=0.96875, eps=0.03125, weight_decay=0.01)
RUNS = (
    Run("sgd.eval", SGD, training=False, float32_iterations=10),
    Run("sgd.train", SGD, training=True),
    Run("rmsprop.eval", RMSPROP, training=False),
    Run("rmsprop.train", RMSPROP, training=True, float32_iterations=10),
    Run("adamw.eval", ADAMW, training=False),
    Run("adamw.train", ADAMW, training=True),
    Run("sgd.train.accumulate2.clip", SGD, training=True, iterations=3, accumulate=2, clip_norm=20.0),
)


# One update moves the weights by this share of their norm at least: far above rounding.
LEAST_MOVE = 2.0**-18


def fitted(run: Run, gradient: float, weights: float, count: int) -> Run:
    """The run with a clip norm that clips, and a learning rate that moves the weights, in a network with small gradients.

    Args:
        run: as it is for networks with gradients of a usual size.
        gradient: L2 norm of the network's first gradients in this run.
        weights: L2 norm of the weights that have gradients.
        count: of their elements.
    """
    if not 0 < gradient < np.inf:
        return run  # the evidence will say so
    if run.clip_norm is not None and run.clip_norm >= gradient:
        run = replace(run, clip_norm=2.0 ** math.floor(math.log2(gradient) - 1))
    config, size = run.optimizer, min(gradient, run.clip_norm or np.inf)
    # RMSProp and AdamW divide a gradient by its own size, or by eps where that is larger.
    step = config.lr * (size if config.name == "sgd" else min(size / config.eps, count**0.5))
    if step >= LEAST_MOVE * weights:
        return run
    return replace(run, optimizer=replace(config, lr=config.lr * 2.0 ** math.ceil(math.log2(LEAST_MOVE * weights / step))))


@dataclass
class Iteration:
    """What one lane shows of one update.

    Attributes:
        loss: shape ().
        lr: of this update.
        gradients: by torch's names, before clipping; float32 lanes keep them, and the state, for the first update only.
        kinks: sides of the kinks on which the activations' inputs lay.
        state: after the update.
    """

    loss: np.ndarray
    lr: float
    gradients: State
    kinks: NamedOutputs
    state: State


def iterate(lane: Network, run: Run, inputs: tuple[np.ndarray, ...], labels: np.ndarray) -> Iterator[Iteration]:
    """Train one lane from its starting weights, one update a step of the iterator."""
    framework, network, train, loss = lane.framework, lane.model, lane.side.train, lane.side.loss
    assert train is not None and loss is not None
    lane.reset()
    framework.clear_gradients(network)
    lane.train_mode(run.training)
    with framework.default_dtype(lane.dtype):
        optimizer = train.build_optimizer(network, run.optimizer.in_float32())
        schedule = train.build_schedule(optimizer, run.schedule)
    criterion = loss.CrossEntropyLoss(LABEL_SMOOTHING)
    for number in range(run.iterations):
        lane.draws.iteration = number
        batches = []
        for part in range(run.accumulate):
            chosen = (np.arange(run.batch_size) + (number * run.accumulate + part) * run.batch_size) % len(labels)
            (images,) = lane.inputs((inputs[0][chosen],))
            batches.append((framework.tensor(images), framework.tensor(labels[chosen])))
        kinks: NamedOutputs = {}
        with framework.precision(lane.dtype):
            with traced_kinks(framework, network, kinks) if number < run.float32_iterations else contextlib.nullcontext():
                value = train.accumulate_gradients(network, criterion, batches)
            gradients = framework.gradients(network) if lane.exact or number == 0 else {}
            rate = framework.learning_rate(optimizer)
            train.apply_update(network, optimizer, run.clip_norm)
            schedule.step()
        state = framework.state(network) if lane.exact or number == 0 else {}
        yield Iteration(framework.array(value).reshape(()), rate, gradients, kinks, state)
