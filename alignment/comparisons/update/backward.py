"""Step 5, backward: losses, learning rates, gradients, weights and BatchNorm statistics over ten updates.

Schedules over whole recipes and groups of weight decays stand in ``alignment.comparisons.update.schedules``.

Each optimizer runs in evaluation mode, as the guide asks, and in training mode with shared dropout masks, which alone
sees BatchNorm's momentum, dropout and the gradients through batch statistics. The float32 runs are judged tensor by
tensor at the first update, and by their losses until a kink flip parts them; the exact runs are judged throughout.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import (
    Change,
    Group,
    Lanes,
    Leeway,
    Quantity,
    distance,
    judge_equal,
    judge_measured,
    norm,
    relative,
    where_derived,
    without_masked,
)
from alignment.comparisons.context import Context, Lane
from alignment.comparisons.model.dropouts import dropout_profile
from alignment.comparisons.model.forward import NamedOutputs
from alignment.comparisons.model.one_ulp import ULP_DRAWS
from alignment.comparisons.result import StepResult
from alignment.comparisons.update import schedules
from alignment.frameworks.base import Wanted, leaves
from alignment.models.observe import traced_kinks
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

PORT_LANES = ("port64", "port32")
REFERENCE_LANES = ("reference64", *ULP_DRAWS, "reference32", "ulp32")
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


@dataclass
class Beginning:
    """What the evidence needs of a run's first update: the reference's gradients, and how many kink inputs flipped of all."""

    gradients: State
    flips: int
    kinks: int

    @classmethod
    def of(cls, now: dict[str, Iteration]) -> Beginning:
        truth = now["reference64"]
        return cls(truth.gradients, flips_of(now), sum(sides.size for sides in truth.kinks.values()))


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
    """Make every run on all lanes in lockstep and compare after each update.

    A project without losses or optimizers has its gradients compared, and no updates.
    """
    result = StepResult(5, "backward")
    lacking, random = lacks_updates(context), context.unshared_randomness
    dropouts = {name: Lane(context, name).dropouts for name in ("port32", "reference32")}
    result.evidence["dropout_layers"] = dropouts["reference32"]
    differ = dropouts["port32"] != dropouts["reference32"] and not context.drops_by_function
    if differ and not all(row.passed for row in dropout_profile(context)):  # one layer may be called in several places
        result.problems.append(f"the port has {dropouts['port32']} dropout layer(s), the reference {dropouts['reference32']}")
    if lacking:
        result.not_run = "; ".join(filter(None, ["" if context.updates else f"updates: {lacking}", random]))
        for training in (False,) if random else (False, True):
            _compare_gradients(context, result, training)
        return result
    lanes = {name: Lane(context, name) for name in (*PORT_LANES, *REFERENCE_LANES)}
    result.not_run = random
    runs = tuple(one for one in runs if not (one.training and random))
    data = context.material.samples(32, small=True)
    runs = tuple(replace(one, iterations=min(one.iterations, context.spec.updates)) for one in runs)
    sizes: dict[tuple, tuple[float, float, int]] = {}
    with context.reference.framework.threads(1), beside(context) as submit:
        if context.in_haste:
            schedules.compare(context, result, lanes)
        for one in runs:
            if context.in_haste and result.differs:
                return result
            key = (one.training, one.accumulate, one.batch_size)
            if key not in sizes:
                first = next(iterate(lanes["reference64"], replace(one, iterations=1), *data)).gradients
                trained = [context.material.weights.state[name] for name in first]
                sizes[key] = _norm(first.values()), _norm(trained), sum(array.size for array in trained)
            _compare_run(context, result, fitted(one, *sizes[key]), lanes, data, submit)
            result.cover(*topics(one))
        if not context.in_haste:
            schedules.compare(context, result, lanes)
    return result


def topics(run: Run) -> list[str]:
    """What a run covers."""
    more = {"gradient clipping": run.clip_norm is not None, "accumulation": run.accumulate > 1}
    also = [topic for topic, holds in more.items() if holds]
    return [*schedules.update_topics(run.optimizer), f"{run.schedule.name} schedule", "label smoothing", *also]


def lacks_updates(context: Context) -> str:
    """Why step 5 makes no updates of a network; ``""`` where it makes some."""
    lacking = context.project.lacks("train") or context.project.lacks("loss")
    if lacking:
        return lacking
    inputs, framework = context.fake_inputs(2, small=True), context.reference.framework
    outputs = framework.call(context.networks.build("reference"), inputs).outputs
    counts = {"input": len(leaves(inputs, np.ndarray)), "output": len(outputs)}
    many = [f"{count} {what}s" for what, count in counts.items() if count != 1]
    return f"the network has {' and '.join(many)}, and the train part takes one" if many else ""


def _norm(arrays: Iterable[np.ndarray]) -> float:
    """L2 norm of several arrays as one vector."""
    return norm(np.concatenate([array.ravel() for array in arrays] or [np.zeros(1)]))


Submit = Callable[..., "Future[Any]"]


@contextlib.contextmanager
def beside(context: Context) -> Iterator[Submit]:
    """Something that runs the reference beside the port, one thread each; two sides of one framework take turns."""
    # Both threads ask for these, which are made by building both sides; and a framework has one default type for all threads.
    _ = context.networks.roundings
    if context.port.framework.name != context.reference.framework.name:
        with ThreadPoolExecutor(1) as executor:
            yield executor.submit
        return

    def at_once(function: Callable, *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args))
        return done

    yield at_once


def iterate(lane: Lane, run: Run, inputs: tuple[np.ndarray, ...], labels: np.ndarray) -> Iterator[Iteration]:
    """Train one lane from its starting weights, one update a step of the iterator."""
    framework, network, train, loss = lane.framework, lane.network, lane.side.train, lane.side.loss
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


def _compare_gradients(context: Context, result: StepResult, training: bool) -> None:
    """Gradients of every parameter from random gradients of the outputs, on all lanes; a lane at a time, for large networks."""
    inputs = context.material.samples(4, small=True)[0]
    cotangents = cotangents_of(context, Lane(context, "reference64"), inputs, training)
    names = ("reference64", *PORT_LANES, *(name for name in REFERENCE_LANES if name != "reference64"))
    context.progress.expect(len(names))
    found = {}
    for name in names:
        found[name] = gradients_of(Lane(context, name), inputs, cotangents, training)
        context.progress.done()
    _leave_out_unused_parts(context, found)
    judge_gradients(result, found, training)


def _leave_out_unused_parts(context: Context, found: Mapping[str, Iteration]) -> None:
    """In place: a zero gradient of a part of a packed tensor is none, where the other side does not use its own tensor for it."""
    for of_port, forms in zip((True, False), context.paired.matched.forms, strict=True):
        parts = {piece.canonical for pieces in forms.values() if len(pieces) > 1 for piece in pieces}
        mine = [one.gradients for name, one in found.items() if name.startswith("port") == of_port]
        others = [one.gradients for name, one in found.items() if name.startswith("port") != of_port]
        for name in parts:
            if not any(name in one for one in others) and not any(one[name].any() for one in mine if name in one):
                for one in mine:
                    one.pop(name, None)


def cotangents_of(context: Context, lane: Lane, inputs: tuple[np.ndarray, ...], training: bool) -> list[np.ndarray | None]:
    """Random gradients of a network's outputs, a pure function of the seed and the outputs' shapes; None for whole numbers."""
    lane.reset()
    lane.train_mode(training)
    rng = np.random.default_rng([context.seed, 6])
    shapes = [output.shape if output.dtype.kind == "f" else None for output in lane.outputs(inputs)]
    lane.reset()
    return [None if shape is None else rng.standard_normal(shape) / max(math.prod(shape), 1) for shape in shapes]


def gradients_of(lane: Lane, inputs: tuple[np.ndarray, ...], cotangents: Sequence[np.ndarray | None], training: bool) -> Iteration:
    """The gradients of every parameter on one lane, and the sum of output * cotangent as its loss."""
    lane.reset()
    lane.train_mode(training)
    described = [(e, t) for e, t in lane.framework.described(lane.network) if e.role == "parameter"]
    trained = {e.canonical: (e, t) for e, t in described if lane.framework.trainable(t)}
    kinks: NamedOutputs = {}
    with traced_kinks(lane.framework, lane.network, kinks):
        wanted = Wanted(inputs=False, parameters={n: tensor for n, (_, tensor) in trained.items()})
        made = lane.framework.vjp(lane.network, lane.inputs(inputs), cotangents, wanted)
    gradients = {n: trained[n][0].to_canonical(g) for n, g in made.parameters.items() if g is not None}
    lane.reset()
    return Iteration(np.array(product(made.outputs, cotangents), lane.dtype), 0.0, gradients, kinks, {})


def product(outputs: Sequence[np.ndarray], cotangents: Sequence[np.ndarray | None]) -> float:
    """The sum of output * cotangent; what is masked with -inf has no part in it."""
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=False) if c is not None]
    return sum(float((np.where(np.isneginf(o), 0, o) * c).sum()) for o, c in pairs)


def judge_gradients(result: StepResult, now: dict[str, Iteration], training: bool) -> None:
    """Compare the gradients that all lanes computed, but for those that the reference itself does not have."""
    run = Run("train" if training else "eval", SGD, training)
    now, words = _where_derived(now)
    if words:
        result.not_run = "; ".join(filter(None, [result.not_run, f"{run.name}.{words}"]))
    judge_tensors(result, run, 0, now, "gradients", flips_of(now), History())
    size = _norm(now["reference64"].gradients.values())
    result.require(f"{run.name}.gradient_norm", float(f"{size:.4g}"), size > 1e-9, "above 1e-9")


def _where_derived(now: dict[str, Iteration]) -> tuple[dict[str, Iteration], str]:
    """All lanes' gradients without those that the reference does not have in exact mode; and what that leaves out."""
    right = now["reference64"].gradients
    lost = [name for name, array in right.items() if not np.isfinite(array).all()]
    if not lost:
        return now, ""
    words = (
        f"gradients of {len(lost)} of {len(right)} parameters, first {lost[0]}: the reference's own are NaN or infinite, since "
        "the input hits a point without a derivative (a root or a norm of exactly 0, for example); give another --input"
    )
    return {lane: replace(one, gradients=where_derived(one.gradients, right)) for lane, one in now.items()}, words


