"""Resampling along one side of a picture as a matrix, (wanted, size) in float64."""

from __future__ import annotations

import numpy as np

CUBIC = -0.75  # of both frameworks' bicubic interpolation


def interpolation_matrix(size: int, wanted: int, align_corners: bool, step: float | None = None, cubic: bool = False) -> np.ndarray:
    """Linear or cubic interpolation between the centres of pixels, or between the corners'.

    Args:
        size, wanted: of the side, before and after.
        align_corners: the corners stay where they are.
        step: pixels from one place to the next, where corners are not aligned; size / wanted where None.
        cubic: instead of linear.
    """
    places = np.arange(wanted, dtype=np.float64)
    if align_corners:
        places *= (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        places = (places + 0.5) * (size / wanted if step is None else step) - 0.5
        places = places if cubic else np.maximum(places, 0.0)
    low = np.floor(places).astype(np.int64)
    low = low if cubic else np.minimum(low, size - 1)
    share = places - low
    matrix = np.zeros((wanted, size))
    taps = range(-1, 3) if cubic else range(2)
    for tap in taps:
        weights = _cubic(np.abs(share - tap)) if cubic else (share if tap else 1.0 - share)
        np.add.at(matrix, (np.arange(wanted), np.clip(low + tap, 0, size - 1)), weights)
    return matrix


def _cubic(far: np.ndarray) -> np.ndarray:
    near = ((CUBIC + 2) * far - (CUBIC + 3)) * far**2 + 1
    return np.where(far <= 1, near, ((CUBIC * far - 5 * CUBIC) * far + 8 * CUBIC) * far - 4 * CUBIC)


def means_matrix(size: int, wanted: int) -> np.ndarray:
    """Means over equal, overlapping shares of the side: adaptive pooling."""
    matrix = np.zeros((wanted, size))
    for row in range(wanted):
        first, last = row * size // wanted, -(-(row + 1) * size // wanted)
        matrix[row, first:last] = 1.0 / (last - first)
    return matrix


def sums_matrix(size: int, kernel: int, stride: int, margin: int, ceil_mode: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """Sums over windows, and how many places of the side and its margin each has; None where the frameworks count windows
    otherwise: the last one of ceil mode would begin in the margin."""
    whole = size + 2 * margin - kernel
    count = (-(-whole // stride) if ceil_mode else whole // stride) + 1
    if whole < 0 or (ceil_mode and (count - 1) * stride >= size + margin):
        return None
    matrix, places = np.zeros((count, size)), np.zeros(count)
    for row in range(count):
        first = row * stride - margin
        matrix[row, max(first, 0) : min(first + kernel, size)] = 1.0
        places[row] = min(first + kernel, size + margin) - first
    return matrix, places
