"""Examine a run by all that its folder holds: log, checkpoints, evaluation, events and data. It changes nothing there.

python tools/doctor.py output/lite
python tools/doctor.py run output/lite --no-data
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alignment_doctor.data import checks as data_checks
from alignment_doctor.data.command import measured
from alignment_doctor.data.subject import Expected
from alignment_doctor.findings import Finding, examine
from alignment_doctor.report import Examination
from alignment_doctor.run import checks
from alignment_doctor.run.subject import RunFolder, load
from alignment_doctor.watch.command import findings_of
from alignment_doctor.weights import checks as weights_checks
from alignment_doctor.weights.subject import load_pair
from mobilenetv3_common.called import as_called
from mobilenetv3_common.checkpoint import PAGE, SPLIT_LISTS
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_log import EVENTS

HELP = "examine a run that has ended or still goes on by all that its folder holds"
MANY = 20_000  # pictures that are not decoded unless it is asked for


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags."""
    parser.add_argument("run_folder", metavar="RUN", help="a folder of tools/train.py, or a log that compare reads")
    parser.add_argument(
        "--data",
        action=argparse.BooleanOptionalAction,
        default=None,
        help=f"decode the run's pictures too (default: if they are at most {MANY:,})",
    )
    default = os.cpu_count() or 1
    parser.add_argument("--processes", type=int, default=default, metavar="N", help=f"decoding processes (default: {default})")


def run(flags: argparse.Namespace) -> Examination:
    """Examine a run.

    Raises:
        UserError: there is no run, or a flag cannot be used.
    """
    if flags.processes < 1:
        raise UserError(f"--processes must be at least 1, found {flags.processes}")
    subject = load(Path(flags.run_folder))
    findings, notes = examine(checks, subject), [f"{subject.log.path}: {said}" for said in subject.log.notes]
    parts: dict[str, Callable[[], list[Finding]]] = {
        "weights": lambda: _weights(subject),
        "watch": lambda: _events(subject),
        "data": lambda: _data(subject, flags.data, flags.processes),
    }
    for name, part in parts.items():
        try:
            findings += part()
        except UserError as error:
            notes.append(f"{name} not examined: {error.line}")
    return Examination("run", flags.run_folder, findings, _facts(subject), (), [*notes, *_next(subject)], brief=True)


def _weights(subject: RunFolder) -> list[Finding]:
    """The earliest checkpoint that is kept against the latest."""
    if not subject.checkpoints:
        raise UserError("there is no checkpoint that can be read")
    return examine(weights_checks, load_pair(subject.checkpoints[0][1], subject.checkpoints[-1][1]))


def _events(subject: RunFolder) -> list[Finding]:
    if not (subject.folder / EVENTS).is_file():
        raise UserError("the run was not watched (tools/train.py --watch)")
    return findings_of(subject.folder / EVENTS)[0]


def _data(subject: RunFolder, wanted: bool | None, processes: int) -> list[Finding]:
    """The pictures that the run trained on and was evaluated with."""
    if wanted is False:
        raise UserError("--no-data")
    if not subject.log.settings:
        raise UserError("the log does not say which pictures the run has")
    config = subject.config
    lists = subject.folder / SPLIT_LISTS
    path = lists if config.val_share is not None and lists.is_dir() else Path(config.data_path or "")
    if not config.data_path or not path.is_dir():
        raise UserError(f"{path} is not here: call this where the run was started")
    if wanted is None and (count := len(index_dataset(path, "train"))) > MANY:
        raise UserError(f"{count} training pictures; --data decodes them")
    preset = config.train_preset
    return examine(data_checks, measured(str(path), Expected(preset.mean, preset.std, config.crop_size), processes))


def _facts(subject: RunFolder) -> dict[str, Any]:
    record = subject.record
    return {
        "log": str(subject.log.path),
        "form": subject.log.form,
        "updates": subject.log.entries[-1].update if subject.log.entries else None,
        "checkpoints": {path.name: update for update, path in subject.checkpoints},
        "evaluations": [{"epoch": one.epoch, "top1": one.top1} for one in subject.log.evaluations],
        "best": dict(record.figures) if record else None,
    }


def _next(subject: RunFolder) -> list[str]:
    """What else can be looked at."""
    page = subject.folder / PAGE
    said = [f"classes, confusion and the worst mistakes: {page}"] if page.is_file() else []
    if subject.log.settings:
        said.append(
            f"not run here: python tools/doctor.py check --run {subject.folder} (its first batch, gradients and rates, in a minute)"
        )
    return [as_called(line) for line in said]