def _compare_run(context: Context, result: StepResult, run: Run, lanes: dict[str, Lane], data: tuple, submit: Submit) -> None:
    iterators = {name: iterate(lane, run, *data) for name, lane in lanes.items()}
    history = History(losses={n: [] for n in lanes}, rates={n: [] for n in lanes})
    beginning: Beginning | None = None

    def reference(number: int) -> dict[str, Iteration]:
        return {name: next(iterators[name]) for name in REFERENCE_LANES if takes_part(name, number)}

    def takes_part(name: str, number: int) -> bool:
        return "64" in name or number < (1 if name == "ulp32" else run.float32_iterations)

    ahead = submit(reference, 0)
    for number in range(run.iterations):
        now = {name: next(iterators[name]) for name in PORT_LANES if takes_part(name, number)} | ahead.result()
        if number + 1 < run.iterations:
            ahead = submit(reference, number + 1)  # while this iteration is being judged
        for lane, iteration in now.items():
            history.losses[lane].append(iteration.loss)
            history.rates[lane].append(iteration.lr)
        flips = flips_of(now)
        history.flips += flips
        for kind in ("gradients", "state"):
            judge_tensors(result, run, number, now, kind, flips, history)
        _judge_loss(result, run, number, now, history)
        beginning = beginning or Beginning.of(now)
    assert beginning is not None
    _judge_rates(result, run, history)
    _evidence(context, result, run, beginning, now["reference64"].state, history)


