"""Paddle's initialisers without their random draws, for models whose weights are loaded as soon as they are built."""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
from collections.abc import Iterator
from typing import Any

from alignment.frameworks._low import patched
from alignment.frameworks._repeated import LARGE, repeated

MODULES = ("normal", "uniform", "kaiming", "xavier")  # of paddle.nn.initializer: those that draw with the operators below


class _Repeated:
    """The operators that an initialiser calls: in this thread, those that draw large float32 arrays give repeated numbers."""

    def __init__(self, paddle: Any) -> None:
        self._paddle, self._drawn, self._thread = paddle, paddle._C_ops, threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drawn, name)

    def gaussian(self, shape: Any, mean: float, std: float, seed: int, dtype: Any, place: Any) -> Any:
        found = self._filled("normal", shape, dtype, place, std, mean)
        return self._drawn.gaussian(shape, mean, std, seed, dtype, place) if found is None else found

    def truncated_gaussian_random(
        self, shape: Any, mean: float, std: float, seed: int, low: float, high: float, dtype: Any, place: Any
    ) -> Any:
        found = self._filled("normal", shape, dtype, place, std, mean)
        if found is None:
            return self._drawn.truncated_gaussian_random(shape, mean, std, seed, low, high, dtype, place)
        return found

    def uniform(self, shape: Any, dtype: Any, low: float, high: float, seed: int, place: Any) -> Any:
        found = self._filled("uniform", shape, dtype, place, high - low, low)
        return self._drawn.uniform(shape, dtype, low, high, seed, place) if found is None else found

    def _filled(self, law: str, shape: Any, dtype: Any, place: Any, scale: float, start: float) -> Any:
        here = threading.get_ident() == self._thread and dtype == self._paddle.float32 and "cpu" in str(place).lower()
        if not here or math.prod(shape) < LARGE:
            return None
        return self._paddle.to_tensor(repeated(law, shape, scale, start), place=place)


@contextlib.contextmanager
def loaded_next(paddle: Any) -> Iterator[None]:
    """See ``Framework.loaded_next``."""
    with contextlib.ExitStack() as stack:
        for name in MODULES:
            module = importlib.import_module(f"paddle.nn.initializer.{name}")
            stack.enter_context(patched(module, _C_ops=_Repeated(paddle)))
        yield
