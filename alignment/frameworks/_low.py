"""Low precision: bfloat16 in numpy, and mixed precision by operator where a device has no half-precision kernels."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from alignment.frameworks._passes import Tensor, leaves, mapped

BITS = {"bfloat16": 8, "float16": 11}  # of the significand, the hidden one included
LARGEST = {"bfloat16": float(np.finfo(np.float32).max), "float16": 65504.0}
SMALLEST_EXPONENT = {"bfloat16": -125, "float16": -13}  # of numpy's frexp, for normal numbers


class Low(NamedTuple):
    """A way to compute in low precision.

    Attributes:
        dtype: ``"bfloat16"`` or ``"float16"``.
        level: ``"O1"``, the framework's lists say what is computed in it.
    """

    dtype: str
    level: str = "O1"


class Rounded(np.ndarray):
    """float32 values that are bfloat16 numbers, as numpy has no such type: a tensor made of them is bfloat16 again.

    What is computed from one is an ordinary array.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.asarray(x) if isinstance(x, Rounded) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)


def rounded(array: np.ndarray) -> np.ndarray:
    """float32 values of a bfloat16 tensor, marked as such."""
    return np.asarray(array, np.float32).view(Rounded)


def is_bfloat16(array: np.ndarray) -> bool:
    """Whether an array stands for a bfloat16 tensor."""
    return isinstance(array, Rounded) and array.dtype == np.float32


def kind_of(array: np.ndarray) -> str:
    """Name of the type of the tensor that an array stands for."""
    return "bfloat16" if is_bfloat16(array) else str(array.dtype)


