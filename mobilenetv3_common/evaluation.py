"""Evaluation: every sample counted once, whatever the batch size and the number of ranks."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mobilenetv3_common.checkpoint import checkpoint_classes, checkpoint_meta
from mobilenetv3_common.class_names import numbered
from mobilenetv3_common.dataset_index import (
    DatasetIndex,
    index_dataset,
    index_validation,
    matched,
    training_classes,
    usable,
)
from mobilenetv3_common.errors import Diverged, UserError
from mobilenetv3_common.evaluation_record import Mistake, worst
from mobilenetv3_common.held_out import index_held_out
from mobilenetv3_common.loader_workers import delivered
from mobilenetv3_common.parts import Judgement, Network, Precision, Ranks, Tensor
from mobilenetv3_common.rank_statistics import merge_statistics
from mobilenetv3_common.run import Run
from mobilenetv3_common.run_control import StopRequest
from mobilenetv3_common.sampling import BatchPlan
from mobilenetv3_common.terminal import show
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training_backend import Builder, TrainingBackend

MISTAKES = 24  # that an evaluation keeps
Loader = Iterable[Sequence[Tensor]]  # images, labels and picture numbers, as ``TrainingBackend.build_loader`` gives them


class Stopped(Exception):
    """A signal asked a rank to stop; every rank raises it."""


@dataclass(frozen=True)
class Evaluation:
    """Counts over all ranks.

    Attributes:
        samples: pictures counted.
        skipped: damaged pictures left out.
        top1, top5: shares of right answers, 0..1.
        loss: mean cross-entropy, without label smoothing.
        confusion: int64 (classes, classes); row the true class, column the predicted one.
        mistakes: the most confident ones, ``MISTAKES`` at most.
    """

    samples: int
    skipped: int
    top1: float
    top5: float
    loss: float
    confusion: np.ndarray
    mistakes: tuple[Mistake, ...] = ()

    def figures(self) -> dict[str, float]:
        return {"top1": self.top1, "top5": self.top5, "loss": self.loss, "samples": self.samples, "skipped": self.skipped}


def evaluate(
    backend: TrainingBackend,
    model: Network,
    loader: Loader,
    num_classes: int,
    ranks: Ranks,
    precision: Precision,
    stop: StopRequest | None = None,
) -> Evaluation:
    """Run a model in evaluation mode over this rank's share of the pictures, and add up over the ranks.

    Args:
        backend: of the model.
        model: left in evaluation mode.
        loader: batches of (images, labels, picture numbers); a negative number marks a stand-in for a damaged picture,
            which does not count.
        num_classes: size of the confusion matrix.
        ranks: all of which call this.
        precision: of the forward passes.
        stop: asked after each batch.

    Raises:
        Stopped: one rank was asked to stop.
    """
    model.eval()
    confusion = np.zeros((num_classes, num_classes), dtype=np.int64)
    samples = skipped = 0
    mistakes: tuple[Mistake, ...] = ()
    right, loss = np.zeros(2, dtype=np.int64), 0.0
    for images, labels, numbers in delivered(loader):
        counted = numbers.numpy() >= 0
        skipped += int((~counted).sum())
        if not counted.any():
            continue
        judged = backend.judge_batch(model, images, labels, counted, ranks, precision)
        samples += int(counted.sum())
        right += judged.right[counted].sum(0)
        loss += judged.loss * int(counted.sum())
        mistakes = worst((*mistakes, *_mistakes(judged, numbers.numpy())), MISTAKES)
        np.add.at(confusion, (judged.labels[counted], judged.predicted[counted]), 1)
        if stop is not None and stop.signal:
            break
    totals = ranks.sum([samples, skipped, *right, loss, stop is not None and stop.signal > 0])
    if totals[5]:
        raise Stopped
    samples, skipped, right1, right5 = (int(value) for value in totals[:4])
    confusion = ranks.sum(confusion.ravel()).reshape(confusion.shape).astype(np.int64)
    shown = max(samples, 1)
    return Evaluation(
        samples, skipped, right1 / shown, right5 / shown, float(totals[4]) / shown, confusion, of_all_ranks(mistakes, ranks)
    )


def _mistakes(judged: Judgement, numbers: np.ndarray) -> list[Mistake]:
    """The mistakes of one batch, those of stand-ins for damaged pictures left out."""
    wrong = np.flatnonzero((judged.labels != judged.predicted) & (numbers >= 0)).tolist()
    columns = (numbers, judged.labels, judged.predicted, judged.confidence)
    return [
        Mistake(int(number), int(label), int(taken), float(sure))
        for number, label, taken, sure in zip(*(c[wrong] for c in columns), strict=True)
    ]


def of_all_ranks(mistakes: tuple[Mistake, ...], ranks: Ranks) -> tuple[Mistake, ...]:
    """The most confident mistakes of all ranks. Every rank has to call it."""
    table = np.zeros((ranks.world_size, MISTAKES, 4))
    for place, one in enumerate(mistakes):
        table[ranks.rank, place] = one.sample, one.label, one.predicted, one.confidence
    rows = ranks.sum(table.ravel()).reshape(-1, 4)
    return worst([Mistake(int(s), int(a), int(b), float(c)) for s, a, b, c in rows.tolist() if c > 0], MISTAKES)


def evaluate_run(run: Run, loader: Loader, stop: StopRequest | None = None, averaged: bool = True) -> Evaluation:
    """Evaluate the weights, or their moving average where the run keeps one (and ``averaged``), on the validation pictures.

    Raises:
        UserError: none of the pictures can be read.
        Diverged: the logits are not finite.
        Stopped: a rank was asked to ``stop`` before the end.
    """
    merge_statistics(run)
    with run.average.applied() if averaged else contextlib.nullcontext():
        result = evaluate(run.backend, run.model, loader, run.train_index.num_classes, run.ranks, run.precision, stop)
    return _of_some(
        result,
        run.config,
        f"training diverged before update {run.update}: logits of validation pictures are not finite",
        f"; earlier checkpoints in {run.config.output_dir} are kept: lower --lr, or add --clip-norm or --warmup-epochs",
    )


def evaluation_loader(run: Run) -> Loader:
    """This rank's share of the validation pictures."""
    return _validation(run.backend, run.config, run.val_index, run.ranks)


