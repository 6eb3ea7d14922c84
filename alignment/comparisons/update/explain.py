"""What happens between a gradient and the next weights: accumulation, clipping, the optimizer.

Both optimizers are given the same gradients, the reference's, and before each update the port's weights are set to the
reference's: what then differs is the update's own mistake. The hint comes from making the update again with one known
mistake at a time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.comparisons.context import Context, Lane
from alignment.comparisons.update.backward import RUNS, Run
from alignment.comparisons.update.schedules import GROUPS, own_groups, same_names, train_part
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import explains, factor_hint
from alignment.localize.hypotheses.optimizers import MOVES, Form, Material, flat, optimizer_hint, weights_after
from alignment.project import LossPart, Side
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

UPDATES = 3


# --- accumulation ----------------------------------------------------------------------------------------------------------


def _loss(side: Side) -> LossPart:
    assert side.loss is not None
    return side.loss


def accumulation(context: Context) -> Finding | None:
    """Gradients of one micro-batch, and of two."""
    inputs, labels = context.material.samples(8, small=True)
    parts = {"one": [slice(0, 4)], "two": [slice(0, 4), slice(4, 8)], "the second": [slice(4, 8)]}
    found: dict[tuple[str, str], State] = {}
    for role in context.sides:
        lane = Lane(context, f"{role}64")
        framework = lane.framework
        criterion = _loss(lane.side).CrossEntropyLoss(0.1)
        for name, chosen in parts.items():
            lane.reset()
            images = [lane.inputs((inputs[0][c],))[0] for c in chosen]
            batches = [(framework.tensor(x), framework.tensor(labels[c])) for x, c in zip(images, chosen, strict=True)]
            with framework.precision(lane.dtype):
                train_part(lane.side).accumulate_gradients(lane.network, criterion, batches)
            found[role, name] = framework.gradients(lane.network)
            framework.clear_gradients(lane.network)
    for name in ("one", "two"):
        ours, theirs = found["port", name], found["reference", name]
        for tensor in theirs:
            if tensor not in ours:
                continue
            if not distance(ours[tensor], theirs[tensor]) <= 1e-7 * max(norm(theirs[tensor]), _largest(theirs) * 1e-6):
                kind, words = _accumulation_hint(name, ours, found)
                size = relative(distance(ours[tensor], theirs[tensor]), norm(theirs[tensor]))
                measured = f"{tensor}: relative L2 {size:.1e}, {len(parts[name])} batch(es)"
                return Finding("backward", "accumulate_gradients", kind, words, measured)
    return None


def _accumulation_hint(name: str, ours: State, found: dict[tuple[str, str], State]) -> Hint:
    """Which other gradients of the reference the port's are."""
    names = [n for n in found["reference", name] if n in ours]
    vector = lambda state: np.concatenate([state[n].ravel() for n in names])  # noqa: E731
    own, right = vector(ours), vector(found["reference", name])
    if not np.isfinite(own).all():
        return Kind.NOT_FINITE, "gradients are NaN or infinite"
    if name == "two":
        first, second = vector(found["reference", "one"]), vector(found["reference", "the second"])
        for share, how in ((0.5, "half "), (1.0, "")):
            for made, which, kind in (
                (second, "last", Kind.GRADIENT_CLEARED_EARLY),
                (first, "first", Kind.BATCH_DROPPED),
            ):
                if explains(share * made, own, right):
                    because = ": gradients are cleared between micro-batches" if which == "last" else ""
                    return kind, f"{how}the gradient of the {which} micro-batch alone{because}"
    ratio = factor_hint(own, right)
    if ratio is not None and name == "two" and abs(ratio - 2) < 1e-6:
        return Kind.SUM_FOR_MEAN, "gradients of micro-batches are summed, expected their mean"
    return (Kind.GRADIENT_SCALED, f"every gradient is {ratio:.4g} times the reference's") if ratio is not None else NO_HINT


def _largest(state: State) -> float:
    return max(norm(array) for array in state.values())


# --- update ----------------------------------------------------------------------------------------------------------------

# What the learning rate has to do with the memory shows; no two updates' rates have the same ratio.
MOVING = ScheduleConfig("cosine", total=UPDATES + 3)


def optimizers(context: Context) -> Finding | None:
    """Every optimizer of step 5, each fed with the reference's gradients under a moving learning rate.

    Clipping comes last, on an optimizer that is right without it: what then differs is the clipping's own mistake.
    """
    gradients = reference_gradients(context, UPDATES)
    largest = max(float(np.sqrt(sum(norm(g) ** 2 for g in one.values()))) for one in gradients)
    seen: set[tuple[OptimizerConfig, float | None]] = set()
    trials: list[tuple[OptimizerConfig, float | None]] = []
    lanes = {f"{role}64": Lane(context, f"{role}64", share_dropout=False) for role in context.sides}
    reference = lanes["reference64"]
    by_name = own_groups(reference.framework, reference.network) if same_names(lanes) else ()
    for run in (*RUNS, *(Run(f"{config.name}.groups", config, training=True) for config in (*GROUPS, *by_name))):
        trials.append((run.optimizer, None))
        if run.optimizer.l1_decay:
            trials.append((run.optimizer, 0.25 * largest))
        if run.clip_norm is not None:
            trials += [(run.optimizer, min(run.clip_norm, 0.25 * largest)), (run.optimizer, 4 * largest)]
    for trial in sorted(trials, key=lambda trial: trial[1] is not None):
        if trial not in seen:
            seen.add(trial)
            if finding := _update_finding(context, *trial, gradients):
                return finding
    return None


