"""Where two training engines diverge: recipe, batches, schedule, one update from equal weights."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm
from alignment.comparisons.context import Context
from alignment.comparisons.model.explain import in_float32 as in_float32_alone
from alignment.comparisons.run.engine import cast, each_update, engine, fresh_weights, next_epoch, start_run
from alignment.comparisons.run.recipe import recipe
from alignment.comparisons.update.mistakes import RateCase
from alignment.comparisons.update.schedules import rate_finding
from alignment.finding import Finding
from alignment.frameworks.base import Framework, Module, Tensor
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import close, explains
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

UPDATES = 3


@contextlib.contextmanager
def _config(context: Context) -> Iterator[TrainConfig]:
    """Step 6's recipe on a few digits."""
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder, 4, 2)
        yield replace(recipe(context, 2), data_path=folder)


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
            for gathered in islice(each_update(train.micro_batches(run), config.accumulate), 8):
                train.update(run, gathered)
                found.append(run.rate)
                next_epoch(run)
            rates[role] = np.array(found)
        pictures = config.batch_size * config.accumulate
        return rate_finding(
            "train", "schedule", RateCase(rates["port"], rates["reference"], config, run.updates_per_epoch, pictures)
        )


class _Lockstep:
    """Updates of one engine, each from the reference's weights, in float64: losses and weights."""

    def __init__(
        self,
        context: Context,
        role: str,
        config: TrainConfig,
        weights: State,
        bits: str = "64",
        keep_gradients: bool = False,
        watch: Callable[[Framework, Module], Any] = lambda framework, model: None,
    ) -> None:
        framework, train, dtype = context.sides[role].framework, engine(context, role), f"float{bits}"
        self.losses: list[float] = []
        self.states: list[State] = []
        run = start_run(context, role, config, bits, weights)
        for clearing in ("zero_grad", "clear_grad") if keep_gradients else ():
            if hasattr(run.optimizer, clearing):
                setattr(run.optimizer, clearing, lambda *args, **kwargs: None)
        self.watched = watch(framework, run.model)
        self.buffers = {entry.canonical for entry in framework.entries(run.model) if entry.role == "buffer"}
        for gathered in islice(each_update(train.micro_batches(run), config.accumulate), UPDATES):
            context.networks.load(role, run.model, weights)
            with framework.precision(dtype):
                train.update(run, [cast(framework, batch, dtype) for batch in gathered])
            self.losses.append(float(framework.array(run.meter.loss)))
            run.meter = type(run.meter)()
            self.states.append(framework.state(run.model))


def updates(context: Context) -> Finding | None:
    """Three updates from equal weights: the loss, then the weights and statistics after it."""
    with _config(context) as config:
        weights = fresh_weights(context, config)
        ours, theirs = (_Lockstep(context, role, config, weights) for role in context.sides)
        finding = _difference(ours, theirs, weights)
        if finding is not None and not finding.kind:
            for kind, words, changes in _known(config):
                if _explains(_Lockstep(context, "reference", replace(config, **changes), weights), ours, theirs, finding, weights):
                    finding.kind, finding.hint = kind, words
                    return finding
            if config.dropout != 0 and (hint := _of_dropout(context, config, weights, ours, theirs, finding)):
                finding.kind, finding.hint = hint
                return finding
            kept = _Lockstep(context, "reference", config, weights, keep_gradients=True)
            if _explains(kept, ours, theirs, finding, weights):
                finding.kind = Kind.GRADIENT_NOT_CLEARED
                finding.hint = "gradients are not cleared: each update takes those of all before it too"
    return finding


def _of_dropout(
    context: Context, config: TrainConfig, weights: State, ours: _Lockstep, theirs: _Lockstep, finding: Finding
) -> tuple[Kind, str] | None:
    """What is wrong with the dropouts of a port, if that explains it."""
    unscaled = _Lockstep(context, "reference", config, weights, watch=_unscale_dropouts)
    if _explains(unscaled, ours, theirs, finding, weights):
        return Kind.DROPOUT_SCALE, "dropout keeps values unscaled in training, expected the factor 1 / (1 - p)"
    dropped = [_Lockstep(context, role, config, weights, watch=_note_dropped).watched for role in context.sides]
    if _draw_otherwise(*dropped):
        return Kind.ORDER, "dropout drops other values: another seed, or its numbers are drawn in another order"
    return None


def _dropouts(framework: Framework, model: Module) -> list[Module]:
    """The layers of a model that drop values in training: a project's engines may have made them of a class of their own."""
    named = [m for m in framework.modules(model).values() if "dropout" in type(m).__name__.lower()]
    return [m for m in named if isinstance(p := getattr(m, "p", None), float) and 0 < p < 1]


def _unscale_dropouts(framework: Framework, model: Module) -> None:
    """From now on a model's dropouts keep values as they are in training, instead of dividing them by 1 - p."""

    def unscaled(module: Module, args: tuple, kwargs: dict, output: Tensor) -> Tensor | None:
        training = framework.training(module)
        return framework.times(output, np.full(tuple(output.shape), 1.0 - module.p)) if training else None

    for module in _dropouts(framework, model):
        framework.hook(module, after=unscaled)


