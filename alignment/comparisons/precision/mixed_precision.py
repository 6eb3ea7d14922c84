"""Automatic mixed precision as a training step uses it: what is cast, loss scaling, skipped updates, master weights.

The port's own ``Precision``, ``accumulate_gradients`` and ``apply_update`` are called as its training loop calls them. On a CPU the
frameworks are made to do what they do on a GPU (``Framework.mixed_precision_here``), so the logic around the kernels is compared
wherever the engine runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Group, Quantity, judge_equal, norm
from alignment.comparisons.comparison import Measurement, Value, compare
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.backward import lacks_updates
from alignment.comparisons.update.runs import LABEL_SMOOTHING
from alignment.finding import NO_HINT, Finding, Hint
from alignment.frameworks._low import BITS, Low, kind_of, narrowed
from alignment.frameworks.base import Framework, Module
from alignment.kinds import Kind
from alignment.low_precision import Error, Floor, bound, judge
from alignment.models.tracing import Network
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

DRAWS = ("reference16", "ulp16", "ulp16#1")
LANES = ("port16", *DRAWS, "reference64")
BATCH = 4
# Its updates are multiples of the gradients, so that a factor between two sides is the factor of their gradients.
PLAIN = OptimizerConfig("sgd", momentum=0.0, weight_decay=0.0)
# With so large an eps it does the same; Paddle's momentum has no kernel for half-precision weights on a CPU.
LARGE = 2.0**16
MASTERS = OptimizerConfig("rmsprop", momentum=0.0, alpha=0.5, eps=LARGE, weight_decay=0.0)
FED = 2.0**-8  # share of the weights that is fed as gradient: small enough for a scaled float16


@dataclass(frozen=True)
class Experiment:
    """A few updates in mixed precision.

    Attributes:
        name: of the rows.
        level: ``"O1"`` or ``"O2"``.
        optimizer: of all lanes; its learning rate is set when it is fitted to a network.
        fed: the gradients are not computed: a share of the weights is given in their place, and each update moves each weight by a
            quarter of the spacing of its digits at most.
        updates: how many, all on the same batch.
        clip: share of the gradients' norm to which they are clipped; 0 for no clipping.
        infinite: number of the update one of whose gradients is made infinite; -1 for none.
        growing: begin where one good update lets the scale grow.
    """

    name: str
    level: str = "O1"
    optimizer: OptimizerConfig = PLAIN
    fed: bool = False
    updates: int = 1
    clip: float = 0.0
    infinite: int = -1
    growing: bool = False


SCALING = (
    Experiment("scaling"),
    Experiment("clipping", clip=0.5),
    Experiment("skipping", updates=3, infinite=1),
    Experiment("growth", updates=2, growing=True),
)
PLAIN_UPDATES = (Experiment("updates", updates=2), Experiment("clipping", clip=0.5))
MASTER = Experiment("master_weights", level="O2", optimizer=MASTERS, fed=True, updates=16)
SCALE = 2.0**8
MOVES = 2.0**-12  # share of the weights' norm by which one update of the others moves them

PLACES = {
    "scaling": "precision.unscale",
    "clipping": "precision.unscale",
    "skipping": "precision.step",
    "growth": "precision.step",
    "updates": "apply_update",
    "master_weights": "precision.prepare",
}


@dataclass
class UpdateTrace:
    """What one lane shows of an experiment.

    Attributes:
        change: of every trained weight, start to end.
        moved: whether any weight moved, for each update.
        scalers: the loss scaler's state, in the engine's words: as it was made, then after each update.
    """

    change: State = field(default_factory=dict)
    moved: list[bool] = field(default_factory=list)
    scalers: list[dict[str, float]] = field(default_factory=list)


def lacks(context: Context) -> str:
    """Why a project's mixed precision is not compared; ``""`` where it is."""
    lacking = lacks_updates(context)
    if lacking:
        return lacking
    without = [role for role, side in context.sides.items() if not hasattr(side.train, "Precision")]
    return f"the train part of the {' and the '.join(without)} has no Precision" if without else ""


def experiments(context: Context) -> tuple[Experiment, ...]:
    """Loss scaling is for float16, whose gradients would underflow."""
    return (*(SCALING if context.precision == "float16" else PLAIN_UPDATES), MASTER)


def add(context: Context, result: StepResult) -> None:
    """Compare and add the rows to step 5's result."""
    lacking = lacks(context)
    if lacking:
        result.not_run = "; ".join(filter(None, [result.not_run, f"automatic mixed precision: {lacking}"]))
        return
    title = f"{context.precision}.precision"
    compare(context, result, Autocast(f"{title}.autocast"))
    for experiment in experiments(context):
        compare(context, result, MixedUpdates(*fitting(context, experiment), context.precision))
    result.cover("automatic mixed precision")


