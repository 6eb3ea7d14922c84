"""Random numbers that a model draws outside its framework, by numpy or by Python, given where the layer that calls shares some."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from alignment.frameworks._dropout import normal_numbers, uniform_numbers
from alignment.frameworks._exact import Replaced


def drawing() -> list[Replaced]:
    """As ``Framework.exact_functions`` lists them; each returns NotImplemented where the caller shares no numbers."""
    return [
        (np.random, "uniform", uniform),
        (np.random, "normal", normal),
        (np.random, "rand", lambda *sizes: uniform(size=sizes or None)),
        (np.random, "randn", lambda *sizes: normal(size=sizes or None)),
        *[(np.random, name, lambda size=None: uniform(size=size)) for name in ("random", "random_sample")],
        (np.random, "standard_normal", lambda size=None: normal(size=size)),
        (random, "random", uniform),
        (random, "uniform", uniform),
    ]


def uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
    """Numbers from ``low`` to below ``high``: an array of a size, or one."""
    found = uniform_numbers(_shape(low, high, size))
    return NotImplemented if found is None else _of_size(low + found * (high - low), size)


def normal(loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    """Normal numbers: an array of a size, or one."""
    found = normal_numbers(_shape(loc, scale, size))
    return NotImplemented if found is None else _of_size(loc + found * scale, size)


def _shape(one: Any, other: Any, size: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(np.shape(one), np.shape(other))
    return (size,) if isinstance(size, int) else tuple(int(number) for number in size)


def _of_size(found: Any, size: Any) -> Any:
    return float(found) if size is None and np.ndim(found) == 0 else np.asarray(found)