def flips_of(now: dict[str, Iteration]) -> int:
    """Kink inputs on which the port's or the reference's float32 run lies on another side than the float64 truth."""
    truth = now["reference64"].kinks
    count = 0
    for lane in [name for name in ("port32", "reference32") if name in now]:
        kinks = now[lane].kinks
        count += sum(int((kinks[k] != truth[k]).sum()) for k in truth if k in kinks and kinks[k].shape == truth[k].shape)
    return count


def _judge_loss(result: StepResult, run: Run, number: int, now: dict[str, Iteration], history: History) -> None:
    truth = float(now["reference64"].loss)
    if "reference32" in now:
        history.floor32 = max(history.floor32, relative(abs(float(now["reference32"].loss) - truth), abs(truth)))
    if number == 0:
        # One number can be right by luck; the mean noise of the gradients tells what float32 gives in this network.
        history.floor32 = max(history.floor32, _mean_relative(_changes(now["reference32"], now["reference64"], "gradients")))
    leeway = Leeway(
        pooled32=history.floor32,
        pooled64=history.pooled64["gradients"],
        float32=history.flips == 0 or number == 0,
    )
    lanes = Lanes(**{lane: iteration.loss for lane, iteration in now.items() if "#" not in lane})
    quantity = judge_measured(f"{run.name}.iter{number}.loss", lanes, leeway)
    if "port32" in now and not leeway.float32:
        quantity.flips = history.flips
        quantity.note(f"float32 diverged by {history.flips} kink flip(s): judged in exact mode")
    result.quantities.append(quantity)


