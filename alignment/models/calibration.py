"""Weights under which every parameter of a network matters; what the steps run with when no others are given.

A freshly initialised network can be blind: MobileNetV3's gives logits of about 1e-10, against which every absolute threshold
passes, whatever is wrong. Calibrated weights keep random convolutions but give every other parameter a value that matters:
normalisation weights, all biases, running statistics taken from the project's own pictures, and a last layer scaled to
outputs of standard deviation 1 that names some of the pictures rightly and others not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alignment import tolerance
from alignment.frameworks.base import Framework, Handle, Module, in_precision, leaves
from alignment.project import ModelSpec, Project
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.weights import Entry, State, canonical_state, read_state, write_state

VERSION = 5  # raise it when calibration changes, so that kept files are made anew
FAKE_SAMPLES = 32
FEW_SAMPLES = 8  # of large pictures: each has many values a channel
AMPLIFIED = (4, 16, 64, 256)  # matrices where the outputs hardly depend on the input
LEAST_BETWEEN = 2 * tolerance.GIVEN_LOGITS_STD_BETWEEN  # spread of outputs of standard deviation 1 between samples
ALIKE_BIAS = 3.5  # with the bias's deviation of 0.2, logits of pictures that are much alike are not small either

LARGE = 3 * 128 * 128  # numbers of one sample


def calibrated_state(
    project: Project, model: str = "", seed: int = 0, size: int | None = None, kept: State | None = None, **options: Any
) -> State:
    """Random weights under which every parameter of the reference matters; a pure function of its arguments.

    Args:
        project: its reference, and the pictures of its ``sample_data`` where there are some.
        model: one of its models; the first where empty.
        seed: of the random values.
        size: of the calibration pictures in pixels; those of the model's input where None.
        kept: canonical weights whose kernels and matrices are taken instead of random ones, e.g. fresh ones of the model's own.
        options: of the model's builder, besides those of its spec.

    Returns:
        A canonical state, float32.
    """
    spec = project.models[model or next(iter(project.models))]
    framework = project.reference.framework
    framework.seed(seed)
    with framework.default_dtype("float32"):
        network = spec.reference(**{**spec.options, **options})
    rng = np.random.default_rng(seed)
    pictures = _pictures(project, spec, size)
    if pictures is None:
        shape = spec.input_shape if size is None else (*spec.input_shape[:-2], size, size)
        return randomised_state(framework, network, spec, rng, lambda: _fake_inputs(spec, shape, rng), kept)
    state = _random_parameters(framework, network, rng, kept)
    network = framework.in_float64(framework.place(network))
    noise = rng.normal(size=(len(pictures.images) // 2, *pictures.images.shape[1:]))
    state |= _running_statistics(framework, network, (np.concatenate([pictures.images, noise]),))
    framework.load(network, state)
    return _as_held(framework, network, state | _last_layer(framework, network, spec, pictures, rng, state, kept is not None))


def randomised_state(
    framework: Framework,
    network: Module,
    spec: ModelSpec,
    rng: np.random.Generator,
    inputs: Callable[[], tuple[np.ndarray, ...]],
    kept: State | None = None,
) -> State:
    """The same without pictures: statistics, and outputs of standard deviation 1, on given inputs.

    Args:
        framework: the reference's.
        network: a fresh model of it, which is used up.
        spec: of the model.
        rng: of the random values.
        inputs: makes the inputs, floating ones in float64, after the parameters are drawn.
        kept: as for ``calibrated_state``.

    Returns:
        A canonical state, float32.
    """
    state = _random_parameters(framework, network, rng, kept)
    network = framework.in_float64(framework.place(network))
    given = inputs()
    found: list[tuple[bool, set[str], State]] = []
    for factor in (1, *AMPLIFIED):
        trial = _amplified(state, factor)
        if factor != 1:
            framework.load(network, trial)
        last = _Final(spec.last_layer or "")
        trial |= _running_statistics(framework, network, given, last)
        trial |= last.scaled(framework, trial)
        framework.load(network, trial)
        found.append((not last.tells, indifferent(framework, network, given), trial))
        states = [one[:2] for one in found]
        if states[-1] == (False, set()) or (states[-1][1] and len(states) > 2 and states[-1] == states[-2] == states[-3]):
            break  # or larger matrices do not help
    return _as_held(framework, network, min(found, key=lambda one: (one[0], len(one[1])))[2])


def indifferent(framework: Framework, network: Module, inputs: tuple[np.ndarray, ...]) -> set[str]:
    """Paths of the modules that give the same for every sample though they are given something else: what is before them is unseen.

    A bounded activation that is at its bound everywhere does so, and a look-up that always picks one row.

    Args:
        framework: of the model.
        network: in evaluation mode.
        inputs: of the model, the samples along their first axis.
    """
    same: dict[str, bool] = {}

    def keeper(path: str) -> Callable:
        def keep(_module: Module, args: tuple, kwargs: dict, output: Any) -> None:
            given, made = (
                [framework.array(one) for one in leaves(tree, framework.tensor_type)] for tree in ((args, kwargs), output)
            )
            made = [one for one in made[:1] if one.dtype.kind == "f" and one.ndim > 1 and len(one) > 1]
            if made and any(one.ndim and len(one) == len(made[0]) and _between(one) for one in given):
                same[path] = same.get(path, True) and not _between(made[0])

        return keep

    handles = [framework.hook(module, after=keeper(path)) for path, module in framework.modules(network).items() if path]
    try:
        framework.call(network, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return {path for path, one in same.items() if one}


def _between(array: np.ndarray) -> bool:
    """Whether an array has other numbers for some sample than for the first one."""
    apart = np.abs(array - array[:1]) if array.dtype.kind != "b" else array != array[:1]
    return bool(apart.max(initial=0) > tolerance.SAME * np.abs(array).max(initial=0))


def _amplified(state: State, factor: float) -> State:
    """The state with larger matrices and gains: a network that scales its layers down hardly depends on its input otherwise."""
    larger = {name for name, array in state.items() if array.dtype.kind == "f" and (array.ndim == 2 or _is_gain(name, array))}
    return {name: array * factor if name in larger else array for name, array in state.items()}


def _random_parameters(framework: Framework, network: Module, rng: np.random.Generator, kept: State | None = None) -> State:
    """The state of a model, which then has it, with every parameter drawn at random, but for kernels and matrices of ``kept``."""
    roles = {entry.canonical: entry.role for entry in framework.entries(network)}
    state = framework.state(network)
    state = {name: array if roles[name] == "buffer" else random_values(rng, name, array) for name, array in state.items()}
    state |= {name: array for name, array in (kept or {}).items() if name in state and array.ndim > 1 and roles[name] != "buffer"}
    rows = padding_rows(framework, network)
    framework.load(network, state)
    state = framework.state(network)  # of tied tensors the last that was loaded
    held = {entry.canonical: id(tensor) for entry, tensor in framework.described(network)}
    for name, row in rows.items():
        for other in (other for other in state if held[other] == held[name]):
            state[other][row] = 0
    framework.load(network, state)
    return state


def padding_rows(framework: Framework, network: Module) -> dict[str, int]:
    """Rows of embeddings that stand for padding, where they are 0 as both frameworks make them: Paddle gives 0 whatever they hold.

    Returns:
        Canonical name of the matrix, the one by which the model is known where it has several -> number of the row.
    """
    modules = framework.modules(network, every_path=True)
    rows = {path: framework.layer(module).settings.get("padding_idx") for path, module in modules.items()}
    found = {f"{path}.weight" if path else "weight": row for path, row in rows.items() if row is not None}
    held = framework.tensors(network) if found else {}
    return {name: row for name, row in found.items() if name in held and not framework.array(held[name])[row].any()}


def _as_held(framework: Framework, network: Module, state: State) -> State:
    """A state as a model holds it, in float32: a tensor that has several names, as of a tied head, has one value under each."""
    framework.load(network, state)
    return {n: array.astype(np.float32) if array.dtype.kind == "f" else array for n, array in framework.state(network).items()}


def kept_state(file: Path, framework: Framework, model: Module, make: Callable[[], State]) -> State:
    """The state of a file that holds calibrated weights; where there is none yet, it is made and kept.

    Args:
        file: .safetensors.
        framework: of the model.
        model: whose names and shapes the state must have.
        make: makes the canonical state.

    Raises:
        UserError: the file is damaged, or its folder cannot be written.
    """
    if not file.is_file():
        write_state(file, make())
    entries = [Entry(entry.canonical, entry.canonical, entry.shape) for entry in framework.entries(model)]
    return canonical_state(read_state(file), entries, str(file))


def random_values(rng: np.random.Generator, name: str, like: np.ndarray) -> np.ndarray:
    """Values of a parameter under which it matters, float32; those of a tensor of whole numbers are left as they are."""
    shape = like.shape
    if like.dtype.kind != "f":
        return like
    if _is_gain(name, like):
        return (like * rng.uniform(0.5, 1.5, shape)).astype(np.float32)
    last, ones = name.rpartition(".")[2], like.size > 0 and bool((like == 1).all())
    if ones and last not in ("weight", "bias") and max(shape, default=1) == like.size:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)  # one for each channel, whatever axes of 1 stand beside it
    if len(shape) > 2:  # convolution: He normal over fan_out
        return rng.normal(0, (2 / (shape[0] * np.prod(shape[2:]))) ** 0.5, shape).astype(np.float32)
    if len(shape) == 2:
        return rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
    if last == "weight" or (ones and last != "bias"):  # normalisation; a gain by any name: around 0 it would take the input away
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    own = float(like.flat[0]) if like.size and (like == like.flat[0]).all() else 0.0
    own = (
        own if np.isfinite(own) and own != 1 else 0.0
    )  # a number that a source gives it decides where it works, as a threshold does
    return rng.normal(own, 0.2 * max(abs(own), 1), shape).astype(np.float32)


def _is_gain(name: str, array: np.ndarray) -> bool:
    """Whether a tensor has a positive number for each channel, which differ: what a hand-written weight norm keeps besides."""
    if array.dtype.kind != "f" or max(array.shape, default=0) != array.size or name.rpartition(".")[2] in ("weight", "bias"):
        return False
    one_channel = array.ndim > 2 and array.size == 1
    return bool(array.size and (array > 0).all() and (one_channel or (array != array.flat[0]).any()))


class _Pictures(NamedTuple):
    """Normalised pictures, float64 (N, 3, size, size), the ``train`` first ones of training, and their labels (N,)."""

    images: np.ndarray
    labels: np.ndarray
    train: int


def _pictures(project: Project, spec: ModelSpec, size: int | None) -> _Pictures | None:
    """All pictures of the project's own data; None where it has none, or the model takes something else."""
    data = project.reference.data
    if (
        data is None
        or project.sample_data is None
        or spec.inputs is not None
        or len(spec.input_shape) != 3
        or spec.input_shape[0] != 3
    ):
        return None
    size = size or spec.input_shape[-1]
    preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)
    pictures: list[np.ndarray] = []
    labels: list[int] = []
    train = 0
    for split in ("train", "val"):
        train = len(pictures)
        index = index_dataset(project.sample_data, split)
        pictures += [np.asarray(data.eval_transform(decode_image(index.path(i)), preset)) for i in range(len(index))]
        labels += index.labels
    return _Pictures(np.stack(pictures).astype(np.float64), np.array(labels), train)


