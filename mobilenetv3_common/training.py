"""The training loop, for any ``TrainingBackend``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np

from mobilenetv3_common.checkpoint import CONFIG, Checkpoint, CheckpointFolder, write_effective
from mobilenetv3_common.counted import counted
from mobilenetv3_common.data_check import check_pictures
from mobilenetv3_common.dataset_index import SPLITS, has_split
from mobilenetv3_common.errors import Diverged, UserError
from mobilenetv3_common.evaluation import Stopped, evaluate_run, evaluation_loader
from mobilenetv3_common.evaluation_record import Record, read_record, write_record
from mobilenetv3_common.files import ensure_writable_dir
from mobilenetv3_common.loader_workers import delivered
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.parts import Batch, Guard, Ranks, Tensor
from mobilenetv3_common.picture_cache import PictureCache
from mobilenetv3_common.rank_statistics import merge_statistics, statistics_of_ranks
from mobilenetv3_common.released import write_released
from mobilenetv3_common.rolling_back import rolled_back
from mobilenetv3_common.run import Meter, Run, build_run, checkpoint_of
from mobilenetv3_common.run_control import StopRequest, raise_file_limit
from mobilenetv3_common.run_lock import run_lock
from mobilenetv3_common.run_told import beginning, ending
from mobilenetv3_common.sampling import RunPlan
from mobilenetv3_common.tracking import require_installed, trackers_of
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import FROM_ZERO, Stopwatch, TrainLog
from mobilenetv3_common.training_backend import Builder, TrainingBackend

MicroBatch = tuple[Batch, tuple[int, ...]]  # pictures and labels, and the numbers of skipped pictures


def train(backend: TrainingBackend, config: TrainConfig, builder: Builder | None = None, observer: Observer | None = None) -> int:
    """Train as the config says.

    Args:
        backend: what computes.
        config: of the run.
        builder: makes the network for a number of classes; that of ``config.model`` where None.
        observer: is told what the run does.

    Returns:
        0, or 128 + the signal that asked the run to stop (after a checkpoint).

    Raises:
        UserError: something given cannot be used, or the run diverged.
    """
    require_installed(trackers_of(config.log_to))
    _refuse_among_pictures(config)
    raise_file_limit()
    stop = StopRequest().listen()
    with (
        backend.started(config.device, config.rank_timeout, config.deterministic) as ranks,
        run_lock(config.output_dir, ranks.first),
    ):
        run = build_run(backend, config, ranks, builder)
        if config.check_data:
            check_pictures((run.train_index, run.val_index), config, ranks)
        if config.picture_cache is not None:
            ensure_writable_dir(config.picture_cache)
        folder = CheckpointFolder(config.output_dir, config.keep, config.keep_best) if ranks.first else None
        earlier = folder.set_aside(run.source) if folder is not None else None
        if folder is not None:
            written = write_effective(folder.folder, run.config)
        log = _log(run, folder)
        said = (
            f"{config.model} ({config.framework}), {run.train_index.num_classes} classes, {len(run.train_index)} training and "
            f"{len(run.val_index)} validation pictures, {counted(ranks.world_size, 'rank')} on {ranks.device}, "
            f"{counted(run.updates_per_epoch, 'update')} an epoch" + (f", resumed at update {run.update}" if run.update else "")
        )
        log.line(f"{said}; {FROM_ZERO}", said)
        for line in beginning(run, config, None if folder is None else folder.folder):
            log.line(line)
        if earlier is not None:
            log.line(f"the earlier run in {config.output_dir} was moved to {earlier}")
        if folder is not None and written.name != CONFIG:
            log.line(f"{folder.folder / CONFIG} is not this run's and is kept: its effective config is {written}")
        run.observer = observer or run.observer
        while True:
            try:
                with (
                    contextlib.closing(log),
                    contextlib.closing(micro_batches(run)) as batches,
                    run.observer.observing(run, log),
                ):
                    stop.begin_loop()
                    status = _loop(run, batches, folder, log, stop)
                    stop.heed()
                    return status
            except Diverged as found:
                run = rolled_back(run, folder, found, builder)
                log = _log(run, folder)
                log.line(
                    f"{found.what}: rolled back to update {run.update} ({run.rollbacks} of {config.roll_back}), learning rates are "
                    f"{run.rate_factor:g} of the schedule's from here"
                )


def _refuse_among_pictures(config: TrainConfig) -> None:
    output, data = (Path(os.path.realpath(path)) for path in (config.output_dir, config.data_path))  # a loop of links stays
    flat = config.val_share is not None and not has_split(Path(config.data_path), "train")
    for pictures in (data,) if flat else [data / split for split in SPLITS]:
        if pictures.is_dir() and output.is_relative_to(pictures):
            raise UserError(f"--output-dir {config.output_dir} lies among the pictures of {pictures}: choose another --output-dir")


def _log(run: Run, folder: CheckpointFolder | None) -> TrainLog:
    """The log of a run that begins, or goes on, where it stands."""
    where = None if folder is None else folder.folder
    trackers, settings = trackers_of(run.config.log_to), dataclasses.asdict(run.config)
    return TrainLog(
        where,
        run.config.epochs,
        run.updates_per_epoch,
        run.update,
        run.to_evaluate,
        trackers,
        settings,
        run.train_index.num_classes,
    )


def _loop(run: Run, batches: Iterator[MicroBatch], folder: CheckpointFolder | None, log: TrainLog, stop: StopRequest) -> int:
    config = run.config
    watch = Stopwatch()
    val_loader = evaluation_loader(run)
    while (run.epoch < config.epochs or run.to_evaluate) and not ended_early(run):
        if run.to_evaluate:
            try:
                with run.observer.evaluating(run):
                    raw = evaluate_run(run, val_loader, stop, averaged=False) if config.eval_raw else None
                    result = evaluate_run(run, val_loader, stop)
            except Stopped:
                return _stopped(run, log, stop.signal or signal.SIGTERM)
            best = result.top1 > run.best
            run.best, run.stale, run.to_evaluate = max(run.best, result.top1), 0 if best else run.stale + 1, False
            if raw is not None:
                log.evaluation(run.epoch - 1, run.update, raw.figures(), None)
            log.evaluation(run.epoch - 1, run.update, result.figures(), run.best)
            if folder is not None and (best or read_record(folder.folder) is None):
                record = Record(result.figures(), run.train_index.classes, result.confusion, result.mistakes, run.epoch)
                write_record(folder.folder, record)
            save(run, folder, best, result.top1)
            continue
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
                begin_interval(run, watch)
            if stopped := agreed_signal(run.ranks, stop):
                stop.heed()
                save(run, folder, best=False)
                return _stopped(run, log, stopped)
            if config.save_every and run.update % config.save_every == 0 and run.iteration < run.updates_per_epoch:
                save(run, folder, best=False)
        run.epoch, run.iteration = run.epoch + 1, 0
        merge_statistics(run)
        run.to_evaluate = run.epoch % config.eval_every == 0 or run.epoch == config.epochs
        save(run, folder, best=False)  # before the evaluation: whatever happens there, the epoch is not lost
    if ended_early(run):
        stale = counted(run.stale, "evaluation")
        log.line(f"ended early after {counted(run.epoch, 'epoch')}: {stale} without a better top-1 (--early-stop)")
    if skipped := len(skipped_by_all(run)):
        log.line(f"{counted(skipped, 'damaged training picture')} skipped, each time another took its place")
    if folder is not None:
        ending(run, folder.folder, log, skipped)
    return 0


def ended_early(run: Run) -> bool:
    """Whether so many evaluations brought no better top-1 that the run is over."""
    return not run.to_evaluate and 0 < run.config.early_stop <= run.stale


def _stopped(run: Run, log: TrainLog, number: int) -> int:
    log.line(f"stopped by signal {int(number)} at update {run.update}; go on with --resume auto")
    return 128 + number


def agreed_signal(ranks: Ranks, stop: StopRequest) -> int:
    """The signal at which every rank stops after this update; 0 where none was asked to."""
    return (stop.signal or signal.SIGTERM) if ranks.sum([stop.signal])[0] > 0 else 0


def micro_batches(run: Run) -> Generator[MicroBatch, None, None]:
    """Training batches from where the run stands to its end, on the device, each with the numbers of its skipped pictures.

    To be closed: loader workers end with it.
    """
    config, backend = run.config, run.backend
    used = run.updates_per_epoch * config.accumulate
    plan = RunPlan(run.plan, config.epochs, run.epoch, run.iteration * config.accumulate, used)
    preset = config.train_preset
    dataset = backend.ImageDataset(run.train_index, preset, config.seed, config.image_backend, config.on_bad_image)
    if config.picture_cache is not None:
        content = f"{run.data_digests['train']} {config.image_backend} {preset.reduce_to}"
        limit = int(config.picture_cache_gb * 1e9)
        dataset.cache = PictureCache(config.picture_cache, content, len(run.train_index), limit)
    for images, labels, numbers in delivered(backend.build_loader(dataset, plan, config.workers, config.mix_group)):
        yield (
            (run.ranks.place(images), run.ranks.place(labels)),
            tuple(~n for n in numbers.numpy().tolist() if n < 0),
        )


def update(run: Run, gathered: list[MicroBatch]) -> None:
    """One update of the weights: forward, loss, backward, check, step.

    Args:
        run: goes one update further.
        gathered: from ``micro_batches``, as many as the config accumulates.

    Raises:
        Diverged: logits or gradients are not finite; the weights are then untouched.
    """
    config, backend, guard = run.config, run.backend, run.backend.Guard()
    batches = [batch for batch, _ in gathered]
    first = run.iteration * config.accumulate

    def begin(number: int) -> None:
        run.dropout.at(run.epoch, run.plan.place(first + number)[0])
        if config.teacher is not None:
            run.criterion.look(batches[number][0])

    def watch(logits: Tensor, labels: Tensor) -> None:
        guard.watch(logits)
        run.meter.right = run.meter.right + backend.count_right(logits, labels)
        run.meter.samples += len(labels)

    loss = backend.accumulate_gradients(run.parallel, run.criterion, batches, run.precision, begin, watch)
    run.observer.before_update(run, loss)
    if run.update % config.check_every == 0 and not _healthy(run, guard):

        def forward() -> None:
            for number, (images, _) in enumerate(batches):
                begin(number)
                with run.precision.autocast():
                    run.model(images)

        place = backend.first_offender(run.model, forward)
        raise Diverged(
            f"training diverged in epoch {run.epoch + 1} of {config.epochs}, update {run.iteration + 1} of it, lr "
            f"{run.learning_rate():g}: not finite, first in {place}",
            f"; the last good checkpoint in {config.output_dir} is kept: lower --lr, or add --clip-norm, --warmup-epochs or "
            "--roll-back",
        )
    run.rate = run.learning_rate()
    backend.apply_update(run.model, run.optimizer, config.clip_norm, run.precision)
    run.iteration += 1
    run.observer.after_update(run)
    if config.lr_unit == "update" or run.iteration == run.updates_per_epoch:
        run.schedule.step()
    if run.update % config.ema_every == 0:
        run.average.decay = config.average_decay(run.update)
        run.average.update()
    run.meter.loss, run.meter.updates = run.meter.loss + loss, run.meter.updates + 1
    run.skipped.update(*(skipped for _, skipped in gathered))


def _healthy(run: Run, guard: Guard) -> bool:
    """Whether this update's logits and gradients are finite; on every rank, where all of them would go back together."""
    healthy = guard.healthy(run.model, gradients=not run.precision.scales)
    return agreed(run, healthy) if run.config.roll_back else healthy


