"""What two models are run on: a given shape, arrays of a file, a function, or what the reference is found to accept."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment.audit.named import named_object, title
from alignment.frameworks.base import Framework, Keywords, Module, leaves
from alignment.record import load_arrays
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError

InputFunction = Callable[[int, np.random.Generator], Any]
MakeInputs = Callable[[int, tuple[int, ...], np.random.Generator], tuple[Any, ...]]
SAMPLES = 2  # with which the reference is tried
LEAST_SIDE = 64  # in pixels, of pictures that are compared in a smaller shape of odd sides, too
TOKENS = 16  # of a sequence
SHAPE = re.compile(r"\d+(x\d+)+")


@dataclass(frozen=True)
class Inputs:
    """Inputs of a network, samples first.

    Attributes:
        shape: of one sample; of the first array where there are several.
        small: of one sample where many passes are made: odd sides, not square, since padding and pooling mistakes hide where
            all divides evenly; None where the reference accepts no other than ``shape``.
        make: makes the arrays in the structure that the model takes; standard normal numbers of the shape where None.
        words: for people.
        whole: whether ``make`` gives all rows whatever is asked for: those of a graph are no samples.
    """

    shape: tuple[int, ...]
    small: tuple[int, ...] | None
    make: MakeInputs | None
    words: str
    whole: bool = False


def chosen_inputs(given: str | InputFunction | None, framework: Framework, network: Module, port: Module | None = None) -> Inputs:
    """The inputs that ``--input`` names, or the first that the reference accepts.

    Args:
        given: ``2x3x224x224`` (the first number counts samples), ``FILE.npy``, ``FILE.npz``, ``MODULE:CALLABLE``, such a function
            itself, or None.
        framework, network: of the reference.
        port: where it is known: arrays of a file are handed on by name where both models have arguments of all these names.

    Raises:
        UserError: it is none of these, or the reference does not accept it, or the port has no argument of a name.
    """
    if given is None:
        for found in _candidates(framework, network):
            if not refused(framework, network, found):
                return _with_small(found, framework, network)
        raise UserError("--input: none of the inputs that were tried runs through the reference; give e.g. --input 2x3x224x224")
    text = given if isinstance(given, str) else title(given)
    found = _given(given, [network] if port is None else [network, port]) if isinstance(given, str) else _of_function(text, given)
    if port is not None:
        _check_names(text, found, port)
    problem = refused(framework, network, found)
    of_file = text.endswith((".npz", ".npy"))
    if of_file and (problem or refused(framework, network, found, 1)):  # nodes of a graph are no samples, nor are layers of a cache
        whole = _given(text, [network] if port is None else [network, port], whole=True)
        problem, found = (problem, found) if refused(framework, network, whole) else ("", whole)
    if problem:
        hint = _without_samples(text, framework, network)
        raise UserError(f"--input {text}: the reference does not run on it{hint}: {problem}")
    return _with_small(found, framework, network)


def _without_samples(text: str, framework: Framework, network: Module) -> str:
    """That a shape lacks the number of samples, in words; empty where the reference does not run on it with one either."""
    whole = f"{SAMPLES}x{text}"
    if not SHAPE.fullmatch(text) or refused(framework, network, _given(whole, [network])):
        return ""
    return f" (the first number counts samples: did you mean --input {whole}?)"


def _given(text: str, networks: Sequence[Module], whole: bool = False) -> Inputs:
    if SHAPE.fullmatch(text):
        sizes = tuple(int(part) for part in text.split("x"))
        if 0 in sizes:
            raise UserError(f"--input {text}: a size of 0; expected samples and the shape of one, e.g. 2x3x224x224")
        return Inputs(sizes[1:], None, None, f"standard normal numbers of shape {_shown(sizes[1:])}")
    if text.endswith((".npz", ".npy")):
        arrays = _of_file(text)
        known = [_arguments(network) for network in networks]
        _check_spelling(text, list(arrays), known)
        in_order = len(arrays) == 1 and all(arguments[:1] == list(arrays) for arguments in known)
        named = not in_order and all(arrays.keys() <= set(arguments) for arguments in known)
        whole = whole or len({len(array) for array in arrays.values()}) > 1
        words = f"{text}, {' and '.join(arrays)} by name" if named else text
        words += ", whole, not cut into samples" if whole else ""
        return Inputs(next(iter(arrays.values())).shape[1:], None, _cycled(arrays, named, whole), words, whole)
    if ":" in text:
        return _of_function(text, named_object("--input", text))
    raise UserError(f"--input {text}: expected a shape such as 2x3x224x224, an .npy or .npz file, or MODULE:CALLABLE")


def _check_spelling(text: str, names: Sequence[str], known: Sequence[Sequence[str]]) -> None:
    """See that no name of an array is nearly that of an argument, which would be taken in order; ``UserError`` if so."""
    if not all(known) or any(set(names) <= set(one) for one in known):
        return
    for name in names:
        free = [argument for argument in known[0] if argument not in names]
        near = [] if any(name in one for one in known) else difflib.get_close_matches(name, free, 1)
        if near:
            raise UserError(f"--input {text}: no argument of the models is called {name!r}: did you mean {near[0]!r}?")


def _arguments(network: Module) -> list[str]:
    """Names of the arguments of a network's forward, without those of ``**kwargs``; none where they cannot be read."""
    return [one.name for one in _parameters(network) if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]


def _parameters(network: Module) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(network.forward).parameters.values())
    except (AttributeError, TypeError, ValueError):
        return []


