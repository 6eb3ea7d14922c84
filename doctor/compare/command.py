"""Compare two runs of the same training by their logs: where they part, and whether more than repeated runs do.

python tools/doctor.py compare output/trusted output/new --repeats output/trusted_seed1 output/trusted_seed2
"""

from __future__ import annotations

import argparse
from typing import Any

from alignment.report.drawing import Series, chart
from doctor.compare import checks
from doctor.compare.logs import RunLog, read_run
from doctor.compare.subject import RunsSubject, relative
from doctor.findings import examine
from doctor.report import Examination, Section

HELP = "compare two runs by their logs, and say where they part"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags."""
    about = "a folder of tools/train.py, or a log of PaddleClas, timm, torchvision or MindSpore, a CSV file, or JSON lines"
    parser.add_argument("first", metavar="RUN_A", help=f"the run that is trusted: {about}")
    parser.add_argument("second", metavar="RUN_B", help="the run in question")
    parser.add_argument(
        "--repeats", nargs="+", default=[], metavar="RUN", help="repeated runs of RUN_A: what they differ by is chance"
    )
    parser.add_argument(
        "--same-start",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether both begin from the same weights and see the same batches (default: told by the settings beside the logs)",
    )
    parser.add_argument("--pattern", metavar="REGEX", help="of other logs: groups update and loss, and any of epoch, lr and top1")


def run(flags: argparse.Namespace) -> Examination:
    """Examine two runs.

    Raises:
        UserError: a log cannot be used.
    """
    runs = [read_run(path, flags.pattern) for path in (flags.first, flags.second, *flags.repeats)]
    subject = RunsSubject(runs[0], runs[1], runs[2:], flags.same_start)
    notes = [f"{one.path}: {one.skipped} damaged line(s) left out" for one in runs if one.skipped]
    named = f"{flags.first} and {flags.second}"
    return Examination("compare", named, examine(checks, subject), _facts(subject), _sections(subject), notes)


def _facts(subject: RunsSubject) -> dict[str, Any]:
    def of(log: RunLog) -> dict[str, Any]:
        return {
            "path": str(log.path),
            "form": log.form,
            "updates": len(log.entries),
            "last_update": log.entries[-1].update if log.entries else None,
            "top1": [evaluation.top1 for evaluation in log.evaluations],
        }

    return {
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
    curves = [Series("first", [a.loss for a, _ in subject.losses]), Series("second", [b.loss for _, b in subject.losses])]
    apart = [Series("difference", [relative(a.loss, b.loss) for a, b in subject.losses])]
    if subject.spread:
        apart.append(Series("repeated runs", [subject.spread.get(a.update) for a, _ in subject.losses]))
    html = chart("Training loss", places, curves, False, "update") + chart(
        "Relative difference of the loss", places, apart, True, "update"
    )
    rates = [(a.lr, b.lr) for a, b in subject.losses]
    if any(a is not None and b is not None for a, b in rates):
        drawn = [Series("first", [a for a, _ in rates]), Series("second", [b for _, b in rates])]
        html += chart("Learning rate", places, drawn, False, "update")
    return [Section("Curves", html)]
