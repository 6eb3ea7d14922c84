"""What is told of a run: when it begins, what is unlike what was asked for; when it ends, what speaks against it, the result, the
curve, and what comes next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mobilenetv3_common.called import as_called
from mobilenetv3_common.checkpoint import BEST, CONFIG, PAGE
from mobilenetv3_common.counted import counted
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.evaluation_record import Record, read_record
from mobilenetv3_common.held_out import single_pictures, write_lists
from mobilenetv3_common.run import Run
from mobilenetv3_common.run_page import Page, write_page
from mobilenetv3_common.train_config import MODELS, TrainConfig
from mobilenetv3_common.train_log import TrainLog, read_json_lines

STALE_AVERAGE = 0.1  # share of the first weights in a moving average at a run's end, from which it is warned of
CHANCE = 0.1  # probability of as many right answers by guessing the largest class, from which a result is no better than that
FALLEN = 0.98  # of the first loss: a later one above it has not fallen
APART = 1.5  # times the training loss: a validation loss above it is told of; mixing and augmentation make it smaller instead
LARGE = 0.5  # of the loss of equal probabilities: a smaller one need not fall any more
LONGER = "train for more epochs{} (a new run: --epochs N)"  # a run that goes on keeps its settings
FEW_UPDATES = 100  # of a run: with fewer its length is the first thing to change
FEW_PICTURES = 1000  # of training: with fewer, weights drawn at random are a likely cause of a result by chance
ABOVE_GUESSING = 2.0  # times the loss of equal probabilities: smoothing and mixing keep it below that


def beginning(run: Run, asked: TrainConfig, folder: Path | None) -> list[str]:
    """What a user has to know when a run begins, a line each; the lists of what is held out are written into ``folder``.

    Args:
        run: put together.
        asked: its config before the batch was fitted to the pictures.
        folder: rank 0's; None on the others.
    """
    config = run.config
    listings = (run.train_index,) if config.val_share is not None else (run.train_index, run.val_index)  # of one listing, or two
    said = [f"note: {line}" for index in listings for line in index.notes()]
    if lowered := lowered_batch(run, asked):
        said.append(f"note: {lowered}")
    if config.val_share is not None and folder is not None:
        lists = write_lists(folder, run.train_index, run.val_index)
        single = single_pictures(run.train_index, run.val_index)
        said.append(
            f"note: {len(run.val_index)} of {len(run.train_index) + len(run.val_index)} pictures are held out for validation "
            f"(--val-share {config.val_share:g}, --seed {config.seed}); the lists are in {lists}{'; ' if single else ''}{single}"
        )
    if run.ranks_then:
        said.append(
            f"note: the checkpoint is of {run.ranks_then} ranks in mid-epoch: each of the {run.ranks.world_size} here goes on with "
            "the mean of their BatchNorm statistics"
        )
    if run.iteration % config.print_every:
        first, last = run.iteration + 1, min((run.iteration // config.print_every + 1) * config.print_every, run.updates_per_epoch)
        said.append(
            f"note: the run goes on in mid-interval: the means of its first log line are of updates {first} to {last} of the epoch "
            "alone"
        )
    steps = config.epochs * run.updates_per_epoch // config.ema_every
    if (left := config.first_weights_left(config.epochs * run.updates_per_epoch)) > STALE_AVERAGE:
        said.append(
            f"warning: after {counted(steps, 'step')} {left:.0%} of the moving average, which is evaluated, are still the first "
            "weights: add --ema-warmup, or lower "
            f"--ema-decay {config.ema_decay:g} to {max(0.0, 1 - 10 / max(steps, 1)):.3g} or less"
        )
    return [as_called(line) for line in said]


def lowered_batch(run: Run, asked: TrainConfig) -> str:
    """That the batch was fitted to the pictures, in words; empty where it is as it was asked for."""
    config = run.config
    if config.batch_size == asked.batch_size:
        return ""
    return (
        f"--batch-size {asked.batch_size} was lowered to {config.batch_size}: {len(run.train_index)} training pictures make "
        f"{counted(run.updates_per_epoch, 'update')} an epoch with it (--min-updates {config.min_updates})"
    )


def ending(run: Run, folder: Path, log: TrainLog, skipped: int = 0) -> None:
    """Write the page of a run that is over, and say what speaks against it, its result, its curve and the next command.

    Args:
        run: of rank 0.
        folder: the run's.
        log: gets the lines.
        skipped: damaged training pictures of all ranks.
    """
    config, record = run.config, read_record(folder)
    if record is None:
        return
    train_entries, evaluations = read_json_lines(folder), read_json_lines(folder, "eval")
    fresh = 0 if config.pretrained else len(run.train_index)
    doubted = doubts(train_entries, evaluations, record, config.first_weights_left(run.update), config.bn_momentum, fresh)
    facts = [
        ("model", f"{config.model} ({config.framework})"),
        ("weights", f"{config.output_dir}/{BEST}, epoch {record.epoch} of {config.epochs}"),
        ("pictures", f"{len(run.train_index)} of training, {len(run.val_index)} of validation, {config.data_path}"),
        ("update", _update(config, run.global_batch, run.ranks.world_size)),
        ("damaged training pictures", f"{skipped} skipped"),
        ("all settings", f"{config.output_dir}/{CONFIG}"),
    ]
    command = next_command(config, run.val_index)
    title = f"{config.model} on {config.data_path}"
    page = Page(title, record, run.val_index, facts, train_entries, evaluations, doubted, command, config.image_backend)
    try:
        write_page(folder, page)
    except UserError as error:  # the weights are there
        log.line(f"warning: the page was not written: {error.line}")
    for line in doubted:
        log.line(f"warning: {line}")
    if doubted:
        log.line(as_called(f"note: what can be seen of this run: python tools/doctor.py {folder}"))
    for line in last_lines(config, record, train_entries, evaluations, run.val_index):
        log.line(line)


def _update(config: TrainConfig, global_batch: int, ranks: int) -> str:
    """Optimizer, the learning rate that was used, and the pictures of an update."""
    rate, each = config.scaled_lr(global_batch * config.accumulate), config.batch_size
    scaled = f" (--lr {config.lr:g} is for {config.scale_lr_from} pictures an update)" if config.scale_lr_from else ""
    factors = [f"{config.accumulate} forward passes of {each}"] if config.accumulate > 1 else []
    factors += [f"on {ranks} ranks"] if ranks > 1 else []
    parts = f" ({' '.join(factors)})" if factors else ""
    return f"{config.optimizer}, learning rate {rate:g}{scaled}, {global_batch * config.accumulate} pictures an update{parts}"


def doubts(
    train: Sequence[dict[str, Any]],
    evaluations: Sequence[dict[str, Any]],
    record: Record,
    first_weights: float = 0.0,
    bn_momentum: float | None = None,
    fresh: int = 0,
) -> list[str]:
    """What speaks against a run, a line each; none where nothing does.

    Args:
        train: entries of the log with ``epoch`` and ``loss``.
        evaluations: entries with ``epoch`` and ``top1``.
        record: of the best weights.
        first_weights: their share in the moving average that is evaluated, 0..1.
        bn_momentum: of the run; None for the network's own.
        fresh: training pictures of a run that began with weights drawn at random; 0 of one that did not, or where it is not known.
    """
    said = []
    samples, classes = int(record.figures["samples"]), len(record.classes)
    final = float(evaluations[-1]["top1"]) if evaluations else record.figures["top1"]
    share = record.largest_share
    right = round(final * samples)
    if share < 1 and (chance := _by_guessing(right, samples, share)) > CHANCE:
        learnt = float(train[-1].get("top1", 0.0)) if train else 0.0
        hint = _why_at_chance(learnt > (1 + share) / 2, learnt, first_weights, bn_momentum, fresh)
        by_luck = f", and luck gives as much in {chance:.0%} of all cases" if right > share * samples else ""
        said.append(
            f"top-1 {final:.4f} of the last epoch {'may be' if by_luck else 'is at'} chance: always answering the most frequent "
            f"class gives {share:.4f} of {samples} pictures{by_luck}. {hint}"
        )
    losses, guessing = _by_epoch(train), math.log(max(classes, 2))
    learnt_little = final <= (1 + share) / 2  # mixing, smoothing and distillation keep the loss of a good network large
    if fell_not := _flat(losses, guessing, learnt_little, int(train[-1].get("update", 0)) if train else 0, 0 if said else fresh):
        said.append(fell_not)
    if losses and losses[-1] > ABOVE_GUESSING * guessing and learnt_little:
        said.append(
            f"the training loss ends at {losses[-1]:.4f}, and answers by chance have {guessing:.4f}: the learning rate is too high "
            "for these weights (python tools/lr_find.py)"
        )
    said += _apart(losses, evaluations, guessing, bool(said))
    tops = [float(entry["top1"]) for entry in evaluations]
    spread = 2 * math.sqrt(max(tops[0] * (1 - tops[0]), 1 / max(samples, 1)) / max(samples, 1)) if tops else 0.0
    if len(tops) > 2 and tops[0] == max(tops) and max(tops[1:]) < tops[0] and tops[-1] < tops[0] - spread:
        said.append(
            f"the best epoch is the first that was evaluated: top-1 {tops[0]:.4f} then, {tops[-1]:.4f} at the end. Lower the "
            "learning rate or train for fewer epochs"
        )
    return [as_called(line) for line in said]


def _apart(losses: Sequence[float], evaluations: Sequence[dict[str, Any]], guessing: float, doubted: bool) -> list[str]:
    """That the loss of validation stays behind the one of training, which fell; none where a reason is said already."""
    held = [float(entry["loss"]) for entry in evaluations if "loss" in entry]
    if doubted or not losses or not held or held[-1] <= max(APART * losses[-1], guessing / 2):
        return []
    rose = f", and has risen from {min(held):.4f}" if held[-1] > APART * min(held) else ""
    return [
        f"validation loss {held[-1]:.4f} is {held[-1] / max(losses[-1], 1e-9):.1f} times the training loss {losses[-1]:.4f} of the "
        f"last epoch{rose}: the network knows its training pictures better than new ones. More pictures, stronger augmentation, "
        "more weight decay or fewer epochs help; with few updates BatchNorm's statistics lag behind, too (--bn-momentum 0.1)"
    ]


def _flat(losses: Sequence[float], guessing: float, learnt_little: bool, updates: int, fresh: int) -> str:
    """That the training loss did not fall, in words; empty where it did, or need not.

    Args:
        losses: of the epochs.
        guessing: loss of equal probabilities.
        learnt_little: whether top-1 is nearer to chance than to 1.
        updates: of the run; 0 where that is not known.
        fresh: as for ``doubts``.
    """
    if len(losses) < 2 or min(losses[1:]) <= FALLEN * losses[0] or min(losses) <= LARGE * guessing:
        return ""
    rises, unsure = min(losses[1:]) > losses[0], min(losses) > 0.9 * guessing  # as if every class were as likely
    if not (learnt_little or rises or unsure):
        return ""
    word = "hardly fell" if losses[-1] < losses[0] else "did not fall"
    short = f"{updates} updates are a short run: {LONGER.format(' first')}. " if 0 < updates < FEW_UPDATES else ""
    few = _from_published(fresh)
    rest = "hange the learning rate (python tools/lr_find.py), and look at the labels and at frozen layers"
    return (
        f"the training loss {word}: {losses[0]:.4f} in the first epoch, {losses[-1]:.4f} in the last. {short}"
        f"{f'{few} Else c' if few else 'C'}{rest}"
    )


def _from_published(fresh: int) -> str:
    """What to do next about weights drawn at random and few pictures; empty where there are many, or it began with others."""
    return (
        f"A likely cause: fresh weights learn little from {fresh} pictures; begin with published ones (--pretrained torchvision "
        "--reset-classifier)."
        if 0 < fresh < FEW_PICTURES
        else ""
    )


def _why_at_chance(by_heart: bool, learnt: float, first_weights: float, bn_momentum: float | None, fresh: int) -> str:
    if first_weights > STALE_AVERAGE:
        return f"What is evaluated is a moving average, of which {first_weights:.0%} are still the first weights: add --ema-warmup"
    if by_heart and (bn_momentum or 0.0) >= 0.1:
        return f"Training pictures reach {learnt:.4f}: {LONGER.format('')}, and look at the labels of validation"
    if by_heart:
        return (
            f"Training pictures reach {learnt:.4f}: with few updates BatchNorm's statistics lag behind (--bn-momentum 0.1), or the "
            "labels of validation differ"
        )
    look = "ook at the labels, the learning rate and the number of updates"
    few = _from_published(fresh)
    return f"{few} Else l{look}" if few else f"L{look}"


def _by_guessing(right: int, samples: int, share: float) -> float:
    """Probability of ``right`` or more right answers among ``samples`` where each is right with probability ``share``."""
    if right <= share * samples:
        return 1.0
    below = [_binomial(k, samples, share) for k in range(right, min(samples, right + 10_000) + 1)]
    return sum(below)


def _binomial(k: int, n: int, p: float) -> float:
    if p in (0.0, 1.0):
        return float(k == n * p)
    logarithm = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    return math.exp(logarithm)


def _by_epoch(train: Sequence[dict[str, Any]]) -> list[float]:
    """Mean training loss of every epoch."""
    found: dict[int, list[float]] = {}
    for entry in train:
        found.setdefault(int(entry["epoch"]), []).append(float(entry["loss"]))
    return [sum(losses) / len(losses) for _, losses in sorted(found.items())]


def last_lines(
    config: TrainConfig, record: Record, train: Sequence[dict[str, Any]], evaluations: Sequence[dict[str, Any]], val: DatasetIndex
) -> list[str]:
    """Result, curve, and the next command, a line each.

    Args:
        config: of the run.
        record: of the best weights.
        train, evaluations: entries of the log.
        val: the validation pictures.
    """
    figures, folder = record.figures, config.output_dir
    losses, tops = _by_epoch(train), [float(entry["top1"]) for entry in evaluations]
    behind = [float(entry["loss"]) for entry in evaluations if "loss" in entry]
    fallen = f"training loss {losses[0]:.4f} -> {losses[-1]:.4f}, " if losses else ""
    held = f"validation loss {behind[0]:.4f} -> {behind[-1]:.4f}, " if behind else ""
    risen = f"validation top-1 {tops[0]:.4f} -> {tops[-1]:.4f}" if tops else ""
    equal = sum(top == figures["top1"] for top in tops)
    first = f", the first of {equal} with this top-1" if equal > 1 else ""
    best = f"epoch {record.epoch} of {config.epochs}{first}"
    return [
        f"result: top-1 {figures['top1']:.4f}, loss {figures['loss']:.4f} of {figures['samples']:g} validation pictures ({best})",
        f"curve: {fallen}{held}{risen}; page: {folder}/{PAGE}",
        f"next: {next_command(config, val)}",
    ]


def next_command(config: TrainConfig, val: DatasetIndex) -> str:
    """The command that names what is on a picture of the run's validation set, by the best weights."""
    weights = shlex.quote(f"{config.output_dir}/{BEST}")
    if config.model not in MODELS:
        return f"the best weights are {weights}"
    picture = "PICTURE" if val.places is not None or val.rows is not None or not len(val) else shlex.quote(str(val.path(0)))
    return as_called(f"python tools/predict.py --img-path {picture} --pretrained {weights}")
