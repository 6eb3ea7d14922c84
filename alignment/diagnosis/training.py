"""Where two training engines part: recipe, batches, schedule, one update from equal weights, evaluation."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from alignment.compare import distance, norm, relative
from alignment.diagnosis.updates import rate_finding
from alignment.localize.finding import Finding
from alignment.sides import Side
from alignment.steps.context import Context
from alignment.steps.train import RECIPE
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

UPDATES = 3
RTOL = 1e-8
SHOWN = 12


@contextlib.contextmanager
def _config(context: Context) -> Iterator[TrainConfig]:
    """Step 6's recipe, with a moving average besides, on a few digits."""
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder, 4, 2)
        yield replace(RECIPE, data_path=folder, model=context.model, epochs=2, ema_decay=0.5, ema_every=1)


def _run(side: Side, context: Context, config: TrainConfig, weights: State | None = None, bits: str = "64") -> Any:
    dtype = f"float{bits}"
    with side.default_dtype(dtype):
        run = side.train.build_run(replace(config, framework=side.name), side.train.Ranks(device=context.device))
    if bits == "64":
        side.make_exact(run.model)
    if weights is not None:
        side.load(run.model, {name: array.astype(dtype) for name, array in weights.items()})
    run.train_mode()
    return run


def _weights(context: Context, config: TrainConfig) -> State:
    with context.ref.default_dtype("float32"):
        return context.ref.state(context.ref.train.build_model(config, 10))


def configuration(context: Context) -> Finding | None:
    """The recipe that each engine really runs with."""
    with _config(context) as config:
        ours, theirs = (asdict(_run(side, context, config, bits="32").config) for side in (context.paddle, context.ref))
    for name, value in theirs.items():
        if name != "framework" and ours.get(name) != value:
            words = f"the recipe's {name} is {ours.get(name)} in Paddle, expected {value}"
            return Finding("train", f"config.{name}", "recipe", words, f"{name}: {ours.get(name)} against {value}")
    return None


def batches(context: Context) -> Finding | None:
    """Pictures and labels that the engines' own loaders make."""
    with _config(context) as config:
        made = {}
        for side in (context.paddle, context.ref):
            run = _run(side, context, config, bits="32")
            made[side.name] = [
                (side.array(images), side.array(labels))
                for ((images, labels), _), _ in zip(side.train.micro_batches(run), range(4), strict=False)
            ]
    for number, (ours, theirs) in enumerate(zip(made["paddle"], made["ref"], strict=True)):
        for what, a, b in zip(("pictures", "labels"), ours, theirs, strict=True):
            if a.shape == b.shape and (a == b).all():
                continue
            same = sorted(ours[1].tolist()) == sorted(theirs[1].tolist())
            hint = "the same labels in another order" if same else "other pictures: another order, seed or epoch"
            return Finding("train", "micro_batches", "order", hint, f"{what} of batch {number} differ")
    return None


def schedule(context: Context) -> Finding | None:
    """Learning rates of the first updates."""
    rates = {}
    with _config(context) as config:
        for side in (context.paddle, context.ref):
            run = _run(side, context, config, bits="32")
            found: list[float] = []
            for batch in side.train.micro_batches(run):
                side.train.update(run, [batch])
                found.append(run.rate)
                if run.iteration == run.updates_per_epoch:
                    run.epoch, run.iteration = run.epoch + 1, 0
                if len(found) == 8:
                    break
            rates[side.name] = np.array(found)
    return rate_finding("train", "schedule", rates["paddle"], rates["ref"])


class _Lockstep:
    """Updates of one engine, each from the reference's weights, in float64: losses, weights and moving averages."""

    def __init__(self, side: Side, context: Context, config: TrainConfig, weights: State, bits: str = "64") -> None:
        self.side, self.dtype = side, f"float{bits}"
        self.losses: list[float] = []
        self.states: list[State] = []
        self.averages: list[State] = []
        run = _run(side, context, config, weights, bits)
        for (images, labels), count in islice(side.train.micro_batches(run), UPDATES):
            start = {name: array.astype(self.dtype) for name, array in weights.items()}
            side.load(run.model, start)
            pixels = side.tensor(side.array(images).astype(self.dtype))
            with side.default_dtype(self.dtype):
                side.train.update(run, [((pixels, labels), count)])
            self.losses.append(float(side.array(run.meter.loss)))
            run.meter = type(run.meter)()
            self.states.append(side.state(run.model))
            self.averages.append({name: side.array(tensor) for name, tensor in sorted(run.average.shadow.items())})


