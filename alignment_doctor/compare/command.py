"""Compare two runs of the same training by their logs: where they part, and whether more than repeated runs do.

python tools/doctor.py compare output/trusted output/new --repeats output/trusted_seed1 output/trusted_seed2
python tools/doctor.py compare output/trusted output/live --watch
python tools/doctor.py compare --from output/lite/update_000000002.safetensors
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alignment_doctor.compare import checks, continued_checks
from alignment_doctor.compare.continued import continued
from alignment_doctor.compare.follow import follow
from alignment_doctor.compare.logs import WHOLE, RunLog, read_run
from alignment_doctor.compare.subject import RunsSubject, relative
from alignment_doctor.compare.verdict import verdict
from alignment_doctor.findings import examine
from alignment_doctor.report import Examination, Section
from mobilenetv3_common.counted import counted
from mobilenetv3_common.drawing import Series, chart
from mobilenetv3_common.errors import UserError

HELP = "compare two runs by their logs, and say where they part"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags."""
    about = (
        "a folder of tools/train.py, a log of PaddleClas, timm, torchvision, MMEngine or MindSpore, trainer_state.json or what "
        "Trainer printed, a CSV file (Lightning's metrics.csv, timm's summary.csv), or JSON lines"
    )
    parser.add_argument("first", nargs="?", metavar="RUN_A", help=f"the run that is trusted: {about}")
    parser.add_argument("second", nargs="?", metavar="RUN_B", help="the run in question")
    parser.add_argument(
        "--repeats", nargs="+", default=[], metavar="RUN", help="repeated runs of RUN_A: their differences count as chance"
    )
    parser.add_argument(
        "--second-repeats", nargs="+", default=[], metavar="RUN",
        help="repeated runs of RUN_B, each of the same seed as the repeat of RUN_A at its place: accuracies are compared in pairs",
    )  # fmt: skip
    parser.add_argument(
        "--same-start",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether both begin from the same weights and see the same batches (default: read from the settings beside the logs)",
    )
    parser.add_argument("--pattern", metavar="REGEX", help="of other logs: groups update and loss, and any of epoch, lr and top1")
    parser.add_argument("--watch", action="store_true", help="RUN_B still runs: compare until a problem shows or it has caught up")
    parser.add_argument("--interval", type=float, default=5.0, metavar="SECONDS", help="between two checks of --watch (default 5)")
    parser.add_argument(
        "--patience",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="--watch ends if no line comes for this long (default 600)",
    )
    parser.add_argument(
        "--from",
        dest="checkpoint",
        metavar="CHECKPOINT",
        help="instead of two runs: a checkpoint of tools/train.py, or a run's folder: three updates in both frameworks",
    )
    parser.add_argument("--data-path", metavar="DIR", help="for --from, if the pictures have moved")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), help="for --from, instead of the run's own")


def run(flags: argparse.Namespace) -> Examination:
    """Examine two runs.

    Raises:
        UserError: a log cannot be used.
    """
    if flags.checkpoint is not None:
        return _from_checkpoint(flags)
    if flags.first is None or flags.second is None:
        raise UserError("give two runs, RUN_A and RUN_B, or --from CHECKPOINT")
    if flags.data_path is not None or flags.device is not None:
        raise UserError("--data-path and --device belong to --from CHECKPOINT")
    for flag in ("interval", "patience"):
        if not getattr(flags, flag) > 0:
            raise UserError(f"--{flag} must be above 0, found {getattr(flags, flag):g}")
    first, *repeats = (read_run(path, flags.pattern) for path in (flags.first, *flags.repeats))
    paired = [read_run(path, flags.pattern) for path in flags.second_repeats]
    if paired and len(paired) != len(repeats):
        raise UserError(f"{len(paired)} runs of --second-repeats and {len(repeats)} of --repeats: give as many, of the same seeds")
    _refuse_unlike([first, *repeats, *paired])
    notes = []
    if flags.watch:
        found = follow(
            lambda live: RunsSubject(first, live, repeats, flags.same_start, paired),
            flags.second,
            flags.pattern,
            flags.interval,
            flags.patience,
        )
        subject, findings = found[:2]
        notes.append(found[2])
    else:
        subject = RunsSubject(first, read_run(flags.second, flags.pattern), repeats, flags.same_start, paired)
        _refuse_unlike([first, subject.second])
        if not subject.comparable:
            raise UserError(f"nothing can be compared: {_range(first)}, and {_range(subject.second)}")
        findings = examine(checks, subject)
    notes.append(verdict(subject))
    for one in (first, subject.second, *repeats):
        notes += [f"{one.path}: {said}" for said in one.notes]
        notes += [f"{one.path}: {counted(one.skipped, 'damaged line')} left out"] if one.skipped else []
    named = f"{flags.first} and {flags.second}"
    return Examination("compare", named, findings, _facts(subject), _sections(subject), notes)