def agreed(run: Run, healthy: bool) -> bool:
    """Whether all ranks are healthy. Every rank has to call it."""
    return bool(run.ranks.sum([not healthy])[0] == 0)


def averages(run: Run) -> dict[str, float]:
    """Over all ranks since the interval began: accuracy (0..1), loss, and pictures an update; and the last learning rate.

    Every rank has to call it. It changes nothing.
    """
    meter = run.meter
    sums = run.ranks.sum([float(meter.loss), *meter.right.tolist(), meter.samples])
    loss, right1, right5, samples = (float(value) for value in sums)
    return {
        "top1": right1 / samples,
        "top5": right5 / samples,
        "lr": run.rate,
        "loss": loss / meter.updates / run.ranks.world_size,
        "samples": samples / meter.updates,
    }


def figures(run: Run, watch: Stopwatch) -> dict[str, float]:
    """The figures of the log line, of the interval so far; ``TrainLog.train`` says which. Every rank has to call it."""
    shown = averages(run)
    reader, batch = watch.averages()
    samples = shown.pop("samples")
    times = {"avg_reader_cost": reader, "avg_batch_cost": batch}
    return {**shown, **times, "avg_samples": samples, "avg_ips": samples / batch}


def begin_interval(run: Run, watch: Stopwatch) -> None:
    """Forget the interval that a log line has shown."""
    run.meter = Meter()
    watch.reset()


