"""Tables that no weights of the other side stand for (rotary positions, masks): each side's constructor computes them.

They are buffers that are not saved, or that one side alone saves, and tensors that a module keeps as plain attributes.

Two frameworks compute a sine in float32 to within a rounding, which exact mode, where all else agrees to 1e-13, would report of
every sound port. So a table of the port that is the reference's but for float32's rounding has the reference's values there. One
that differs by more keeps its own, and is found by what the module computes with it. So it is with single numbers that a module
keeps: rates by torch's float32 ``linspace`` beside NumPy's float64 one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, without_masked
from alignment.frameworks.base import Framework, Module, Tensor
from alignment.models.links import plain

MOST_PARTS = 4  # tables in one: cosines and sines
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
Tables = dict[str, dict[str, np.ndarray]]  # path of a module -> name of its buffer -> values


class Constants(NamedTuple):
    """What a model holds besides its weights.

    Attributes:
        tables: that are floating.
        numbers: that its modules keep as attributes, alone or in a list.
    """

    tables: Tables
    numbers: frozenset[float]


def constants_of(framework: Framework, model: Module) -> Constants:
    """Of a model that was just built."""
    kept = (value for module in framework.modules(model).values() for value in _attributes(module).values())
    single = (one for value in kept for one in (value if isinstance(value, list | tuple) else [value]))
    return Constants(_tables(framework, model), frozenset(float(one) for one in single if _is_float(one)))


def _tables(framework: Framework, model: Module) -> Tables:
    found: Tables = {}
    for path, tensors in _constants(framework, model):
        arrays = {name: framework.array(tensor) for name, tensor in tensors.items()}
        if floating := {name: array for name, array in arrays.items() if array.dtype.kind == "f"}:
            found[path] = floating
    return found


def _constants(framework: Framework, model: Module) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The tensors of each module that are no weights, by name."""
    known = known_tensors(framework, model)
    for path, module in framework.modules(model).items():
        yield path, constants_in(framework, module, known)


def known_tensors(framework: Framework, model: Module) -> set[int]:
    """``id`` of each tensor that is one of the model's weights, which the other side has, too."""
    return {id(tensor) for _, tensor in framework.described(model)}


def constants_in(framework: Framework, module: Module, known: Container[int]) -> dict[str, Tensor]:
    """A module's own tensors that are no weights, by name: buffers, what no training changes, and plain attributes.

    Args:
        framework, module: whose tensors.
        known: ``known_tensors`` of the model.
    """
    fixed = lambda one: not framework.is_parameter(one) or not framework.trainable(one)  # noqa: E731
    hidden = {name: one for name, one in framework.own_tensors(module).items() if fixed(one) and id(one) not in known}
    kept = vars(module).items() if hasattr(module, "__dict__") else ()
    plain_ones = {name: one for name, one in kept if isinstance(one, framework.tensor_type) and not framework.is_parameter(one)}
    return {**plain_ones, **hidden, **framework.unsaved(module)}


def share(framework: Framework, port: Module, constants: Constants) -> list[str]:
    """Give the port's tables and numbers the reference's values where float32's rounding alone tells the two apart.

    A side may hold in one table, one behind another on its first axis, what the other holds in several, and each number twice.

    Args:
        framework, port: whose tables are changed, in place.
        constants: of the reference.

    Returns:
        The tables that were changed, by the port's paths.
    """
    _share_numbers(framework, port, constants.numbers)
    whole = [array for arrays in constants.tables.values() for array in arrays.values()]
    whole += [part for array in whole if array.ndim > 1 and len(array) <= MOST_PARTS for part in array]
    known = [*whole, *(half for array in whole for half, _ in _halves(array))]
    changed = []
    for path, tensors in _constants(framework, port):
        for name, tensor in tensors.items():
            mine = framework.array(tensor)
            if mine.dtype.kind == "f" and (right := _right(mine, known)) is not None and not np.array_equal(right, mine):
                framework.assign(tensor, right)
                changed.append(f"{path}.{name}" if path else name)
    return changed


def _share_numbers(framework: Framework, port: Module, numbers: frozenset[float]) -> None:
    def right(value: Any) -> Any:
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(right(one) for one in value)
        if not _is_float(value) or float(value) in numbers:
            return value
        near = [one for one in sorted(numbers) if abs(one - value) <= tolerance.BASE_FLOOR_32 * abs(value)]
        return min(near, key=lambda one: abs(one - value), default=value)

    for module in framework.modules(port).values():
        for name, value in _attributes(module).items():
            if right(value) != value:
                setattr(module, name, right(value))


def _attributes(module: Module) -> dict[str, Any]:
    """Numbers, and lists and tuples of numbers, that a module keeps."""
    kept = vars(module).items() if hasattr(module, "__dict__") else ()
    whole = lambda one: isinstance(one, list | tuple) and len(one) > 0 and all(_is_float(n) for n in one)  # noqa: E731
    return {name: one for name, one in kept if _is_float(one) or whole(one)}


def _is_float(value: Any) -> bool:
    """Whether it is a number that float32 rounds, and neither hides nor makes infinite."""
    return isinstance(value, float | np.floating) and bool(value == 0 or SMALLEST < abs(float(value)) < LARGEST)


def _right(mine: np.ndarray, known: Sequence[np.ndarray]) -> np.ndarray | None:
    """The reference's values of a table; None where one of them differs by more than rounding."""
    alike = (array.reshape(mine.shape) for array in known if plain(array.shape) == plain(mine.shape))
    found = next((array for array in alike if _rounded(mine, array)), None)
    if found is None:
        shorter = ((_right(half, known), twice) for half, twice in _halves(mine))
        found = next((twice(half).astype(mine.dtype) for half, twice in shorter if half is not None), None)
    if found is None and mine.ndim > 1 and len(mine) <= MOST_PARTS:
        parts = [_right(part, known) for part in mine]
        found = None if any(part is None for part in parts) else np.stack(parts).astype(mine.dtype)  # type: ignore[arg-type]
    return found


def _halves(table: np.ndarray) -> Iterator[tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]]:
    """A table that holds each number of its last axis twice, with each once, and what makes it of that: rotary positions."""
    size = table.shape[-1] if table.ndim else 0
    if size and size % 2 == 0 and table.dtype.kind == "f":
        for half, twice in (
            (table[..., : size // 2], lambda one: np.concatenate([one, one], axis=-1)),
            (table[..., ::2], lambda one: np.repeat(one, 2, axis=-1)),
        ):
            if np.array_equal(twice(half), table, equal_nan=True):
                yield half, twice


def _rounded(mine: np.ndarray, right: np.ndarray) -> bool:
    a, b = without_masked(mine, right.astype(mine.dtype))
    with np.errstate(invalid="ignore"):
        return bool(distance(a, b) <= tolerance.BASE_FLOOR_32 * norm(b))
