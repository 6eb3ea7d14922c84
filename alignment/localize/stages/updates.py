"""What happens between a gradient and the next weights: accumulation, clipping, the optimizer, the schedule.

Both optimizers are given the same gradients, the reference's, and before each update the port's weights are set to the
reference's: what then differs is the update's own mistake. The hint comes from making the update again on the reference
with one known mistake at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import Framework
from alignment.localize.finding import NO_HINT, Finding, Stage
from alignment.localize.hints.arrays import close
from alignment.localize.kinds import Kind
from alignment.localize.stages.models import reference_gradients
from alignment.project import LossPart, Side, TrainPart
from alignment.steps.backward import RUNS, Run
from alignment.steps.context import Context, Lane
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

UPDATES = 3
RTOL = 1e-9
SCHEDULES = (
    ScheduleConfig("step", step_size=3, gamma=0.5),
    ScheduleConfig("exponential", gamma=0.9),
    ScheduleConfig("cosine", total=12),
    ScheduleConfig("cosine", total=12, warmup=3),
    ScheduleConfig("constant"),
)


# --- accumulation ----------------------------------------------------------------------------------------------------------


def _train(side: Side) -> TrainPart:
    assert side.train is not None
    return side.train


def _loss(side: Side) -> LossPart:
    assert side.loss is not None
    return side.loss


def accumulation(context: Context) -> Finding | None:
    """Gradients of one micro-batch, and of two."""
    inputs, labels = context.samples(8, small=True)
    found: dict[tuple[str, int], State] = {}
    for role in context.sides:
        lane = Lane(context, f"{role}64")
        framework = lane.framework
        criterion = _loss(lane.side).CrossEntropyLoss(0.1)
        for parts in (1, 2):
            lane.reset()
            chosen = [slice(4 * part, 4 * part + 4) for part in range(parts)]
            images = [lane.inputs((inputs[0][c],))[0] for c in chosen]
            batches = [(framework.tensor(x), framework.tensor(labels[c])) for x, c in zip(images, chosen, strict=True)]
            with framework.precision(lane.dtype):
                _train(lane.side).accumulate_gradients(lane.network, criterion, batches)
            found[role, parts] = framework.gradients(lane.network)
            framework.clear_gradients(lane.network)
    for parts in (1, 2):
        ours, theirs = found["port", parts], found["reference", parts]
        for name in theirs:
            if name in ours and not distance(ours[name], theirs[name]) <= 1e-7 * max(norm(theirs[name]), _largest(theirs) * 1e-6):
                ratio = _share(ours, theirs)
                kind, words = NO_HINT
                if ratio is not None:
                    kind, words = Kind.GRADIENT_SCALED, f"every gradient is {ratio:.4g} times the reference's"
                    if parts == 2 and abs(ratio - 2) < 1e-6:
                        kind, words = Kind.SUM_FOR_MEAN, "gradients of micro-batches are summed, expected their mean"
                measured = (
                    f"{name}: relative L2 {relative(distance(ours[name], theirs[name]), norm(theirs[name])):.1e}, {parts} batch(es)"
                )
                return Finding("backward", "accumulate_gradients", kind, words, measured)
    return None


def _largest(state: State) -> float:
    return max(norm(array) for array in state.values())


def _share(ours: State, theirs: State) -> float | None:
    names = [n for n in theirs if n in ours]
    a, b = (np.concatenate([side[n].ravel() for n in names]) for side in (ours, theirs))
    ratio = float(a @ b / (b @ b))
    return ratio if close(a, ratio * b, 1e-5) else None


# --- schedule --------------------------------------------------------------------------------------------------------------


def schedule(context: Context) -> Finding | None:
    """Learning rates of every schedule over fourteen steps."""
    for config in SCHEDULES:
        rates = {}
        for role in context.sides:
            lane = Lane(context, f"{role}32", share_dropout=False)
            optimizer = _train(lane.side).build_optimizer(lane.network, RUNS[0].optimizer.in_float32())
            plan = _train(lane.side).build_schedule(optimizer, config)
            rates[role] = rates_of(lane.framework, optimizer, plan.step)
        if finding := rate_finding("schedule", f"build_schedule({config.name})", rates["port"], rates["reference"]):
            return finding
    return None


def rates_of(framework: Framework, optimizer: Any, step: Callable[[], None], count: int = 14) -> np.ndarray:
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a schedule whose optimizer never stepped; none shall here
        for _ in range(count):
            rates.append(framework.learning_rate(optimizer))
            step()
    return np.array(rates)


def rate_finding(stage: Stage, location: str, ours: np.ndarray, theirs: np.ndarray) -> Finding | None:
    """Two sequences of learning rates, and how they are related."""
    wrong = np.abs(ours - theirs) > tolerance.EXACT_RTOL * 1e3 * theirs.max()
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    measured = f"update {first}: {ours[first]:.6g}, expected {theirs[first]:.6g}"
    kind, words = NO_HINT
    ratio = ours / theirs
    if np.ptp(ours) == 0 and np.ptp(theirs) > 0:
        kind, words = Kind.SCHEDULE_NEVER_STEPPED, "the learning rate never moves: the schedule is not stepped"
    elif np.allclose(ours[1:], theirs[:-1], rtol=1e-9):
        kind, words = Kind.SCHEDULE_OFF_BY_ONE, "schedule off by one step: each rate comes one step late"
    elif np.allclose(ours[:-1], theirs[1:], rtol=1e-9):
        kind, words = Kind.SCHEDULE_OFF_BY_ONE, "schedule off by one step: each rate comes one step early"
    elif np.ptp(ratio) < 1e-9 * ratio[0]:
        kind, words = Kind.LR_SCALED, f"the learning rate is {ratio[0]:.6g} times the reference's"
    else:
        drops = [np.flatnonzero(np.diff(rates) != 0) for rates in (ours, theirs)]
        if drops[0].size and drops[1].size and np.array_equal(drops[0], drops[1]):
            factors = [rates[d[0] + 1] / rates[d[0]] for rates, d in zip((ours, theirs), drops, strict=True)]
            if factors[0] != factors[1]:
                kind, words = Kind.SCHEDULE_FACTOR, f"it falls by the factor {factors[0]:.4g}, expected {factors[1]:.4g}"
        elif drops[0].size and drops[1].size and drops[0][0] + 1 == drops[1][0]:
            kind, words = (
                Kind.SCHEDULE_OFF_BY_ONE,
                f"schedule off by one step: first change after {drops[0][0] + 1} steps, expected {drops[1][0] + 1}",
            )
        elif drops[0].size and drops[1].size:
            kind, words = Kind.SCHEDULE_PERIOD, f"it first changes after {drops[0][0] + 1} steps, expected {drops[1][0] + 1}"
    return Finding(stage, location, kind, words, measured)


# --- update ----------------------------------------------------------------------------------------------------------------


def optimizers(context: Context) -> Finding | None:
    """Every optimizer of step 5, each fed with the reference's gradients."""
    gradients = reference_gradients(context, UPDATES)
    seen = set()
    for run in RUNS:
        key = (run.optimizer, run.clip_norm)
        if key in seen:
            continue
        seen.add(key)
        ours, theirs = (_updated(role, context, run, gradients) for role in context.sides)
        if finding := _compare(context, run, gradients, ours, theirs):
            return finding
    return None


