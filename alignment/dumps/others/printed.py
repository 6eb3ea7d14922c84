"""Numbers as text: what ``print`` shows of a tensor, with what its digits leave open."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from alignment.dumps.others.recording import Figure

NUMBER = re.compile(r"[-+]?(?:nan|inf|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)", re.I)
SHOWN_WHOLE = 1000  # numbers of a tensor up to which PyTorch prints all of them
EDGE = 3  # numbers at either end of an axis that it prints of a larger one
MOST = 200_000  # characters of one tensor's text that are read
NAMED = re.compile(r"\b(?:dtype|device|grad_fn|size|requires_grad)\s*=.*", re.S)


def figure(text: str) -> Figure | None:
    """The one number of a text such as ``tensor(8.2116e-02)``; None where there is none."""
    found = numbers([text])
    return found[0] if len(found) == 1 else None


def numbers(lines: Iterable[str]) -> tuple[Figure, ...]:
    """The numbers of a printed tensor, in order."""
    text = "\n".join(lines)[:MOST]
    text = NAMED.sub("", text.partition("tensor(")[2] or text)
    return tuple(_figure(one) for one in NUMBER.findall(text))


def _figure(text: str) -> Figure:
    digits, _, power = text.lower().partition("e")
    if digits.lstrip("+-") in ("nan", "inf") or "." not in digits:
        return Figure(float(text))
    return Figure(float(text), 0.5 * 10.0 ** (min(int(power or 0), 300) - len(digits.partition(".")[2])))


def shown(array: np.ndarray) -> np.ndarray:
    """The numbers of an array that ``print`` shows, flat."""
    if array.size > SHOWN_WHOLE:
        for axis, size in enumerate(array.shape):
            if size > 2 * EDGE:
                array = np.take(array, [*range(EDGE), *range(size - EDGE, size)], axis)
    return array.ravel()
