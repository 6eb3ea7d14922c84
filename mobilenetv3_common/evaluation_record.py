"""An evaluation as a file beside the checkpoint that it is of, and what it says of each class."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, regular_file

EVALUATION = "evaluation.json"
TOP5_FROM = 6  # classes: of five or fewer every answer is among the first five


@dataclass(frozen=True)
class Mistake:
    """A picture that was taken for another class.

    Attributes:
        sample: its number in the index of the pictures.
        label, predicted: class numbers.
        confidence: probability of the predicted class, 0..1.
    """

    sample: int
    label: int
    predicted: int
    confidence: float


@dataclass(frozen=True)
class ClassFigures:
    """What an evaluation says of one class.

    Attributes:
        name: of the class.
        precision: share of the pictures taken for it that are of it, 0..1; None where none was taken for it.
        recall: share of its pictures that were taken for it, 0..1; None where it has none.
        support: its pictures.
    """

    name: str
    precision: float | None
    recall: float | None
    support: int


@dataclass(frozen=True)
class Record:
    """An evaluation with the names of its classes.

    Attributes:
        figures: ``top1``, ``top5``, ``loss``, ``samples``, ``skipped``.
        classes: names, in the order of the labels.
        confusion: int64 (classes, classes); row the true class, column the predicted one.
        mistakes: the most confident ones, most confident first.
        epoch: after which the weights were evaluated, counted from 1; 0 where that is not known.
    """

    figures: dict[str, float]
    classes: tuple[str, ...]
    confusion: np.ndarray
    mistakes: tuple[Mistake, ...] = ()
    epoch: int = 0

    def of_classes(self) -> list[ClassFigures]:
        """Precision, recall and support of every class, in the order of the labels."""
        right, taken, support = np.diagonal(self.confusion), self.confusion.sum(0), self.confusion.sum(1)
        return [
            ClassFigures(name, _share(r, t), _share(r, s), int(s))
            for name, r, t, s in zip(self.classes, right, taken, support, strict=True)
        ]

    def confused(self, count: int) -> list[tuple[int, int, int]]:
        """The most frequent mistakes: true class, predicted class and how many pictures."""
        wrong = self.confusion - np.diag(np.diagonal(self.confusion))
        rows, columns = np.nonzero(wrong)
        order = np.argsort(-wrong[rows, columns], kind="stable")[:count]
        return [(int(rows[i]), int(columns[i]), int(wrong[rows[i], columns[i]])) for i in order]

    @property
    def largest_share(self) -> float:
        """Top-1 of an answer that is always the most frequent class, 0..1."""
        return float(self.confusion.sum(1).max() / max(self.confusion.sum(), 1))


def shown_figures(figures: dict[str, float], num_classes: int) -> dict[str, float]:
    """The figures that mean something: without top-5 below six classes."""
    return {name: value for name, value in figures.items() if name != "top5" or num_classes >= TOP5_FROM}


def write_record(folder: Path, record: Record) -> None:
    """Write an evaluation as JSON; of the confusion matrix the entries that are not zero.

    Raises:
        UserError: it cannot be written.
    """
    rows, columns = np.nonzero(record.confusion)
    counts = record.confusion[rows, columns]
    content = {
        "epoch": record.epoch,
        "figures": record.figures,
        "classes": list(record.classes),
        "confusion": np.stack([rows, columns, counts], 1).tolist(),
        "mistakes": [[one.sample, one.label, one.predicted, one.confidence] for one in record.mistakes],
    }
    with atomic_open(folder / EVALUATION, "w") as file:
        json.dump(content, file)
        file.write("\n")


def read_record(folder: Path) -> Record | None:
    """The reverse; None where there is no such file, or none that can be read."""
    if not regular_file(folder / EVALUATION):
        return None
    try:
        content: dict[str, Any] = json.loads((folder / EVALUATION).read_text(encoding="utf-8"))
        classes = tuple(map(str, content["classes"]))
        confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
        for row, column, count in content["confusion"]:
            confusion[row, column] = count
        mistakes = tuple(Mistake(int(s), int(a), int(b), float(c)) for s, a, b, c in content["mistakes"])
        return Record(dict(content["figures"]), classes, confusion, mistakes, int(content["epoch"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError, UserError):
        return None


def _share(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


def worst(mistakes: Sequence[Mistake], count: int) -> tuple[Mistake, ...]:
    """The most confident of some mistakes, in an order that does not depend on theirs."""
    return tuple(sorted(mistakes, key=lambda one: (-one.confidence, one.sample))[:count])
