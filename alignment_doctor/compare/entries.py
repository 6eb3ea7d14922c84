"""What a log of a training run says, in one form for all programs that write logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mobilenetv3_common.counted import agreed

OWN, MEAN, WHOLE = "own", "mean of the epoch so far", "mean of a whole epoch"


@dataclass(frozen=True)
class Entry:
    """One log line of training.

    Attributes:
        update: updates done in the whole run, from 1.
        epoch: from 0; None where the log does not say.
        loss, lr, top1: None where the line does not say; ``top1`` is 0..1.
        rounding: half a unit of the last digit in which the loss is written; 0 for full precision.
        lr_rounding: the same of the learning rate.
        samples: pictures an update; None where the log does not say.
    """

    update: int
    epoch: int | None = None
    loss: float | None = None
    lr: float | None = None
    top1: float | None = None
    rounding: float = 0.0
    lr_rounding: float = 0.0
    samples: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: ``top1`` 0..1 after ``epoch`` epochs (from 1), over ``samples`` pictures where the log says so.

    A log without epochs says after how many updates; then ``epoch`` is that number and ``unit`` is ``"update"``. An evaluation
    within an epoch has a fraction.
    """

    epoch: float
    top1: float
    samples: int | None = None
    unit: str = "epoch"


@dataclass(frozen=True)
class RunLog:
    """A run.

    Attributes:
        path: of the log.
        form: whose log it is.
        averaged: what a line's loss is: of the updates since the last line (``OWN``), ``MEAN``, or ``WHOLE``, where an
            update is an epoch.
        entries: in the order of updates, each update once.
        evaluations: in the order of epochs.
        settings: of the run's config; empty where it is not there.
        skipped: lines that are damaged, such as the last one of a run in progress.
        notes: how its counters were read, and every line that was replaced or merged, in one sentence each.
        counted_lines: whether the log numbers no updates, so that its lines were counted instead.
    """

    path: Path
    form: str
    averaged: str
    entries: tuple[Entry, ...]
    evaluations: tuple[Evaluation, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    skipped: int = 0
    notes: tuple[str, ...] = ()
    counted_lines: bool = False


def entry_of(update: int, epoch: int | None, told: Mapping[str, str | None], scale: float) -> Entry:
    """An entry of a line's texts, of which ``top1`` is multiplied by ``scale``.

    Raises:
        ValueError: a text is no number.
    """

    def value(name: str) -> float | None:
        text = told.get(name)
        return float(text) if text else None

    top1 = value("top1")
    return Entry(
        update=update,
        epoch=epoch,
        loss=value("loss"),
        lr=value("lr"),
        top1=None if top1 is None else top1 * scale,
        rounding=half_digit(told.get("loss")),
        lr_rounding=half_digit(told.get("lr")),
    )


@dataclass(frozen=True)
class Result:
    """An evaluation as its line says it.

    Attributes:
        before: how many training lines come before it.
        top1: 0..1, or in percent.
        epoch: epochs done; None where the line does not say.
        update: updates done; likewise.
        samples: pictures; likewise.
    """

    before: int
    top1: float
    epoch: float | None = None
    update: int | None = None
    samples: int | None = None


def evaluations_of(
    results: Sequence[Result], lines: Sequence[Entry], percent: bool | None
) -> tuple[tuple[Evaluation, ...], list[str]]:
    """The evaluations in order, each once, and how many gave way to a later one, as notes.

    Args:
        results: as the lines say them; one without a number comes after the training line before it.
        lines: of training, numbered.
        percent: whether top-1 is in percent; None where a value above 1 tells.
    """
    scale = 0.01 if percent or (percent is None and any(one.top1 > 1 for one in results)) else 1.0
    made: dict[tuple[str, float], Evaluation] = {}
    for one in results:
        last = lines[one.before - 1] if one.before else None
        epoch = last.epoch + 1 if one.epoch is None and last is not None and last.epoch is not None else one.epoch
        if epoch is None and (one.update is not None or last is not None):
            place, unit = float(last.update if one.update is None and last is not None else one.update or 0), "update"
        else:
            place, unit = float(epoch or 0), "epoch"
        made[unit, place] = Evaluation(int(place) if place.is_integer() else place, one.top1 * scale, one.samples, unit)
    twice = len(results) - len(made)
    notes = [agreed(f"{twice} evaluations are followed by another one of the same epoch: the last one counts")] if twice else []
    return tuple(made[place] for place in sorted(made)), notes


def half_digit(text: str | None) -> float:
    """Half a unit of the last digit that a number is written with."""
    if not text or not (match := re.fullmatch(r"[-+]?\d+(?:\.(\d*))?(?:[eE]([-+]?\d+))?", text)):
        return 0.0
    return 0.5 * 10.0 ** (int(match[2] or 0) - len(match[1] or ""))


def whole_epochs(entries: Iterable[Entry], averaged: str) -> list[Entry]:
    """The mean of each epoch that ended, as an entry of the epoch's number, from 1; nothing where the log has no epochs."""
    last: dict[int, Entry] = {}
    for entry in epoch_means(entries) if averaged == OWN else entries:
        if entry.epoch is not None and entry.loss is not None:
            last[entry.epoch] = entry
    lengths = {epoch: entry.update - last[epoch - 1].update for epoch, entry in last.items() if epoch - 1 in last}
    going_on = max(last, default=None)
    if going_on is not None and lengths.get(going_on, 0) < max(lengths.values(), default=1):
        del last[going_on]
    return [replace(entry, update=epoch + 1) for epoch, entry in last.items()]


def epoch_means(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Lines whose loss is of the updates since the line before, as lines whose loss is the mean of the epoch so far."""
    epoch: int | None = None
    start = last = 0
    total = 0.0
    for entry in entries:
        if entry.epoch != epoch:
            epoch, start, total = entry.epoch, last, 0.0
        if entry.loss is not None:
            total += entry.loss * (entry.update - last)
            yield replace(entry, loss=total / (entry.update - start))
        last = entry.update