def _fake_inputs(spec: ModelSpec, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, ...]:
    samples = FAKE_SAMPLES if math.prod(shape) <= LARGE else FEW_SAMPLES
    if spec.inputs is None:
        return (rng.normal(size=(samples, *shape)),)
    return in_precision(spec.inputs(samples, shape, rng))


@dataclass
class _Final:
    """The last linear layer or convolution of a pass, and what it gave.

    Attributes:
        path: of the layer; that of the last one called where it is empty before the pass.
        output: the framework's own tensor; None before the pass. Only one is held at a time.
        tells: whether the model's first output differs from sample to sample.
    """

    path: str = ""
    output: Any = None
    tells: bool = True

    def noted(self, framework: Framework, network: Module) -> list[Handle]:
        """Hooks that note it in the passes to come."""
        matrices = {entry.canonical for entry in framework.entries(network) if len(entry.shape) > 1}
        layers = {
            path: module
            for path, module in framework.modules(network).items()
            if (kind := framework.layer(module).kind) in ("linear", "conv")
            or (kind != "embedding" and f"{path}.weight" in matrices and not framework.children(module))  # a class derived from one
        }
        wanted = {self.path: layers[self.path]} if self.path in layers else layers

        def keeper(path: str) -> Callable:
            def keep(_module: Module, _args: tuple, _kwargs: dict, output: Any) -> None:
                self.path, self.output = path, output

            return keep

        return [framework.hook(module, after=keeper(path)) for path, module in wanted.items()]

    def scaled(self, framework: Framework, state: State) -> State:
        """Its weight and bias under which its output has standard deviation 1; nothing where no such layer was called."""
        spread = 0.0 if self.output is None else float(framework.array(self.output).std())
        held = [name for name in state if name.rpartition(".")[0] == self.path]
        gains = [name for name in held if _is_gain(name, state[name])]  # of a weight that is normalised
        names = [name for name in held if name in (gains or [f"{self.path}.weight"]) or name == f"{self.path}.bias"]
        return {name: state[name] / spread for name in names} if spread > 0 else {}


