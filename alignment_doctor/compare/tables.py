"""Logs that are rows of named numbers: tables, and JSON."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alignment_doctor.compare.counter import Known, counted, epoch_base
from alignment_doctor.compare.entries import OWN, WHOLE, Entry, Result, RunLog, entry_of, evaluations_of
from alignment_doctor.compare.forms import NUMBER
from mobilenetv3_common.counted import agreed
from mobilenetv3_common.errors import UserError

# Without regard to case and signs, the first that is there; "value" is what TensorBoard exports.
COLUMNS = {
    "update": (
        "update", "step", "iteration", "iter", "global_step", "trainer_global_step", "num_updates", "steps", "iterations", "it",
        "batch", "batch_idx", "n_iter", "current_iter", "global_iter", "train_iter", "train_step", "train_steps", "current_step",
        "global_steps", "optimizer_step", "global_iteration", "cur_iter", "step_num",
    ),
    "epoch": ("epoch", "epochs"),
    "loss": (
        "loss", "train_loss", "training_loss", "loss_train", "train_loss_step", "loss_step", "train_loss_epoch",
        "loss_epoch", "value",
    ),
    "lr": ("lr", "learning_rate", "train_lr"),
    "top1": ("top1", "acc", "accuracy", "acc1", "train_acc", "train_accuracy", "train_top1", "train_acc1"),
    "evaluated": (
        "eval_top1", "val_top1", "test_acc1", "val_acc1", "val_acc", "eval_acc", "val_accuracy", "eval_accuracy", "valid_acc",
        "valid_accuracy", "validation_accuracy", "val_acc_epoch", "val_acc_top1", "accuracy_top1", "accuracy_top_1", "acc_top1",
        "top1_acc", "test_acc", "test_accuracy", "eval_prec1", "val_prec1",
    ),
    "kind": ("kind", "mode", "phase", "split", "stage"),
    "samples": ("avg_samples",),
    "evaluated_samples": ("samples",),
}  # fmt: skip
NOT_TRAINING = ("eval", "val", "dev", "test")
SEPARATORS = ",;\t|"  # of columns; blanks are one where a header has none of these
OF_EPOCHS = ("train_loss_epoch", "loss_epoch")
SUMMARY = "train_runtime"  # a row of Trainer about the whole run


@dataclass(frozen=True)
class Rows:
    """Rows of a log.

    Attributes:
        file: that they come from.
        form: whose log it is.
        rows: what each says.
        skipped: rows that could not be read.
        comma: whether a comma may stand before a number's digits.
        epochs_done: whether the epoch of a row is how much of the epochs is done, as a fraction.
        rounding: half a unit of the last digit of losses that do not show their digits.
    """

    file: Path
    form: str
    rows: Sequence[Mapping[str, Any]]
    skipped: int = 0
    comma: bool = False
    epochs_done: bool = False
    rounding: float = 0.0


def table(file: Path, lines: list[str]) -> RunLog:
    """A table with a header.

    Raises:
        UserError: it lacks a column, or is none.
    """
    lines = _from_header(lines)
    head = lines[0] if lines else ""
    reader = csv.DictReader(lines, delimiter=max(SEPARATORS, key=head.count))
    try:
        rows = list(reader)
    except csv.Error as error:
        raise UserError(f"{file} is no table of a run's losses ({error}): give its log") from error
    names = [name for name in reader.fieldnames or () if name]
    return from_rows(Rows(file, "CSV", rows, comma=reader.reader.dialect.delimiter != ","), names)


def _from_header(lines: list[str]) -> list[str]:
    """The lines from the header on: comments before it are left out, and blanks between columns become commas."""
    lines = [line for line in lines if line.strip()]
    while lines and lines[0].lstrip().startswith("#"):
        head = lines[0].lstrip("# \t")
        named = columns_of(re.split(rf"[{SEPARATORS}\s]+", head)).keys()
        if named & {"update", "epoch"} and named & {"loss", "lr", "top1", "evaluated"}:  # as numpy.savetxt writes it
            lines[0] = head
            break
        del lines[0]
    if lines and not any(map(lines[0].count, SEPARATORS)) and " " in lines[0].strip():
        return [",".join(line.split()) for line in lines]
    return lines


def from_rows(told: Rows, names: Iterable[str] | None = None) -> RunLog:
    """A run as rows tell it.

    Args:
        told: the rows.
        names: of the columns, where the rows do not all have them.

    Raises:
        UserError: no column has a count, or none has a loss, a learning rate or an accuracy.
    """
    held = list(names if names is not None else dict.fromkeys(name for row in told.rows for name in row))
    chosen = columns_of(held)
    if not held:
        raise UserError(
            f"{told.file} has no row: the run logged nothing (Trainer logs every logging_steps updates, 500 by default)"
        )
    listed = ", ".join(map(str, held[:20]))
    if "update" not in chosen and "epoch" not in chosen:
        raise UserError(f"{told.file} needs a column update (or step, iteration) or epoch; it has {listed}")
    if not {"loss", "lr", "evaluated"} & set(chosen) and not {"top1", "kind"} <= set(chosen):
        needed = f"{told.file} needs a column loss (or train_loss) or val_acc"
        raise UserError(f"{needed}; it has {listed}: rename the one that is meant")
    return _Reader(told, chosen).run()


def columns_of(names: Sequence[str]) -> dict[str, str]:
    """Key of ``COLUMNS`` -> the name that stands for it."""
    plain = {_plain(name): name for name in reversed(names)}
    chosen = {key: plain[alias] for key, aliases in COLUMNS.items() for alias in aliases[::-1] if alias in plain}
    rates = [name for name in names if _plain(name).startswith("lr_")]  # one of each optimizer, as lr-Adam
    return {"lr": rates[0], **chosen} if rates else chosen


def _plain(name: str | None) -> str:
    """A column's name in small letters and underscores; of ``run - loss``, as wandb exports it, the last part."""
    return re.sub(r"[^a-z0-9]+", "_", (name or "").rpartition(" - ")[2].lower()).strip("_")


