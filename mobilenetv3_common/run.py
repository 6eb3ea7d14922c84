"""A training run: what it is made of, where it stands, and its checkpoints."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mobilenetv3_common.checkpoint import Checkpoint, find_checkpoint, read_checkpoint
from mobilenetv3_common.class_weights import class_weights
from mobilenetv3_common.counted import counted
from mobilenetv3_common.dataset_index import DatasetIndex, index_splits, refuse_one_class
from mobilenetv3_common.distilling import build_criterion, teacher_digest
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.held_out import index_held_out
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.parts import MovingAverage, Network, Own, Precision, Ranks, Schedule
from mobilenetv3_common.rank_data import refuse_unlike_ranks
from mobilenetv3_common.rank_statistics import add_statistics, restore_statistics
from mobilenetv3_common.resuming import (
    refuse_damaged,
    refuse_impossible_place,
    refuse_other_classes,
    refuse_other_data,
    refuse_other_run,
    refuse_other_teacher,
)
from mobilenetv3_common.sampling import BatchPlan, DropoutStream
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training_backend import Arrays, Builder, TrainingBackend
from mobilenetv3_common.weights import check_fit


@dataclass
class Meter:
    """Sums of one logging interval on this rank, kept on the device until they are shown.

    Attributes:
        loss: of the mean losses of the updates.
        right: of the pictures right at top-1 and top-5, (2,).
        samples, updates: how many.
    """

    loss: Any = 0.0
    right: Any = 0.0
    samples: int = 0
    updates: int = 0


@dataclass
class Run:
    """Everything that a run holds.

    Attributes:
        backend: what computes.
        parallel: the model as training calls it; ``model`` itself on one rank.
        dropout: where the dropout layers' numbers come from.
        plan: this rank's batches of an epoch.
        epoch, iteration: where the run stands; ``iteration`` counts the updates of this epoch.
        best: the best top-1 so far, 0..1; -1 before the first evaluation.
        stale: evaluations in a row without a better top-1.
        skipped: numbers of the damaged training pictures that this rank replaced; rank 0's includes those before a resumption.
        rate: learning rate of the last update.
        to_evaluate: whether the epoch that ended was not evaluated yet.
        rollbacks: how often the run went back to a checkpoint since it had diverged.
        rate_factor: what the schedule's learning rates are multiplied by since then.
        source: the checkpoint from which this run goes on.
        ranks_then: of how many ranks that was, where it holds statistics of each and this run has another number; else 0.
        meter: sums since the last log line.
        observer: is told what the run does.
    """

    backend: TrainingBackend
    config: TrainConfig
    ranks: Ranks
    train_index: DatasetIndex
    val_index: DatasetIndex
    model: Network
    parallel: Network
    criterion: Own
    optimizer: Own
    schedule: Schedule
    precision: Precision
    average: MovingAverage
    dropout: DropoutStream
    plan: BatchPlan
    epoch: int = 0
    iteration: int = 0
    best: float = -1.0
    stale: int = 0
    skipped: set[int] = field(default_factory=set)
    rate: float = 0.0
    to_evaluate: bool = False
    rollbacks: int = 0
    rate_factor: float = 1.0
    source: Path | None = None
    ranks_then: int = 0
    meter: Meter = field(default_factory=Meter)
    observer: Observer = field(default_factory=Observer)

    @property
    def updates_per_epoch(self) -> int:
        return len(self.plan) // self.config.accumulate

    @property
    def update(self) -> int:
        """Updates done in the whole run."""
        return self.epoch * self.updates_per_epoch + self.iteration

    @property
    def global_batch(self) -> int:
        """Pictures a forward pass of all ranks."""
        return self.config.batch_size * self.ranks.world_size

    @functools.cached_property
    def teacher_digest(self) -> str | None:
        """What a checkpoint keeps of the teacher: the SHA-256 of its file; None without one."""
        return teacher_digest(self.config)

    @functools.cached_property
    def data_digests(self) -> dict[str, str]:
        """What a checkpoint keeps of the run's pictures: split -> ``DatasetIndex.digest``."""
        return {"train": self.train_index.digest(), "val": self.val_index.digest()}

    def learning_rate(self) -> float:
        """Of the next update."""
        return self.backend.learning_rate(self.optimizer) * self.rate_factor

    def lower_rates(self, factor: float) -> None:
        """Multiply the learning rate of every update from now on, whatever the schedule says."""
        self.rate_factor *= factor
        self.backend.scale_rates(self.optimizer, factor)

    def train_mode(self) -> None:
        self.backend.train_mode(self.model, self.config.freeze_bn)