def _from_checkpoint(flags: argparse.Namespace) -> Examination:
    """Both frameworks from one checkpoint."""
    of_runs = (flags.first, flags.watch, flags.repeats, flags.second_repeats, flags.pattern)
    if any(of_runs) or flags.same_start is not None:
        raise UserError("--from CHECKPOINT takes no runs and none of their flags: it makes updates of its own")
    backends: Any = {name: importlib.import_module(f"mobilenetv3_{name}.train.backend") for name in ("ref", "paddle")}
    given = {name: value for name in ("data_path", "device") if (value := getattr(flags, name)) is not None}
    subject = continued(flags.checkpoint, backends, given)
    facts = {
        "checkpoint": str(subject.path),
        "update": subject.at,
        "frameworks": list(subject.names),
        "losses": [[made.loss for made in run] for run in (subject.own, subject.other)],
        "learning_rates": [[made.rate for made in run] for run in (subject.own, subject.other)],
    }
    last = subject.at + len(subject.own)
    notes = [f"updates {subject.at + 1} to {last} of a run in {subject.names[0]}, made again in {subject.names[1]}"]
    return Examination("compare", str(subject.path), examine(continued_checks, subject), facts, (), notes)


def _refuse_unlike(runs: Sequence[RunLog]) -> None:
    """Raise where one log has lines that were counted, and another one has updates: their numbers do not belong together."""
    counted = [run for run in runs if run.counted_lines]
    if counted and len(counted) < len(runs):
        raise UserError(
            f"{counted[0].path} has no steps and no end of the run, from which they follow: give its trainer_state.json instead"
        )


def _range(run: RunLog) -> str:
    """What a log has, in a few words."""
    what = "epochs" if run.averaged == WHOLE else "updates"
    said = f"{what} {run.entries[0].update} to {run.entries[-1].update}" if run.entries else f"no {what}"
    losses = "" if any(entry.loss is not None for entry in run.entries) or not run.entries else " without a loss"
    return f"{run.path} has {said}{losses} and {counted(len(run.evaluations), 'evaluation')}"


def _facts(subject: RunsSubject) -> dict[str, Any]:
    def of(log: RunLog) -> dict[str, Any]:
        return {
            "path": str(log.path),
            "form": log.form,
            "updates": len(log.entries),
            "notes": list(log.notes),
            "last_update": log.entries[-1].update if log.entries else None,
            "top1": [evaluation.top1 for evaluation in log.evaluations],
        }

    return {
        "verdict": verdict(subject),
        "first": of(subject.first),
        "second": of(subject.second),
        "repeats": [of(log) for log in subject.repeats],
        "relative_difference": {a.update: relative(a.loss, b.loss) for a, b in subject.losses},
        "spread_of_repeats": subject.spread,
    }


def _sections(subject: RunsSubject) -> list[Section]:
    if not subject.losses:
        return []
    places = [str(a.update) for a, _ in subject.losses]
    first, second = _names(subject.first.path, subject.second.path)
    curves = [Series(first, [a.loss for a, _ in subject.losses]), Series(second, [b.loss for _, b in subject.losses])]
    for log, name in zip(subject.repeats, _names(*(log.path for log in subject.repeats)), strict=True):
        losses = {entry.update: entry.loss for entry in log.entries}
        curves.append(Series(name, [losses.get(a.update) for a, _ in subject.losses]))
    apart = [Series(f"{second} against {first}", [relative(a.loss, b.loss) for a, b in subject.losses])]
    if subject.spread:
        apart.append(Series("repeated runs", [subject.spread.get(a.update) for a, _ in subject.losses]))
    html = chart("Training loss", places, curves, None, "update") + chart(
        "Relative difference of the loss", places, apart, True, "update"
    )
    rates = [(a.lr, b.lr) for a, b in subject.losses]
    if any(a is not None and b is not None for a, b in rates):
        drawn = [Series(first, [a for a, _ in rates]), Series(second, [b for _, b in rates])]
        html += chart("Learning rate", places, drawn, None, "update")
    return [Section("Curves", html)]


def _names(*paths: Path) -> list[str]:
    """What runs are called in a picture: the last part of each path that tells them apart."""
    parts = [path.parts for path in paths]
    longest = max(map(len, parts), default=1)
    for count in range(1, longest + 1):
        names = ["/".join(one[-count:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(one)} ({number})" for number, one in enumerate(parts, start=1)]