def narrowed(array: np.ndarray, dtype: str) -> np.ndarray:
    """Every element as the nearest number of a type, ties to even, as an array that stands for a tensor of that type."""
    if dtype == "float16":
        return array.astype(np.float16)
    bits = array.astype(np.float32).view(np.uint32)
    return rounded(((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32))


def rounded_at_random(array: np.ndarray, dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Every element as one of its two neighbours in a type, the nearer one more often: float32, right in the mean."""
    still = ~np.isfinite(array)
    values = np.where(still, 0, array).astype(np.float64)
    exponent = np.maximum(np.frexp(values)[1], SMALLEST_EXPONENT[dtype])
    spacing = np.exp2((exponent - BITS[dtype]).astype(np.float64))
    steps = np.floor(values / spacing)
    up = rng.random(values.shape) < values / spacing - steps
    return np.where(still, array, (steps + up) * spacing).astype(np.float32)


@contextlib.contextmanager
def patched(owner: Any, **values: Any) -> Iterator[None]:
    """Attributes of a module or class have other values inside the block."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


NORMS = frozenset({"batch_norm", "layer_norm", "sync_batch_norm"})
FLOATS = frozenset({"float32", "float16", "bfloat16"})


@dataclass
class OperatorAutocast:
    """Mixed precision by operator on a device that has float32 kernels alone.

    An operator that runs in half precision gets its operands rounded to it, is computed in float32, and its result is rounded to
    it, which is what a kernel gives that adds up in float32. Gradients are rounded in the same places on their way back. Which
    operator runs in what is decided as the framework decides it on a GPU: a list of operators in half precision, a list of
    operators in float32, the others in the widest type that they are given, normalisation in that of its input.

    Attributes:
        owners: of the operators: (module or class, its attribute, the operator's name).
        tensor_type: the framework's class.
        kind: name of a tensor's type.
        cast: a tensor in another type, by name, part of the graph.
        low: what is computed in now; None for float32.
        white, black: names of operators.
    """

    owners: list[tuple[Any, str, str]]
    tensor_type: type
    kind: Callable[[Tensor], str]
    cast: Callable[[Tensor, str], Tensor]
    low: Low | None = None
    white: frozenset[str] = frozenset()
    black: frozenset[str] = frozenset()
    _wrapped: list[tuple[Any, str, Any, Any]] = field(default_factory=list)
    _inside: bool = False
    _depth: int = 0

    @contextlib.contextmanager
    def __call__(self, low: Low | None, white: frozenset[str] = frozenset(), black: frozenset[str] = frozenset()) -> Iterator[None]:
        """Compute so inside the block; with None, in float32."""
        before = self.low, self.white, self.black
        self.low, self.white, self.black = low, white, black
        if not self._depth:
            self._put(wrappers=True)
        self._depth += 1
        try:
            yield
        finally:
            self.low, self.white, self.black = before
            self._depth -= 1
            if not self._depth:
                self._put(wrappers=False)

    def _put(self, wrappers: bool) -> None:
        if not self._wrapped:
            for owner, attribute, name in self.owners:
                original = getattr(owner, attribute)
                self._wrapped.append((owner, attribute, original, self._wrapper(name, original)))
        for owner, attribute, original, wrapper in self._wrapped:
            setattr(owner, attribute, wrapper if wrappers else original)

    def _wrapper(self, name: str, original: Callable) -> Callable:
        @functools.wraps(original)
        def computed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return original(*args, **kwargs)
            kinds = [self.kind(tensor) for tensor in leaves((args, kwargs), self.tensor_type)]
            if not FLOATS.intersection(kinds):
                return original(*args, **kwargs)
            self._inside = True
            try:
                if name.endswith("_"):
                    return self._compute_in_place(original, args, kwargs)
                return self._compute(name, original, args, kwargs, [kind for kind in kinds if kind in FLOATS])
            finally:
                self._inside = False

        return computed

    def _compute(self, name: str, original: Callable, args: tuple, kwargs: dict, kinds: list[str]) -> Any:
        target = self.target(name, kinds)
        if target == "float32":
            args, kwargs = mapped((args, kwargs), self.tensor_type, self._widened)
            return original(*args, **kwargs)
        if name in NORMS:  # scale, shift and statistics stay as they are
            args = (self._rounded(args[0], target), *args[1:])
        else:
            args, kwargs = mapped((args, kwargs), self.tensor_type, lambda tensor: self._rounded(tensor, target))
        result = original(*args, **kwargs)
        narrow = lambda tensor: self.cast(tensor, target) if self.kind(tensor) == "float32" else tensor  # noqa: E731
        if name in NORMS and isinstance(result, (tuple, list)):
            return (narrow(result[0]), *result[1:])
        return mapped(result, self.tensor_type, narrow)

    def _compute_in_place(self, original: Callable, args: tuple, kwargs: dict) -> Any:
        """An operator that changes what it is given, e.g. half-precision weights: they are changed in float32, then rounded."""
        narrow = [tensor for tensor in leaves((args, kwargs), self.tensor_type) if self.kind(tensor) in BITS]
        wide = {id(tensor): self.cast(tensor, "float32") for tensor in narrow}
        args, kwargs = mapped((args, kwargs), self.tensor_type, lambda tensor: wide.get(id(tensor), tensor))
        result = original(*args, **kwargs)
        for tensor in narrow:
            tensor.set_value(self.cast(wide[id(tensor)], self.kind(tensor)))
        back = {id(wide[id(tensor)]): tensor for tensor in narrow}
        return mapped(result, self.tensor_type, lambda tensor: back.get(id(tensor), tensor))

    def target(self, name: str, kinds: list[str]) -> str:
        """The type in which an operator is computed that is given tensors of these types."""
        half = next((kind for kind in kinds if kind != "float32"), None)
        if self.low is None:
            return "float32" if half is None or "float32" in kinds else half
        if name in self.white:
            return self.low.dtype
        if name in self.black:
            return "float32"
        relevant = kinds[:1] if name in NORMS else kinds
        return "float32" if "float32" in relevant else relevant[0]

    def _widened(self, tensor: Tensor) -> Tensor:
        return self.cast(tensor, "float32") if self.kind(tensor) in BITS else tensor

    def _rounded(self, tensor: Tensor, dtype: str) -> Tensor:
        kind = self.kind(tensor)
        if kind not in FLOATS:
            return tensor
        return self.cast(tensor if kind == dtype else self.cast(tensor, dtype), "float32")
