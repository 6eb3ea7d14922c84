"""What happens between a gradient and the next weights: clipping and the optimizer.

Both optimizers are given the same gradients, the reference's, and before each update the port's weights are set to the
reference's: what then differs is the update's own mistake.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, distance, norm
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.update.groups import GROUPS, own_groups, same_names
from alignment.comparisons.update.runs import RUNS, Run
from alignment.comparisons.update.schedules import train_part
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.optimizers import MOVES, Form, Material, flat, optimizer_hint, weights_after
from mobilenetv3_common.train_config import OptimizerConfig, ScheduleConfig
from mobilenetv3_common.weights import State

UPDATES = 3
# What the learning rate has to do with the memory shows; no two updates' rates have the same ratio.
MOVING = ScheduleConfig("cosine", total=UPDATES + 3)


@dataclass(frozen=True)
class FedUpdates:
    """What every optimizer is given.

    Attributes:
        gradients: of each update, those of the reference.
        start: the weights before each update, float64.
        groups: of each tensor: 0, 1 in a norm layer, 2 for another layer's bias.
    """

    gradients: list[State]
    start: State
    groups: Mapping[str, int]

    @classmethod
    def of(cls, context: Context) -> FedUpdates:
        gradients, framework = reference_gradients(context, UPDATES), context.reference.framework
        modules = framework.modules(context.networks.build("reference"))
        norms = {path for path, module in modules.items() if framework.layer(module).kind == "batch_norm"}
        group = lambda name: 1 if name.rpartition(".")[0] in norms else 2 if name.endswith("bias") else 0  # noqa: E731
        start = {name: context.material.weights.state[name].astype(np.float64) for name in gradients[0]}
        return cls(gradients, start, {name: group(name) for name in start})


def optimizers(context: Context) -> Iterator[OptimizerUpdates]:
    """Every optimizer of step 5; those that clip come last: what then differs is the clipping's own mistake."""
    fed = FedUpdates.of(context)
    largest = max(float(np.sqrt(sum(norm(g) ** 2 for g in one.values()))) for one in fed.gradients)
    lanes = {f"{role}64": context.networks.of(f"{role}64", share_dropout=False) for role in context.sides}
    reference = lanes["reference64"]
    by_name = own_groups(reference.framework, reference.model) if same_names(lanes) else ()
    trials: list[tuple[OptimizerConfig, float | None]] = []
    for run in (*RUNS, *(Run(f"{config.name}.groups", config, training=True) for config in (*GROUPS, *by_name))):
        trials.append((run.optimizer, None))
        if run.optimizer.l1_decay:
            trials.append((run.optimizer, 0.25 * largest))
        if run.clip_norm is not None:
            trials += [(run.optimizer, min(run.clip_norm, 0.25 * largest)), (run.optimizer, 4 * largest)]
    for config, clip in dict.fromkeys(sorted(trials, key=lambda trial: trial[1] is not None)):
        yield OptimizerUpdates(config, clip, fed)


