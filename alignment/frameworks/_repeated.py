"""Repeated random numbers, for parameters of models whose weights are loaded as soon as they are built.

The random draws of the 25 million parameters of a ResNet-50 take 0.3 to 0.6 s, and an audit builds about a hundred such models.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

LARGE = 1 << 12  # elements from which a parameter is filled with repeated numbers
PERIOD = 65537  # a prime number: rows of a matrix differ, so one that is to be orthogonalised has full rank

filled = itertools.count(1)


@functools.cache
def numbers(law: str) -> np.ndarray:
    """Float32 numbers of mean 0 and standard deviation 1 (``"normal"``), or of the range 0 to 1 (``"uniform"``)."""
    drawn = np.random.default_rng(0)
    return (drawn.standard_normal(PERIOD) if law == "normal" else drawn.random(PERIOD)).astype(np.float32)


def repeated(law: str, shape: Sequence[int], scale: float, start: float) -> np.ndarray:
    """An array of this shape, float32: ``start + scale * numbers(law)``, over and over.

    Each begins elsewhere, as no draw equals another: a parameter that loading does not reach must not be equal on the two sides.
    """
    values = numbers(law) * np.float32(scale) + np.float32(start)
    return np.resize(np.roll(values, next(filled) * 7919), shape)
