"""Training runs of one side, in float32 or in exact mode, and what the small ones begin from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.run.recipe import recipe
from alignment.frameworks.base import Framework
from alignment.project import EnginePart
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

# The recipes of the small runs, beside what a given recipe says; four pictures a batch, numbers that float32 holds.
SMALL_EPOCHS, SMALL_WIDTH = 4, 0.5
LONG: dict[str, Any] = {
    "accumulate": 2,
    "scale_lr_from": 4,
    "lr_schedule": "cosine",
    "lr_min": 2.0**-12,
    "warmup_epochs": 1,
    "warmup_decay": 0.25,
    "norm_weight_decay": 2.0**-5,
    "bias_weight_decay": 2.0**-9,
    "ema_decay": 0.75,
    "ema_every": 2,
    "mixup_alpha": 0.5,
}
SHORT: dict[str, Any] = {
    "freeze_bn": True,
    "accumulate": 1,
    "lr_schedule": "step",
    "lr_unit": "epoch",
    "lr_step_epochs": 1,
    "lr_gamma": 0.5,
    "warmup_epochs": 1,
    "warmup_decay": 0.25,
}

MicroBatch = tuple[tuple[Any, Any], tuple[int, ...]]  # pictures and labels, and the numbers of skipped pictures


def engine(context: Context, role: str) -> EnginePart:
    """The training code of one side; the step is not run where it makes no whole runs."""
    train: Any = context.sides[role].train
    return train


def start_run(context: Context, role: str, config: TrainConfig, bits: str, weights: State | None = None) -> Any:
    """A training run of one side, in training mode.

    Args:
        context: the two sides.
        role: ``"port"`` or ``"reference"``.
        config: the recipe.
        bits: ``"32"``, or ``"64"`` for exact mode.
        weights: canonical; the side's own fresh ones where None.
    """
    framework, train, spec = context.sides[role].framework, engine(context, role), context.spec
    options = {**spec.options, **spec.train_options(config)}
    dtype = f"float{bits}"
    with framework.default_dtype(dtype):
        ranks = train.Ranks(device=context.device)

        def build(classes: int) -> Any:
            network = context.paired.named(role, getattr(spec, role)(**{**options, "num_classes": classes}))
            # A framework without a default type makes float32, in which a checkpoint of an exact run would lose its digits.
            narrow = bits == "64" and any(framework.array(t).dtype == np.float32 for _, t in framework.described(network)[:1])
            return context.networks.exact(role, network) if narrow else network

        run = train.build_run(config, ranks, build)
    if bits == "64":
        context.networks.exact(role, run.model)
    if weights is not None:
        context.networks.load(role, run.model, weights)
    framework.set_training(run.model, False)  # as an evaluation leaves it
    run.train_mode()
    return run


def fresh_weights(context: Context, config: TrainConfig) -> State:
    """The reference's fresh weights of the recipe's seed, for both sides."""
    framework = context.reference.framework
    return framework.state(start_run(context, "reference", config, "32").model)


def each_update(batches: Iterable[MicroBatch], accumulate: int) -> Iterator[list[MicroBatch]]:
    """The micro-batches of one update after another, as the training loop gathers them."""
    rest = iter(batches)
    while len(gathered := list(islice(rest, accumulate))) == accumulate:
        yield gathered


def cast(framework: Framework, batch: MicroBatch, dtype: str) -> MicroBatch:
    """A micro-batch with pictures, and labels that are probabilities, of another type."""
    (pixels, labels), skipped = batch
    given = [framework.array(tensor) for tensor in (pixels, labels)]
    ours, theirs = (framework.tensor(array.astype(dtype) if np.issubdtype(array.dtype, np.floating) else array) for array in given)
    return (ours, theirs), skipped


def next_epoch(run: Any) -> None:
    """Where an epoch has ended, begin the next, as the training loop does."""
    if run.iteration == run.updates_per_epoch:
        run.epoch, run.iteration = run.epoch + 1, 0


@dataclass(frozen=True)
class Ground:
    """What the small runs of both sides begin from.

    Attributes:
        seed: of what is drawn.
        long: recipe of a run that is stopped and resumed: accumulation, moving average, schedule by update.
        short: recipe of a run with frozen normalisation layers and a schedule by epoch.
        weights: canonical; of the reference, with statistics of the very pictures, so that evaluation mode means something.
        moved: the same, moved by one float64 ulp.
        folder: for checkpoints.
    """

    seed: int
    long: TrainConfig
    short: TrainConfig
    weights: State
    moved: State
    folder: Path

    @classmethod
    def of(cls, context: Context, folder: str | Path) -> Ground:
        """Write the digits into a folder, and make the weights."""
        many, few = (write_digits(Path(folder) / name, *count) for name, count in (("many", (4, 2)), ("few", (1, 1))))
        base = replace(recipe(context, SMALL_EPOCHS), batch_size=4)
        if context.recipe is None:
            base = replace(base, width_mult=min(base.width_mult, SMALL_WIDTH))
        long = replace(base, data_path=str(many), **(LONG if context.recipe is None else {}))
        short = replace(base, data_path=str(few), **SHORT)
        weights = _settled(context, replace(long, bn_momentum=0.5))
        wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in weights.items()}
        return cls(context.seed, long, short, weights, context.material.ulp_changed(wide, "float64"), Path(folder))


def _settled(context: Context, config: TrainConfig) -> State:
    """Fresh weights of the reference whose statistics have seen a few batches."""
    framework, run = context.reference.framework, start_run(context, "reference", config, "32")
    for (pixels, _), _ in islice(engine(context, "reference").micro_batches(run), 4):
        framework.call(run.model, (framework.array(pixels),))
    return framework.state(run.model)


class Update(NamedTuple):
    """One update of an exact run.

    Attributes:
        state: weights and statistics after it, canonical, float64.
        rate: its learning rate.
        loss: its mean loss.
        right: how many of its pictures the run counted as right at top-1 and top-5.
    """

    state: State
    rate: float
    loss: float
    right: tuple[float, ...]


def updates_of(context: Context, role: str, run: Any, count: int) -> Iterator[Update]:
    """Train an exact run by so many updates."""
    framework, train = context.sides[role].framework, engine(context, role)
    for gathered in islice(each_update(train.micro_batches(run), run.config.accumulate), count):
        with framework.precision("float64"):
            train.update(run, [cast(framework, batch, "float64") for batch in gathered])
        loss, right = (framework.array(figure) for figure in (run.meter.loss, run.meter.right))
        run.meter = type(run.meter)()
        next_epoch(run)
        yield Update(framework.state(run.model), run.rate, float(loss), tuple(map(float, right)))
