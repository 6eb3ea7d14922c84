"""Are the pairs what they say? Without the engine: the fixed version equals the reference, the broken one does not."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.real.cases import Case, versions

SAME, OTHER = 1e-6, 2e-6  # relative, in float64; some of Paddle's kernels hold float32 constants
RUNS, SHARE = 60, 0.3  # of a random output: how often it is drawn, and how far its spread may be off
FRESH = 100  # models whose initial weights are compared
Arrays = dict[str, np.ndarray]
NAMES = {"_mean": "running_mean", "_variance": "running_var"}  # of Paddle's batch normalisation, in torch


def module_of(source: str) -> types.ModuleType:
    """The module that a version of a pair is."""
    module = types.ModuleType("pair")
    exec(compile(source, "pair.py", "exec"), module.__dict__)
    return module


def differences(case: Case, source: str) -> list[str]:
    """In what the port of a version differs from its reference: output, gradient, statistics, initialisation, structure."""
    module = module_of(source)
    arrays = module.inputs(4, np.random.default_rng(0))
    given = list(arrays) if isinstance(arrays, tuple) else [arrays]
    reference, port = Torch(module.Reference()), side(module.Port())
    reference.disturb()
    if not port.load(reference):
        return ["structure"]
    found = []
    for training in (False, True):
        name = "training" if training else "evaluation"
        ours, theirs = port.run(given, training), reference.run(given, training)
        if is_random(reference, given, training) or is_random(port, given, training):
            spread = [measured(model, given, training) for model in (port, reference)]
            if abs(spread[0] - spread[1]) > SHARE * max(spread):
                found.append(f"random output in {name}")
            continue
        for what, mine, yours in zip(("output", "gradient", "statistics"), ours, theirs, strict=True):
            if not alike(mine, yours, training):
                found.append(f"{what} in {name}")
    looks = fresh(module.Port)
    if looks and not alike(looks, fresh(module.Reference), False, SHARE):
        found.append("initialisation")
    return found


def plain(case: Case, source: str) -> bool:
    """Whether the usual comparison sees a difference: outputs in float32 with the same weights, allclose at 1e-5."""
    import torch

    torch.manual_seed(0)
    module = module_of(source)
    arrays = module.inputs(4, np.random.default_rng(0))
    given = list(arrays) if isinstance(arrays, tuple) else [arrays]
    reference, port = Torch(module.Reference(), "float32"), side(module.Port(), "float32")
    if not port.load(reference):
        return True
    ours, theirs = port.run(given, False)[0], reference.run(given, False)[0]
    return any(not np.allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-5) for name in theirs)


def alike(ours: Arrays, theirs: Arrays, training: bool, share: float = SAME) -> bool:
    """Whether all arrays agree; in training mode Paddle's variance lacks a factor of n / (n - 1), which is no mistake."""
    for name, theirs_of in theirs.items():
        loose = 0.1 if training and name.endswith("running_var") else share
        scale = max(float(np.abs(theirs_of).max(initial=0)), 1e-3)
        if ours[name].shape != theirs_of.shape or not np.abs(ours[name] - theirs_of).max(initial=0) <= loose * scale:
            return False
    return True


def is_random(model: Torch | Paddle, given: list[np.ndarray], training: bool) -> bool:
    one, two = (model.run(given, training)[0]["output 0"] for _ in range(2))
    return not np.array_equal(one, two)


def measured(model: Torch | Paddle, given: list[np.ndarray], training: bool) -> float:
    """The spread of a random output: its mean distance from its own mean."""
    drawn = np.stack([model.run(given, training)[0]["output 0"] for _ in range(RUNS)])
    return float(np.abs(drawn - drawn.mean(0)).mean())


def fresh(build: Any) -> Arrays:
    """What the initial weights of a model of torch look like: constants as they are, of drawn ones the standard deviation.

    Paddle draws from other distributions, as a framework; there is nothing to compare.
    """
    if hasattr(build(), "named_sublayers"):
        return {}
    states = [side(build()).state() for _ in range(FRESH)]
    one, other = states[:2]
    drawn = {name for name in one if not np.array_equal(one[name], other[name])}
    return {name: np.mean([state[name].std() for state in states]) if name in drawn else one[name] for name in one}


