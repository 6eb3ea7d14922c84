"""Steps 1, 4 and 5 in bfloat16 or float16, computed as users compute in it: by each framework's automatic mixed precision.

The port is held against the float64 truth, by what rounding does to the reference: its own error in the same precision, and
several draws in which all that it is given is rounded at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from alignment.compare import Group, Quantity, judge_equal, without_masked
from alignment.comparisons.context import Context
from alignment.comparisons.loss import cases as step_4
from alignment.comparisons.model import forward as step_1
from alignment.comparisons.precision import mixed_precision
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.frameworks._low import Low, narrowed
from alignment.frameworks.base import Wanted
from alignment.localize.blame import Pair
from alignment.localize.search import random_cotangents, search
from alignment.low_precision import Floor, Pool, judge
from alignment.models.tracing import Network, training_mode
from mobilenetv3_common.errors import UserError

DRAWS = ("reference16", "ulp16", "ulp16#1", "ulp16#2")
LANES = ("port16", *DRAWS, "reference64")
SAMPLES = 8
PICTURE_SIZE = 96
LOSSES = ("hard", "smoothed", "soft", "ignored")  # cases of step 4
NamedTensors = Mapping[str, np.ndarray]
StepPart = Callable[[Context, StepResult], None]


def lacks(context: Context) -> str:
    """Why a project cannot be compared in the context's low precision; ``""`` where it can."""
    for side in context.sides.values():
        try:
            with side.framework.autocast(Low(context.precision)):
                pass
        except UserError as error:
            return f"{context.precision}: {error}"
    return ""


def add(
    context: Context, result: StepResult, cases: list[step_1.PassCase] | None = None, training: bool = True, whole: bool = True
) -> StepResult:
    """Compare in low precision what a step compares, and add the rows to its result.

    Args:
        context: with a ``precision``.
        result: of step 1, 4 or 5; others stay as they are.
        cases: of step 1; some of its own where None.
        training: whether step 5 compares mixed precision in training, too.
        whole: go on after a part that failed.
    """
    parts: dict[int, list[StepPart]] = {
        1: forward(context, cases),
        4: [loss],
        5: [backward, *([mixed_precision.add] if training else [])],
    }
    if result.step not in parts:
        return result
    lacking = lacks(context)
    if lacking:
        result.not_run = "; ".join(filter(None, [result.not_run, lacking]))
        return result
    with context.port.framework.mixed_precision_here(), context.reference.framework.mixed_precision_here():  # once for all passes
        for part in parts[result.step]:
            if whole or not result.quantities or result.passed:
                part(context, result)
    result.cover(context.precision)
    return result


# --- step 1 ----------------------------------------------------------------------------------------------------------------


def forward(context: Context, cases: list[step_1.PassCase] | None = None) -> list[StepPart]:
    """The weights as they are held, every block's output and the logits, and each module on the reference's own input."""
    modes = (False,) if context.unshared_randomness else (False, True)
    chosen = [case for case in cases or default_cases(context) if case.training in modes]
    return [
        weights,
        *(partial(outputs, case=case) for case in chosen),
        *(partial(modules, training=training) for training in modes),
    ]


def outputs(context: Context, result: StepResult, case: step_1.PassCase) -> None:
    """Blocks, logits and statistics of one pass."""
    lanes = {name: context.networks.of(name) for name in LANES}
    reference = lanes["reference64"]
    blocks = step_1.block_names(context.spec, reference.framework, reference.model)
    traces = {name: step_1.forward(lane, case, blocks) for name, lane in lanes.items()}
    functions = set(blocks) - set(traces["port16"]) if context.spec.blocks is None else set()  # called in place of layers
    functions |= step_1.called_unevenly(traces["port16"], traces["reference16"]) | step_1.lying_elsewhere(context, blocks)
    for name, trace in traces.items():
        traces[name] = {n: array for n, array in trace.items() if n.partition("#")[0] not in functions}
    names = [n for n in traces["reference64"] if n in traces["reference16"]]
    judge_all(result, f"{context.precision}.{case.name}", names, traces, context.precision)


def default_cases(context: Context) -> list[step_1.PassCase]:
    """Pictures, where there are some, in both modes."""
    inputs = context.material.samples(SAMPLES)[0]
    return [step_1.PassCase("eval", inputs, False), step_1.PassCase("train", inputs, True)]