def _running_statistics(framework: Framework, network: Module, inputs: tuple[np.ndarray, ...], last: _Final | None = None) -> State:
    """Mean and unbiased variance of what each batch normalisation is given when it normalises by them; ``last`` is noted."""
    found: State = {}
    framework.set_training(network, False)
    handles = [] if last is None else last.noted(framework, network)
    held = {entry.canonical for entry in framework.entries(network)}
    for path, module in framework.modules(network).items():
        prefix = f"{path}." if path else ""
        if framework.layer(module).kind == "batch_norm" and f"{prefix}running_mean" in held:
            framework.set_training(module, True)

            def note(_module: Module, args: tuple, prefix: str = prefix) -> None:
                given = framework.array(args[0])
                axes = tuple(i for i in range(given.ndim) if i != 1)
                found[f"{prefix}running_mean"] = given.mean(axes)
                found[f"{prefix}running_var"] = given.var(axes, ddof=1)

            handles.append(framework.hook(module, before=note))
    try:
        outputs = framework.call(network, inputs).outputs
    finally:
        for handle in handles:
            handle.remove()
        framework.set_training(network, False)
    if last is not None and outputs and outputs[0].ndim and outputs[0].dtype.kind == "f" and np.isfinite(outputs[0]).all():
        scale = 1.0 if last.output is None else outputs[0].std()  # the last layer will be scaled
        last.tells = bool(outputs[0].std(axis=0).mean() > LEAST_BETWEEN * scale)
    return found


