"""Resampling along one side of a picture as a matrix, (wanted, size) in float64."""

from __future__ import annotations

import numpy as np


def bilinear_matrix(size: int, wanted: int, align_corners: bool) -> np.ndarray:
    """Linear interpolation between the centres of pixels, or between the corners'."""
    places = np.arange(wanted, dtype=np.float64)
    if align_corners:
        places *= (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        places = np.maximum((places + 0.5) * (size / wanted) - 0.5, 0.0)
    low = np.minimum(places.astype(np.int64), size - 1)
    share = places - low
    matrix = np.zeros((wanted, size))
    np.add.at(matrix, (np.arange(wanted), low), 1.0 - share)
    np.add.at(matrix, (np.arange(wanted), np.minimum(low + 1, size - 1)), share)
    return matrix


def means_matrix(size: int, wanted: int) -> np.ndarray:
    """Means over equal, overlapping shares of the side: adaptive pooling."""
    matrix = np.zeros((wanted, size))
    for row in range(wanted):
        first, last = row * size // wanted, -(-(row + 1) * size // wanted)
        matrix[row, first:last] = 1.0 / (last - first)
    return matrix