def weights(context: Context, result: StepResult) -> None:
    """The weights that mixed precision starts from, float32 on both sides, bit for bit."""
    port, truth = (side.framework.state(context.networks.build(role)) for role, side in context.sides.items())
    group = Group(f"{context.precision}.weights")
    for name in dict.fromkeys([*truth, *port]):
        group.add(judge_equal(f"{group.name}.{name}", *without_masked(port.get(name), truth.get(name))))
    result.extend(group.rows())


def judge_all(result: StepResult, title: str, names: list[str], lanes: Mapping[str, NamedTensors], dtype: str) -> None:
    """Judge arrays by their names, each with its siblings' floors beside its own."""
    lanes = _finite(names, lanes)
    truth = lanes["reference64"]
    floors, overflowing = {}, []
    for name in names:
        draws = [lanes[lane][name] for lane in DRAWS]
        if all(np.isfinite(draw).all() for draw in draws):
            floors[name] = Floor.of(draws, truth[name])
        else:
            overflowing.append(name)
    if overflowing:
        words = f"{title}: the reference itself overflows, first in {overflowing[0]}"
        result.not_run = "; ".join(filter(None, [result.not_run, words]))
    pool = Pool.of(floors, truth)
    for name in dict.fromkeys([*names, *(n for n in lanes["port16"] if n in truth)]):
        if truth[name].dtype.kind == "f" and name not in overflowing:
            draws_or_none = [lanes[lane].get(name) for lane in DRAWS]
            found = lanes["port16"].get(name)
            row = judge(f"{title}.{name}", found, draws_or_none, truth[name], dtype, pool, floors.get(name))
            result.quantities.append(row)


def _finite(names: list[str], lanes: Mapping[str, NamedTensors]) -> Mapping[str, NamedTensors]:
    """All lanes, without the -inf that all of them have in common."""
    found: dict[str, dict[str, np.ndarray]] = {lane: dict(arrays) for lane, arrays in lanes.items()}
    for name in names:
        holding = [lane for lane, arrays in lanes.items() if name in arrays]
        for lane, array in zip(holding, without_masked(*(lanes[lane][name] for lane in holding)), strict=True):
            found[lane][name] = array
    return found


def pair(context: Context, training: bool) -> Pair:
    """Both models in low precision on a few samples, with the float64 reference and the draws beside them."""
    networks = {name: context.networks.of(name) for name in LANES}
    if context.material.has_pictures:
        inputs: tuple = (context.material.photographs(4, min(PICTURE_SIZE, context.shape()[-1]))[0],)
    else:
        inputs = context.fake_inputs(4, small=True)
    return Pair(
        networks["port16"],
        networks["reference16"],
        context.paired.matched.matching,
        networks["reference16"].inputs(inputs),
        training=training,
        truth=networks["reference64"],
        draws=[networks[name] for name in DRAWS[1:]],
        dtype=context.precision,
    )


def in_low_precision(context: Context) -> Finding | None:
    """What the context's low precision alone has, if it has one: an overflow, an operator in another type than the reference's."""
    if not context.precision or lacks(context):
        return None
    for training in (False,) if context.unshared_randomness else (False, True):
        made = pair(context, training)
        made.cotangents = random_cotangents(made)
        if finding := search(made):
            finding.measured += f", in {context.precision}"
            return finding
    return None


def modules(context: Context, result: StepResult, training: bool) -> None:
    """Every module fed the reference's own input, as it is in low precision."""
    made = pair(context, training)
    group = Group(f"{context.precision}.{'train' if training else 'eval'}.modules")
    with training_mode(made.networks, training):
        made.calls = made.reference.trace(made.args)
        for key in made.calls:
            blame = made.blame(key, "forward")
            if blame.oversized:  # one layer for several places gives what the reference's other layers give
                blame = made.blame(key, "forward", whole=True)
            if not blame.theirs.outputs and not blame.guilty:
                continue
            row = Quantity(f"{group.name}.{key or 'model'}", [], port_error=blame.own)
            group.add(row if not blame.guilty else row.fail(blame.measured))
    result.extend(group.rows())


# --- step 4 ----------------------------------------------------------------------------------------------------------------