def build_run(backend: TrainingBackend, config: TrainConfig, ranks: Ranks, builder: Builder | None = None) -> Run:
    """Put a run together, at its beginning or where the checkpoint of ``config.resume`` left it.

    Args:
        backend: what computes.
        config: of the run.
        ranks: of the framework's ``started``.
        builder: makes the network for a number of classes; that of ``config.model`` where None.

    Raises:
        UserError: the data, the weights or the checkpoint cannot be used, or the ranks list different pictures.
    """
    train_index, val_index = _index(config)
    config = fitted(config, len(train_index), ranks)
    refuse_unlike_ranks(train_index, val_index, ranks)
    if config.pretrained and not config.reset_classifier:
        refuse_other_classes(config.pretrained, train_index, config.match_classes)
    plan = training_plan(config, len(train_index), ranks)
    updates_per_epoch = len(plan) // config.accumulate
    if updates_per_epoch == 0:
        raise UserError(
            f"{len(train_index)} training pictures do not fill one update of {config.accumulate} x {config.batch_size} pictures "
            f"on {counted(ranks.world_size, 'rank')}, and no smaller batch does: use fewer accumulations or ranks, or add pictures"
        )
    precision = backend.Precision(config.amp_level, config.amp_dtype, ranks.device)
    backend.check_config(config, ranks)
    model = backend.place_model(backend.build_model(config, train_index.num_classes, builder), ranks)
    dropout = DropoutStream(config.seed)
    backend.share_dropout(model, dropout)
    pictures = config.batch_size * ranks.world_size * config.accumulate
    weight = class_weights(config.class_weights, train_index)
    criterion = backend.CrossEntropyLoss(config.label_smoothing, weight=weight)
    optimizer = backend.build_optimizer(model, config.optimizer_config(pictures))
    precision.prepare(model, optimizer)
    run = Run(
        backend=backend,
        config=config,
        ranks=ranks,
        train_index=train_index,
        val_index=val_index,
        model=model,
        parallel=model,
        criterion=build_criterion(backend, config, criterion, train_index, ranks, builder),
        optimizer=optimizer,
        schedule=backend.build_schedule(optimizer, config.schedule_config(updates_per_epoch)),
        precision=precision,
        average=backend.MovingAverage(model, config.ema_decay),
        dropout=dropout,
        plan=plan,
    )
    run.source = find_checkpoint(config.resume, config.output_dir) if config.resume else None
    found = read_checkpoint(run.source) if run.source is not None else None
    if found is not None:
        restore(run, found, str(run.source))
    run.parallel = backend.parallel(backend.compiled(model) if config.compile else model, ranks)
    if found is not None:  # now: wrapping a model gives every rank the statistics of rank 0
        run.ranks_then = restore_statistics(run, found, str(run.source))
    return run


def _index(config: TrainConfig) -> tuple[DatasetIndex, DatasetIndex]:
    """Training and validation pictures of a run; the latter held out of the former where ``config.val_share`` says so."""
    if config.val_share is None:
        return index_splits(config.data_path, config.num_classes, config.match_classes, config.strict_classes)
    parts = index_held_out(config.data_path, config.val_share, config.seed, config.num_classes, config.strict_classes)
    train, val = (part.with_classes(config.num_classes or 0) for part in parts)
    if config.num_classes is None:
        refuse_one_class(train)
    return train, val


SMALL_BATCH = 8  # of fewer pictures a BatchNorm's statistics say little: training then goes well, and evaluation does not


