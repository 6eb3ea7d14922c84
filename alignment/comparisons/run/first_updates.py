"""The first updates of a run, each from the same weights, in float64: what is wrong in one does not show in the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.run.engine import cast, each_update, engine, start_run
from alignment.comparisons.run.states import part, under
from alignment.finding import Finding
from alignment.frameworks.base import Framework, Module, Tensor
from alignment.localize.hypotheses.hypothesis import Observed
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

UPDATES = 3


def first_updates(
    context: Context,
    role: str,
    config: TrainConfig,
    weights: State,
    changes: Mapping[str, Any] | None = None,
    keep_gradients: bool = False,
    unscaled: bool = False,
) -> dict[str, Value]:
    """The settings that the run really has, losses, states after each update, and which values each dropout drops.

    Args:
        context, role: which side.
        config: the recipe.
        weights: before each update; the optimizer's own state goes on.
        changes: other settings of the recipe.
        keep_gradients: do not clear them after an update.
        unscaled: dropouts do not divide what they keep by 1 - p.
    """
    framework, train = context.sides[role].framework, engine(context, role)
    run = start_run(context, role, replace(config, **changes or {}), "64", weights)
    for clearing in ("zero_grad", "clear_grad") if keep_gradients else ():
        if hasattr(run.optimizer, clearing):
            setattr(run.optimizer, clearing, lambda *args, **kwargs: None)
    if unscaled:
        _unscale_dropouts(framework, run.model)
    dropped = _note_dropped(framework, run.model)
    buffers = [entry.canonical for entry in framework.entries(run.model) if entry.role == "buffer"]
    made: dict[str, Value] = {"config": json.dumps(asdict(run.config)), "buffers": np.array(buffers, dtype=str)}
    losses = []
    for number, gathered in enumerate(islice(each_update(train.micro_batches(run), config.accumulate), UPDATES)):
        context.networks.load(role, run.model, weights)
        with framework.precision("float64"):
            train.update(run, [cast(framework, batch, "float64") for batch in gathered])
        losses.append(float(framework.array(run.meter.loss)))
        run.meter = type(run.meter)()
        made |= under(f"update{number}", framework.state(run.model))
    return {**made, "losses": np.array(losses), **{f"dropped.{number}": values for number, values in enumerate(dropped)}}


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


def _groups(reference: Measurement, number: int) -> dict[str, list[str]]:
    """Names of the tensors of an update: those that are trained, and the statistics."""
    buffers = set(np.asarray(reference["buffers"]).tolist())
    names = list(part(reference, f"update{number}"))
    return {"weights": [n for n in names if n not in buffers], "statistics": [n for n in names if n in buffers]}


def difference(ours: Measurement, theirs: Measurement, weights: State) -> Finding | None:
    """Where the updates first differ: the loss, the weights or the statistics after it."""
    rtol = tolerance.RUN_RTOL
    for number, (one, other) in enumerate(zip(np.asarray(ours["losses"]), np.asarray(theirs["losses"]), strict=False)):
        if not abs(one - other) <= rtol * abs(other):
            return Finding("train", "loss", measured=f"update {number}: loss {one:.9g}, expected {other:.9g}")
        a, b = part(ours, f"update{number}"), part(theirs, f"update{number}")
        for kind, names in _groups(theirs, number).items():
            moves = {n: norm(b[n] - weights[n]) for n in names}
            largest = max(moves.values(), default=0.0)
            wrong = [n for n in names if n not in a or not distance(a[n], b[n]) <= rtol * max(moves[n], 1e-3 * largest) * 10]
            if wrong:
                own = norm(a[wrong[0]] - weights[wrong[0]]) if wrong[0] in a else np.nan
                first = f"{wrong[0]} moves by {own:.4g}, expected {moves[wrong[0]]:.4g}"
                return Finding("train", f"update.{kind}", measured=f"update {number}: {len(wrong)} of {len(names)}, first {first}")
    return None


def observed(ours: Measurement, theirs: Measurement, weights: State, place: str) -> list[Observed]:
    """What a mistake has to explain; where losses differ already, they tell: it can come with others in what is updated."""

    def losses(made: Measurement) -> np.ndarray:
        return np.asarray(made["losses"])

    if place == "loss":
        return [Observed(losses, losses(ours), losses(theirs))]
    kind = place.removeprefix("update.")

    def moves(made: Measurement) -> np.ndarray | None:
        states = {number: part(made, f"update{number}") for number in range(len(losses(theirs)))}
        names = [(number, n) for number in states for n in _groups(theirs, number)[kind]]
        if any(n not in states[number] for number, n in names):
            return None
        return np.concatenate([(states[number][n].astype(np.float64) - weights[n]).ravel() for number, n in names])

    # Losses that agree but for rounding are the right ones: a mistake must not show in them.
    return [Observed(losses, losses(ours), losses(ours)), Observed(moves, moves(ours), moves(theirs))]
