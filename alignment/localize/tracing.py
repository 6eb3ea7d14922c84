"""Both frameworks' modules as functions of arrays: what each got and gave in a pass, and what it gives for given input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
import torch

from alignment.weights import NameMap
from mobilenetv3_common.weights import COUNTER, State


@dataclass
class Call:
    """One call of a module: tensors in nested tuples, lists and dicts, as arrays."""

    args: tuple
    kwargs: dict[str, Any]
    output: Any = None
    gradients: list[np.ndarray | None] = field(default_factory=list)


@dataclass
class Answer:
    """What one module gives for given input.

    Attributes:
        outputs: arrays, in the order in which they lie in the returned structure.
        buffers: the module's statistics after the call, by torch's names.
        input_gradients: for the floating inputs; None where no gradient reached one.
        gradients: of the module's parameters, by torch's names; None where no gradient reached one.
        error: the exception, where the call raised one.
    """

    outputs: list[np.ndarray] = field(default_factory=list)
    buffers: State = field(default_factory=dict)
    input_gradients: list[np.ndarray | None] = field(default_factory=list)
    gradients: dict[str, np.ndarray | None] = field(default_factory=dict)
    error: str = ""


def leaves(value: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """All values of a kind in nested tuples, lists and dicts, in order."""
    if isinstance(value, kind):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [leaf for part in parts for leaf in leaves(part, kind)]


def mapped(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """The same structure with every value of a kind replaced."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(part, kind, function) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [mapped(part, kind, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