def judge_tensors(
    result: StepResult, run: Run, number: int, now: dict[str, Iteration], kind: str, flips: int, history: History
) -> None:
    """Gradients or state after the update: tensor by tensor, and all together against the one-ulp floor."""
    group = Group(f"{run.name}.iter{number}.{kind}")
    now = _floating(group, now, kind)
    tensors = {lane: getattr(iteration, kind) for lane, iteration in now.items() if "#" not in lane}
    draws = [_changes(now[lane], now["reference64"], kind) for lane in ULP_DRAWS]
    changes = {name: max(draw[name] for draw in draws) for name in draws[0]}
    # Rounding that has crept in does not leave again; and one draw of one-ulp changes can spare a small tensor by luck: in
    # 800,000 tensors one lay 12 x above the largest of its three draws. After an update it may lie as far as its siblings.
    noisy = float(np.quantile(_relative(changes) or [0.0], 0.95 if number == 0 else 1.0))
    history.pooled64[kind] = max(history.pooled64.get(kind, 0.0), noisy)
    # One flip in a squeeze-excitation's ReLU takes a sample out of a gradient's row: exact mode judges each tensor then.
    leeway = Leeway(flips=flips, pooled64=history.pooled64[kind], float32=flips == 0)
    # A sum that is zero in exact arithmetic, such as the gradient of a bias before a BatchNorm, is whatever its order of
    # summation leaves: once it was ten times what any one-ulp change moved it by, and the other framework's was not.
    if kind == "gradients":
        size = sum(change.scale**2 for change in draws[0].values()) ** 0.5
        leeway.nothing32, leeway.nothing64 = tolerance.BASE_FLOOR_32 * size, tolerance.SUMMATION_64 * size
    if number == 0:
        leeway.pooled32 = _mean_relative(_changes(now["reference32"], now["reference64"], kind))
    else:
        tensors = {lane: tensors[lane] for lane in ("port64", "reference64")}
    error = 0.0
    for name in dict.fromkeys([*tensors["reference64"], *tensors["port64"]]):
        leeway.change64 = changes.get(name)
        leeway.sum = kind == "gradients" and np.ndim(tensors["reference64"].get(name)) == 1
        row = judge_measured(f"{group.name}.{name}", Lanes(**{lane: t.get(name) for lane, t in tensors.items()}), leeway)
        group.add(row)
        if name not in changes or (row.float64_diff is None and not row.noise):
            error = np.inf  # not comparable
        elif row.float64_diff:  # None where it should be 0 and is noise, within SUMMATION_64 of all tensors
            error += (row.float64_diff * changes[name].scale) ** 2 if changes[name].scale > 0 else np.inf
        if number == 0 and kind == "gradients" and row.passed:
            result.quantities.append(row)
    result.extend(group.rows())
    together = _judge_together(f"{group.name}.together", error**0.5, draws, kind, history)
    if number == 0:
        _judge_together_in_float32(together, now, kind, flips)
    result.quantities.append(together)


def _floating(group: Group, now: dict[str, Iteration], kind: str) -> dict[str, Iteration]:
    """What has rounding: without tensors of whole numbers, which are held to the last bit, and -inf that all lanes share."""
    truth = getattr(now["reference64"], kind)
    whole = {name for name, array in truth.items() if array.dtype.kind != "f"}
    infinite = [name for name, array in truth.items() if name not in whole and np.isneginf(array).any()]
    for name in whole:
        ours, theirs = (getattr(now[lane], kind).get(name) for lane in ("port64", "reference64"))
        group.add(judge_equal(f"{group.name}.{name}", ours, theirs))
    if not whole and not infinite:
        return now
    kept = {lane: {n: a for n, a in getattr(one, kind).items() if n not in whole} for lane, one in now.items()}
    for name in infinite:
        holding = [lane for lane, arrays in kept.items() if name in arrays]
        for lane, array in zip(holding, without_masked(*(kept[lane][name] for lane in holding)), strict=True):
            kept[lane][name] = array
    return {lane: replace(one, **{kind: kept[lane]}) for lane, one in now.items()}  # type: ignore[arg-type]