def _given_to(framework: Framework, network: Module, path: str, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """What a module is given in a forward pass in evaluation mode."""
    module = framework.modules(network)[path]
    (call,) = framework.call(network, inputs, watched={path: module}).calls.values()
    return np.asarray(call.args[0])


def _scaled_last_layer(framework: Framework, network: Module, spec: ModelSpec, inputs: tuple, state: State) -> State:
    """The last linear layer (the last one called, where the spec names none) scaled to outputs of standard deviation 1."""
    last = _Final(spec.last_layer or "")
    handles = last.noted(framework, network)
    try:
        framework.call(network, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return last.scaled(framework, state)


def _last_layer(
    framework: Framework,
    network: Module,
    spec: ModelSpec,
    pictures: _Pictures,
    rng: np.random.Generator,
    state: State,
    alike: bool,
) -> State:
    """Logits of standard deviation 1 on the validation pictures; rows lean to their class's mean training features.

    The lean is the weakest of a fixed scale at which at least a third of the validation pictures are named rightly.
    Where ``alike``, all pictures have much the same features, as behind somebody's fresh matrices, which are small.
    """
    if spec.last_layer is None:
        return _scaled_last_layer(framework, network, spec, (pictures.images,), state)
    features = _given_to(framework, network, spec.last_layer, (pictures.images,)).reshape(len(pictures.labels), -1)
    given = state[f"{spec.last_layer}.weight"].astype(np.float64)
    noise = rng.normal(0, 0.2, len(given))
    weight, bias, tells = _leaning(features, pictures, given, noise)
    if alike or not tells:  # all pictures have much the same features, as in a deep residual network
        common = features.mean(0)
        weight, bias, _ = _leaning(features - common, pictures, given, ALIKE_BIAS * noise if alike else noise)
        bias = bias - weight @ common
    found = {f"{spec.last_layer}.weight": weight, f"{spec.last_layer}.bias": bias}
    return {name: array for name, array in found.items() if name in state}


def _leaning(
    features: np.ndarray, pictures: _Pictures, weight: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Rows that lean to their class's mean features, a bias, and whether enough validation pictures are named rightly."""
    features_train, features_val = np.split(features, [pictures.train])
    label_train, label_val = np.split(pictures.labels, [pictures.train])
    weight = weight / (features @ weight.T).std(ddof=1)
    classes = min(int(pictures.labels.max()) + 1, len(weight))
    prototypes = np.stack([features_train[label_train == c].mean(0) - features.mean(0) for c in range(classes)])
    prototypes /= features.std(ddof=1) * np.linalg.norm(prototypes, axis=1, keepdims=True)
    leaning, right = weight.copy(), 0.0
    for lean in np.linspace(0.0, 4.0, 81):
        leaning[:classes] = weight[:classes] + lean * prototypes
        logits = features_val @ leaning.T + bias
        right = float((logits.argmax(1) == label_val).mean())
        if right >= 1 / 3:
            break
    scale = logits.std(ddof=1)
    return leaning / scale, bias / scale, right >= 1 / 3