def _note_dropped(framework: Framework, model: Module) -> list[np.ndarray]:
    """From now on the list that is returned gets what each dropout drops in training: True where a value became zero."""
    dropped: list[np.ndarray] = []

    def note(module: Module, args: tuple, kwargs: dict, output: Tensor) -> None:
        if framework.training(module):
            given = args[0] if args else next(iter(kwargs.values()))
            dropped.append((framework.array(output) == 0) & (framework.array(given) != 0))

    for module in _dropouts(framework, model):
        framework.hook(module, after=note)
    return dropped


def _draw_otherwise(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    """Whether a dropout drops about as many values as the reference's, of which most are others."""
    for a, b in zip(ours, theirs, strict=False):
        if a.shape == b.shape and min(a.sum(), b.sum()) > 0.8 * max(a.sum(), b.sum()) and (a & b).sum() < 0.5 * (a | b).sum():
            return True
    return False


def _explains(made: _Lockstep, ours: _Lockstep, theirs: _Lockstep, finding: Finding, weights: State) -> bool:
    """Whether the reference with a mistake in it gives what the port gives where they first differ.

    Where losses differ already, they tell: a mistake can come with others in what is updated.
    """
    if finding.location == "loss":
        return explains(np.array(made.losses), np.array(ours.losses), np.array(theirs.losses))
    statistics = finding.location == "update.statistics"
    names = [n for n in theirs.states[0] if (n in theirs.buffers) == statistics]

    if any(n not in state for state in ours.states for n in names):
        return False

    def moves(side: _Lockstep) -> np.ndarray:
        return np.concatenate([(state[n].astype(np.float64) - weights[n]).ravel() for state in side.states for n in names])

    return close(np.array(made.losses), np.array(ours.losses)) and explains(moves(made), moves(ours), moves(theirs))


def _difference(ours: _Lockstep, theirs: _Lockstep, weights: State, rtol: float = tolerance.RUN_RTOL) -> Finding | None:
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
    return None


def _known(config: TrainConfig) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
    """Recipes with one mistake; those that change nothing of this one explain nothing, and are not run."""
    mistakes: list[tuple[Kind, str, dict[str, Any]]] = [
        (Kind.DROPOUT_MISSING, "dropout is missing in training", {"dropout": 0.0}),
        (Kind.SMOOTHING_MISSING, "label smoothing is left out", {"label_smoothing": 0.0}),
        (Kind.SMOOTHING, "label smoothing 0.1", {"label_smoothing": 0.1}),
        (Kind.CLIPPING_MISSING, "gradients are not clipped", {"clip_norm": None}),
        (Kind.WEIGHT_DECAY_MISSING, "weight decay is left out", {"weight_decay": 0.0}),
        (Kind.NORM_WEIGHT_DECAY, "weight decay on norm layers is left out", {"norm_weight_decay": 0.0}),
        (Kind.BIAS_WEIGHT_DECAY, "weight decay on biases is left out", {"bias_weight_decay": 0.0}),
        (Kind.OPTIMIZER_EPS, "eps 1e-08", {"eps": 1e-8}),
        (Kind.BETAS, "beta1 and beta2 are 0.9 and 0.999", {"beta1": 0.9, "beta2": 0.999}),
        (Kind.LR_SCALED, "the learning rate is twice the recipe's", {"lr": 2 * config.lr}),
        (Kind.LR_SCALED, "the learning rate is half the recipe's", {"lr": config.lr / 2}),
        (Kind.STATISTICS_FROZEN, "BatchNorm is frozen, or in evaluation mode while training", {"freeze_bn": True}),
        (
            Kind.EVALUATION_MODE,
            "the model stays in evaluation mode while training: neither dropout nor the statistics of the batch",
            {"freeze_bn": True, "dropout": 0.0},
        ),
        (Kind.MOMENTUM, "BatchNorm keeps the momentum of the model, not that of the recipe", {"bn_momentum": None}),
        (Kind.DROPOUT_RATE, "dropout keeps the model's own rate, 0.2, not that of the recipe", {"dropout": 0.2}),
    ]
    for kind, words, changes in mistakes:
        if any(getattr(config, name) != value for name, value in changes.items()):
            yield kind, words, changes


def in_float32(context: Context) -> Finding | None:
    """The first losses in float32, for what float64 does not have."""
    with _config(context) as config:
        weights = fresh_weights(context, config)
        ours, theirs = (_Lockstep(context, role, config, weights, "32") for role in context.sides)
    for number, (a, b) in enumerate(zip(ours.losses, theirs.losses, strict=True)):
        if not abs(a - b) <= 1e-5 * abs(b):
            measured = f"update {number}: loss {a:.9g}, expected {b:.9g}, in float32 alone"
            return in_float32_alone(context) or Finding("train", "loss", measured=measured)
    return None
