"""The training run: what it is made of, and its loop."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from mobilenetv3_common.checkpoint import Checkpoint, CheckpointFolder, find_checkpoint, read_checkpoint
from mobilenetv3_common.config_file import write_recipe
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.run_control import StopRequest, raise_file_limit
from mobilenetv3_common.sampling import BatchPlan, DropoutStream, RunPlan
from mobilenetv3_common.train_config import TrainConfig, refuse_other_run
from mobilenetv3_common.train_log import Stopwatch, TrainLog
from mobilenetv3_paddle.data import ImageDataset, build_loader
from mobilenetv3_paddle.loss import CrossEntropyLoss
from mobilenetv3_paddle.metric import top_k_correct
from mobilenetv3_paddle.models import MODELS, BatchNorm2D, share_dropout
from mobilenetv3_paddle.train.distributed import Ranks, average_statistics, started
from mobilenetv3_paddle.train.ema import MovingAverage
from mobilenetv3_paddle.train.evaluate import Evaluation, evaluate
from mobilenetv3_paddle.train.guard import Guard, first_offender
from mobilenetv3_paddle.train.optimizer import build_optimizer
from mobilenetv3_paddle.train.precision import Precision
from mobilenetv3_paddle.train.schedule import build_schedule
from mobilenetv3_paddle.train.state import (
    load_model_arrays,
    load_optimizer_arrays,
    load_pretrained,
    model_arrays,
    optimizer_arrays,
)
from mobilenetv3_paddle.train.step import Batch, accumulate_gradients, apply_update


@dataclass
class Meter:
    """Sums of one logging interval on this rank, kept on the device until they are shown."""

    loss: Any = 0.0
    right: Any = 0.0
    samples: int = 0
    updates: int = 0
    skipped: int = 0

    def add(self, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        hard = labels if labels.ndim == 1 else labels.argmax(1)
        self.right = self.right + top_k_correct(logits, hard, (1, 5)).astype("float32").sum(0)
        self.samples += len(hard)


@dataclass
class Run:
    """Everything that a run holds; ``epoch``, ``iteration`` and ``update`` say where it stands, ``rate`` its last lr."""

    config: TrainConfig
    ranks: Ranks
    train_index: DatasetIndex
    val_index: DatasetIndex
    model: nn.Layer
    parallel: nn.Layer
    criterion: nn.Layer
    optimizer: paddle.optimizer.Optimizer
    schedule: Any
    precision: Precision
    average: MovingAverage
    dropout: DropoutStream
    plan: BatchPlan
    epoch: int = 0
    iteration: int = 0
    best: float = -1.0
    skipped: int = 0
    rate: float = 0.0
    source: Path | None = None  # the checkpoint from which this run goes on
    meter: Meter = field(default_factory=Meter)

    @property
    def updates_per_epoch(self) -> int:
        return len(self.plan) // self.config.accumulate

    @property
    def update(self) -> int:
        return self.epoch * self.updates_per_epoch + self.iteration

    @property
    def global_batch(self) -> int:
        """Pictures a forward pass of all ranks."""
        return self.config.batch_size * self.ranks.world_size

    def learning_rate(self) -> float:
        return float(self.optimizer.get_lr())

    def train_mode(self) -> None:
        self.model.train()
        if self.config.freeze_bn:
            for layer in self.model.sublayers():
                if isinstance(layer, BatchNorm2D):
                    layer.eval()


def build_model(config: TrainConfig, num_classes: int) -> nn.Layer:
    """The network with its starting weights: fresh from the seed, or those of ``config.pretrained``."""
    paddle.seed(config.seed)
    model = MODELS[config.model](num_classes=num_classes, width_mult=config.width_mult, dropout=config.dropout)
    if config.pretrained:
        load_pretrained(model, config.pretrained, config.reset_classifier)
    for layer in model.sublayers():
        if isinstance(layer, BatchNorm2D):
            layer.synchronized = config.sync_bn
            layer.momentum = config.bn_momentum or layer.momentum
            for parameter in layer.parameters(include_sublayers=False):
                if config.freeze_bn:
                    parameter.stop_gradient = True
    return model


def build_run(config: TrainConfig, ranks: Ranks) -> Run:
    """Put a run together, at its beginning or where the checkpoint of ``config.resume`` left it.

    Raises:
        UserError: the data, the weights or the checkpoint cannot be used.
    """
    train_index = index_dataset(config.data_path, "train", config.num_classes)
    num_classes = config.num_classes or train_index.num_classes
    train_index = train_index.with_classes(num_classes)
    val_index = index_dataset(config.data_path, "val", num_classes).with_classes(num_classes)
    plan = BatchPlan(len(train_index), config.batch_size, config.seed, True, True, ranks.rank, ranks.world_size)
    updates_per_epoch = len(plan) // config.accumulate
    if updates_per_epoch == 0:
        raise UserError(
            f"{len(train_index)} training pictures do not fill one update of {config.accumulate} x {config.batch_size} pictures "
            f"on {ranks.world_size} rank(s): use a smaller batch size or fewer accumulations"
        )
    precision = Precision(config.amp_level, config.amp_dtype, ranks.device)
    model = build_model(config, num_classes)
    dropout = DropoutStream(config.seed)
    share_dropout(model, dropout)
    pictures = config.batch_size * ranks.world_size * config.accumulate
    optimizer = build_optimizer(model, config.optimizer_config(pictures))
    precision.prepare(model, optimizer)
    run = Run(
        config=config,
        ranks=ranks,
        train_index=train_index,
        val_index=val_index,
        model=model,
        parallel=model,
        criterion=CrossEntropyLoss(config.label_smoothing),
        optimizer=optimizer,
        schedule=build_schedule(optimizer, config.schedule_config(updates_per_epoch)),
        precision=precision,
        average=MovingAverage(model, config.ema_decay),
        dropout=dropout,
        plan=plan,
    )
    run.source = find_checkpoint(config.resume, config.output_dir) if config.resume else None
    if run.source is not None:
        restore(run, read_checkpoint(run.source), str(run.source))
    if ranks.world_size > 1:
        run.parallel = paddle.DataParallel(model)
    return run


def checkpoint_of(run: Run) -> Checkpoint:
    """The run as it stands between two updates."""
    arrays = {f"model/{name}": array for name, array in model_arrays(run.model).items()}
    arrays |= {f"ema/{name}": tensor.numpy() for name, tensor in run.average.shadow.items()}
    arrays |= {f"optimizer/{name}": array for name, array in optimizer_arrays(run.model, run.optimizer).items()}
    return Checkpoint(
        arrays,
        {
            "framework": "paddle",
            "epoch": run.epoch,
            "iteration": run.iteration,
            "update": run.update,
            "global_batch": run.global_batch,
            "best": run.best,
            "skipped": run.skipped,
            "schedule": run.schedule.state_dict(),
            "scaler": run.precision.state(),
            "config": dataclasses.asdict(run.config),
            "classes": list(run.train_index.classes),
        },
    )


def restore(run: Run, checkpoint: Checkpoint, source: str) -> None:
    """Continue where a checkpoint left off.

    Raises:
        UserError: it is another run's: of another framework, model, batch, optimizer or schedule.
    """
    meta = checkpoint.meta
    refuse_other_run(meta, run.config, "paddle", run.global_batch, source)
    load_model_arrays(run.model, checkpoint.part("model"), source)
    load_optimizer_arrays(run.model, run.optimizer, checkpoint.part("optimizer"))
    run.average.shadow = {name: paddle.to_tensor(array) for name, array in checkpoint.part("ema").items()}
    run.schedule.set_state_dict(meta["schedule"])
    run.precision.load(meta["scaler"])
    run.epoch, run.iteration, run.best, run.skipped = meta["epoch"], meta["iteration"], meta["best"], meta["skipped"]


def train(config: TrainConfig) -> int:
    """Train as the config says.

    Returns:
        0, or 128 + the signal that asked the run to stop (after a checkpoint).

    Raises:
        UserError: something given cannot be used, or the run diverged.
    """
    raise_file_limit()
    stop = StopRequest().listen()
    with started(config.device) as ranks:
        run = build_run(config, ranks)
        folder = CheckpointFolder(config.output_dir, config.keep) if ranks.first else None
        earlier = folder.set_aside(run.source) if folder is not None else None
        log = TrainLog(Path(config.output_dir) if ranks.first else None, config.epochs * run.updates_per_epoch, run.update)
        if folder is not None:
            write_recipe(folder.folder / "config.yaml", config, "The effective config of this run: give it as --config.")
        log.line(
            f"{config.model} ({config.framework}), {run.train_index.num_classes} classes, {len(run.train_index)} training and "
            f"{len(run.val_index)} validation pictures, {ranks.world_size} rank(s) on {ranks.device}, "
            f"{run.updates_per_epoch} updates an epoch" + (f", resumed at update {run.update}" if run.update else "")
        )
        if earlier is not None:
            log.line(f"the earlier run in {config.output_dir} was moved to {earlier}")
        try:
            return _loop(run, folder, log, stop)
        finally:
            log.close()


def _loop(run: Run, folder: CheckpointFolder | None, log: TrainLog, stop: StopRequest) -> int:
    config = run.config
    watch = Stopwatch()
    batches = micro_batches(run)
    val_loader = evaluation_loader(run)
    while run.epoch < config.epochs:
        run.train_mode()
        while run.iteration < run.updates_per_epoch:
            watch.start()
            gathered = [next(batches) for _ in range(config.accumulate)]
            watch.data_ready()
            update(run, gathered)
            watch.done()
            log.tick()
            if run.iteration % config.print_every == 0 or run.iteration == run.updates_per_epoch:
                log.train(run.epoch, run.iteration, run.update, figures(run, watch))
            if stopped := agreed_signal(run.ranks, stop):
                save(run, folder, best=False)
                log.line(f"stopped by signal {stopped} at update {run.update}; go on with --resume auto")
                return 128 + stopped
            if config.save_every and run.update % config.save_every == 0 and run.iteration < run.updates_per_epoch:
                save(run, folder, best=False)
        best = False
        if (run.epoch + 1) % config.eval_every == 0 or run.epoch + 1 == config.epochs:
            result = evaluate_run(run, val_loader)
            best = result.top1 > run.best
            run.best = max(run.best, result.top1)
            log.evaluation(run.epoch, run.update, result.figures(), run.best)
        run.epoch, run.iteration = run.epoch + 1, 0
        save(run, folder, best)
    if run.skipped:
        log.line(f"{run.skipped} damaged training picture(s) skipped, each time another took its place")
    return 0


def agreed_signal(ranks: Ranks, stop: StopRequest) -> int:
    """The signal at which every rank stops after this update; 0 where none was asked to."""
    return (stop.signal or signal.SIGTERM) if ranks.sum([stop.signal])[0] > 0 else 0


def update(run: Run, gathered: list[tuple[Batch, int]]) -> None:
    """One update of the weights: forward, loss, backward, check, step."""
    config, guard = run.config, Guard()
    batches = [batch for batch, _ in gathered]
    first = run.iteration * config.accumulate

    def begin(number: int) -> None:
        place = ((first + number) * run.ranks.world_size + run.ranks.rank) * config.batch_size
        run.dropout.at(run.epoch, place)

    def watch(logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        guard.watch(logits)
        run.meter.add(logits, labels)

    loss = accumulate_gradients(run.parallel, run.criterion, batches, run.precision, begin, watch)
    if run.update % config.check_every == 0 and not guard.healthy(run.model, gradients=not run.precision.scales):
        begin(0)
        place = first_offender(run.model, lambda: run.model(batches[0][0]))
        raise UserError(
            f"training diverged at epoch {run.epoch}, iter {run.iteration + 1}, lr {run.learning_rate():g}: not finite, first in "
            f"{place}; the last good checkpoint in {config.output_dir} is kept: lower --lr, or add --clip-norm or --warmup-epochs"
        )
    run.rate = run.learning_rate()
    apply_update(run.model, run.optimizer, config.clip_norm, run.precision)
    run.iteration += 1
    if config.lr_unit == "update" or run.iteration == run.updates_per_epoch:
        run.schedule.step()
    if run.update % config.ema_every == 0:
        run.average.update()
    run.meter.loss, run.meter.updates = run.meter.loss + loss, run.meter.updates + 1
    run.meter.skipped += sum(count for _, count in gathered)


def figures(run: Run, watch: Stopwatch) -> dict[str, float]:
    """The figures of the log line over all ranks since the last one."""
    reader, batch = watch.averages()
    meter, run.meter = run.meter, Meter()
    sums = run.ranks.sum([float(meter.loss), *np.asarray(meter.right), meter.samples, meter.skipped])
    loss, right1, right5, samples, skipped = (float(value) for value in sums)
    run.skipped += int(skipped)
    per_update = samples / meter.updates
    return {
        "top1": right1 / samples,
        "top5": right5 / samples,
        "lr": run.rate,
        "loss": loss / meter.updates / run.ranks.world_size,
        "avg_reader_cost": reader,
        "avg_batch_cost": batch,
        "avg_samples": per_update,
        "avg_ips": per_update / batch,
    }


def save(run: Run, folder: CheckpointFolder | None, best: bool) -> None:
    """Write a checkpoint from rank 0, with statistics of all ranks, provided that every weight is finite."""
    if not run.config.sync_bn:
        average_statistics(run.model, run.ranks)
    if folder is None:
        return
    checkpoint = checkpoint_of(run)
    spoilt = [name for name, array in checkpoint.arrays.items() if not np.isfinite(array).all()]
    if spoilt:
        raise UserError(
            f"training diverged before update {run.update}: {spoilt[0]} is not finite; the last good checkpoint is kept"
        )
    folder.save(checkpoint, best)


def evaluate_run(run: Run, loader: Any) -> Evaluation:
    """Evaluate the weights, or their moving average where the run keeps one, on the validation pictures."""
    if not run.config.sync_bn:
        average_statistics(run.model, run.ranks)
    with run.average.applied():
        result = evaluate(run.model, loader, run.train_index.num_classes, run.ranks, run.precision)
    if result.samples == 0:
        raise UserError(f"no validation picture in {run.config.data_path} can be read")
    return result


def micro_batches(run: Run) -> Iterator[tuple[Batch, int]]:
    """Training batches from where the run stands to its end, on the device, each with its number of skipped pictures."""
    config = run.config
    used = run.updates_per_epoch * config.accumulate
    plan = RunPlan(run.plan, config.epochs, run.epoch, run.iteration * config.accumulate, used)
    dataset = ImageDataset(run.train_index, config.train_preset, config.seed, config.image_backend, config.on_bad_image)
    for images, labels, numbers in build_loader(dataset, plan, config.workers, config.mix_group):
        yield (run.ranks.place(images), run.ranks.place(labels)), int((numbers.numpy() < 0).sum())


def evaluation_loader(run: Run) -> Any:
    """This rank's share of the validation pictures."""
    return _validation(run.config, run.val_index, run.ranks)


def _validation(config: TrainConfig, index: DatasetIndex, ranks: Ranks) -> Any:
    dataset = ImageDataset(index, config.eval_preset, config.seed, config.image_backend, config.on_bad_image)
    plan = BatchPlan(len(index), config.batch_size, rank=ranks.rank, world_size=ranks.world_size)
    return build_loader(dataset, plan, config.workers)


def evaluate_config(config: TrainConfig, ranks: Ranks) -> tuple[Evaluation, tuple[str, ...]]:
    """Evaluate ``config.pretrained`` on the validation pictures; the classes are those of the data, or ``num_classes``.

    Returns:
        The counts over all ranks, and the classes' names.

    Raises:
        UserError: the data or the weights cannot be used.
    """
    index = index_dataset(config.data_path, "val", config.num_classes)
    index = index.with_classes(config.num_classes or index.num_classes)
    precision = Precision(config.amp_level, config.amp_dtype, ranks.device)
    model = build_model(config, index.num_classes)
    result = evaluate(model, _validation(config, index, ranks), index.num_classes, ranks, precision)
    if result.samples == 0:
        raise UserError(f"no validation picture in {config.data_path} can be read")
    return result, index.classes