def evaluate_config(
    backend: TrainingBackend, config: TrainConfig, ranks: Ranks, builder: Builder | None = None
) -> tuple[Evaluation, tuple[str, ...]]:
    """Evaluate ``config.pretrained`` on the validation pictures; the classes are those of the data, or ``num_classes``.

    Args:
        backend: what computes.
        config: settings of the model, the data and the precision.
        ranks: all of which call this.
        builder: makes the network for a number of classes; that of ``config.model`` where None.

    Returns:
        The counts over all ranks, and the classes' names.

    Raises:
        UserError: the data or the weights cannot be used.
    """
    index = index_for_weights(config)
    for line in index.notes() if ranks.first else ():
        show(f"note: {line}", sys.stderr)
    precision = backend.Precision(config.amp_level, config.amp_dtype, ranks.device)
    model = backend.place_model(backend.build_model(config, index.num_classes, builder), ranks)
    loader = _validation(backend, config, index, ranks)
    result = evaluate(backend, model, loader, index.num_classes, ranks, precision)
    return _of_some(result, config, f"{config.pretrained} gives logits that are not finite"), index.classes


def index_for_weights(config: TrainConfig) -> DatasetIndex:
    """The validation pictures with the labels that the weights mean.

    A checkpoint carries the names of its classes. Other weights have none: they are taken for those of the training classes
    where the data path has some, else for the validation classes in their order.
    """
    own = checkpoint_classes(config.pretrained) if config.pretrained else None
    strict = config.strict_classes
    if own is not None and config.num_classes not in (None, len(own)):
        raise UserError(f"{config.pretrained} has {len(own)} classes, --num-classes says {config.num_classes}: leave it out")
    if config.val_share is not None:
        _, held_out = index_held_out(config.data_path, config.val_share, config.seed, config.num_classes, strict)
        refuse_trained_on(config, held_out)
        known = own or held_out.classes
        known += numbered(len(known), config.num_classes or 0)
        return matched(held_out, known, str(config.pretrained), config.match_classes)
    names, owner = (own, str(config.pretrained)) if own else (training_classes(config.data_path), f"{config.data_path}/train")
    if names is None:
        return usable(index_dataset(config.data_path, "val", config.num_classes), strict).with_classes(config.num_classes or 0)
    names += numbered(len(names), config.num_classes or 0)
    val = index_validation(config.data_path, len(names), config.match_classes, strict)
    return matched(val, names, owner, config.match_classes)


def refuse_trained_on(config: TrainConfig, held_out: DatasetIndex) -> None:
    """Refuse pictures that are not those that the run of a checkpoint held out: some of them were trained on."""
    meta = checkpoint_meta(config.pretrained) if config.pretrained else {}
    then, data = meta.get("config"), meta.get("data")
    if not isinstance(then, dict) or not isinstance(data, dict) or then.get("val_share") is None:
        return
    if data.get("val") != held_out.digest():
        raise UserError(
            f"--val-share {config.val_share:g} of {config.data_path} is not what the run of {config.pretrained} held out "
            "(other pictures, --val-share or --seed), so that some may have been trained on: give the run's lists, "
            "--data-path RUN/split, or put other pictures into val/CLASS/"
        )


def _validation(backend: TrainingBackend, config: TrainConfig, index: DatasetIndex, ranks: Ranks) -> Loader:
    dataset = backend.ImageDataset(index, config.eval_preset, config.seed, config.image_backend, config.on_bad_image)
    plan = BatchPlan(len(index), config.batch_size, rank=ranks.rank, world_size=ranks.world_size)
    return backend.build_loader(dataset, plan, config.workers)


def _of_some(result: Evaluation, config: TrainConfig, *diverged: str) -> Evaluation:
    if result.samples == 0:
        raise UserError(f"no validation picture in {config.data_path} can be read")
    if not math.isfinite(result.loss):
        raise Diverged(*diverged)
    return result
