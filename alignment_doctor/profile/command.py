"""Measure where the time and the memory of a run go: a few of its updates. Nothing of the run is kept.

python tools/doctor.py profile --config configs/lite.yaml --data-path lite_data
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
from pathlib import Path
from typing import Any

from alignment_doctor.findings import examine
from alignment_doctor.profile import checks, ranks
from alignment_doctor.profile.advice import advice
from alignment_doctor.profile.before import against, by_name, earlier_facts
from alignment_doctor.profile.subject import PHASES, TRACED, Profile, measure
from alignment_doctor.report import Examination, Section
from mobilenetv3_common.config_file import add_flags as add_config_flags
from mobilenetv3_common.config_file import field_types, make_config
from mobilenetv3_common.drawing import escape, table
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, refuse_special
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training_backend import Builder, TrainingBackend

HELP = "where the time and the memory of a run go: phases, operators, transforms"
SHOWN = 15  # operators and transforms in the table
ON_SCREEN = 5


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags: those of tools/train.py, and its own."""
    parser.add_argument("--config", metavar="FILE", help="a recipe of configs/, or the config.yaml of a run")
    add_own_flags(parser)
    add_config_flags(parser, TrainConfig)


def add_own_flags(parser: argparse.ArgumentParser) -> None:
    """What ``profiled`` reads, besides the run's config."""
    parser.add_argument("--updates", type=int, default=8, metavar="N", help="updates to measure, at least 2 (default 8)")
    parser.add_argument("--trace", metavar="FILE", help="write the profiler's Chrome trace here (chrome://tracing, Perfetto)")
    parser.add_argument("--csv", metavar="FILE", help="write every operator with its shapes, types, calls, seconds and share here")
    parser.add_argument("--before", metavar="FILE", help="the --json of an earlier profile, to be compared with")


def run(flags: argparse.Namespace) -> Examination:
    """Measure a run.

    Raises:
        UserError: something given cannot be used.
    """
    given = {name: value for name, value in vars(flags).items() if name in field_types(TrainConfig)}
    config = make_config(TrainConfig, flags.config, given)
    if not config.data_path:
        raise UserError("--data-path is missing: give a folder with train/ and val/, or train_list.txt and val_list.txt")
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)  # before a framework is imported
    named = f"{flags.config or config.model} ({config.framework}) on {config.data_path}"
    return profiled(None, config, flags, named)


def profiled(
    backend: TrainingBackend | None, config: TrainConfig, flags: argparse.Namespace, named: str, builder: Builder | None = None
) -> Examination:
    """Measure a run of any framework and network.

    Args:
        backend: what computes; None for the package of ``config.framework``.
        config: of the run.
        flags: those of ``add_own_flags``.
        named: what the examination is of.
        builder: makes the network for a number of classes; that of ``config.model`` where None.

    Raises:
        UserError: something given cannot be used.
    """
    if flags.updates < 2:
        raise UserError(f"--updates must be at least 2, found {flags.updates}")
    before = _earlier(flags.before) if flags.before else None
    for name in ("trace", "csv"):
        if (path := getattr(flags, name)) and not Path(path).parent.is_dir():
            raise UserError(f"--{name} {path}: there is no folder {Path(path).parent}; make it first")
    backend = backend or importlib.import_module(f"mobilenetv3_{config.framework}.train.backend")
    with backend.started(config.device) as started:
        profile = measure(backend, config, started, flags.updates, Path(flags.trace) if flags.trace else None, builder)
    if flags.csv:
        _write_csv(profile, Path(flags.csv))
    return Examination(
        "profile", named, examine(checks, profile), facts(profile), _sections(profile, before), _notes(profile, before)
    )


