"""Where two training engines diverge: recipe, batches, schedule, one update from equal weights, evaluation."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from alignment.compare import distance, norm, relative
from alignment.localize.finding import NO_HINT, Finding, Hint
from alignment.localize.kinds import Kind
from alignment.localize.stages.models import in_float32 as in_float32_alone
from alignment.localize.stages.updates import rate_finding
from alignment.steps.context import Context
from alignment.steps.train import engine, fresh_weights, next_epoch, recipe, start_run
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

UPDATES = 3
RTOL = 1e-8


@contextlib.contextmanager
def _config(context: Context) -> Iterator[TrainConfig]:
    """Step 6's recipe, with a moving average besides, on a few digits."""
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder, 4, 2)
        yield replace(recipe(context), data_path=folder, epochs=2, ema_decay=0.5, ema_every=1)


def configuration(context: Context) -> Finding | None:
    """The recipe that each engine really runs with."""
    with _config(context) as config:
        ours, theirs = (asdict(start_run(context, role, config, "32").config) for role in context.sides)
    for name, value in theirs.items():
        if ours.get(name) != value:
            words = f"the recipe's {name} is {ours.get(name)} in the port, expected {value}"
            return Finding("train", f"config.{name}", Kind.RECIPE, words, f"{name}: {ours.get(name)} against {value}")
    return None


def batches(context: Context) -> Finding | None:
    """Pictures and labels that the engines' own loaders make."""
    with _config(context) as config:
        made = {}
        for role, side in context.sides.items():
            run, array = start_run(context, role, config, "32"), side.framework.array
            batches = islice(engine(context, role).micro_batches(run), 4)
            made[role] = [(array(images), array(labels)) for (images, labels), _ in batches]
    for number, (ours, theirs) in enumerate(zip(made["port"], made["reference"], strict=True)):
        for what, a, b in zip(("pictures", "labels"), ours, theirs, strict=True):
            if a.shape == b.shape and (a == b).all():
                continue
            same = sorted(ours[1].tolist()) == sorted(theirs[1].tolist())
            hint = "the same labels in another order" if same else "other pictures: another order, seed or epoch"
            return Finding("train", "micro_batches", Kind.ORDER, hint, f"{what} of batch {number} differ")
    return None


def schedule(context: Context) -> Finding | None:
    """Learning rates of the first updates."""
    rates = {}
    with _config(context) as config:
        for role in context.sides:
            run, train = start_run(context, role, config, "32"), engine(context, role)
            found: list[float] = []
            for batch in islice(train.micro_batches(run), 8):
                train.update(run, [batch])
                found.append(run.rate)
                next_epoch(run)
            rates[role] = np.array(found)
    return rate_finding("train", "schedule", rates["port"], rates["reference"])


class _Lockstep:
    """Updates of one engine, each from the reference's weights, in float64: losses, weights and moving averages."""

    def __init__(self, context: Context, role: str, config: TrainConfig, weights: State, bits: str = "64") -> None:
        framework, train, dtype = context.sides[role].framework, engine(context, role), f"float{bits}"
        self.losses: list[float] = []
        self.states: list[State] = []
        self.averages: list[State] = []
        run = start_run(context, role, config, bits, weights)
        self.buffers = {entry.canonical for entry in framework.entries(run.model) if entry.role == "buffer"}
        for (images, labels), count in islice(train.micro_batches(run), UPDATES):
            context.load(role, run.model, weights)
            pixels = framework.tensor(framework.array(images).astype(dtype))
            with framework.precision(dtype):
                train.update(run, [((pixels, labels), count)])
            self.losses.append(float(framework.array(run.meter.loss)))
            run.meter = type(run.meter)()
            self.states.append(framework.state(run.model))
            self.averages.append({name: framework.array(tensor) for name, tensor in sorted(run.average.shadow.items())})


def updates(context: Context) -> Finding | None:
    """Three updates from equal weights: the loss, then the weights and statistics after it, then the moving average."""
    with _config(context) as config:
        weights = fresh_weights(context, config)
        ours, theirs = (_Lockstep(context, role, config, weights) for role in context.sides)
        finding = _difference(ours, theirs, weights)
        if finding is not None:
            for kind, words, changes in _known():
                other = _Lockstep(context, "reference", replace(config, **changes), weights)
                # Where losses differ already, they tell; a mistake can come with others in what is updated.
                same = _same_losses(ours, other) if finding.location == "loss" else _difference(ours, other, weights, 1e-6) is None
                if same:
                    finding.kind, finding.hint = kind, words
                    break
            else:
                finding.kind, finding.hint = _kept_gradients(ours, theirs, weights)
    return finding


def _same_losses(ours: _Lockstep, theirs: _Lockstep) -> bool:
    return all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(ours.losses, theirs.losses, strict=True))