def _updated(role: str, context: Context, run: Run, gradients: list[State]) -> list[State]:
    """States after each update; weights are set back to where the run began before each, the optimizer's own state goes on."""
    lane = Lane(context, f"{role}64", share_dropout=False)
    framework, train = lane.framework, _train(lane.side)
    lane.train_mode(True)
    with framework.default_dtype("float64"):
        optimizer = train.build_optimizer(lane.network, run.optimizer.in_float32())
        train.build_schedule(optimizer, ScheduleConfig("constant"))
    states = []
    for gradient in gradients:
        lane.reset()
        with framework.default_dtype("float64"):
            framework.add_gradients(lane.network, gradient)
            train.apply_update(lane.network, optimizer, run.clip_norm)
        states.append({name: value for name, value in framework.state(lane.network).items() if name in gradient})
    return states


def _compare(context: Context, run: Run, gradients: list[State], ours: list[State], theirs: list[State]) -> Finding | None:
    start = {name: context.weights.state[name].astype(np.float64) for name in gradients[0]}
    for number in range(len(theirs)):
        wrong = [n for n in theirs[number] if not _same_move(ours[number].get(n), theirs[number][n], start[n])]
        if not wrong:
            continue
        for (location, kind, words), made in _mistakes(context, run, gradients):
            if all(_same_move(ours[i].get(n), made[i][n], start[n], 1e-6) for i in range(len(ours)) for n in made[i]):
                place = location if len(wrong) > 0.9 * len(theirs[number]) or "." not in location else f"{location}: {wrong[0]}"
                return Finding("update", place, kind, words, _moved(run, number, wrong, ours, theirs, start))
        place = f"optimizer.{run.optimizer.name}"
        if len(wrong) <= 0.9 * len(theirs[number]):
            place += f": {wrong[0]}"
        return Finding("update", place, measured=_moved(run, number, wrong, ours, theirs, start))
    return None