def facts(profile: Profile) -> dict[str, Any]:
    """Everything measured, as JSON values; ``--before`` reads the phases, the operators and the queue."""
    total = sum(one.seconds for one in profile.operators)
    return {
        "batch_size": profile.config.batch_size,
        "seconds_an_update": profile.whole,
        "phases": {name: profile.typical(name) for name in PHASES},
        "memory_mib": profile.memory,
        "graphs_held": profile.held,
        "loader_queue": {"ready": profile.ready, "room": profile.room},
        "seconds_of_each_rank": profile.ranks,
        "seconds_a_picture": profile.picture,
        "transforms": profile.transforms,
        "operators": [{**vars(one), "share": one.seconds / total} for one in profile.operators],
    }


def _earlier(path: str) -> dict[str, Any]:
    """The facts of an earlier profile."""
    refuse_special(path)
    try:
        return earlier_facts(json.loads(Path(path).read_text(encoding="utf-8"))["facts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--before {path} is no --json of a profile ({error}): write one with doctor.py profile --json") from error


def _notes(profile: Profile, before: dict[str, Any] | None) -> list[str]:
    notes = [profile.lowered] if profile.lowered else []
    notes += [f"an update takes {profile.whole * 1e3:.1f} ms: " + ", ".join(
        f"{name} {profile.typical(name) * 1e3:.1f} ms ({profile.share(name):.0%})" for name in PHASES
    )]  # fmt: skip
    total = sum(one.seconds for one in profile.operators)
    together = by_name((one.name, one.seconds) for one in profile.operators)
    longest = [f"{name} {seconds / total:.0%}" for name, seconds in sorted(together.items(), key=lambda one: -one[1])[:ON_SCREEN]]
    notes.append(f"operators by time: {', '.join(longest)}")
    steps = sorted(profile.transforms.items(), key=lambda item: -item[1])[:ON_SCREEN]
    notes.append(f"a picture takes {profile.picture * 1e3:.1f} ms: " + ", ".join(f"{name} {t * 1e3:.1f} ms" for name, t in steps))
    if evenly := ranks.line(profile.ranks, profile.whole):
        notes.append(evenly)
    notes += against(profile, before) if before is not None else []
    best = advice(profile)
    said = f"{best.text} (expected gain {best.gain:.0%})" if best else "nothing that the measurement shows to be worth it"
    return [*notes, f"recommendation: {said}"]


def _sections(profile: Profile, before: dict[str, Any] | None) -> list[Section]:
    head = ["phase", "ms", "share", *(["before, ms", "ratio"] if before else [])]
    rows = []
    for name in PHASES:
        cells = [name, f"{profile.typical(name) * 1e3:.2f}", f"{profile.share(name):.1%}"]
        if before:
            then = before["phases"][name]
            cells += [f"{then * 1e3:.2f}", f"{profile.typical(name) / then:.2f}" if then else "-"]
        rows.append(cells)
    total = sum(one.seconds for one in profile.operators)
    operators = [
        [one.name, one.shapes, one.types, str(one.calls), f"{one.seconds / TRACED * 1e3:.2f}", f"{one.seconds / total:.1%}"]
        for one in profile.operators[:SHOWN]
    ]
    steps = sorted(profile.transforms.items(), key=lambda item: -item[1])[:SHOWN]
    return [
        Section("An update", _table(head, rows, "Phases")),
        Section("Operators", _table(["operator", "shapes", "types", "calls", "ms an update", "share"], operators, "Operators")),
        Section("A picture", _table(["step", "ms"], [[name, f"{t * 1e3:.2f}"] for name, t in steps], "Transforms")),
    ]


def _table(head: list[str], rows: list[list[str]], title: str) -> str:
    return table(head, [[f"<td>{escape(cell)}</td>" for cell in row] for row in rows], title)


def _write_csv(profile: Profile, path: Path) -> None:
    total = sum(one.seconds for one in profile.operators)
    with atomic_open(path, "w") as file:
        writer = csv.writer(file)
        writer.writerow(["operator", "shapes", "calls", "seconds", "share", "types"])
        for one in profile.operators:
            writer.writerow([one.name, one.shapes, one.calls, f"{one.seconds:.6f}", f"{one.seconds / total:.4f}", one.types])