@dataclass
class _Updates:
    """What one side makes of the gradients: the weights after each update, each from the same starting weights.

    Attributes:
        states: after each update, by canonical name.
        rates: of each update, and of the one after the last.
    """

    states: list[State]
    rates: list[float]


def _updated(role: str, context: Context, config: OptimizerConfig, clip: float | None, gradients: list[State]) -> _Updates:
    """Weights are set back to where the run began before each update; the optimizer's own state goes on."""
    lane = Lane(context, f"{role}64", share_dropout=False)
    framework, train = lane.framework, train_part(lane.side)
    lane.train_mode(True)
    with framework.default_dtype("float64"):
        optimizer = train.build_optimizer(lane.network, config.in_float32())
        plan = train.build_schedule(optimizer, MOVING)
    states, rates = [], [framework.learning_rate(optimizer)]
    for gradient in gradients:
        lane.reset()
        with framework.default_dtype("float64"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a schedule whose optimizer never stepped
            framework.add_gradients(lane.network, gradient)
            train.apply_update(lane.network, optimizer, clip)
            plan.step()
        rates.append(framework.learning_rate(optimizer))
        states.append({name: value for name, value in framework.state(lane.network).items() if name in gradient})
    return _Updates(states, rates)


def _update_finding(context: Context, config: OptimizerConfig, clip: float | None, gradients: list[State]) -> Finding | None:
    ours, theirs = (_updated(role, context, config, clip, gradients) for role in context.sides)
    start = {name: context.material.weights.state[name].astype(np.float64) for name in gradients[0]}
    pairs = enumerate(zip(ours.states, theirs.states, strict=True))
    by_update = [(i, [n for n in right if not _same_move(mine.get(n), right[n], start[n])]) for i, (mine, right) in pairs]
    number, wrong = next(((i, names) for i, names in by_update if names), (0, []))
    if not wrong:
        return None
    measured = _moved(config, number, wrong, ours.states, theirs.states, start)
    everywhere = len(wrong) > 0.9 * len(theirs.states[number])
    place = f"optimizer.{config.name}"
    kind, words = NO_HINT
    found = _optimizer_hint(context, config, clip, gradients, start, ours, theirs)
    if found is not None:
        location, (kind, words) = found
        place = location or place
    elif clip is not None:
        place, kind = "apply_update", Kind.CLIP_NORM
        words = "the clipping: without it the same update is right"
    if not everywhere and "." in place:
        place += f": {wrong[0]}"
    return Finding("update", place, kind, words, measured)


def _optimizer_hint(
    context: Context,
    config: OptimizerConfig,
    clip: float | None,
    gradients: list[State],
    start: State,
    ours: _Updates,
    theirs: _Updates,
) -> tuple[str, Hint] | None:
    """The one mistake that gives the port's updates, provided that the formula gives the reference's."""
    if any(state.get(n) is None or state[n].shape != start[n].shape for state in ours.states for n in start):
        return None
    if all(np.array_equal(state[n], start[n]) for state in ours.states for n in start):
        return "apply_update", (Kind.NEVER_UPDATED, "the weights are not updated")
    if config.name not in MOVES:
        return None
    framework = context.reference.framework
    modules = framework.modules(context.networks.build("reference"))
    norms = {path for path, module in modules.items() if framework.layer(module).kind == "batch_norm"}

    def group(name: str) -> int:
        return 1 if name.rpartition(".")[0] in norms else 2 if name.endswith("bias") else 0

    material = Material.of(gradients, start, {n: group(n) for n in start}, theirs.rates)
    form = Form.of(config.in_float32(), clip)
    made = weights_after(form, material)
    names = material.names
    for one, state in zip(made, theirs.states, strict=True):
        expected = flat(state, names)
        error, moves = material.by_tensor(one - expected), material.by_tensor(expected - material.start)
        if not (error <= 1e-6 * moves + 1e-13 * material.by_tensor(material.start)).all():
            return None  # the reference's optimizer is another one than this formula's
    return optimizer_hint(form, material, [flat(state, names) for state in ours.states])


def _same_move(ours: np.ndarray | None, theirs: np.ndarray, start: np.ndarray, rtol: float = tolerance.UPDATE_RTOL * 100) -> bool:
    if ours is None or ours.shape != theirs.shape or not np.isfinite(ours).all():
        return False
    move = norm(theirs - start)
    return distance(ours, theirs) <= rtol * move + 1e-15 * norm(start)


def _moved(config: OptimizerConfig, number: int, wrong: list[str], ours: list[State], theirs: list[State], start: State) -> str:
    name = wrong[0]
    sizes = [norm(side[number][name] - start[name]) if name in side[number] else 0.0 for side in (ours, theirs)]
    return (
        f"{config.name}, update {number}: {len(wrong)} of {len(theirs[number])} tensors, first {name} moves by "
        f"{sizes[0]:.7g}, expected {sizes[1]:.7g}"
    )


def reference_gradients(context: Context, count: int, batch: int = 4) -> list[State]:
    """Gradients of the reference's loss over ``count`` batches, float64, training mode, from the starting weights."""
    lane = Lane(context, "reference64")
    train, loss, framework = lane.side.train, lane.side.loss, lane.framework
    assert train is not None and loss is not None
    lane.train_mode(True)
    inputs, labels = context.material.samples(count * batch, small=True)
    criterion = loss.CrossEntropyLoss(0.1)
    found = []
    for number in range(count):
        lane.reset()
        part = slice(number * batch, (number + 1) * batch)
        (images,) = lane.inputs((inputs[0][part],))
        framework.clear_gradients(lane.network)
        with framework.precision(lane.dtype):
            train.accumulate_gradients(lane.network, criterion, [(framework.tensor(images), framework.tensor(labels[part]))])
        found.append(framework.gradients(lane.network))
    return found
