"""The two frameworks behind one interface: arrays in, arrays out, everything under torch's names.

A step is written once against ``Side`` and run on both. What a side is made of (its models, data, metric, loss and
train packages) are attributes, so that a test or a fault replaces one piece and leaves the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import paddle
import torch

import mobilenetv3_paddle.data
import mobilenetv3_paddle.loss
import mobilenetv3_paddle.metric
import mobilenetv3_paddle.models
import mobilenetv3_paddle.train
import mobilenetv3_ref.data
import mobilenetv3_ref.loss
import mobilenetv3_ref.metric
import mobilenetv3_ref.models
import mobilenetv3_ref.train
from alignment.exact import PaddleHardsigmoid, TorchHardsigmoid, exact_paddle, exact_torch
from alignment.weights import NameMap
from mobilenetv3_common.weights import State

Package = ModuleType | SimpleNamespace
Trace = dict[str, np.ndarray]


class Side:
    """One framework's port of everything that is compared.

    Attributes:
        name: ``"paddle"`` or ``"ref"``.
        device: ``"cpu"`` or ``"gpu"``.
        models, data, metric, loss, train: the packages under test.
        kinks: layer classes with a kink in their derivative, and where the kinks are.
    """

    name: str
    device: str
    kinks: dict[type, tuple[float, ...]]

    def __init__(self, package: ModuleType, device: str, replaced: dict[str, dict[str, Any]]) -> None:
        self.device = device
        for part in ("models", "data", "metric", "loss", "train"):
            module = getattr(package, part)
            names = {**vars(module), **replaced.pop(part, {})}
            setattr(self, part, SimpleNamespace(**{k: v for k, v in names.items() if not k.startswith("__")}))
        if replaced:
            raise TypeError(f"no such part of a side: {', '.join(replaced)}")

    models: SimpleNamespace
    data: SimpleNamespace
    metric: SimpleNamespace
    loss: SimpleNamespace
    train: SimpleNamespace

    # What follows is written for each framework below.
    def tensor(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def array(self, tensor: Any) -> np.ndarray:
        raise NotImplementedError

    def leaf(self, array: np.ndarray) -> Any:
        """A tensor whose gradient is wanted; read it with ``gradient`` after a backward pass."""
        raise NotImplementedError

    def gradient(self, leaf: Any) -> np.ndarray:
        return self.array(leaf.grad)

    def make_exact(self, model: Any) -> Any:
        raise NotImplementedError

    def place(self, model: Any) -> Any:
        """The model on this side's device."""
        return model

    def load(self, model: Any, state: State) -> None:
        raise NotImplementedError

    def state(self, model: Any) -> State:
        raise NotImplementedError

    def gradients(self, model: Any) -> State:
        raise NotImplementedError

    def add_gradients(self, model: Any, gradients: State) -> None:
        """Add given gradients, by torch's names, to those of the model's trainable parameters, by a backward pass."""
        raise NotImplementedError

    def named_modules(self, model: Any) -> dict[str, Any]:
        raise NotImplementedError

    def hook(self, module: Any, before: Callable | None = None, after: Callable | None = None) -> Any:
        raise NotImplementedError

    def no_grad(self) -> contextlib.AbstractContextManager:
        raise NotImplementedError

    def default_dtype(self, dtype: str) -> contextlib.AbstractContextManager:
        """New parameters, buffers and optimizer state are of this type inside the block."""
        raise NotImplementedError

    def learning_rate(self, optimizer: Any) -> float:
        raise NotImplementedError

    def is_dropout(self, module: Any) -> bool:
        raise NotImplementedError

    # What follows is the same for both.
    def build(self, model: str, state: State, *, exact: bool = False, **options: Any) -> Any:
        """A model with the given torch state, in evaluation mode; float32, or in exact mode."""
        dtype = "float64" if exact else "float32"
        with self.default_dtype("float32"):
            network = self.models.MODELS[model](**options)
        if exact:
            network = self.make_exact(network)
        network = self.place(network)
        self.load(network, {k: v.astype(dtype) if v.dtype.kind == "f" else v for k, v in state.items()})
        network.eval()
        return network

    def share_dropout(self, network: Any, uniform: Callable[[tuple[int, ...]], np.ndarray]) -> int:
        """Replace every dropout by one whose masks come from ``uniform``; returns how many there were."""
        return self.models.share_dropout(network, uniform)

    @contextlib.contextmanager
    def traced_outputs(self, network: Any, names: Sequence[str], into: Trace) -> Iterator[None]:
        """Record the outputs of the named modules of each forward pass made inside the block."""
        modules = self.named_modules(network)

        def keeper(name: str) -> Callable:
            return lambda _module, _inputs, output: into.__setitem__(name, self.array(output))

        handles = [self.hook(modules[name], after=keeper(name)) for name in names if name in modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextlib.contextmanager
    def traced_kinks(self, network: Any, into: Trace) -> Iterator[None]:
        """Record on which side of its kinks every input of a layer with kinks lies: one up for each reached, one for each passed.

        A second forward pass inside the block is recorded as ``name#2``, and so on.
        """

        def keeper(name: str, kinks: tuple[float, ...]) -> Callable:
            calls = 0

            def keep(_module: Any, inputs: tuple) -> None:
                nonlocal calls
                calls += 1
                array = self.array(inputs[0])
                side = np.digitize(array, kinks) + np.digitize(array, kinks, right=True)  # on a kink is a side of its own
                into[name if calls == 1 else f"{name}#{calls}"] = side.astype(np.int8)

            return keep

        handles = []
        for name, module in self.named_modules(network).items():
            if type(module) in self.kinks:
                handles.append(self.hook(module, before=keeper(name, self.kinks[type(module)])))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class RefSide(Side):
    """PyTorch: the reference."""

    name = "ref"

    def __init__(self, device: str = "cpu", **replaced: dict[str, Any]) -> None:
        super().__init__(mobilenetv3_ref, device, replaced)
        gates = (torch.nn.Hardswish, torch.nn.Hardsigmoid, TorchHardsigmoid)
        self.kinks = {torch.nn.ReLU: (0.0,), **dict.fromkeys(gates, (-3.0, 3.0))}
        self.torch_device = torch.device("cuda" if device == "gpu" else "cpu")
        if device == "gpu":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(self.torch_device)

    def leaf(self, array: np.ndarray) -> torch.Tensor:
        return self.tensor(array).requires_grad_()

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.detach().cpu().numpy().copy()

    def make_exact(self, model: torch.nn.Module) -> torch.nn.Module:
        return exact_torch(model)

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        return model.to(self.torch_device)

    def load(self, model: torch.nn.Module, state: State) -> None:
        counters = {k: v for k, v in model.state_dict().items() if k.endswith("num_batches_tracked")}
        model.load_state_dict({k: torch.tensor(v) for k, v in state.items()} | counters)

    def state(self, model: torch.nn.Module) -> State:
        return {k: self.array(v) for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}

    def gradients(self, model: torch.nn.Module) -> State:
        return {k: self.array(p.grad) for k, p in model.named_parameters() if p.grad is not None}

    def add_gradients(self, model: torch.nn.Module, gradients: State) -> None:
        trained = [(p, gradients[k]) for k, p in model.named_parameters() if p.requires_grad and k in gradients]
        torch.stack([(p * self.tensor(g)).sum() for p, g in trained]).sum().backward()

    def named_modules(self, model: torch.nn.Module) -> dict[str, torch.nn.Module]:
        return dict(model.named_modules())

    def hook(self, module: torch.nn.Module, before: Callable | None = None, after: Callable | None = None) -> Any:
        return module.register_forward_pre_hook(before) if before else module.register_forward_hook(after)

    def is_dropout(self, module: Any) -> bool:
        return isinstance(module, torch.nn.Dropout)

    def no_grad(self) -> contextlib.AbstractContextManager:
        return torch.no_grad()

    @contextlib.contextmanager
    def default_dtype(self, dtype: str) -> Iterator[None]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            yield
        finally:
            torch.set_default_dtype(before)

    def learning_rate(self, optimizer: torch.optim.Optimizer) -> float:
        return float(optimizer.param_groups[0]["lr"])


class PaddleSide(Side):
    """PaddlePaddle: the port. Keyword arguments replace single names of a package, e.g. ``loss={"CrossEntropyLoss": X}``."""

    name = "paddle"

    def __init__(self, device: str = "cpu", **replaced: dict[str, Any]) -> None:
        super().__init__(mobilenetv3_paddle, device, replaced)
        paddle.set_device(device)
        from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid

        gates = (paddle.nn.Hardswish, paddle.nn.Hardsigmoid, Hardsigmoid, PaddleHardsigmoid)
        self.kinks = {paddle.nn.ReLU: (0.0,), **dict.fromkeys(gates, (-3.0, 3.0))}

    def tensor(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(array)

    def leaf(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(array, stop_gradient=False)

    def array(self, tensor: paddle.Tensor) -> np.ndarray:
        return tensor.numpy()  # a copy

    def make_exact(self, model: paddle.nn.Layer) -> paddle.nn.Layer:
        return exact_paddle(model)

    def load(self, model: paddle.nn.Layer, state: State) -> None:
        arrays = NameMap(model).to_paddle(state)
        for name, tensor in model.state_dict().items():
            tensor.set_value(arrays[name])

    def state(self, model: paddle.nn.Layer) -> State:
        return NameMap(model).to_torch({k: self.array(v) for k, v in model.state_dict().items()})

    def gradients(self, model: paddle.nn.Layer) -> State:
        entries = {entry.paddle_name: entry for entry in NameMap(model).entries}
        found = {k: p.grad for k, p in model.named_parameters() if not p.stop_gradient and p.grad is not None}
        turned = {k: self.array(g).T if entries[k].transposed else self.array(g) for k, g in found.items()}
        return {entries[k].torch_name: g for k, g in turned.items()}

    def add_gradients(self, model: paddle.nn.Layer, gradients: State) -> None:
        entries = {entry.paddle_name: entry for entry in NameMap(model).entries}
        products = []
        for name, parameter in model.named_parameters():
            gradient = None if parameter.stop_gradient else gradients.get(entries[name].torch_name)
            if gradient is not None:
                turned = np.ascontiguousarray(gradient.T) if entries[name].transposed else gradient
                products.append((parameter * self.tensor(turned)).sum())
        paddle.stack(products).sum().backward()

    def named_modules(self, model: paddle.nn.Layer) -> dict[str, paddle.nn.Layer]:
        return dict(model.named_sublayers(include_self=True))

    def hook(self, module: paddle.nn.Layer, before: Callable | None = None, after: Callable | None = None) -> Any:
        return module.register_forward_pre_hook(before) if before else module.register_forward_post_hook(after)

    def is_dropout(self, module: Any) -> bool:
        return isinstance(module, paddle.nn.Dropout)

    def no_grad(self) -> contextlib.AbstractContextManager:
        return paddle.no_grad()

    @contextlib.contextmanager
    def default_dtype(self, dtype: str) -> Iterator[None]:
        before = paddle.get_default_dtype()
        paddle.set_default_dtype(dtype)
        try:
            yield
        finally:
            paddle.set_default_dtype(before)

    def learning_rate(self, optimizer: paddle.optimizer.Optimizer) -> float:
        return float(optimizer.get_lr())
