"""Inputs that several pairs take."""

from __future__ import annotations

import numpy as np


def pictures_32(samples: int, generator: np.random.Generator) -> np.ndarray:
    """Standard normal pictures of 32 pixels."""
    return generator.standard_normal((samples, 3, 32, 32), dtype=np.float32)


def pictures_64(samples: int, generator: np.random.Generator) -> np.ndarray:
    """Standard normal pictures of 64 pixels."""
    return generator.standard_normal((samples, 3, 64, 64), dtype=np.float32)