def fitted(config: TrainConfig, pictures: int, ranks: Ranks) -> TrainConfig:
    """The config with its batch halved until an epoch has ``min_updates``, or as it was where no batch of 2 or more has one.

    Below ``SMALL_BATCH`` it is halved only until an epoch has one update.
    """

    def updates(batch_size: int) -> int:
        try:
            return len(training_plan(replace(config, batch_size=batch_size), pictures, ranks)) // config.accumulate
        except UserError:
            return 0

    batch = config.batch_size
    while batch >= 4 and (batch // 2) % (config.mix_group or 1) == 0:
        if updates(batch) >= (config.min_updates if batch >= 2 * SMALL_BATCH else 1):
            break
        batch //= 2
    return replace(config, batch_size=batch) if batch != config.batch_size and updates(batch) else config


def training_plan(config: TrainConfig, pictures: int, ranks: Ranks) -> BatchPlan:
    """The training batches of this rank.

    Raises:
        UserError: the pictures do not fill a batch, or the incomplete last one cannot be trained.
    """
    plan = BatchPlan(
        pictures,
        config.batch_size,
        config.seed,
        True,
        True,
        ranks.rank,
        ranks.world_size,
        pad=not config.drop_last,
        repeats=config.repeat_augment,
    )
    last = plan.place(len(plan) - 1)[1]
    if last == 1 and config.lonely_batch(1):
        raise UserError(
            f"the last batch of an epoch has one picture a rank, and --crop-size {config.crop_size} leaves BatchNorm one value a "
            "channel, whose variance is 0: use --drop-last or another --batch-size"
        )
    group = config.mix_group or config.batch_size
    if config.train_preset.mixes and ranks.world_size > 1 and last % group:
        raise UserError(
            f"the last batch of an epoch has {counted(last, 'picture')} a rank, which do not divide into mixing groups of {group}: "
            "use --drop-last or another --mix-group"
        )
    return plan


def checkpoint_of(run: Run, skipped: list[int], statistics: Arrays | None = None) -> Checkpoint:
    """The run as it stands between two updates.

    Args:
        run: of rank 0.
        skipped: numbers of the damaged pictures of all ranks.
        statistics: of ``statistics_of_ranks``.
    """
    backend = run.backend
    arrays = {f"model/{name}": array for name, array in backend.model_arrays(run.model).items()}
    arrays |= {f"ema/{name}": array for name, array in run.average.arrays().items()}
    optimizer = backend.optimizer_arrays(run.model, run.optimizer, run.precision)
    arrays |= {f"optimizer/{name}": array for name, array in optimizer.items()}
    checkpoint = Checkpoint(
        arrays,
        {
            "framework": backend.NAME,
            "epoch": run.epoch,
            "iteration": run.iteration,
            "update": run.update,
            "global_batch": run.global_batch,
            "best": run.best,
            "stale": run.stale,
            "to_evaluate": run.to_evaluate,
            "skipped": len(skipped),
            "skipped_pictures": skipped,
            "rollbacks": run.rollbacks,
            "rate_factor": run.rate_factor,
            **backend.schedule_state(run.optimizer, run.schedule),
            "scaler": run.precision.state(),
            "config": dataclasses.asdict(run.config),
            "classes": list(run.train_index.classes),
            "data": run.data_digests,
            "teacher": run.teacher_digest,
        },
    )
    add_statistics(checkpoint, statistics or {})
    return checkpoint


def restore(run: Run, checkpoint: Checkpoint, source: str) -> None:
    """Continue where a checkpoint left off.

    Raises:
        UserError: it is another run's: of another framework, model, batch, optimizer or schedule.
    """
    backend, meta, config = run.backend, checkpoint.meta, run.config
    refuse_damaged(checkpoint, type(backend.schedule_state(run.optimizer, run.schedule)["schedule"]), source)
    refuse_other_run(meta, config, backend.NAME, run.global_batch, source)
    refuse_other_data(meta, config, run.train_index.classes, run.data_digests, source)
    refuse_other_teacher(meta, config.teacher, run.teacher_digest, source)
    refuse_impossible_place(meta, config, run.updates_per_epoch, source)
    backend.load_model_arrays(run.model, checkpoint.part("model"), source)
    backend.load_optimizer_arrays(run.model, run.optimizer, run.precision, checkpoint.part("optimizer"))
    _restore_average(run, checkpoint, source)
    try:
        backend.load_schedule_state(run.optimizer, run.schedule, meta)
        run.precision.load(meta["scaler"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise UserError(f"checkpoint {source} has a schedule or scaler that cannot be read: resume from another one") from error
    run.epoch, run.iteration, run.best = meta["epoch"], meta["iteration"], meta["best"]
    run.stale = int(meta.get("stale", 0))
    run.to_evaluate = bool(meta.get("to_evaluate", False))
    known = meta.get("skipped_pictures", []) if run.ranks.first else []  # one of an earlier version has the number of events alone
    run.skipped = {number for number in known if isinstance(number, int) and 0 <= number < len(run.train_index)}
    run.rollbacks = int(meta.get("rollbacks", 0))
    if (factor := float(meta.get("rate_factor", 1.0))) != 1.0:
        run.lower_rates(factor)


def _restore_average(run: Run, checkpoint: Checkpoint, source: str) -> None:
    """Load the moving average; a run that keeps one has averaged every tensor of the model from its first update on."""
    arrays = checkpoint.part("ema")
    expected = checkpoint.part("model") if run.config.ema_decay else {}
    found, wanted = ({name: array.shape for name, array in of.items()} for of in (arrays, expected))
    check_fit(found, wanted, f"the moving averages in checkpoint {source}")
    run.average.load(arrays)