def _same_move(ours: np.ndarray | None, theirs: np.ndarray, start: np.ndarray, rtol: float = RTOL * 100) -> bool:
    if ours is None or ours.shape != theirs.shape:
        return False
    move = norm(theirs - start)
    return distance(ours, theirs) <= rtol * move + 1e-15 * norm(start)


def _moved(run: Run, number: int, wrong: list[str], ours: list[State], theirs: list[State], start: State) -> str:
    name = wrong[0]
    sizes = [norm(side[number][name] - start[name]) if name in side[number] else 0.0 for side in (ours, theirs)]
    return (
        f"{run.optimizer.name}, update {number}: {len(wrong)} of {len(theirs[number])} tensors, first {name} moves by "
        f"{sizes[0]:.7g}, expected {sizes[1]:.7g}"
    )


def _mistakes(context: Context, run: Run, gradients: list[State]) -> Iterator[tuple[tuple[str, Kind, str], list[State]]]:
    """What the reference gives with one mistake in it: (location, kind, words) and the states after each update."""
    config = run.optimizer
    place = f"optimizer.{config.name}"

    def made(feed: list[State] = gradients, clip: float | None = run.clip_norm, **changes: Any) -> list[State]:
        return _updated("reference", context, replace(run, clip_norm=clip, optimizer=replace(config, **changes)), feed)

    sums = [{n: np.sum([g[n] for g in gradients[: i + 1]], axis=0) for n in gradients[0]} for i in range(len(gradients))]
    yield (
        ("apply_update", Kind.GRADIENT_NOT_CLEARED, "gradients are not cleared: each update takes those of all before it too"),
        made(sums),
    )
    still = {n: np.asarray(context.weights.state[n], np.float64) for n in gradients[0]}
    yield ("apply_update", Kind.NEVER_UPDATED, "the weights are not updated"), [still] * len(gradients)
    if run.clip_norm is not None:
        yield ("apply_update", Kind.CLIPPING_MISSING, "gradients are not clipped"), made(clip=None)
        yield (
            ("apply_update", Kind.CLIPPED_BY_VALUE, "gradients are clipped by value, expected by their global norm"),
            made([{n: np.clip(g, -run.clip_norm, run.clip_norm) for n, g in one.items()} for one in gradients], None),
        )
        each = [{n: g * min(1.0, run.clip_norm / max(norm(g), 1e-30)) for n, g in one.items()} for one in gradients]
        yield (
            ("apply_update", Kind.CLIPPED_BY_TENSOR, "each gradient is clipped by its own norm, expected the global norm"),
            made(each, None),
        )
    yield (place, Kind.WEIGHT_DECAY_MISSING, "weight decay is left out"), made(weight_decay=0.0)
    yield (place, Kind.NORM_WEIGHT_DECAY, "weight decay on norm layers is left out"), made(norm_weight_decay=0.0)
    yield (place, Kind.BIAS_WEIGHT_DECAY, "weight decay on biases is left out"), made(bias_weight_decay=0.0)
    yield (
        (place, Kind.NORM_AND_BIAS_WEIGHT_DECAY, "weight decay on norm layers and biases is left out"),
        made(norm_weight_decay=0.0, bias_weight_decay=0.0),
    )
    for factor in (0.1, 10.0, 0.5, 2.0):
        yield (place, Kind.LR_SCALED, f"the learning rate is {factor:g} times the reference's"), made(lr=config.lr * factor)
    if config.name in ("sgd", "rmsprop"):
        yield (place, Kind.MOMENTUM_MISSING, "momentum is 0"), made(momentum=0.0)
        yield (
            (place, Kind.MOMENTUM, f"momentum {1 - config.momentum:.3g}, expected {config.momentum:g}"),
            made(momentum=1 - config.momentum),
        )
    if config.name == "sgd":
        yield (
            (place, Kind.NESTEROV, "Nesterov momentum, expected plain momentum"),
            list(_by_hand(context, run, gradients, _nesterov)),
        )
    if config.name == "rmsprop":
        yield (
            (place, Kind.EPS_INSIDE_ROOT, "eps inside the root, expected outside (paddle.optimizer.RMSProp)"),
            list(_by_hand(context, run, gradients, _rmsprop_inside)),
        )
        for alpha in (0.99, 0.95, 0.999, 1 - config.alpha):
            yield (place, Kind.ALPHA, f"alpha (rho) {alpha:g}, expected {config.alpha:g}"), made(alpha=alpha)
    if config.name in ("rmsprop", "adamw"):
        for eps in (1e-8, 1e-10, 1e-7, 1e-6, 1e-3):
            yield (place, Kind.OPTIMIZER_EPS, f"eps {eps:g}, expected {config.eps:g}"), made(eps=eps)
    if config.name == "adamw":
        yield (place, Kind.BETAS_SWAPPED, "beta1 and beta2 are swapped"), made(beta1=config.beta2, beta2=config.beta1)
        yield (place, Kind.BETAS, "beta1 and beta2 are 0.9 and 0.999"), made(beta1=0.9, beta2=0.999)
        decayed = [{n: g[n] + config.weight_decay * still[n] for n in g} for g in gradients]
        yield (
            (place, Kind.L2_FOR_DECOUPLED, "Adam with an L2 penalty, expected AdamW's decoupled weight decay"),
            made(decayed, weight_decay=0.0),
        )


def _by_hand(context: Context, run: Run, gradients: list[State], move: Callable[..., np.ndarray]) -> Iterator[State]:
    """Weights after each update of the same starting weights; ``move`` gets the config, a tensor's memory and its gradient."""
    config = run.optimizer.in_float32()
    memories: dict[str, State] = {}
    for gradient in gradients:
        state = {}
        for name, given in gradient.items():
            weight = context.weights.state[name].astype(np.float64)
            state[name] = weight - move(config, memories.setdefault(name, {}), given + config.weight_decay * weight)
        yield state


def _rmsprop_inside(c: OptimizerConfig, memory: State, g: np.ndarray) -> np.ndarray:
    memory["square"] = c.alpha * memory.get("square", 0.0) + (1 - c.alpha) * g * g
    memory["velocity"] = c.momentum * memory.get("velocity", 0.0) + c.lr * g / np.sqrt(memory["square"] + c.eps)
    return memory["velocity"]


def _nesterov(c: OptimizerConfig, memory: State, g: np.ndarray) -> np.ndarray:
    memory["velocity"] = c.momentum * memory.get("velocity", 0.0) + g
    return c.lr * (g + c.momentum * memory["velocity"])