def _difference(ours: _Lockstep, theirs: _Lockstep, weights: State, rtol: float = RTOL) -> Finding | None:
    for number in range(UPDATES):
        if not abs(ours.losses[number] - theirs.losses[number]) <= rtol * abs(theirs.losses[number]):
            measured = f"update {number}: loss {ours.losses[number]:.9g}, expected {theirs.losses[number]:.9g}"
            return Finding("train", "loss", measured=measured)
        a, b = ours.states[number], theirs.states[number]
        for kind in ("weights", "statistics"):
            names = [n for n in b if (n in theirs.buffers) == (kind == "statistics")]
            if not names:
                continue
            moves = {n: norm(b[n] - weights[n]) for n in names}
            largest = max(moves.values())
            wrong = [n for n in names if not distance(a[n], b[n]) <= rtol * max(moves[n], 1e-3 * largest) * 10]
            if wrong:
                sizes = norm(a[wrong[0]] - weights[wrong[0]]), moves[wrong[0]]
                first = f"{wrong[0]} moves by {sizes[0]:.4g}, expected {sizes[1]:.4g}"
                measured = f"update {number}: {len(wrong)} of {len(names)}, first {first}"
                return Finding("train", f"update.{kind}", measured=measured)
        x, y = ours.averages[number].values(), theirs.averages[number].values()
        totals = [sum(norm(v) ** 2 for v in values) ** 0.5 for values in (x, y)]
        if abs(totals[0] - totals[1]) > 1e-5 * max(totals[1], 1e-30):
            measured = f"update {number}: norm {totals[0]:.6g}, expected {totals[1]:.6g}"
            return Finding("train", "MovingAverage", Kind.MOVING_AVERAGE, "the moving average of the weights differs", measured)
    return None


def _known() -> Iterator[tuple[Kind, str, dict[str, Any]]]:
    yield Kind.DROPOUT_MISSING, "dropout is missing in training", {"dropout": 0.0}
    yield Kind.SMOOTHING_MISSING, "label smoothing is left out", {"label_smoothing": 0.0}
    yield Kind.CLIPPING_MISSING, "gradients are not clipped", {"clip_norm": None}
    yield Kind.WEIGHT_DECAY_MISSING, "weight decay is left out", {"weight_decay": 0.0}
    yield Kind.NORM_WEIGHT_DECAY, "weight decay on norm layers is left out", {"norm_weight_decay": 0.0}
    yield Kind.STATISTICS_FROZEN, "BatchNorm is frozen, or in evaluation mode while training", {"freeze_bn": True}
    yield Kind.MOMENTUM, "BatchNorm keeps the momentum of the model, not that of the recipe", {"bn_momentum": None}
    yield Kind.MOVING_AVERAGE, "no moving average", {"ema_decay": 0.0}


def _kept_gradients(ours: _Lockstep, theirs: _Lockstep, weights: State) -> Hint:
    """Right at the first update and wrong from the second: something is carried over."""
    parameters = [n for n in theirs.states[0] if n not in theirs.buffers]
    name = max(parameters, key=lambda n: norm(theirs.states[0][n] - weights[n]))
    first = relative(distance(ours.states[0][name], theirs.states[0][name]), norm(theirs.states[0][name] - weights[name]))
    second = relative(distance(ours.states[1][name], theirs.states[1][name]), norm(theirs.states[1][name] - weights[name]))
    if first < 1e-6 < second:
        return Kind.GRADIENT_NOT_CLEARED, "right at the first update, wrong from the second: gradients are not cleared"
    return NO_HINT


def in_float32(context: Context) -> Finding | None:
    """The first losses in float32, for what float64 does not have."""
    with _config(context) as config:
        weights = fresh_weights(context, config)
        ours, theirs = (_Lockstep(context, role, config, weights, "32") for role in context.sides)
    for number, (a, b) in enumerate(zip(ours.losses, theirs.losses, strict=True)):
        if not abs(a - b) <= 1e-5 * abs(b):
            measured = f"update {number}: loss {a:.9g}, expected {b:.9g}, in float32 alone"
            return in_float32_alone(context) or Finding("train", "loss", Kind.HALF_PRECISION, "wrong in float32 alone", measured)
    return None


def evaluation(context: Context) -> Finding | None:
    """Accuracy of equal weights by both engines."""
    figures = {}
    with _config(context) as config:
        weights = fresh_weights(context, config)
        for role in context.sides:
            run, train = start_run(context, role, config, "32", weights), engine(context, role)
            result = train.evaluate_run(run, train.evaluation_loader(run))
            figures[role] = (result.top1, result.top5, result.samples)
    if figures["port"] == figures["reference"]:
        return None
    words = f"top-1, top-5, samples: {figures['port']}, expected {figures['reference']}"
    return Finding("train", "evaluate_run", Kind.EVALUATION, "evaluation of the same weights differs", words)