class Network:
    """One side's model, and how to call its modules. Subclasses know a framework; what is here is the same for both."""

    tensor_type: type

    def __init__(self, model: Any) -> None:
        self.model = model
        self.modules: dict[str, Any] = {}
        self.buffers: dict[str, Any] = {}
        self.start: dict[str, np.ndarray] = {}

    def remember(self) -> None:
        """Keep the statistics as they are now; every later call begins from them."""
        self.start = {name: self.array(tensor) for name, tensor in self.buffers.items()}

    def below(self, path: str) -> dict[str, str]:
        """Names of the statistics below a module, by their names within it."""
        prefix = f"{path}." if path else ""
        return {name[len(prefix) :]: name for name in self.buffers if name.startswith(prefix)}

    def put_back(self, path: str = "") -> None:
        for name in self.below(path).values():
            self.assign(self.buffers[name], self.start[name])

    def statistics(self, path: str) -> State:
        return {within: self.array(self.buffers[name]) for within, name in self.below(path).items()}

    def array(self, tensor: Any) -> np.ndarray:
        raise NotImplementedError

    def tensor(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def leaf(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def assign(self, tensor: Any, array: np.ndarray) -> None:
        raise NotImplementedError

    def hook(self, module: Any, function: Callable[[Any, tuple, dict, Any], None]) -> Any:
        raise NotImplementedError

    def keep_gradient(self, tensor: Any) -> bool:
        """Ask for the gradient of a tensor inside the graph; False where it has none."""
        raise NotImplementedError

    def backward(self, outputs: list[Any], cotangents: list[np.ndarray], wanted: list[Any]) -> list[np.ndarray | None]:
        """Gradients of sum(output * cotangent)."""
        raise NotImplementedError

    def floating(self, tensor: Any) -> bool:
        raise NotImplementedError

    def parameters(self, path: str) -> dict[str, Any]:
        """Trainable parameters below a module, by torch's names within it."""
        raise NotImplementedError

    def turned(self, path: str, name: str, gradient: np.ndarray) -> np.ndarray:
        """A parameter's gradient in torch's layout."""
        return gradient

    def trace(self, args: tuple, cotangent: np.ndarray | None = None) -> dict[str, Call]:
        """One pass through the whole model: each module's calls in the order in which they ended, with their gradients.

        A module's second call is ``name#2``, and so on. The gradients are those of sum(output * cotangent).
        """
        calls: dict[str, Call] = {}
        tensors: dict[str, list[Any]] = {}
        counts: dict[str, int] = {}

        def keeper(name: str) -> Callable:
            def keep(_module: Any, inputs: tuple, named: dict, output: Any) -> None:
                counts[name] = counts.get(name, 0) + 1
                key = name if counts[name] == 1 else f"{name}#{counts[name]}"
                arrays = lambda value: mapped(value, self.tensor_type, self.array)  # noqa: E731
                calls[key] = Call(arrays(inputs), arrays(named), arrays(output))
                if cotangent is not None:
                    tensors[key] = [t if self.keep_gradient(t) else None for t in leaves(output, self.tensor_type)]

            return keep

        handles = [self.hook(module, keeper(name)) for name, module in self.modules.items()]
        try:
            with contextlib.nullcontext() if cotangent is not None else self.without_graph():
                given = mapped(args, np.ndarray, self.leaf if cotangent is not None else self.tensor)
                output = leaves(self.model(*given), self.tensor_type)
            if cotangent is not None:
                self.backward(output[:1], [cotangent], [])
                for key, kept in tensors.items():
                    found = [None if t is None or t.grad is None else self.array(t.grad) for t in kept]
                    calls[key].gradients = found
        finally:
            for handle in handles:
                handle.remove()
            self.put_back()
        return calls

    def called(self, path: str, call: Call, among: list[str]) -> list[str]:
        """Which of some modules a call of one calls, in order."""
        seen: list[str] = []

        def keeper(name: str) -> Callable:
            return lambda *_: seen.append(name)

        handles = [self.hook(self.modules[name], keeper(name)) for name in among if name in self.modules]
        try:
            self.answer(path, call)
        finally:
            for handle in handles:
                handle.remove()
        return seen

    def without_graph(self) -> contextlib.AbstractContextManager:
        raise NotImplementedError

    def answer(self, path: str, call: Call, cotangents: list[np.ndarray | None] | None = None) -> Answer:
        """What a module gives for the input of a call, and its gradients where cotangents are given."""
        module = self.modules[path]
        self.put_back(path)
        made: list[Any] = []

        def give(array: np.ndarray) -> Any:
            tensor = self.leaf(array) if cotangents is not None and array.dtype.kind == "f" else self.tensor(array)
            made.append(tensor)
            return tensor + 0 if cotangents is not None and array.dtype.kind == "f" else tensor

        try:
            with contextlib.nullcontext() if cotangents is not None else self.without_graph():
                args, kwargs = mapped(call.args, np.ndarray, give), mapped(call.kwargs, np.ndarray, give)
                outputs = leaves(module(*args, **kwargs), self.tensor_type)
            answer = Answer([self.array(t) for t in outputs], self.statistics(path))
            if cotangents is not None:
                pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=False) if c is not None]
                parameters = self.parameters(path)
                inputs = [t for t in made if self.floating(t)]
                found = self.backward([o for o, _ in pairs], [c for _, c in pairs], [*inputs, *parameters.values()])
                answer.input_gradients = found[: len(inputs)]
                for name, gradient in zip(parameters, found[len(inputs) :], strict=True):
                    answer.gradients[name] = None if gradient is None else self.turned(path, name, gradient)
            return answer
        except Exception as error:  # the port may raise anything; that is a finding, not a crash
            return Answer(error=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")
        finally:
            self.put_back(path)


class TorchNetwork(Network):
    tensor_type = torch.Tensor

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        for module in model.modules():
            if getattr(module, "inplace", False):
                module.inplace = False  # an output overwritten by the next layer cannot be compared any more
        self.modules = dict(model.named_modules())
        self.buffers = {n: b for n, b in model.named_buffers() if n.rsplit(".", 1)[-1] != COUNTER and b.is_floating_point()}
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.remember()

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.detach().cpu().numpy().copy()

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(self.device)

    def leaf(self, array: np.ndarray) -> torch.Tensor:
        tensor = self.tensor(array)
        return tensor.requires_grad_() if tensor.is_floating_point() else tensor

    def assign(self, tensor: torch.Tensor, array: np.ndarray) -> None:
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(array))

    def hook(self, module: torch.nn.Module, function: Callable) -> Any:
        return module.register_forward_hook(function, with_kwargs=True)

    def keep_gradient(self, tensor: torch.Tensor) -> bool:
        if tensor.requires_grad:
            tensor.retain_grad()
        return tensor.requires_grad

    def floating(self, tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point()

    def without_graph(self) -> contextlib.AbstractContextManager:
        return torch.no_grad()

    def parameters(self, path: str) -> dict[str, torch.Tensor]:
        return {n: p for n, p in self.modules[path].named_parameters() if p.requires_grad}

    def backward(self, outputs: list, cotangents: list[np.ndarray], wanted: list) -> list[np.ndarray | None]:
        pairs = [(o, self.tensor(c)) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        if not wanted:
            torch.autograd.backward([o for o, _ in pairs], [c for _, c in pairs])
            self.model.zero_grad(set_to_none=True)
            return []
        if not pairs:
            return [None] * len(wanted)
        found = torch.autograd.grad([o for o, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True)
        return [None if g is None else self.array(g) for g in found]


def _within(path: str, names: dict[str, str]) -> dict[str, str]:
    """Paddle path -> torch path of the modules below one, both relative to it."""
    own, other = (f"{p}." if p else "" for p in (names[path], path))
    below = [(ours, theirs) for theirs, ours in names.items() if ours.startswith(own) and theirs.startswith(other)]
    return {ours[len(own) :]: theirs[len(other) :] for ours, theirs in below}


class PaddleNetwork(Network):
    tensor_type = paddle.Tensor

    def __init__(self, model: paddle.nn.Layer, names: dict[str, str]) -> None:
        """``names``: torch path -> Paddle path of matched modules."""
        super().__init__(model)
        own = dict(model.named_sublayers(include_self=True))
        self.modules = {theirs: own[ours] for theirs, ours in names.items()}
        maps = {path: NameMap(module, _within(path, names)) for path, module in self.modules.items()}
        self.maps = {path: {e.paddle_name: e for e in names.entries} for path, names in maps.items()}
        state = model.state_dict()
        root = {e.paddle_name: e.torch_name for e in maps[""].entries}
        self.buffers = {root[n]: t for n, t in state.items() if n.rsplit(".", 1)[-1] in ("_mean", "_variance")}
        self.buffers |= {root[n]: t for n, t in model.named_buffers() if n in root and t.is_floating_point()}
        self.remember()

    def array(self, tensor: paddle.Tensor) -> np.ndarray:
        return tensor.numpy()

    def tensor(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(array)

    def leaf(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(array, stop_gradient=array.dtype.kind != "f")

    def assign(self, tensor: paddle.Tensor, array: np.ndarray) -> None:
        tensor.set_value(array)

    def hook(self, module: paddle.nn.Layer, function: Callable) -> Any:
        return module.register_forward_post_hook(function, with_kwargs=True)

    def keep_gradient(self, tensor: paddle.Tensor) -> bool:
        if not tensor.stop_gradient:
            tensor.retain_grads()
        return not tensor.stop_gradient

    def floating(self, tensor: paddle.Tensor) -> bool:
        return tensor.is_floating_point()

    def without_graph(self) -> contextlib.AbstractContextManager:
        return paddle.no_grad()

    def parameters(self, path: str) -> dict[str, paddle.Tensor]:
        names = self.maps[path]
        return {names[n].torch_name: p for n, p in self.modules[path].named_parameters() if not p.stop_gradient and n in names}

    def turned(self, path: str, name: str, gradient: np.ndarray) -> np.ndarray:
        entry = next(e for e in self.maps[path].values() if e.torch_name == name)
        return gradient.T if entry.transposed else gradient

    def backward(self, outputs: list, cotangents: list[np.ndarray], wanted: list) -> list[np.ndarray | None]:
        pairs = [(o, self.tensor(c.astype(self.array(o).dtype))) for o, c in zip(outputs, cotangents, strict=True)]
        pairs = [(o, c) for o, c in pairs if not o.stop_gradient]
        if not pairs:
            return [None] * len(wanted)
        if not wanted:
            paddle.autograd.backward([o for o, _ in pairs], [c for _, c in pairs])
            self.model.clear_gradients()
            return []
        found = paddle.grad([o for o, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True)
        return [None if g is None else self.array(g) for g in found]


@contextlib.contextmanager
def training_mode(networks: list[Network], training: bool) -> Iterator[None]:
    """All models in one mode inside the block, and in their own again after it."""
    before = [network.model.training for network in networks]
    try:
        for network in networks:
            network.model.train() if training else network.model.eval()
        yield
    finally:
        for network, was in zip(networks, before, strict=True):
            network.model.train() if was else network.model.eval()
