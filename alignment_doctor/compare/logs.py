"""Logs of training runs, this project's and other people's, read into one form."""

from __future__ import annotations

import codecs
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from alignment_doctor.compare.entries import MEAN, OWN, WHOLE, Entry, Evaluation, RunLog, epoch_means, whole_epochs
from alignment_doctor.compare.forms import FORMS, TRAIN, with_form, with_pattern
from alignment_doctor.compare.json_logs import JSON_ROWS, json_run, printed_run
from alignment_doctor.compare.tables import columns_of, table
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_log import JSON_LINES
from mobilenetv3_common.yaml_file import read_yaml, value_of

__all__ = ["MEAN", "OWN", "WHOLE", "Entry", "Evaluation", "RunLog", "epoch_means", "read_run", "whole_epochs"]

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
STATE = "trainer_state.json"
JSON_FILES, TABLES = (".jsonl", ".json", ".ndjson"), (".csv", ".tsv")
WHOSE = "tools/train.py, PaddleClas, timm, torchvision, MMEngine, Lightning, HF Trainer or MindSpore"


def read_run(path: str | Path, pattern: str | None = None, growing: bool = False) -> RunLog:
    """Read a run's folder or a log file.

    Args:
        path: a folder of ``tools/train.py``, or with one log file; or a log of PaddleClas, timm, torchvision, MMEngine or
            MindSpore, Trainer's state or output, a CSV file with a header (as Lightning and timm write it), or JSON lines.
        pattern: a regular expression with the named groups ``update`` and ``loss``, and any of ``epoch``, ``lr``, ``top1``, for
            logs of another form.
        growing: whether somebody writes it: a last line without its end is left out.

    Raises:
        UserError: it cannot be read, or no line is one of a log.
    """
    file = _file_of(Path(path))
    try:
        text = _text(file.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read log {file}: {error.strerror}") from error
    text = text[: text.rfind("\n") + 1] if growing else text
    run = with_pattern(file, text.splitlines(), pattern) if pattern is not None else _read(file, text)
    if run is None or (not run.entries and not run.evaluations):
        raise UserError(
            f"{file} has no line of a log of {WHOSE}: give --pattern, a regular expression with groups such as "
            "(?P<update>\\d+) and (?P<loss>\\S+)"
        )
    return replace(run, settings=_settings(file.parent)) if run.form in (TRAIN, JSON_ROWS) else run


def _read(file: Path, text: str) -> RunLog | None:
    lines, kind = text.splitlines(), file.suffix.lower()
    if kind in TABLES:
        return table(file, lines)
    if (kind in JSON_FILES or text.lstrip().startswith(("{", "["))) and (run := json_run(file, text, lines)) is not None:
        return run
    runs = [with_form(file, lines, form) for form in FORMS]
    run = max(runs, key=lambda one: len(one.entries))
    if run.entries or run.evaluations:
        return run
    if (printed := printed_run(file, lines)) is not None:
        return printed
    chosen = columns_of(re.split(r"[,;\t]", lines[0])) if lines else {}
    return table(file, lines) if {"update", "epoch"} & set(chosen) and {"loss", "evaluated"} & set(chosen) else None


def _text(data: bytes) -> str:
    """A log's text; PowerShell writes UTF-16, and spreadsheets begin a table with a mark of the order of bytes."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return COLOURS.sub("", data.decode("utf-16" if wide else "utf-8-sig", errors="replace"))


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise UserError(f"no such run or log: {path}")
        return path
    for name in (JSON_LINES, STATE):
        if (path / name).is_file():
            return path / name
    logs = sorted([*path.glob("*.log"), *path.glob("*.csv")])
    if len(logs) == 1:
        return logs[0]
    held = f"{len(logs)} logs: give one of them" if logs else f"no {JSON_LINES} and no other log"
    raise UserError(f"{path} holds {held}")


def _settings(folder: Path) -> dict[str, Any]:
    """The effective config beside a log; empty where there is none that can be read."""
    try:
        told = value_of(read_yaml(folder / "config.yaml", "the config"), "the config")
    except UserError:
        return {}
    return told if isinstance(told, dict) else {}
