"""Step 5, backward: losses, learning rates, gradients, weights and BatchNorm statistics over ten updates.

Each optimizer runs in evaluation mode, as the guide asks, and in training mode with shared dropout masks, which alone
sees BatchNorm's momentum, dropout and the gradients through batch statistics. The float32 runs are judged tensor by
tensor at the first update, and by their losses until a kink flip parts them; the exact runs are judged throughout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from alignment import tolerance
from alignment.compare import KINK_FLIPS, Change, Group, Lanes, Leeway, Quantity, distance, judge_measured, norm, relative
from alignment.sides import Trace
from alignment.steps.context import Context, Lane, StepResult
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

PADDLE_LANES = ("paddle64", "paddle32")
ULP_DRAWS = ("ulp64", "ulp64#1", "ulp64#2")  # one draw can spare the very element that matters
REF_LANES = ("ref64", *ULP_DRAWS, "ref32", "ulp32")
PICTURE_SIZE = 48
LABEL_SMOOTHING = 0.1


HALVE_EVERY_3 = ScheduleConfig("step", step_size=3, gamma=0.5)


@dataclass(frozen=True)
class Run:
    """One training run that all lanes make: optimizer, mode and what surrounds the update.

    The float32 lanes stop after ``float32_iterations``; the exact ones go through all ``iterations``.
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
    kinks: Trace
    state: State