# --- what is cast ----------------------------------------------------------------------------------------------------------


def kinds_of_layers(context: Context, lane: Network, own: bool) -> dict[str, str]:
    """The types in which layers give their outputs inside autocast at O1, by path.

    Args:
        context: of the two sides.
        lane: of either side.
        own: inside the autocast of the side's own ``Precision``; otherwise inside the framework's, with its own lists.
    """
    framework = lane.side.framework
    paths = {p: m for p, m in framework.modules(lane.model).items() if p and not framework.children(m)}
    inputs = context.material.samples(2, small=True)[0]
    train: Any = lane.side.train
    with framework.mixed_precision_here():
        guard = train.Precision("O1", context.precision, "gpu").autocast() if own else framework.autocast(Low(context.precision))
        with guard:
            calls = framework.call(lane.model, inputs, watched=paths).calls
    return {path: kind_of(call.output) for path, call in calls.items() if isinstance(call.output, np.ndarray)}


class Autocast:
    """The type of each layer's output inside the port's autocast: the framework's own choice, or the reference's.

    Args:
        title: of the rows.
    """

    late = True

    def __init__(self, title: str) -> None:
        self.title = title

    def measure(self, context: Context, role: str) -> dict[str, str]:
        lane = context.networks.of(f"{role}32", False)
        made = {f"own/{path}": kind for path, kind in kinds_of_layers(context, lane, own=True).items()}
        if role == "port":
            made |= {f"stock/{path}": kind for path, kind in kinds_of_layers(context, lane, own=False).items()}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        group = Group(self.title)
        for path in [name.partition("/")[2] for name in port if name.startswith("own/")]:
            kind, stock = str(port[f"own/{path}"]), str(port.get(f"stock/{path}", port[f"own/{path}"]))
            allowed = dict.fromkeys([stock, *([str(reference[f"own/{path}"])] if f"own/{path}" in reference else [])])
            expected = kind if kind in allowed else next(iter(allowed))
            row = judge_equal(f"{self.title}: {path}", np.array([kind]), np.array([expected]))
            group.add(row if row.passed else row.fail(f"computed in {kind}, expected {' or '.join(allowed)}"))
        return list(group.rows())

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for row in self.judge(port, reference):
            path = row.name.partition(": ")[2]
            if not row.passed and path:
                place = f"precision.autocast: {path}"
                return Finding("update", place, Kind.AUTOCAST_LIST, row.reason, f"autocast: {path}")
        return None


# --- updates ---------------------------------------------------------------------------------------------------------------


class MixedUpdates:
    """An experiment on all lanes; the reference's float64 lane computes without mixed precision what has to come out.

    Args:
        experiment: fitted.
        data, clip: inputs and labels, and the norm to clip to: see ``fitting``.
        dtype: the low precision.
    """

    late = True

    def __init__(self, experiment: Experiment, data: tuple, clip: float | None, dtype: str) -> None:
        self.experiment, self.data, self.clip, self.dtype = experiment, data, clip, dtype

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        given = self.experiment, self.data, self.clip
        lanes = [lane for lane in LANES if lane.startswith("port") == (role == "port")]
        traces = {lane: trace(context, context.networks.of(lane), *given) for lane in lanes}
        if role == "reference" and self.experiment.level == "O2":
            traces["lossy"] = trace(context, context.networks.of("reference64"), *given, lossy=True)
        made: dict[str, Value] = {}
        for lane, one in traces.items():
            made[f"{lane}/moved"] = np.array(one.moved, bool)
            made |= {f"{lane}/change/{name}": array for name, array in one.change.items()}
            made |= {f"{lane}/scaler/{number}": state for number, state in enumerate(one.scalers)}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        title = f"{self.dtype}.precision.{self.experiment.name}"
        return list(judge_experiment(self.experiment, title, traces_of(port, reference), self.dtype))

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """The known mistake that gives what the port gave."""
        traces, experiment = traces_of(port, reference), self.experiment
        rows = judge_experiment(experiment, experiment.name, traces, self.dtype)
        failed = next((row for row in rows if not row.passed), None)
        if failed is None:
            return None
        hint = mistake(experiment, traces, failed, self.dtype)
        return Finding("update", PLACES[experiment.name], *hint, f"{failed.name}: {failed.reason}")


def traces_of(port: Measurement, reference: Measurement) -> dict[str, UpdateTrace]:
    """What was measured, by lane."""
    traces: dict[str, UpdateTrace] = {}
    for name, value in {**reference, **port}.items():
        lane, what, key = (*name.split("/", 2), "")[:3]
        one = traces.setdefault(lane, UpdateTrace())
        if what == "moved":
            one.moved = np.asarray(value).tolist()
        elif what == "change":
            one.change[key] = np.asarray(value)
        elif isinstance(value, Mapping):
            one.scalers.append(dict(value))
    return traces


