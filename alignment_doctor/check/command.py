"""Examine a run before it costs an hour: its first batch, a few updates on it, and its plan. Nothing of the run is kept.

python tools/doctor.py check --config configs/lite.yaml --data-path lite_data
"""

from __future__ import annotations

import argparse
import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment_doctor import items
from alignment_doctor.check import checks
from alignment_doctor.check.bundle import write_bundle
from alignment_doctor.check.subject import RunSubject, observe
from alignment_doctor.data.sheet import sheet
from alignment_doctor.findings import examine
from alignment_doctor.report import Examination, Section
from mobilenetv3_common.checkpoint import CONFIG, OTHER_CONFIG
from mobilenetv3_common.config_file import add_flags as add_config_flags
from mobilenetv3_common.config_file import field_types, make_config
from mobilenetv3_common.drawing import Series, chart, escape, table
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.lr_range import RangeTest
from mobilenetv3_common.run_told import lowered_batch
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import is_statistic

HELP = "examine a run before it begins: data, model, loss, gradients, schedule"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags: those of tools/train.py."""
    parser.add_argument("--config", metavar="FILE", help="a recipe of configs/, or the config.yaml of a run")
    parser.add_argument("--run", dest="of_run", metavar="DIR", help="a run's folder: its effective config instead of --config")
    parser.add_argument(
        "--bundle",
        metavar="FILE.zip",
        help="write outcomes, config, versions, logs and the smallest data that shows it",
    )
    add_config_flags(parser, TrainConfig)


def run(flags: argparse.Namespace) -> Examination:
    """Examine a run.

    Raises:
        UserError: something given cannot be used.
    """
    given = {name: value for name, value in vars(flags).items() if name in field_types(TrainConfig)}
    flags.config = config_of_run(flags.of_run, flags.config) if flags.of_run else flags.config
    config = make_config(TrainConfig, flags.config, given)
    if not config.data_path:
        raise UserError("--data-path is missing: give a folder with train/ and val/, or train_list.txt and val_list.txt")
    if flags.bundle and not Path(flags.bundle).absolute().parent.is_dir():
        raise UserError(f"--bundle {flags.bundle}: there is no folder {Path(flags.bundle).parent}; make it first")
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)  # before a framework is imported
    backend = importlib.import_module(f"mobilenetv3_{config.framework}.train.backend")
    with backend.started(config.device) as ranks:
        subject = observe(backend, config, ranks)
        findings = examine(checks, subject)
    named = f"{flags.config or config.model} ({config.framework}) on {config.data_path}"
    states = items.states(findings)
    facts = {
        "items": items.as_json(states),
        "tensors": _tensors(subject),
        "losses_of_one_batch": subject.losses,
        "learning_rates": subject.rates[:10_000],
        "learning_rate_range": _range(subject),
        "defaults": [
            {"in_use": count, **dict(zip(("setting", "default", "elsewhere"), default.seen_from(subject.engine.name), strict=True)),
             "do": default.do}
            for default, count in subject.defaults
        ],
    }  # fmt: skip
    sections = [*_sections(subject), Section("Items of the checklists", items.as_table(states))]
    top = (
        _contact_sheet(subject)
        if flags.html and any(one.is_problem and one.check.id == "check.held_out" for one in findings)
        else []
    )
    lowered = lowered_batch(subject.run, config)
    notes = [lowered] if lowered else []
    examination = Examination("check", named, findings, facts, sections, notes, top)
    if not flags.bundle:
        return examination

    def again(config: TrainConfig) -> set[str]:
        with backend.started(config.device) as ranks:
            return {one.check.id for one in examine(checks, observe(backend, config, ranks)) if one.is_problem}

    said = write_bundle(Path(flags.bundle), examination, subject, flags.of_run, again)
    return replace(examination, notes=[*notes, f"bundle: {said}"])


def _contact_sheet(subject: RunSubject) -> list[Section]:
    """The training pictures with their labels, of those that labels were told from."""
    index = subject.run.train_index
    shown = np.zeros(len(index), dtype=bool)
    shown[subject.relation.numbers["train"]] = True
    return [sheet({"train": index}, shown, subject.config)[0]]


def config_of_run(folder: str, config: str | None) -> str:
    """The file of a run's effective config.

    Raises:
        UserError: there is none, or ``config`` is given too.
    """
    if config is not None:
        raise UserError("--run and --config exclude each other: --run takes the config in the run's folder")
    for name in (OTHER_CONFIG, CONFIG):
        if (Path(folder) / name).is_file():
            return str(Path(folder) / name)
    raise UserError(f"--run {folder}: there is no {CONFIG}; give the folder that tools/train.py wrote")


def _tensors(subject: RunSubject) -> list[dict[str, Any]]:
    """Every parameter, with what the optimizer does to it."""
    base, found = subject.base_rate, []
    for name, array in subject.before.items():
        if not is_statistic(name):
            treated = subject.treated.get(name)
            told = {"lr": base * treated.factor, "weight_decay": treated.decay} if treated else {"lr": None, "weight_decay": None}
            found.append({"name": name, "shape": list(array.shape), "frozen": name not in subject.trainable, **told})
    return found


def _range(subject: RunSubject) -> dict[str, Any] | None:
    """The learning-rate range test, where it was made."""
    made = subject.rate_range
    if made is None:
        return None
    rates, losses = made.test.rates.tolist(), made.test.losses.tolist()
    return {"base": subject.base_rate, "begins": made.begins, "best": made.best, "rates": rates, "losses": losses}


def _treatment(subject: RunSubject) -> Section:
    """The parameters in groups of those that are treated alike, the frozen ones last."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in _tensors(subject):
        held = one["lr"] is not None
        how = (f"{one['lr']:.4g}", f"{one['weight_decay']:.4g}") if held else ("frozen" if one["frozen"] else "in no optimizer", "")
        alike.setdefault(how, []).append(one["name"])
    rows = [
        [f"<td>{escape(text)}</td>" for text in (*how, str(len(names)), ", ".join(names))]
        for how, names in sorted(alike.items(), key=lambda item: (not item[0][1], item[0]))
    ]
    said = table(("base learning rate", "weight decay", "parameters", "names"), rows, "What the optimizer does with each parameter")
    return Section("Parameters", said)


