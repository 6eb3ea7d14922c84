"""Results of two trainings, seed by seed, from tables."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from alignment.equivalence import Equivalence, equivalence
from mobilenetv3_common.errors import UserError

SEEDS = ("seed", "run", "id", "name")
VALUES = (
    "top1",
    "acc1",
    "acc",
    "accuracy",
    "eval_top1",
    "val_top1",
    "test_top1",
    "val_acc",
    "test_acc",
    "value",
    "result",
    "score",
)
LARGEST = 2**20  # bytes of a table


@dataclass(frozen=True)
class Column:
    """One side's results.

    Attributes:
        path: of the file.
        name: of the column; empty where the file has no header.
        values: seed, or the line's number, -> result.
        named: whether the file names its seeds.
        digits: after the decimal point, at most.
    """

    path: str
    name: str
    values: dict[str, float]
    named: bool
    digits: int


@dataclass(frozen=True)
class Results:
    """Paired results.

    Attributes:
        first, second: the columns, of the side that is trusted and of the side in question.
        seeds: that both have, in the order of the first.
        differences: second minus first, for each of them, in points if the results are fractions of one.
        answer: of the test.
        notes: what was assumed.
    """

    first: Column
    second: Column
    seeds: list[str]
    differences: list[float]
    answer: Equivalence
    notes: list[str]


def read_column(path: str, column: str | None) -> Column:
    """Read one table: CSV with a header that names a column of results, and may name one of seeds, or one number a line.

    Raises:
        UserError: the file cannot be read, has no such column, a line without a finite number, or a seed twice.
    """
    text = _text(path)
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        raise UserError(f"{path} has no results: give a CSV file with a column top1, or one number a line")
    rows = [
        (number, [cell.strip() for cell in row])
        for (number, _), row in zip(lines, csv.reader(line for _, line in lines), strict=False)
    ]
    header = [] if _number(rows[0][1][-1]) is not None else [cell.lower() for cell in rows[0][1]]
    at, seed = _place(path, header, column, len(rows[0][1]))
    values: dict[str, float] = {}
    digits = 0
    for number, row in rows[1 if header else 0 :]:
        value = _number(row[at]) if at < len(row) else None
        if value is None:
            raise UserError(
                f"{path}, line {number}: no finite number where the result should be: correct the line, or leave it out"
            )
        key = row[seed] if seed is not None else str(len(values) + 1)
        if key in values:
            raise UserError(f"{path}, line {number}: seed {key} is there twice")
        values[key] = value
        digits = max(digits, len(row[at].partition(".")[2].lower().partition("e")[0]))
    if not values:
        raise UserError(f"{path} has a header and no results below it")
    return Column(path, header[at] if header else "", values, seed is not None, digits)


def _text(path: str) -> str:
    if not Path(path).is_file():
        raise UserError(f"{path} is no file: give a CSV file with a column top1, or one number a line")
    with open(path, "rb") as file:
        data = file.read(LARGEST + 1)
    try:
        if len(data) > LARGEST or b"\0" in data:
            raise ValueError
        return data.decode("utf-8-sig")
    except ValueError:
        raise UserError(f"{path} is no table of results: give a CSV file in UTF-8, of at most 1 MiB") from None


def _place(path: str, header: list[str], column: str | None, width: int) -> tuple[int, int | None]:
    """Where results and seeds stand in a row."""
    if not header:
        if column is not None:
            raise UserError(f"{path} has no header, and so no column {column!r}: leave --column out")
        return width - 1, 0 if width == 2 else None
    seed = next((header.index(name) for name in SEEDS if name in header), None)
    if column is not None:
        if column.lower() not in header:
            raise UserError(f"{path} has no column {column!r}: it has {', '.join(header)}")
        return header.index(column.lower()), seed
    known = [header.index(name) for name in VALUES if name in header]
    rest = [place for place in range(len(header)) if place != seed]
    if not known and len(rest) != 1:
        raise UserError(f"{path}: which of the columns {', '.join(header)} has the results? Say it by --column NAME")
    return (known or rest)[0], seed


def _number(text: str) -> float | None:
    try:
        value = float(text.rstrip("%"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def results(
    first: Column, second: Column, margin: float, budget: int | None, pictures: int | None, fractions: bool | None
) -> Results:
    """Pair two columns by seed, and judge them.

    Args:
        first, second: the side that is trusted, and the side in question.
        margin: in points where the results are accuracies, else in their own unit.
        budget: the most seeds that are tried, if the answer is looked at after each; None for one look.
        pictures: of the evaluation: an accuracy is not known closer than one of them; None where not known.
        fractions: whether the results are fractions of one, which are brought to points; None to see it from them.

    Raises:
        UserError: no seeds in common, or more than the budget.
    """
    notes = []
    if first.named and second.named:
        seeds = [seed for seed in first.values if seed in second.values]
        left = (set(first.values) | set(second.values)) - set(seeds)
        notes += [f"left out, since one side alone has them: seeds {', '.join(sorted(left))}"] if left else []
    else:
        seeds = [str(number + 1) for number in range(len(first.values))]
        if len(first.values) != len(second.values):
            raise UserError(
                f"{first.path} has {len(first.values)} results and {second.path} {len(second.values)}: name the seeds in both, in "
                "a column seed, so that they can be paired"
            )
        notes.append("paired by line: no column names the seeds of both")
    if not seeds:
        raise UserError(f"{first.path} and {second.path} have no seed in common: pairs of one seed are compared")
    if budget is not None and len(seeds) > budget:
        raise UserError(f"{len(seeds)} seeds are more than --budget {budget}: the budget is declared before the first look")
    by_seed = first.named and second.named
    columns = [[column.values[seed] for seed in seeds] if by_seed else list(column.values.values()) for column in (first, second)]
    together = [*columns[0], *columns[1]]
    if fractions is None:
        fractions = all(0 <= value <= 1 for value in together)
    if fractions:
        notes.append("results between 0 and 1 are taken times 100: the margin is in points (--unit plain: as they are)")
    scale = 100.0 if fractions else 1.0
    step = scale * 10.0 ** -max(first.digits, second.digits)
    if pictures is not None:
        step = max(step, 100 / pictures)
    ours, theirs = ([scale * value for value in column] for column in (columns[1], columns[0]))
    answer = equivalence(ours, theirs, margin, budget, step)
    return Results(first, second, seeds, [a - b for a, b in zip(ours, theirs, strict=True)], answer, notes)