def _text(value: Any, comma: bool) -> str:
    """A cell as Python reads numbers. It may have a percent sign.

    Raises:
        ValueError: it is neither text nor a number.
    """
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no number")
    number = value.strip()
    if comma and number.count(",") == 1 and "." not in number:
        number = number.replace(",", ".")
    return f"{float(number[:-1]) / 100!r}" if re.fullmatch(rf"{NUMBER}\s*%", number) else number


class _Reader:
    """Reads rows one after another.

    Args:
        told: the rows.
        chosen: the columns' names.
    """

    def __init__(self, told: Rows, chosen: Mapping[str, str]) -> None:
        self.told, self.chosen = told, chosen
        self.raw: list[Entry] = []
        self.epochs: list[float | None] = []  # of the training rows, as they say them
        self.results: list[tuple[Result, float | None]] = []  # with the epoch as the row says it
        self.skipped = told.skipped
        self.places = {chosen[key] for key in ("update", "epoch", "kind") if key in chosen}  # columns that say where a row is
        self.empty = 0  # rows with a place in the run and nothing else

    def run(self) -> RunLog:
        """The run."""
        for row in self.told.rows:
            try:
                self._row(row)
            except (ValueError, OverflowError):
                self.skipped += 1
        whole = False
        given = [epoch for epoch in self.epochs if epoch is not None] + [epoch for _, epoch in self.results if epoch is not None]
        done = self.told.epochs_done or any(not epoch.is_integer() for epoch in given)
        first = 0 if done else epoch_base(given)
        epochs = [None if epoch is None else max(0, math.ceil(epoch) - 1) if done else int(epoch) - first for epoch in self.epochs]
        raw = [replace(entry, epoch=epoch) for entry, epoch in zip(self.raw, epochs, strict=True)]
        known = Known(first_epoch=0)
        notes: list[str] = []
        if "update" not in self.chosen:
            raw, known, whole = _by_epochs(raw, known, notes)
        whole = whole or _plain(self.chosen.get("loss")) in OF_EPOCHS
        made = counted(raw, known)
        entries = made.entries
        if whole and "update" in self.chosen:  # a row at the end of each epoch
            entries = tuple(replace(one, update=one.epoch + 1) for one in entries if one.epoch is not None and one.loss is not None)
        shift = min(line.update for line in made.lines) - min(line.update for line in raw) if raw else 0
        results = [self._placed(one, epoch, done, first, shift) for one, epoch in self.results]
        evaluations, said = evaluations_of(results, made.lines, None)
        if self.empty:
            notes.append(
                agreed(f"{self.empty} lines have a count and no value, as a loss that is no number may be written: left out")
            )
        said = [*notes, *made.notes, *said]
        return RunLog(
            self.told.file, self.told.form, WHOLE if whole else OWN, entries, evaluations, skipped=self.skipped, notes=tuple(said)
        )

    def _row(self, row: Mapping[str, Any]) -> None:
        if SUMMARY in row:
            return
        told = {key: _text(row.get(name), self.told.comma) for key, name in self.chosen.items() if key != "kind"}
        kind = str(row.get(self.chosen.get("kind", ""), "train")).lower()
        if kind == "eval_raw":
            return  # of weights that are not the run's result
        epoch = float(told["epoch"]) if told.get("epoch") else None
        count = int(float(told["update"])) if told.get("update") else None
        apart = kind.startswith(NOT_TRAINING)
        evaluated = told.get("evaluated") or (told.get("top1") if apart else "")
        if not apart and any(told.get(key) for key in ("loss", "lr", "top1")):
            if count is None and ("update" in self.chosen or epoch is None):
                raise ValueError("no place in the run")
            if epoch is not None and not math.isfinite(epoch):
                raise ValueError("an epoch that is no number")
            entry = entry_of(count or 0, None, {key: value or None for key, value in told.items()}, 1.0)
            if not isinstance(row.get(self.chosen.get("loss", "")), str):
                entry = replace(entry, rounding=self.told.rounding)
            if not isinstance(row.get(self.chosen.get("lr", "")), str):
                entry = replace(entry, lr_rounding=0.0)
            if told.get("samples"):
                entry = replace(entry, samples=float(told["samples"]))
            self.raw.append(entry)
            self.epochs.append(epoch)
        elif (
            not evaluated
            and count is not None
            and all(value in (None, "") for name, value in row.items() if name not in self.places)
        ):
            self.empty += 1
        if evaluated:
            pictures = int(told["evaluated_samples"]) if told.get("evaluated_samples") else None
            self.results.append((Result(len(self.raw), float(evaluated), None, count, pictures), epoch))

    @staticmethod
    def _placed(one: Result, epoch: float | None, done: bool, first: int, shift: int) -> Result:
        """An evaluation after so many epochs, or so many updates."""
        if epoch is not None:
            return replace(one, epoch=round(epoch, 2) if done else int(epoch) - first + 1)
        return one if one.update is None else replace(one, update=one.update + shift)


def _by_epochs(raw: list[Entry], known: Known, notes: list[str]) -> tuple[list[Entry], Known, bool]:
    """Rows without a count: a row an epoch, or rows of updates in the order in which they were made."""
    main = [line for line in raw if line.loss is not None] or raw
    if not any(a.epoch == b.epoch for a, b in itertools.pairwise(main)):
        return [replace(line, update=(line.epoch or 0) + 1) for line in raw], replace(known, base=1, per_epoch=False), True
    notes.append("its rows have an epoch and no count of updates: each row is taken as one update")
    made, place, epoch = [], 0, None
    for line in raw:
        place = place + 1 if line.epoch == epoch else 1
        epoch = line.epoch
        made.append(replace(line, update=place))
    return made, replace(known, base=1, per_epoch=True), False