class OptimizerUpdates:
    """A few updates under a moving learning rate, each from the same weights; the optimizer's own state goes on.

    Args:
        config: of the optimizer.
        clip: the norm to which gradients are clipped; None for no clipping.
        fed: weights and gradients.
    """

    def __init__(self, config: OptimizerConfig, clip: float | None, fed: FedUpdates) -> None:
        self.config, self.clip, self.fed = config, clip, fed

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        """The weights after each update, and the learning rates of each and of the one after the last."""
        lane = context.networks.of(f"{role}64", share_dropout=False)
        framework, train = lane.framework, train_part(lane.side)
        lane.train_mode(True)
        with framework.default_dtype("float64"):
            optimizer = train.build_optimizer(lane.model, self.config.in_float32())
            plan = train.build_schedule(optimizer, MOVING)
        found: dict[str, np.ndarray] = {}
        rates = [framework.learning_rate(optimizer)]
        for number, gradient in enumerate(self.fed.gradients):
            lane.reset()
            with framework.default_dtype("float64"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of a schedule whose optimizer never stepped
                framework.add_gradients(lane.model, gradient)
                train.apply_update(lane.model, optimizer, self.clip)
                plan.step()
            rates.append(framework.learning_rate(optimizer))
            state = framework.state(lane.model)
            found |= {f"{number}/{name}": state[name] for name in state if name in gradient}
        return {"rates": np.array(rates), **found}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        """Nothing: the runs have the rows of their updates."""
        return ()

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        ours, theirs = self._states(port), self._states(reference)
        start, config = self.fed.start, self.config
        by_update = [
            [n for n in right if not _same_move(mine.get(n), right[n], start[n])] for mine, right in zip(ours, theirs, strict=True)
        ]
        number, wrong = next(((i, names) for i, names in enumerate(by_update) if names), (0, []))
        if not wrong:
            return None
        mine, right = ours[number], theirs[number]
        place, hint = f"optimizer.{config.name}", NO_HINT
        found = self._hint(ours, theirs, np.asarray(reference["rates"]).tolist())
        if found is not None:
            place, hint = found[0] or place, at_its_rate(found[1], np.asarray(port["rates"]), np.asarray(reference["rates"]))
        elif self.clip is not None:
            place, hint = "apply_update", (Kind.CLIP_NORM, "the clipping: without it the same update is right")
        if len(wrong) <= 0.9 * len(right) and "." in place:
            place += f": {wrong[0]}"
        name = wrong[0]
        sizes = [norm(state[name] - start[name]) if name in state else 0.0 for state in (mine, right)]
        moved = f"first {name} moves by {sizes[0]:.7g}, expected {sizes[1]:.7g}"
        return Finding("update", place, *hint, f"{config.name}, update {number}: {len(wrong)} of {len(right)} tensors, {moved}")

    def _states(self, made: Measurement) -> list[State]:
        """The weights after each update."""
        states: list[State] = [{} for _ in self.fed.gradients]
        for key in [key for key in made if key != "rates"]:
            number, _, name = key.partition("/")
            states[int(number)][name] = np.asarray(made[key])
        return states

    def _hint(self, ours: list[State], theirs: list[State], rates: list[float]) -> tuple[str, Hint] | None:
        """The one mistake that gives the port's updates, provided that the formula gives the reference's."""
        start = self.fed.start
        if any(state.get(n) is None or state[n].shape != start[n].shape for state in ours for n in start):
            return None
        if all(np.array_equal(state[n], start[n]) for state in ours for n in start):
            return "apply_update", (Kind.NEVER_UPDATED, "the weights are not updated")
        if self.config.name not in MOVES:
            return None
        made = lambda gradients: Material.of(gradients, start, self.fed.groups, rates)  # noqa: E731
        config, gradients, penalties = self.config.in_float32(), self.fed.gradients, self._penalties()
        # An L1 penalty comes behind the clipping, and no form has it: both are in the gradients that the formula is given.
        form = Form.of(config, None if penalties else self.clip)
        material = made([_sum(self._clipped(one), penalties) for one in gradients] if penalties else gradients)
        if not _gives(form, material, theirs):
            return None  # the reference's optimizer is another one than this formula's
        found = optimizer_hint(form, material, [flat(state, material.names) for state in ours])
        if found is not None or not penalties:
            return found
        others: list[tuple[Hint, list[State]]] = [((Kind.WEIGHT_DECAY_MISSING, "the L1 penalty is not added"), list(gradients))]
        squared = {name: config.l1_decay * start[name] for name in penalties}
        words = "the L1 penalty is an L2 penalty (times the weight), expected times the sign of each weight"
        others += [((Kind.L2_FOR_L1, words), [_sum(one, squared) for one in gradients])]
        if self.clip is not None:
            words = "the L1 penalty is added before the gradients are clipped, expected behind it"
            others = [((Kind.CLIP_NORM, words), [self._clipped(_sum(one, penalties)) for one in gradients])]
        return next((("apply_update", hint) for hint, fed in others if _gives(form, made(fed), ours)), None)

    def _penalties(self) -> State:
        """What the L1 penalty adds to the gradient of each weight that has one; nothing without one, or with rules by name."""
        config, groups = self.config, self.fed.groups
        own = (None, config.norm_weight_decay, config.bias_weight_decay)
        if not config.l1_decay or config.rules:
            return {}
        return {name: config.l1_decay * np.sign(array) for name, array in self.fed.start.items() if own[groups[name]] is None}

    def _clipped(self, gradients: State) -> State:
        """Gradients held to the norm that this run clips to."""
        size = float(np.sqrt(sum(norm(one) ** 2 for one in gradients.values())))
        factor = 1.0 if self.clip is None else min(self.clip / (size + 1e-6), 1.0)
        return {name: one * factor for name, one in gradients.items()}


def _sum(gradients: State, more: State) -> State:
    return {name: one + more.get(name, 0.0) for name, one in gradients.items()}


def _gives(form: Form, material: Material, states: Sequence[State]) -> bool:
    """Whether a formula gives the weights after each update."""
    for one, state in zip(weights_after(form, material), states, strict=True):
        expected = flat(state, material.names)
        error, moves = material.by_tensor(one - expected), material.by_tensor(expected - material.start)
        allowed = tolerance.FORMULA_RTOL * moves + tolerance.FORMULA_LEAST * material.by_tensor(material.start)
        if not (error <= allowed).all():
            return False
    return True


def at_its_rate(hint: Hint, ours: np.ndarray, right: np.ndarray) -> Hint:
    """A factor of every step as it is said: of the learning rate only where the port's optimizer tells another one, too."""
    kind, words = hint
    same = ours.shape == right.shape and bool(np.allclose(ours, right, rtol=tolerance.RATE_RTOL, atol=0))
    if kind is not Kind.LR_SCALED or not same:
        return hint
    return kind, f"{words.replace('the learning rate is', 'every step is')}, at the same learning rate: a factor in the formula"


def _same_move(ours: np.ndarray | None, theirs: np.ndarray, start: np.ndarray) -> bool:
    if ours is None or ours.shape != theirs.shape or not np.isfinite(ours).all():
        return False
    return distance(ours, theirs) <= tolerance.MOVE_RTOL * norm(theirs - start) + tolerance.MOVE_LEAST * norm(start)


def reference_gradients(context: Context, count: int, batch: int = 4) -> list[State]:
    """Gradients of the reference's loss over ``count`` batches, float64, training mode, from the starting weights."""
    lane = context.networks.of("reference64")
    train, loss, framework = train_part(lane.side), lane.side.loss, lane.framework
    assert loss is not None
    lane.train_mode(True)
    inputs, labels = context.material.samples(count * batch, small=True)
    criterion = loss.CrossEntropyLoss(0.1)
    found = []
    for number in range(count):
        lane.reset()
        part = slice(number * batch, (number + 1) * batch)
        (images,) = lane.inputs((inputs[0][part],))
        framework.clear_gradients(lane.model)
        with framework.precision(lane.dtype):
            train.accumulate_gradients(lane.model, criterion, [(framework.tensor(images), framework.tensor(labels[part]))])
        found.append(framework.gradients(lane.model))
    return found