def fitting(context: Context, experiment: Experiment) -> tuple[Experiment, tuple, float | None]:
    """The experiment with a learning rate for the network's gradients, its data, and the norm to clip to."""
    data, lane = context.material.samples(BATCH, small=True), context.networks.of("reference64")
    with lane.framework.precision(lane.dtype):
        _accumulate(lane, data, None)
    size = norm(joined_all(lane.framework.gradients(lane.model)))
    optimizer = experiment.optimizer
    if experiment.fed:
        optimizer = replace(optimizer, lr=LARGE / FED * 2.0 ** -(BITS[context.precision] + 2))
    elif 0 < size < np.inf:
        rate = MOVES * norm(joined_all(_trained(lane))) / size
        optimizer = replace(optimizer, lr=2.0 ** round(math.log2(rate)))
    return replace(experiment, optimizer=optimizer), data, experiment.clip * size or None


def joined_all(state: State) -> np.ndarray:
    """All arrays as one, in their order."""
    return np.concatenate([array.ravel() for array in state.values()] or [np.zeros(1)])


def _accumulate(lane: Network, data: tuple, precision: Any) -> None:
    """Gradients of two micro-batches of the lane's side."""
    (inputs, labels), framework, side = data, lane.framework, lane.side
    assert side.train is not None and side.loss is not None
    (images,) = lane.inputs(inputs)
    half = len(labels) // 2
    batches = [(framework.tensor(images[part]), framework.tensor(labels[part])) for part in (slice(half), slice(half, None))]
    more = {} if precision is None else {"precision": precision}
    side.train.accumulate_gradients(lane.model, side.loss.CrossEntropyLoss(LABEL_SMOOTHING), batches, **more)


def _feed(context: Context, lane: Network, precision: Any, names: Iterable[str]) -> None:
    """Gradients that are a share of the weights, as the loss scaler would give them."""
    framework, network, weights = lane.framework, lane.model, context.material.weights.state
    framework.clear_gradients(network)
    scale = _in_words(framework.scaler, precision.state()).get("scale", 1.0) if precision is not None else 1.0
    framework.add_gradients(network, {name: FED * scale * weights[name] for name in names})


def _feed_infinity(framework: Framework, network: Module) -> None:
    """The gradient of the first tensor becomes infinite."""
    name, gradient = next(iter(framework.gradients(network).items()))
    framework.add_gradients(network, {name: np.full_like(np.asarray(gradient, np.float32), np.inf)})


def trace(
    context: Context, lane: Network, experiment: Experiment, data: tuple, clip: float | None, lossy: bool = False
) -> UpdateTrace:
    """Make an experiment on one lane, in evaluation mode, so that no statistics move.

    Args:
        context, lane: the two sides, and one of them in one precision.
        experiment, data: fitted; inputs and labels.
        clip: the gradients' norm; None for no clipping.
        lossy: keep the weights in low precision between the updates, as a port without master weights does.
    """
    framework, side, network = lane.framework, lane.side, lane.model
    train: Any = side.train
    lane.reset()
    lane.train_mode(False)
    framework.clear_gradients(network)
    found = UpdateTrace()
    with framework.mixed_precision_here(), framework.precision(lane.dtype):
        optimizer = train.build_optimizer(network, experiment.optimizer.in_float32())
        train.build_schedule(optimizer, ScheduleConfig("constant"))
        precision = None if lane.exact else train.Precision(experiment.level, context.precision, "gpu")
        if precision is not None:
            precision.prepare(network, optimizer)
            if precision.scales:
                found.scalers.append(_in_words(framework.scaler, precision.state()))
                _set(framework.scaler, precision, experiment.growing)
        if lossy:
            _round(lane, context.precision)
        before = start = _trained(lane)
        for number in range(experiment.updates):
            if not experiment.fed or number == 0:  # a loss scaler begins with the first loss
                _accumulate(lane, data, precision)
            if experiment.fed:
                _feed(context, lane, precision, start)
            if number == experiment.infinite:
                if precision is None:
                    framework.clear_gradients(network)
                    found.moved.append(False)
                    continue
                _feed_infinity(framework, network)
            train.apply_update(network, optimizer, clip, **({} if precision is None else {"precision": precision}))
            if lossy:
                _round(lane, context.precision)
            now = _trained(lane)
            found.moved.append(any(not np.array_equal(now[name], before[name]) for name in now))
            before = now
            if precision is not None and precision.scales:
                found.scalers.append(_in_words(framework.scaler, precision.state()))
        found.change = {name: np.subtract(array, start[name], dtype=np.float64) for name, array in before.items()}
    return found