@dataclass
class History:
    """What a run needs to remember from one iteration to the next."""

    flips: int = 0
    losses: dict[str, list[np.ndarray]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    floor32: float = 0.0
    pooled64: dict[str, float] = field(default_factory=dict)
    together64: dict[str, float] = field(default_factory=dict)


def run(context: Context, runs: tuple[Run, ...] = RUNS) -> StepResult:
    """Make every run on all lanes in lockstep and compare after each update."""
    result = StepResult(5, "backward")
    images, labels = context.photographs(32, PICTURE_SIZE)
    lanes = {name: Lane(context, name) for name in (*PADDLE_LANES, *REF_LANES)}
    dropouts = {name: lanes[name].dropouts for name in ("paddle32", "ref32")}
    result.require("dropout_layers", dropouts["ref32"], dropouts["ref32"] > 0, "1 or more")
    if dropouts["paddle32"] != dropouts["ref32"]:
        result.problems.append(f"paddle has {dropouts['paddle32']} dropout layer(s), ref {dropouts['ref32']}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the two frameworks run beside each other, one thread each
    try:
        with ThreadPoolExecutor(1) as beside:
            for one in runs:
                _compare_run(context, result, one, lanes, (images, labels), beside)
    finally:
        torch.set_num_threads(threads)
    return result


def iterate(lane: Lane, run: Run, images: np.ndarray, labels: np.ndarray) -> Iterator[Iteration]:
    """Train one lane from its starting weights, one update a step of the iterator."""
    side, network = lane.side, lane.network
    lane.reset()
    network.train() if run.training else network.eval()
    with side.default_dtype(lane.dtype):
        optimizer = side.train.build_optimizer(network, run.optimizer.in_float32())
        schedule = side.train.build_schedule(optimizer, run.schedule)
    criterion = side.loss.CrossEntropyLoss(LABEL_SMOOTHING)
    for number in range(run.iterations):
        lane.iteration = number
        batches = []
        for part in range(run.accumulate):
            chosen = (np.arange(run.batch_size) + (number * run.accumulate + part) * run.batch_size) % len(images)
            batches.append((side.tensor(lane.images(images[chosen])), side.tensor(labels[chosen])))
        kinks: Trace = {}
        with side.default_dtype(lane.dtype):
            with side.traced_kinks(network, kinks) if number < run.float32_iterations else contextlib.nullcontext():
                loss = side.train.accumulate_gradients(network, criterion, batches)
            gradients = side.gradients(network) if lane.exact or number == 0 else {}
            rate = side.learning_rate(optimizer)
            side.train.apply_update(network, optimizer, run.clip_norm)
            schedule.step()
        state = side.state(network) if lane.exact or number == 0 else {}
        yield Iteration(side.array(loss).reshape(()), rate, gradients, kinks, state)


def _compare_run(
    context: Context, result: StepResult, run: Run, lanes: dict[str, Lane], data: tuple, beside: ThreadPoolExecutor
) -> None:
    iterators = {name: iterate(lane, run, *data) for name, lane in lanes.items()}
    history = History(losses={n: [] for n in lanes}, rates={n: [] for n in lanes})
    first: dict[str, Iteration] = {}

    def reference(number: int) -> dict[str, Iteration]:
        return {name: next(iterators[name]) for name in REF_LANES if takes_part(name, number)}

    def takes_part(name: str, number: int) -> bool:
        return "64" in name or number < (1 if name == "ulp32" else run.float32_iterations)

    ahead = beside.submit(reference, 0)
    for number in range(run.iterations):
        now = {name: next(iterators[name]) for name in PADDLE_LANES if takes_part(name, number)} | ahead.result()
        if number + 1 < run.iterations:
            ahead = beside.submit(reference, number + 1)  # while this iteration is being judged
        for lane, iteration in now.items():
            history.losses[lane].append(iteration.loss)
            history.rates[lane].append(iteration.lr)
        flips = _flips(now)
        history.flips += flips
        for kind in ("gradients", "state"):
            _judge_tensors(result, run, number, now, kind, flips, history)
        _judge_loss(result, run, number, now, history)
        first = first or now
    _judge_rates(result, run, history)
    _evidence(context, result, run, first, now, history)


def _flips(now: dict[str, Iteration]) -> int:
    """Kink inputs on which Paddle's or the reference's float32 run lies on another side than the float64 truth."""
    truth = now["ref64"].kinks
    count = 0
    for lane in [name for name in ("paddle32", "ref32") if name in now]:
        kinks = now[lane].kinks
        count += sum(int((kinks[k] != truth[k]).sum()) for k in truth if k in kinks and kinks[k].shape == truth[k].shape)
    return count


def _judge_loss(result: StepResult, run: Run, number: int, now: dict[str, Iteration], history: History) -> None:
    truth = float(now["ref64"].loss)
    if "ref32" in now:
        history.floor32 = max(history.floor32, relative(abs(float(now["ref32"].loss) - truth), abs(truth)))
    if number == 0:
        # One number can be right by luck; the mean noise of the gradients tells what float32 gives in this network.
        history.floor32 = max(history.floor32, _mean_relative(_changes(now["ref32"], now["ref64"], "gradients")))
    leeway = Leeway(
        pooled32=history.floor32,
        pooled64=history.pooled64["gradients"],
        float32=history.flips == 0 or number == 0,
    )
    lanes = Lanes(**{lane: iteration.loss for lane, iteration in now.items() if "#" not in lane})
    quantity = judge_measured(f"{run.name}.iter{number}.loss", lanes, leeway)
    if "paddle32" in now and not leeway.float32:
        quantity.reason = (quantity.reason + "; " if quantity.reason else "") + (
            f"float32 parted by {history.flips} {KINK_FLIPS}: judged in exact mode"
        )
    result.quantities.append(quantity)


def _judge_tensors(
    result: StepResult, run: Run, number: int, now: dict[str, Iteration], kind: str, flips: int, history: History
) -> None:
    """Gradients or state after the update: tensor by tensor, and all together against the one-ulp floor."""
    tensors = {lane: getattr(iteration, kind) for lane, iteration in now.items() if "#" not in lane}
    draws = [_changes(now[lane], now["ref64"], kind) for lane in ULP_DRAWS]
    changes = {name: max(draw[name] for draw in draws) for name in draws[0]}
    # Rounding that has crept in does not leave again; and one draw of one-ulp changes can spare a small tensor by luck: in
    # 800,000 tensors one lay 12 x above the largest of its three draws. After an update it may lie as far as its siblings.
    noisy = float(np.quantile(_relative(changes) or [0.0], 0.95 if number == 0 else 1.0))
    history.pooled64[kind] = max(history.pooled64.get(kind, 0.0), noisy)
    # One flip in a squeeze-excitation's ReLU takes a sample out of a gradient's row: exact mode judges each tensor then.
    leeway = Leeway(flips=flips, pooled64=history.pooled64[kind], float32=flips == 0)
    if number == 0:
        leeway.pooled32 = _mean_relative(_changes(now["ref32"], now["ref64"], kind))
    else:
        tensors = {lane: tensors[lane] for lane in ("paddle64", "ref64")}
    group = Group(f"{run.name}.iter{number}.{kind}")
    error = 0.0
    for name in dict.fromkeys([*tensors["ref64"], *tensors["paddle64"]]):
        leeway.change64 = changes.get(name)
        row = judge_measured(f"{group.name}.{name}", Lanes(**{lane: t.get(name) for lane, t in tensors.items()}), leeway)
        group.add(row)
        comparable = row.float64_diff is not None and name in changes
        error += ((row.float64_diff or 0.0) * changes[name].scale) ** 2 if comparable else np.inf
        if number == 0 and kind == "gradients" and row.passed:
            result.quantities.append(row)
    result.extend(group.rows())
    together = _judge_together(f"{group.name}.together", error**0.5, draws, kind, history)
    if number == 0:
        _judge_together_in_float32(together, now, kind, flips)
    result.quantities.append(together)


def _judge_together(name: str, error: float, draws: list[dict[str, Change]], kind: str, history: History) -> Quantity:
    """All tensors of a kind as one vector, within TRAJECTORY_FACTOR of the largest one-ulp floor so far."""
    scale = sum(change.scale**2 for change in draws[0].values()) ** 0.5
    floor = max(relative(sum(change.distance**2 for change in draw.values()) ** 0.5, scale) for draw in draws)
    history.together64[kind] = floor = max(history.together64.get(kind, 0.0), floor)
    difference = relative(error, scale)
    quantity = Quantity(name, [len(draws[0])], float64_diff=difference)
    if not difference <= tolerance.TRAJECTORY_FACTOR * floor:
        quantity.fail(f"exact mode differs by {difference:.1e}, one-ulp changes by {floor:.1e}")
    return quantity


def _judge_together_in_float32(quantity: Quantity, now: dict[str, Iteration], kind: str, flips: int) -> None:
    def error(lane: str) -> float:
        changes = _changes(now[lane], now["ref64"], kind).values()
        return relative(sum(c.distance**2 for c in changes) ** 0.5, sum(c.scale**2 for c in changes) ** 0.5)

    if getattr(now["paddle32"], kind).keys() != getattr(now["ref64"], kind).keys():
        return  # the tensors' own rows have failed
    quantity.paddle_error = error("paddle32")
    quantity.ref_error = max(error("ref32"), tolerance.BASE_FLOOR_32, tolerance.FLIP_ALLOWANCE if flips else 0.0)
    if flips:
        quantity.reason = f"{flips} {KINK_FLIPS}"
    if not quantity.paddle_error <= tolerance.FLOOR_FACTOR * quantity.ref_error:
        quantity.fail(f"float32 error {quantity.paddle_error:.1e}, noise floor {quantity.ref_error:.1e}")


def _changes(other: Iteration, truth: Iteration, kind: str) -> dict[str, Change]:
    tensors, changed = getattr(truth, kind), getattr(other, kind)
    return {name: Change(distance(changed[name], array), norm(array)) for name, array in tensors.items()}


def _relative(changes: dict[str, Change]) -> list[float]:
    """Relative changes, those of tensors that are zero but for rounding left out."""
    return [change.share for change in changes.values() if change.share < tolerance.NOISE_SHARE]


def _mean_relative(changes: dict[str, Change]) -> float:
    return float(np.mean(_relative(changes) or [0.0]))


def _judge_rates(result: StepResult, run: Run, history: History) -> None:
    for paddle, ref in (("paddle64", "ref64"), ("paddle32", "ref32")):
        lanes = Lanes(paddle64=np.array(history.rates[paddle]), ref64=np.array(history.rates[ref]))
        result.quantities.append(judge_measured(f"{run.name}.learning_rates.{paddle[-2:]}", lanes))


def _evidence(
    context: Context, result: StepResult, run: Run, first: dict[str, Iteration], last: dict[str, Iteration], history: History
) -> None:
    rates = history.rates["ref64"]
    if run.iterations > run.schedule.step_size:
        result.require(f"{run.name}.learning_rate_values", len(set(rates)), len(set(rates)) > 1, "more than 1")
    start = {k: v for k, v in context.state.items() if k in first["ref64"].gradients}
    moved = norm(np.concatenate([(last["ref64"].state[k] - v).ravel() for k, v in start.items()]))
    share = moved / norm(np.concatenate([v.ravel() for v in start.values()]))
    result.require(f"{run.name}.weights_moved_by", float(f"{share:.2g}"), share > 1e-6, "above 1e-6 of their norm")
    size = norm(np.concatenate([g.ravel() for g in first["ref64"].gradients.values()]))
    result.require(f"{run.name}.gradient_norm", float(f"{size:.4g}"), size > 1e-3, "above 1e-3")
    if run.clip_norm is not None:
        result.require(f"{run.name}.clipped", size > run.clip_norm, size > run.clip_norm, "a norm above the clip")
    for side, records in (("paddle", result.paddle), ("ref", result.ref)):
        records[f"{run.name}.losses"] = np.array(history.losses[f"{side}32"], dtype=np.float32)
        records[f"{run.name}.learning_rates"] = np.array(history.rates[f"{side}32"])
    flips, kinks = _flips(first), sum(sides.size for sides in first["ref64"].kinks.values())
    result.evidence[f"{run.name}.kink_flips"] = flips
    if flips > max(3, tolerance.FLIP_SHARE * kinks):
        result.problems.append(f"{run.name}: float32 put {flips} of {kinks} kink inputs on the other side: more than rounding does")