def _judge_together(name: str, error: float, draws: list[dict[str, Change]], kind: str, history: History) -> Quantity:
    """All tensors of a kind as one vector, within SUMMATION_64 or TRAJECTORY_FACTOR of the largest one-ulp floor so far."""
    scale = sum(change.scale**2 for change in draws[0].values()) ** 0.5
    floor = max(relative(sum(change.distance**2 for change in draw.values()) ** 0.5, scale) for draw in draws)
    history.together64[kind] = floor = max(history.together64.get(kind, tolerance.BASE_FLOOR_64), floor)
    difference = relative(error, scale)
    quantity = Quantity(name, [len(draws[0])], float64_diff=difference)
    if not difference <= max(tolerance.SUMMATION_64, tolerance.TRAJECTORY_FACTOR * floor):
        quantity.fail(f"exact mode differs by {difference:.1e}, one-ulp changes by {floor:.1e}")
    return quantity


def _judge_together_in_float32(quantity: Quantity, now: dict[str, Iteration], kind: str, flips: int) -> None:
    def error(lane: str, truth: str = "reference64") -> float:
        changes = _changes(now[lane], now[truth], kind).values()
        return relative(sum(c.distance**2 for c in changes) ** 0.5, sum(c.scale**2 for c in changes) ** 0.5)

    if getattr(now["port32"], kind).keys() != getattr(now["reference64"], kind).keys():
        return  # the tensors' own rows have failed
    quantity.port_error = error("port32")
    floor = max(error("reference32"), error("ulp32", "reference32"), tolerance.BASE_FLOOR_32)
    quantity.reference_error = max(floor, tolerance.FLIP_ALLOWANCE if flips else 0.0)
    if flips:
        quantity.flips = flips
        quantity.note(f"{flips} kink flip(s)")
    if not quantity.port_error <= tolerance.FLOOR_FACTOR * quantity.reference_error:
        quantity.fail(f"float32 error {quantity.port_error:.1e}, noise floor {quantity.reference_error:.1e}")


def _changes(other: Iteration, truth: Iteration, kind: str) -> dict[str, Change]:
    tensors, changed = getattr(truth, kind), getattr(other, kind)
    return {name: Change(distance(changed[name], array), norm(array)) for name, array in tensors.items()}


def _relative(changes: dict[str, Change]) -> list[float]:
    """Relative changes, those of tensors that are zero but for rounding left out."""
    return [change.share for change in changes.values() if change.share < tolerance.NOISE_SHARE]


def _mean_relative(changes: dict[str, Change]) -> float:
    return float(np.mean(_relative(changes) or [0.0]))


def _judge_rates(result: StepResult, run: Run, history: History) -> None:
    for port, reference in (("port64", "reference64"), ("port32", "reference32")):
        lanes = Lanes(port64=np.array(history.rates[port]), reference64=np.array(history.rates[reference]))
        result.quantities.append(judge_measured(f"{run.name}.learning_rates.{port[-2:]}", lanes))


def _evidence(context: Context, result: StepResult, run: Run, beginning: Beginning, last: State, history: History) -> None:
    rates = history.rates["reference64"]
    if run.iterations > run.schedule.step_size:
        result.require(f"{run.name}.learning_rate_values", len(set(rates)), len(set(rates)) > 1, "more than 1")
    start = {k: v for k, v in context.material.weights.state.items() if k in beginning.gradients}
    share = _norm(last[k] - v for k, v in start.items()) / _norm(start.values())
    result.require(f"{run.name}.weights_moved_by", float(f"{share:.2g}"), share > 1e-6, "above 1e-6 of their norm")
    size = _norm(beginning.gradients.values())
    result.require(f"{run.name}.gradient_norm", float(f"{size:.4g}"), size > 1e-9, "above 1e-9")
    if run.clip_norm is not None:
        result.require(f"{run.name}.clipped", size > run.clip_norm, size > run.clip_norm, "a norm above the clip")
    for role, records in result.records.items():
        records[f"{run.name}.losses"] = np.array(history.losses[f"{role}32"], dtype=np.float32)
        records[f"{run.name}.learning_rates"] = np.array(history.rates[f"{role}32"])
    flips, kinks = beginning.flips, beginning.kinks
    result.evidence[f"{run.name}.kink_flips"] = flips
    if flips > max(3, tolerance.FLIP_SHARE * kinks):
        result.problems.append(f"{run.name}: float32 put {flips} of {kinks} kink inputs on the other side: more than rounding does")