def loss(context: Context, result: StepResult) -> None:
    """The loss of the model's logits, and values and gradients of losses of logits in low precision."""
    inputs, labels = context.material.samples(SAMPLES)
    lanes = {name: context.networks.of(name, share_dropout=False) for name in LANES}
    logits = {name: np.asarray(lane.outputs(inputs)[0], lane.dtype) for name, lane in lanes.items()}
    found: dict[str, dict[str, np.ndarray]] = {name: {} for name in LANES}
    real = logits["reference64"].astype(np.float32)
    if not context.material.weights.calibrated:
        real = np.random.default_rng([context.seed, 5]).standard_normal(real.shape).astype(np.float32)
    chosen = [case for case in step_4.cases(real, labels, context.seed) if case.name in LOSSES]
    for name, lane in lanes.items():
        found[name]["model.loss"] = step_4.value_and_gradient(lane.side, step_4.LossCase("model", logits[name], labels))[0]
        for case in chosen:
            (given,) = lane.inputs((case.logits,))
            given = given if lane.exact else narrowed(given, context.precision)  # as a network's last layer gives them
            targets = case.labels.astype(lane.dtype) if case.labels.dtype.kind == "f" else case.labels
            mine = step_4.LossCase(case.name, given, targets, case.smoothing, case.ignore_index)
            value, gradient = step_4.value_and_gradient(lane.side, mine, lane.framework)
            found[name][f"{case.name}.loss"], found[name][f"{case.name}.gradient"] = value, gradient
    judge_all(result, context.precision, list(found["reference64"]), found, context.precision)


# --- step 5 ----------------------------------------------------------------------------------------------------------------


def backward(context: Context, result: StepResult) -> None:
    """Gradients of every parameter from random gradients of the outputs, in both modes."""
    inputs = context.material.samples(4, small=True)[0]
    lanes = {name: context.networks.of(name) for name in LANES}
    for training in (False,) if context.unshared_randomness else (False, True):
        found: dict[str, dict[str, np.ndarray]] = {}
        cotangents: list[np.ndarray | None] | None = None
        for name in ("reference64", *(n for n in LANES if n != "reference64")):
            lane = lanes[name]
            lane.reset()
            lane.train_mode(training)
            if cotangents is None:
                cotangents = _cotangents(lane, inputs, context.seed)
            found[name] = _gradients(lane, inputs, cotangents)
            lane.reset()
        title = f"{context.precision}.{'train' if training else 'eval'}.gradients"
        _judge_gradients(result, title, found, context.precision)


def _cotangents(lane: Network, inputs: tuple[np.ndarray, ...], seed: int) -> list[np.ndarray | None]:
    rng = np.random.default_rng([seed, 6])
    shapes = [output.shape if output.dtype.kind == "f" else None for output in lane.outputs(inputs)]
    return [None if shape is None else rng.standard_normal(shape) / max(math.prod(shape), 1) ** 0.5 for shape in shapes]


def _gradients(lane: Network, inputs: tuple[np.ndarray, ...], cotangents: list[np.ndarray | None]) -> dict[str, np.ndarray]:
    described = [(e, t) for e, t in lane.framework.described(lane.model) if e.role == "parameter"]
    trained = {e.canonical: (e, t) for e, t in described if lane.framework.trainable(t)}
    wanted = Wanted(inputs=False, parameters={n: tensor for n, (_, tensor) in trained.items()})
    made = lane.framework.vjp(lane.model, lane.inputs(inputs), cotangents, wanted)
    return {n: trained[n][0].to_canonical(g) for n, g in made.parameters.items() if g is not None}


def _judge_gradients(result: StepResult, title: str, lanes: Mapping[str, NamedTensors], dtype: str) -> None:
    truth = lanes["reference64"]
    rows = StepResult(5, title)
    judge_all(rows, title, list(truth), lanes, dtype)
    extra = [name for name in lanes["port16"] if name not in truth]
    group = Group(title)
    for row in rows.quantities:
        group.add(row)
    for name in extra:
        group.add(Quantity(f"{title}.{name}", []).fail("the reference has no such gradient"))
    result.extend(group.rows())
    if lanes["port16"].keys() == truth.keys():
        together = {name: np.concatenate([array.ravel() for _, array in sorted(lane.items())]) for name, lane in lanes.items()}
        row = judge(f"{title}.together", together["port16"], [together[name] for name in DRAWS], together["reference64"], dtype)
        result.quantities.append(row)
    size = float(np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in truth.values())))
    result.require(f"{title}.norm", float(f"{size:.4g}"), size > 1e-9, "above 1e-9")