class Torch:
    """A model of torch: its outputs, gradients and buffers as arrays."""

    def __init__(self, model: Any, dtype: str = "float64") -> None:
        import torch

        self.torch, self.model, self.dtype = torch, model.to(getattr(torch, dtype)), dtype

    def disturb(self) -> None:
        """Weights that hide nothing: no bias or statistic stays what it was."""
        generator = np.random.default_rng(1)
        with self.torch.no_grad():
            for name, value in self.model.state_dict().items():
                if value.is_floating_point():
                    noise = self.torch.tensor(0.3 * generator.standard_normal(value.shape), dtype=value.dtype)
                    value.add_(noise.abs() if name.endswith("var") else noise)

    def state(self) -> Arrays:
        return {name: value.detach().double().numpy().copy() for name, value in self.model.state_dict().items() if value.ndim}

    def load(self, other: Torch) -> bool:
        mine, yours = self.model.state_dict(), other.model.state_dict()
        if {n: v.shape for n, v in mine.items()} != {n: v.shape for n, v in yours.items()}:
            return False
        self.model.load_state_dict({name: value.clone() for name, value in yours.items()})
        return True

    def run(self, given: list[np.ndarray], training: bool) -> tuple[Arrays, Arrays, Arrays]:
        """Outputs, gradients of the parameters, and buffers after the pass; the state is put back."""
        kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.train(training)
        self.model.zero_grad()
        cast = [a.astype(self.dtype) if a.dtype.kind == "f" else a for a in given]
        out = self.model(*[self.torch.tensor(a) for a in cast])
        outputs = list(out) if isinstance(out, tuple) else [out]
        if any(value.requires_grad for value in outputs):
            sum((value * self.torch.tensor(drawn(value.shape), dtype=value.dtype)).sum() for value in outputs).backward()
        arrays = {f"output {i}": value.detach().numpy().copy() for i, value in enumerate(outputs)}
        named = dict(self.model.named_parameters())
        gradients = {n: np.zeros(p.shape) if p.grad is None else p.grad.numpy().copy() for n, p in named.items()}
        buffers = {n: b.double().numpy().copy() for n, b in self.model.named_buffers() if b.ndim}
        self.model.load_state_dict(kept)
        return arrays, gradients, buffers


class Paddle:
    """A model of Paddle, in torch's names and layouts."""

    def __init__(self, model: Any, dtype: str = "float64") -> None:
        import paddle

        self.paddle, self.model, self.dtype = paddle, model.to(dtype=dtype), dtype
        linear = {name for name, layer in model.named_sublayers() if isinstance(layer, paddle.nn.Linear)}
        self.turned = {f"{name}.weight" for name in linear}

    def _named(self) -> Iterator[tuple[str, Any]]:
        for name, value in self.model.state_dict().items():
            head, _, tail = name.rpartition(".")
            yield ".".join(filter(None, [head, NAMES.get(tail, tail)])), value

    def _array(self, name: str, value: Any) -> np.ndarray:
        array = np.array(value.numpy(), dtype="float64")
        return array.T.copy() if name in self.turned else array

    def state(self) -> Arrays:
        return {name: self._array(name, value) for name, value in self._named()}

    def load(self, other: Torch) -> bool:
        yours, mine = other.state(), self.state()
        if {n: v.shape for n, v in mine.items()} != {n: v.shape for n, v in yours.items()}:
            return False
        for name, value in self._named():
            array = yours[name].T if name in self.turned else yours[name]
            value.set_value(np.ascontiguousarray(array).astype(self.dtype))
        return True

    def run(self, given: list[np.ndarray], training: bool) -> tuple[Arrays, Arrays, Arrays]:
        """As ``Torch.run``."""
        kept = {name: value.clone() for name, value in self._named()}
        self.model.train() if training else self.model.eval()
        self.model.clear_gradients()
        cast = [a.astype(self.dtype) if a.dtype.kind == "f" else a for a in given]
        out = self.model(*[self.paddle.to_tensor(a) for a in cast])
        outputs = list(out) if isinstance(out, tuple) else [out]
        if any(not value.stop_gradient for value in outputs):
            sum((value * self.paddle.to_tensor(drawn(value.shape), dtype=value.dtype)).sum() for value in outputs).backward()
        arrays = {f"output {i}": np.array(value.numpy()) for i, value in enumerate(outputs)}
        parameters = {id(p) for p in self.model.parameters() if not p.stop_gradient}
        gradients, buffers = {}, {}
        for name, value in self._named():
            if id(value) in parameters:
                gradients[name] = np.zeros(value.shape) if value.grad is None else self._array(name, value.grad)
                if name in self.turned and value.grad is None:
                    gradients[name] = gradients[name].T
            else:
                buffers[name] = self._array(name, value)
        for name, value in self._named():
            value.set_value(kept[name])
        return arrays, gradients, buffers


def side(model: Any, dtype: str = "float64") -> Torch | Paddle:
    """The model of whichever framework it is."""
    return Paddle(model, dtype) if hasattr(model, "named_sublayers") else Torch(model, dtype)


def drawn(shape: Any) -> np.ndarray:
    """A fixed random gradient of an output."""
    return np.random.default_rng(7).standard_normal(tuple(shape))


def check(case: Case) -> list[str]:
    """What is wrong with a pair; empty where it is as it says."""
    broken, fixed, wrong = versions(case.marked)
    problems = [f"the fixed version differs: {what}" for what in differences(case, fixed)]
    if not differences(case, broken):
        problems.append("the broken version does not differ")
    return problems if wrong else [*problems, "no line is marked"]
