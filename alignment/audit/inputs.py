"""What two models are run on: a given shape, arrays of a file, a function, or what the reference is found to accept."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment.audit.named import named_object
from alignment.frameworks.base import Framework, Module
from mobilenetv3_common.errors import UserError

Make = Callable[[int, tuple[int, ...], np.random.Generator], tuple[np.ndarray, ...]]
SAMPLES = 2  # with which the reference is tried
LEAST_SIDE = 64  # in pixels, of pictures that are compared in a smaller shape of odd sides, too
TOKENS = 16  # of a sequence


@dataclass(frozen=True)
class Inputs:
    """Inputs of a network, samples first.

    Attributes:
        shape: of one sample; of the first array where there are several.
        small: of one sample where many passes are made: odd sides, not square, since padding and pooling mistakes hide where
            all divides evenly; None where the reference accepts no other than ``shape``.
        make: makes the arrays; standard normal numbers of the shape where None.
        words: for people.
    """

    shape: tuple[int, ...]
    small: tuple[int, ...] | None
    make: Make | None
    words: str


def chosen_inputs(given: str | None, framework: Framework, network: Module) -> Inputs:
    """The inputs that ``--input`` names, or the first that the reference accepts.

    Args:
        given: ``2x3x224x224`` (the first number counts samples), ``FILE.npz``, ``MODULE:CALLABLE``, or None.
        framework, network: of the reference.

    Raises:
        UserError: it is none of these, or the reference does not accept it.
    """
    if given is None:
        for found in _candidates(framework, network):
            if not refused(framework, network, found):
                return _with_small(found, framework, network)
        raise UserError("--input: none of the inputs that were tried runs through the reference; give e.g. --input 2x3x224x224")
    found = _given(given)
    if problem := refused(framework, network, found):
        raise UserError(f"--input {given}: the reference does not run on it: {problem}")
    return _with_small(found, framework, network)


def _given(text: str) -> Inputs:
    if re.fullmatch(r"\d+(x\d+)+", text):
        sizes = tuple(int(part) for part in text.split("x"))
        if 0 in sizes:
            raise UserError(f"--input {text}: a size of 0; expected samples and the shape of one, e.g. 2x3x224x224")
        return Inputs(sizes[1:], None, None, f"standard normal numbers of shape {_shown(sizes[1:])}")
    if text.endswith(".npz"):
        arrays = _of_file(text)
        return Inputs(arrays[0].shape[1:], None, _cycled(arrays), text)
    if ":" in text:
        return _of_function(text)
    raise UserError(f"--input {text}: expected a shape such as 2x3x224x224, a .npz file, or MODULE:CALLABLE")


def _of_file(path: str) -> list[np.ndarray]:
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            arrays = [file[name] for name in file.files]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"--input {path}: cannot be read: {error}") from error
    if not arrays or any(array.ndim == 0 for array in arrays) or len({len(array) for array in arrays}) != 1 or not len(arrays[0]):
        raise UserError(f"--input {path}: expected arrays with the same number of samples as their first axis, 1 or more")
    return [_single(array) for array in arrays]


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _cycled(arrays: list[np.ndarray]) -> Make:
    """So many samples as are asked for, from the first on, again from the beginning where there are fewer."""
    return lambda count, shape, rng: tuple(array[np.arange(count) % len(array)] for array in arrays)


def _of_function(text: str) -> Inputs:
    function = named_object("--input", text)

    def make(count: int, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        made: Any = function(count, rng)
        return tuple(_single(np.asarray(one)) for one in (made if isinstance(made, tuple | list) else (made,)))

    if not callable(function):
        raise UserError(
            f"--input {text}: expected a function of (samples, numpy generator) that returns an array or a tuple of them"
        )
    try:
        arrays = make(SAMPLES, (), np.random.default_rng(0))
    except Exception as error:
        raise UserError(f"--input {text}: called with ({SAMPLES}, generator) it raises {type(error).__name__}: {error}") from error
    if not arrays or any(array.ndim == 0 or len(array) != SAMPLES for array in arrays):
        raise UserError(f"--input {text}: called with ({SAMPLES}, generator) it must return arrays of {SAMPLES} samples")
    return Inputs(arrays[0].shape[1:], None, make, text)


def refused(framework: Framework, network: Module, inputs: Inputs) -> str:
    """Why the reference does not run on inputs in evaluation mode; ``""`` where it does."""
    rng = np.random.default_rng(0)
    shape = inputs.shape
    arrays = inputs.make(SAMPLES, shape, rng) if inputs.make else (rng.standard_normal((SAMPLES, *shape)).astype(np.float32),)
    framework.set_training(network, False)
    try:
        outputs = framework.call(network, arrays).outputs
    except Exception as error:  # a stranger's network
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return "" if outputs else "it returns no tensors"


def _with_small(found: Inputs, framework: Framework, network: Module) -> Inputs:
    """The same, with a smaller shape of odd sides, where the network takes pictures of other sizes."""
    if found.make is not None or len(found.shape) != 3 or min(found.shape[1:]) < LEAST_SIDE:
        return found
    height, width = (side * 3 // 7 | 1 for side in found.shape[1:])
    small = (found.shape[0], height, width + 16 if height == width else width)
    return found if refused(framework, network, Inputs(small, None, None, "")) else Inputs(found.shape, small, None, found.words)


def _candidates(framework: Framework, network: Module) -> Iterator[Inputs]:
    """What a network whose first layer with weights is this one usually takes; then pictures."""
    shapes: list[tuple[int, ...]] = []
    for module in framework.modules(network).values():
        own = {entry.canonical: entry.shape for entry in framework.entries(module) if "." not in entry.canonical}
        weight = next((shape for name, shape in own.items() if name.startswith("weight") and len(shape) > 1), None)
        if weight is None:
            continue
        layer = framework.layer(module)
        if "embedding" in layer.title.lower():
            numbers = weight[0]
            make: Make = lambda count, shape, rng, numbers=numbers: (rng.integers(0, numbers, (count, *shape)),)  # type: ignore[misc]  # noqa: E731
            yield Inputs((TOKENS,), None, make, f"{TOKENS} token numbers below {numbers}")
        elif len(weight) > 2:
            channels, dimensions = weight[1] * int(layer.settings.get("groups", 1)), len(weight) - 2
            sides = {1: (1024, 128, 32), 2: (224, 64, 32), 3: (32, 16)}.get(dimensions, ())
            shapes += [(channels, *(side,) * dimensions) for side in sides]
        else:
            shapes += [(weight[1],), (TOKENS, weight[1])]
        break
    for shape in dict.fromkeys([*shapes, (3, 224, 224), (3, 32, 32), (1, 28, 28)]):
        yield Inputs(shape, None, None, f"standard normal numbers of shape {_shown(shape)}")


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