def updates(context: Context) -> Finding | None:
    """Three updates from equal weights: the loss, then the weights and statistics after it, then the moving average."""
    with _config(context) as config:
        weights = _weights(context, config)
        ours = _Lockstep(context.paddle, context, config, weights)
        theirs = _Lockstep(context.ref, context, config, weights)
        finding = _part(ours, theirs, weights)
        if finding is not None:
            for kind, words, changes in _known(config):
                other = _Lockstep(context.ref, context, replace(config, **changes), weights)
                # Where losses differ already, they tell; a mistake can come with others in what is updated.
                same = _same_losses(ours, other) if finding.location == "loss" else _part(ours, other, weights, 1e-6) is None
                if same:
                    finding.kind, finding.hint = kind, words
                    break
            else:
                finding.kind, finding.hint = _kept_gradients(ours, theirs, weights)
    return finding


def _same_losses(ours: _Lockstep, theirs: _Lockstep) -> bool:
    return all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(ours.losses, theirs.losses, strict=True))


def _part(ours: _Lockstep, theirs: _Lockstep, weights: State, rtol: float = RTOL) -> Finding | None:
    for number in range(UPDATES):
        if not abs(ours.losses[number] - theirs.losses[number]) <= rtol * abs(theirs.losses[number]):
            measured = f"update {number}: loss {ours.losses[number]:.9g}, expected {theirs.losses[number]:.9g}"
            return Finding("train", "loss", measured=measured)
        a, b = ours.states[number], theirs.states[number]
        for kind in ("weights", "statistics"):
            names = [n for n in b if n.endswith(("running_mean", "running_var")) == (kind == "statistics")]
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
            return Finding("train", "MovingAverage", "moving_average", "the moving average of the weights differs", measured)
    return None


def _known(config: TrainConfig) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "dropout_missing", "dropout is missing in training", {"dropout": 0.0}
    yield "smoothing_missing", "label smoothing is left out", {"label_smoothing": 0.0}
    yield "clipping_missing", "gradients are not clipped", {"clip_norm": None}
    yield "weight_decay_missing", "weight decay is left out", {"weight_decay": 0.0}
    yield "norm_weight_decay", "weight decay on norm layers is left out", {"norm_weight_decay": 0.0}
    yield "statistics_frozen", "BatchNorm is frozen, or in evaluation mode while training", {"freeze_bn": True}
    yield "momentum", "BatchNorm keeps the momentum of the model, not that of the recipe", {"bn_momentum": None}
    yield "moving_average", "no moving average", {"ema_decay": 0.0}


def _kept_gradients(ours: _Lockstep, theirs: _Lockstep, weights: State) -> tuple[str, str]:
    """Right at the first update and wrong from the second: something is carried over."""
    name = max(theirs.states[0], key=lambda n: norm(theirs.states[0][n] - weights[n]) if "running" not in n else 0.0)
    first = relative(distance(ours.states[0][name], theirs.states[0][name]), norm(theirs.states[0][name] - weights[name]))
    second = relative(distance(ours.states[1][name], theirs.states[1][name]), norm(theirs.states[1][name] - weights[name]))
    if first < 1e-6 < second:
        return "gradient_not_cleared", "right at the first update, wrong from the second: gradients are not cleared"
    return "", ""


def in_float32(context: Context) -> Finding | None:
    """The first losses in float32, for what float64 does not have."""
    with _config(context) as config:
        weights = _weights(context, config)
        ours, theirs = (_Lockstep(side, context, config, weights, "32") for side in (context.paddle, context.ref))
    for number, (a, b) in enumerate(zip(ours.losses, theirs.losses, strict=True)):
        if not abs(a - b) <= 1e-5 * abs(b):
            from alignment.diagnosis import models

            measured = f"update {number}: loss {a:.9g}, expected {b:.9g}, in float32 alone"
            return models.in_float32(context) or Finding("train", "loss", "half_precision", "wrong in float32 alone", measured)
    return None


def evaluation(context: Context) -> Finding | None:
    """Accuracy of equal weights by both engines."""
    figures = {}
    with _config(context) as config:
        weights = _weights(context, config)
        for side in (context.paddle, context.ref):
            run = _run(side, context, config, weights, "32")
            result = side.train.evaluate_run(run, side.train.evaluation_loader(run))
            figures[side.name] = (result.top1, result.top5, result.samples)
    if figures["paddle"] == figures["ref"]:
        return None
    words = f"top-1, top-5, samples: {figures['paddle']}, expected {figures['ref']}"
    return Finding("train", "evaluate_run", "evaluation", "evaluation of the same weights differs", words)