def skipped_by_all(run: Run) -> list[int]:
    """Numbers of the damaged training pictures of all ranks since the run's beginning. Every rank has to call it."""
    if not run.ranks.sum([len(run.skipped)])[0]:
        return []
    of_ranks = np.zeros(len(run.train_index))
    of_ranks[list(run.skipped)] = 1
    return np.flatnonzero(run.ranks.sum(of_ranks)).tolist()


def save(run: Run, folder: CheckpointFolder | None, best: bool, top1: float | None = None) -> None:
    """Write a checkpoint from rank 0, with statistics of all ranks, provided that every weight is finite.

    The run itself stays as it is, so that one that is saved more often, or stopped, computes the same.

    Args:
        run: between two updates; every rank has to call this.
        folder: rank 0's; None on the others.
        best: whether ``best`` shall be this one.
        top1: of these weights, 0..1, where they were just evaluated.

    Raises:
        Diverged: a weight is not finite.
        UserError: the file cannot be written.
    """
    statistics, skipped = statistics_of_ranks(run), skipped_by_all(run)
    checkpoint = checkpoint_of(run, skipped, statistics) if folder is not None else Checkpoint()
    spoilt = [name for name, array in checkpoint.arrays.items() if not np.isfinite(array).all()]
    if not (agreed(run, not spoilt) if run.config.roll_back else not spoilt):
        raise Diverged(
            f"training diverged before update {run.update}: {spoilt[0] if spoilt else 'a weight'} is not finite",
            "; the last good checkpoint is kept",
        )
    if folder is not None:
        folder.save(checkpoint, best, top1)
        if best:
            write_released(folder.folder, checkpoint, top1)