def _drawn_range(test: RangeTest) -> str:
    kept = len(test.losses) - test.diverged  # the last loss of a run that diverged leaves no room for the others
    places = [f"{rate:.2g}" for rate in test.rates[:kept]]
    losses = Series("loss", list(test.losses[:kept]))
    return chart("Loss of one batch while the learning rate grows", places, [losses], False, "learning rate")


def _sections(subject: RunSubject) -> list[Section]:
    step = max(1, len(subject.rates) // 2000)
    rates = subject.rates[::step]
    drawn = chart(
        "Learning rate over the run", [str(n * step) for n in range(len(rates))], [Series("rate", list(rates))], False, "unit"
    )
    if subject.losses:
        places = [str(n + 1) for n in range(len(subject.losses))]
        drawn += chart("Loss of one batch, learnt by heart", places, [Series("loss", list(subject.losses))], False, "update")
    if subject.rate_range is not None and len(subject.rate_range.test.losses) > 1:
        drawn += _drawn_range(subject.rate_range.test)
    rows = [
        [f"<td>{escape(text)}</td>" for text in (*default.seen_from(subject.engine.name), default.do)]
        for default, _ in subject.defaults
    ]
    sections = [Section("Pictures", drawn)]
    if subject.treated:
        sections.append(_treatment(subject))
    if rows:
        said = "<p>Of the layers and the optimizer in use. They are no problem by themselves, and the run may set other values.</p>"
        said += table(
            ("setting", "default here", "default in the other framework", "in a port"), rows, "Defaults of what the run uses"
        )
        sections.append(Section("Defaults that differ between the frameworks", said))
    return sections
