"""Compare the final results of two trainings over several seeds: equal within a margin, different, or undecided.

python tools/doctor.py equal reference.csv port.csv --margin 0.15
"""

from __future__ import annotations

import argparse
import math

from alignment_doctor.equal import checks
from alignment_doctor.equal.subject import read_column, results
from alignment_doctor.findings import examine
from alignment_doctor.report import Examination, Section
from mobilenetv3_common.drawing import Series, chart
from mobilenetv3_common.errors import UserError

HELP = "test whether the final accuracies of two trainings are equal within a margin, over several seeds"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The sub-command's flags."""
    about = "CSV with a column top1 (or --column) and a column seed, or one number a line"
    parser.add_argument("first", metavar="A", help=f"results of the training that is trusted: {about}")
    parser.add_argument("second", metavar="B", help="results of the training in question, of the same seeds")
    parser.add_argument(
        "--margin", type=float, default=0.15, metavar="POINTS",
        help="a mean difference below it does not matter: points of accuracy, or the results' own unit (default 0.15)",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=int, metavar="SEEDS",
        help="the most seeds that will be tried, if you look after each further seed until it is decided (default: one look)",
    )  # fmt: skip
    parser.add_argument(
        "--pictures", type=int, metavar="N", help="of the evaluation: an accuracy is not known closer than one of them"
    )
    parser.add_argument("--column", metavar="NAME", help="of the results in both files")
    parser.add_argument(
        "--unit", choices=("auto", "fraction", "plain"), default="auto",
        help="fraction: 0.75 is 75 points; plain: numbers as they are; auto: fractions if all lie between 0 and 1 (default)",
    )  # fmt: skip


def run(flags: argparse.Namespace) -> Examination:
    """Judge two tables of results; status 1 unless they are shown to be equal.

    Raises:
        UserError: a table or a flag cannot be used.
    """
    if not (flags.margin > 0 and math.isfinite(flags.margin)):
        raise UserError(f"--margin {flags.margin:g}: it must be above 0")
    if flags.budget is not None and not 3 <= flags.budget <= 1000:
        raise UserError(f"--budget {flags.budget}: it must be between 3 and 1000 seeds")
    if flags.pictures is not None and flags.pictures < 1:
        raise UserError(f"--pictures {flags.pictures}: it must be 1 or more")
    columns = [read_column(path, flags.column) for path in (flags.first, flags.second)]
    fractions = {"auto": None, "fraction": True, "plain": False}[flags.unit]
    found = results(columns[0], columns[1], flags.margin, flags.budget, flags.pictures, fractions)
    answer = found.answer
    facts = {
        "answer": answer.answer, "seeds": found.seeds, "differences": found.differences, "mean": answer.mean,
        "interval": [answer.low, answer.high] if math.isfinite(answer.low) else None,
        "standard_deviation": None if math.isnan(answer.deviation) else answer.deviation,
        "margin": answer.margin, "more_seeds": answer.more,
    }  # fmt: skip
    bounds = [Series("B minus A", list(found.differences))]
    bounds += [Series(name, [value] * len(found.seeds)) for name, value in (("margin", answer.margin), ("-margin", -answer.margin))]
    sections = [Section("Differences", chart("Difference of each seed", found.seeds, bounds, None, "seed"))]
    return Examination("equal", f"{flags.first} and {flags.second}", examine(checks, found), facts, sections, found.notes)
