"""Logs in JSON: a line for a row, a list of rows, Trainer's state; and the dicts that Trainer prints."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from alignment_doctor.compare.entries import RunLog
from alignment_doctor.compare.forms import TRAIN
from alignment_doctor.compare.tables import SUMMARY, Rows, columns_of, from_rows

JSON_ROWS, TRAINER = "JSON lines", "HF Trainer"
ROUNDED = 0.5e-4  # Trainer writes losses with four digits
PRINTED = re.compile(r"\{'[^{}]*\}")
DIGITS = 0.006  # of an epoch: Trainer prints two of them


def json_run(file: Path, text: str, lines: list[str]) -> RunLog | None:
    """A log that is JSON, whole or line by line; None where it is not.

    Raises:
        UserError: it is, and has no count or no loss.
    """
    rows, skipped = _rows(lines)
    if len(rows) <= 1 and (whole := _whole(text)) is not None:
        return from_rows(replace(whole, file=file))
    if not rows or 2 * len(rows) < len(rows) + skipped:
        return None
    own = any("kind" in row and "update" in row for row in rows)
    return from_rows(Rows(file, TRAIN if own else JSON_ROWS, rows, skipped))


def _rows(lines: Iterable[str]) -> tuple[list[dict[str, Any]], int]:
    rows, skipped = [], 0
    for line in filter(str.strip, lines):
        told = _parsed(line)
        if isinstance(told, dict):
            rows.append(told)
        else:
            skipped += 1
    return rows, skipped


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(text: str) -> Rows | None:
    """Trainer's state, a list of rows, or lists by name, as Keras' history has them."""
    told = _parsed(text)
    if isinstance(told, dict) and isinstance(told.get("log_history"), list):
        rows = [row for row in told["log_history"] if isinstance(row, dict)]
        return Rows(Path(), TRAINER, rows, len(told["log_history"]) - len(rows), epochs_done=True, rounding=ROUNDED)
    if isinstance(told, list) and told and all(isinstance(row, dict) for row in told):
        return Rows(Path(), "JSON", told)
    if isinstance(told, dict):
        series = {name: values for name, values in told.items() if isinstance(values, list)}
        if series and {"loss", "evaluated"} & set(columns_of(list(series))):
            length = max(map(len, series.values()))
            rows = [{"epoch": n, **{name: values[n] for name, values in series.items() if n < len(values)}} for n in range(length)]
            return Rows(Path(), "JSON", rows)
    return None


def printed_run(file: Path, lines: Iterable[str]) -> RunLog | None:
    """What Trainer printed; None where no line is a dict of it.

    The dicts have no step. It follows from the length of the run, which the last dict tells; without it the lines are counted.

    Raises:
        UserError: the dicts have no count or no loss.
    """
    rows: list[dict[str, Any]] = []
    skipped = 0
    for text in (match[0] for line in lines for match in PRINTED.finditer(line)):
        try:
            told = ast.literal_eval(re.sub(r"\bnan\b", "'nan'", re.sub(r"\binf\b", "'inf'", text)))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            skipped += 1
            continue
        if isinstance(told, dict) and "epoch" in told and {"loss", "eval_loss", SUMMARY} & told.keys():
            rows.append(told)
    losses = [row for row in rows if "loss" in row]
    if not losses:
        return None
    try:
        steps, said = _steps(losses, rows)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        steps, said = None, "the epochs of its lines are no numbers"
    for number, row in enumerate(losses):
        row["step"] = number + 1 if steps is None else steps[number]
    run = from_rows(Rows(file, TRAINER, rows, skipped, epochs_done=True, rounding=ROUNDED))
    return replace(run, notes=(said, *run.notes), counted_lines=steps is None)


def _steps(losses: list[dict[str, Any]], rows: list[dict[str, Any]]) -> tuple[list[int] | None, str]:
    """The step of each line, and how it was found."""
    ends = [row for row in rows if SUMMARY in row]
    if not ends or not float(ends[-1]["epoch"]):
        return None, "its lines have no step and the run has not ended: the lines are counted"
    end = ends[-1]
    total = round(float(end[SUMMARY]) * float(end["train_steps_per_second"]))
    per_epoch = total / float(end["epoch"])
    epochs = [float(row["epoch"]) for row in losses]
    every = max(1, round(per_epoch * epochs[-1] / len(epochs)))
    if all(abs(epoch - every * (number + 1) / per_epoch) <= DIGITS + 0.01 * epoch for number, epoch in enumerate(epochs)):
        said = f"its lines have no step: by the length of the run, one is {every} updates"
        return [every * (number + 1) for number in range(len(epochs))], said
    return [max(1, round(epoch * per_epoch)) for epoch in epochs], "its lines have no step: it was computed from their epoch"