def _check_names(given: str, inputs: Inputs, network: Module) -> None:
    """See that the port takes the arguments that are given by name; ``UserError`` where not."""
    made = inputs.make(1, inputs.shape, np.random.default_rng(0)) if inputs.make else ()
    named = made[-1] if made and isinstance(made[-1], Keywords) else {}
    known, any_other = _arguments(network), any(one.kind is one.VAR_KEYWORD for one in _parameters(network))
    missing = [name for name in named if name not in known]
    if missing and known and not any_other:
        raise UserError(
            f"--input {given}: the port's forward has no argument {missing[0]!r} (it has {', '.join(known)}); "
            "give arrays in order, not by name, where the two models call them otherwise"
        )


def _of_file(path: str) -> dict[str, np.ndarray]:
    try:
        named = load_arrays(path)
    except UserError as error:
        raise UserError(f"--input {path}: cannot be read: {error.line}") from error
    arrays = list(named.values())
    if not arrays or any(array.ndim == 0 or array.size == 0 for array in arrays):
        raise UserError(f"--input {path}: expected arrays that hold numbers, samples (of a graph: nodes) as their first axis")
    return {name: _single(array) for name, array in named.items()}


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _cycled(arrays: Mapping[str, np.ndarray], named: bool, whole: bool) -> MakeInputs:
    """So many samples as are asked for, from the first on, again from the beginning where there are fewer; or always all."""

    def make(count: int, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, ...]:
        chosen = {name: array if whole else array[np.arange(count) % len(array)] for name, array in arrays.items()}
        return (Keywords(chosen),) if named else tuple(chosen.values())

    return make


def _of_function(text: str, function: Any) -> Inputs:
    def make(count: int, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, ...]:
        return as_arguments(function(count, rng))

    if not callable(function):
        raise UserError(
            f"--input {text}: expected a function of (samples, numpy generator) that returns an array, a tuple of them, or a dict"
        )
    with strangers("function of --input") as raised:
        made = make(SAMPLES, (), np.random.default_rng(0))
    if raised.error is not None:
        raise UserError(f"--input {text}: called with ({SAMPLES}, generator) it raises {raised.whole}") from raised.error
    arrays = leaves(made, np.ndarray)
    if not arrays or any(array.ndim == 0 or len(array) != SAMPLES for array in arrays):
        raise UserError(f"--input {text}: called with ({SAMPLES}, generator) it must return arrays of {SAMPLES} samples")
    return Inputs(arrays[0].shape[1:], None, make, text)


def numbered(inputs: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """The arrays of a model's arguments by number, in order."""
    return {str(number): array for number, array in enumerate(leaves(inputs, np.ndarray))}


def as_arguments(made: Any) -> tuple[Any, ...]:
    """What a person's function returned as the arguments of a model.

    Args:
        made: one array; a tuple, or list, of arrays, or of lists and dicts of them, in the order of the arguments; a dict of
            arguments by name; or a tuple and a dict, (in order, by name).
    """
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], tuple) and isinstance(made[1], dict):
        return (*(_arrays(one) for one in made[0]), Keywords(_arrays(made[1])))
    if isinstance(made, dict):
        return (Keywords(_arrays(made)),)
    return tuple(_arrays(one) for one in (made if isinstance(made, tuple | list) else (made,)))


def _arrays(value: Any) -> Any:
    """Floating arrays in float32, whatever they lie in; a list of numbers is an array."""
    if isinstance(value, dict):
        return {key: _arrays(part) for key, part in value.items()}
    if isinstance(value, tuple | list) and any(isinstance(part, dict | np.ndarray) for part in value):
        return type(value)(_arrays(part) for part in value)
    return value if value is None or isinstance(value, bool | str) else _single(np.asarray(value))


def refused(framework: Framework, network: Module, inputs: Inputs, samples: int = SAMPLES) -> str:
    """Why the reference does not run on so many inputs in evaluation mode; ``""`` where it does."""
    return tried(framework, network, inputs, samples)[1]


def tried(framework: Framework, network: Module, inputs: Inputs, samples: int = SAMPLES) -> tuple[int, str]:
    """How many tensors a model returns for inputs in evaluation mode, and why it does not run on them (``""`` where it does)."""
    rng = np.random.default_rng(0)
    shape = inputs.shape
    arrays = inputs.make(samples, shape, rng) if inputs.make else (rng.standard_normal((samples, *shape)).astype(np.float32),)
    framework.set_training(network, False)
    with strangers("reference") as raised:  # a stranger's network
        outputs = framework.call(network, arrays).outputs
    if raised.error is not None:
        return 0, f"{type(raised.error).__name__}: {' '.join(str(raised.error).split())[:200]}"
    return len(outputs), "" if outputs else "it returns no tensors"


def _with_small(found: Inputs, framework: Framework, network: Module) -> Inputs:
    """The same, with a smaller shape of odd sides, where the network takes pictures of other sizes."""
    if found.make is not None or len(found.shape) != 3 or min(found.shape[1:]) < LEAST_SIDE:
        return found
    height, width = (side * 3 // 7 | 1 for side in found.shape[1:])
    width += 16 if height == width else 0
    width += 2 if (height ^ width) & 2 == 0 else 0  # halved, one is odd and the other even: a U-Net pads them otherwise
    small = (found.shape[0], height, width)
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
            make: MakeInputs = lambda count, shape, rng, numbers=numbers: (rng.integers(0, numbers, (count, *shape)),)  # type: ignore[misc]  # noqa: E731
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
