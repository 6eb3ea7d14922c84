"""Weights of classes in the loss: given, read from a file, or balanced by the training pictures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from mobilenetv3_common.counted import counted
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError

BALANCED = "balanced"
FORM = "balanced, numbers with commas between, or a file with a line 'number' or 'class number' for each class"


def class_weights(given: str | None, index: DatasetIndex) -> tuple[float, ...] | None:
    """A weight for each class, in the order of the labels; None where none were given.

    Args:
        given: ``"balanced"`` (pictures / (classes x pictures of the class), as scikit-learn has it), numbers with commas between,
            or the path of a text file.
        index: the training pictures.

    Raises:
        UserError: the file cannot be read, the classes are others, or a weight is not above 0 and finite.
    """
    if given is None:
        return None
    if given == BALANCED:
        return _balanced(index)
    entries = [text.strip() for text in given.split(",")] if _is_list(given) else _lines(given)
    named = [entry.rpartition(" ") for entry in (" ".join(entry.split()) for entry in entries)]
    weights = [_number(number, given) for _, _, number in named]
    names = [name for name, _, _ in named]
    if any(names):
        return _by_name(dict(zip(names, weights, strict=True)), names, index, given)
    if len(weights) != index.num_classes:
        held = counted(len(weights), "weight")
        raise UserError(f"--class-weights {given}: {held} for {index.num_classes} classes: give one for each")
    return tuple(weights)


def _is_list(given: str) -> bool:
    return all(character in "0123456789.,eE+- " for character in given) and not Path(given).is_file()


def _lines(path: str) -> list[str]:
    if not Path(path).is_file():
        raise UserError(f"--class-weights {path}: no such file; give {FORM}")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--class-weights {path}: cannot be read: {error}") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _number(text: str, given: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UserError(f"--class-weights {given}: every weight must be a number above 0, found {text!r}; give {FORM}")
    return value


def _by_name(weights: dict[str, float], names: list[str], index: DatasetIndex, given: str) -> tuple[float, ...]:
    if len(weights) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise UserError(f"--class-weights {given}: class {again!r} has two weights")
    for name in index.classes:
        if name not in weights:
            raise UserError(f"--class-weights {given}: class {name!r} has no weight")
    if unknown := sorted(set(weights) - set(index.classes)):
        raise UserError(f"--class-weights {given}: {unknown[0]!r} is no class of {index.source}")
    return tuple(weights[name] for name in index.classes)


def _balanced(index: DatasetIndex) -> tuple[float, ...]:
    counts = np.bincount(np.asarray(index.labels), minlength=index.num_classes)
    if not counts.all():
        empty = index.classes[int(np.argmin(counts))]
        raise UserError(f"--class-weights balanced: class {empty!r} has no training picture; give the weights as numbers")
    return tuple(float(weight) for weight in counts.sum() / (len(counts) * counts))