def _round(lane: Network, dtype: str) -> None:
    """Put the matrices and kernels of a lane into its context's precision, and back into its own."""
    state = lane.framework.state(lane.model)
    rounded = {
        name: narrowed(array, dtype) if array.ndim > 1 and array.dtype.kind == "f" else array for name, array in state.items()
    }
    lane.framework.load(lane.model, rounded)


def _trained(lane: Network) -> State:
    described = [(e, t) for e, t in lane.framework.described(lane.model) if e.role == "parameter" and lane.framework.trainable(t)]
    return {entry.canonical: np.asarray(entry.to_canonical(lane.framework.array(tensor))) for entry, tensor in described}


def _in_words(names: Mapping[str, str], state: Mapping[str, Any]) -> dict[str, float]:
    return {word: float(np.asarray(state[own]).reshape(-1)[0]) for word, own in names.items() if own in state}


def _set(names: Mapping[str, str], precision: Any, growing: bool) -> None:
    """Give a scaler a scale at which nothing overflows, and put it where it lacks one good update to grow."""
    state = dict(precision.state())
    if not {*names.values()} <= {*state}:
        return
    state[names["scale"]] = SCALE
    if growing:
        state[names["count"]] = type(state[names["count"]])(state[names["interval"]] - 1)
    precision.load(state)


def judge_experiment(experiment: Experiment, title: str, traces: Mapping[str, UpdateTrace], dtype: str) -> Iterator[Quantity]:
    """Rows of one experiment: the change of all weights together, which updates moved them, and the loss scaler."""
    port, reference, truth = traces["port16"], traces["reference16"], traces["reference64"]
    yield judge_equal(f"{title}.moved", np.array(port.moved), np.array(truth.moved))
    changes = {name: joined(one.change, truth.change) for name, one in traces.items()}
    if experiment.level == "O2":  # the others are float32 in any case
        halved = [name for name, array in truth.change.items() if array.ndim > 1]
        changes = {name: joined(one.change, {n: truth.change[n] for n in halved}) for name, one in traces.items()}
    yield judge(f"{title}.change", changes["port16"], [changes[name] for name in DRAWS], changes["reference64"], dtype)
    for word in reference.scalers[0] if reference.scalers else ():
        mine, theirs = ([state[word] for state in one.scalers if word in state] for one in (port, reference))
        yield judge_equal(f"{title}.scaler.{word}", np.array(mine) if mine else None, np.array(theirs))


def joined(change: State, like: State) -> np.ndarray | None:
    """The changes of all weights as one array, in another's order; None where they are not of the same weights."""
    if not change.keys() >= like.keys():
        return None
    return joined_all({name: change[name] for name in like}).astype(np.float32)


def mistake(experiment: Experiment, traces: Mapping[str, UpdateTrace], failed: Quantity, dtype: str) -> Hint:
    """The known mistake that gives what the port gave; ``NO_HINT`` where none does."""
    port, truth = traces["port16"], traces["reference64"]
    for number in range(len(truth.moved)):
        if number == experiment.infinite and number < len(port.moved) and port.moved[number]:
            return Kind.UPDATE_NOT_SKIPPED, "an update whose gradients are not finite changes the weights"
    mine, right = joined(port.change, truth.change), joined(truth.change, truth.change)
    if experiment.level == "O2" and mine is not None and right is not None:
        lossy = joined(traces["lossy"].change, truth.change)
        if lossy is not None and norm(mine - lossy) < 0.5 * min(norm(mine - right), norm(lossy - right)):
            share = float(mine @ right) / float(right @ right)
            words = f"updates too small for {dtype} are lost, as without float32 master weights: {share:.2f} of the change"
            return Kind.MASTER_WEIGHTS_MISSING, words
    if mine is not None and right is not None and traces["reference16"].scalers:
        for kind, factor, words in (
            (Kind.UNSCALE_MISSING, SCALE, "the gradients are not divided by the loss scale"),
            (Kind.UNSCALE_AFTER_CLIPPING, 1 / SCALE, "the gradients are clipped before they are divided by the loss scale"),
        ):
            if agrees(mine / np.float64(factor), traces):
                return kind, f"{words}, {SCALE:g}"
    if ".scaler." in failed.name:
        return Kind.LOSS_SCALE, f"the loss scaler's {failed.name.rpartition('.')[2]}: {failed.reason}"
    return NO_HINT


def agrees(change: np.ndarray, traces: Mapping[str, UpdateTrace]) -> bool:
    """Whether a change of all weights is the right one, as far as the precision tells."""
    truth = traces["reference64"].change
    right, draws = joined(truth, truth), [joined(traces[name].change, truth) for name in DRAWS]
    if right is None or any(draw is None or not np.isfinite(draw).all() for draw in draws):
        return False
    real = [draw for draw in draws if draw is not None]
    floor = bound(Floor.of(real, right), real[0])
    return Error.of(change, right).l2 <= tolerance.LOW_FACTOR * floor.l2
