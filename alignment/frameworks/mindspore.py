"""MindSpore behind the engine's interface, in PyNative mode."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar
from unittest import mock

import numpy as np

with mock.patch.dict(os.environ, {"GLOG_v": "3", **os.environ}):  # it warns of this and that; Paddle reads the variable too
    import mindspore
from mindspore import nn
from mindspore._c_expression import run_backward
from mindspore.common._grad_function import _Function
from mindspore.graph.api import _pynative_executor as executor

from alignment.frameworks._low import is_bfloat16, rounded
from alignment.frameworks._mindspore_exact import replacements
from alignment.frameworks._passes import Pass, Wanted
from alignment.frameworks._settings import MINDSPORE, known_layer, set_settings, stock_class
from alignment.frameworks._taped import Taped
from alignment.frameworks.base import Handle, Layer, Layout, Optimizer
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import MINDSPORE_STATISTICS, State

ACTIVATIONS: dict[type[nn.Cell], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.HSwish: "hardswish",
    nn.HSigmoid: "hardsigmoid",
    nn.Sigmoid: "sigmoid",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
    nn.LeakyReLU: "leaky_relu",
    nn.ELU: "elu",
    nn.Identity: "identity",
}
SCALE = {"gamma": "weight", "beta": "bias"}
RENAMED: dict[str, dict[str, str]] = {
    **dict.fromkeys(("batch_norm", "layernorm", "groupnorm", "instancenorm1d", "instancenorm2d", "instancenorm3d"), SCALE),
    "embedding": {"embedding_table": "weight"},
    "prelu": {"w": "weight"},
}


class MindSpore(Taped):
    """MindSpore; ``alignment.frameworks.base.Framework`` says what each method does."""

    name = "mindspore"
    title = "MindSpore"
    tensor_type = mindspore.Tensor
    module_type = nn.Cell
    suffixes = (".ckpt",)
    scaler: ClassVar[Mapping[str, str]] = {"scale": "scale_value", "interval": "scale_window", "count": "counter"}
    computing = "construct"
    rank_variable = "RANK_ID"
    layout = Layout(statistics=MINDSPORE_STATISTICS, renamed=RENAMED)

    def use(self, device: str) -> None:
        if device == "gpu":
            raise UserError("--device gpu: the engine runs MindSpore on CPUs alone; use --device cpu")
        if device != "cpu":
            raise UserError(f"unknown device {device!r}: use cpu or gpu")
        self.device = device

    def seed(self, number: int) -> None:
        mindspore.set_seed(number)

    def threads(self, count: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # OMP_NUM_THREADS sets them, before MindSpore is imported

    def default_dtype(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # every layer is given its own; optimizer state has its parameter's

    def repaired(self, error: Exception) -> bool:
        return isinstance(error, SystemError) and "pyboost" in str(error)  # ``_first_number``, which is behind us now

    # --- arrays and tensors ------------------------------------------------------------------------------------------------

    def tensor(self, array: np.ndarray) -> mindspore.Tensor:
        made = mindspore.Tensor(np.ascontiguousarray(array).reshape(np.shape(array)))
        return made.astype(mindspore.bfloat16) if is_bfloat16(array) else made

    def array(self, tensor: mindspore.Tensor) -> np.ndarray:
        if tensor.dtype == mindspore.bfloat16:
            return rounded(tensor.astype(mindspore.float32).asnumpy())
        return tensor.asnumpy().copy()

    def times(self, tensor: mindspore.Tensor, factors: np.ndarray) -> mindspore.Tensor:
        return tensor * self.tensor(np.asarray(factors)).astype(tensor.dtype)

    def assign(self, tensor: mindspore.Tensor, array: np.ndarray) -> None:
        tensor.assign_value(self.tensor(np.asarray(array)).astype(tensor.dtype))

    # --- modules -----------------------------------------------------------------------------------------------------------

    def children(self, module: nn.Cell) -> list[tuple[str, nn.Cell]]:
        return [(name, child) for name, child in module._cells.items() if child is not None]

    def own_tensors(self, module: nn.Cell) -> dict[str, mindspore.Tensor]:
        own = {name: tensor for name, tensor in module._params.items() if tensor is not None}
        kept = set(module._buffers) - module._non_persistent_buffers_set
        return own | {name: tensor for name, tensor in module._buffers.items() if tensor is not None and name in kept}

    def is_parameter(self, tensor: mindspore.Tensor) -> bool:
        return isinstance(tensor, mindspore.Parameter)

    def trainable(self, tensor: mindspore.Tensor) -> bool:
        return bool(tensor._requires_grad)

    def set_trainable(self, tensor: mindspore.Tensor, on: bool) -> None:
        tensor.requires_grad = on

    def training(self, model: nn.Cell) -> bool:
        return bool(model.training)

    def set_training(self, model: nn.Cell, on: bool) -> None:
        model.set_train(on)

    def place(self, model: nn.Cell) -> nn.Cell:
        return model

    def hook(self, module: nn.Cell, before: Callable | None = None, after: Callable | None = None) -> Handle:
        if before is not None:
            return module.register_forward_pre_hook(before)
        return module.register_forward_hook(after, with_kwargs=True)

    # --- gradients ---------------------------------------------------------------------------------------------------------

    def _no_graph(self) -> contextlib.AbstractContextManager:
        return mindspore._no_grad()

    def vjp(
        self,
        module: nn.Cell,
        args: tuple,
        cotangents: Sequence[np.ndarray | None] | None,
        wanted: Wanted,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Pass:
        with recorded():
            return super().vjp(module, args, cotangents, wanted, kwargs)

    def _leaf(self, array: np.ndarray) -> mindspore.Tensor:
        leaf = self.tensor(array)
        leaf.requires_grad_()
        return leaf

    def _pull(self, outputs: list, cotangents: list, wanted: list) -> list[np.ndarray | None]:
        found: dict[int, np.ndarray] = {}

        def keep(number: int) -> Callable[[mindspore.Tensor], None]:
            return lambda gradient: found.__setitem__(number, self.array(gradient))

        # Gradients are given of leaves alone, at least one; and it stops at a tensor that is asked for.
        nothing = [self._leaf(np.zeros((), self.array(o).dtype)) for o in outputs]
        ends = tuple(o + zero for o, zero in zip(outputs, nothing, strict=True))
        leaves = [(number, tensor) for number, tensor in enumerate(wanted) if tensor._is_leaf]
        hooks = [t.register_hook(keep(number)) for number, t in enumerate(wanted) if not t._is_leaf]
        given = tuple(self.tensor(c).astype(o.dtype) for o, c in zip(outputs, cotangents, strict=True))
        try:
            asked = (nothing[0], *(tensor for _, tensor in leaves))
            made = run_backward(ends, given, False, False, asked, True, accumulate_grad=False)
        finally:
            for hook in hooks:
                hook.remove()
        found |= {number: self.array(g) for (number, _), g in zip(leaves, made[1:], strict=True) if g is not None}
        return [found.get(number) for number in range(len(wanted))]

    def _outside(self, outputs: list, inputs: list, pull: Callable) -> list[mindspore.Tensor]:
        made = _MindsporeOutside.apply(self, outputs, pull, *inputs)
        return list(made) if isinstance(made, tuple) else [made]

    def gradients(self, model: nn.Cell) -> State:
        found = [(e, t) for e, t in self.described(model) if self.trainable(t) and t._grad is not None]
        return {entry.canonical: entry.to_canonical(self.array(tensor._grad)) for entry, tensor in found}

    def add_gradients(self, model: nn.Cell, gradients: Mapping[str, np.ndarray]) -> None:
        for entry, tensor in self.described(model):
            if self.trainable(tensor) and entry.canonical in gradients:
                given = self.tensor(entry.to_own(gradients[entry.canonical])).astype(tensor.dtype)
                tensor._grad = given if tensor._grad is None else tensor._grad + given

    def clear_gradients(self, model: nn.Cell) -> None:
        for tensor in self.tensors(model).values():
            tensor._grad = None

    def descent(self, model: nn.Cell, rate: float) -> Optimizer:
        return Descent(self, model, rate)

    def learning_rate(self, optimizer: Optimizer) -> float:
        return float(optimizer.get_lr().asnumpy())

    # --- layers ------------------------------------------------------------------------------------------------------------

    def _stock(self, module: nn.Cell) -> Layer | None:
        title = type(module).__name__
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return Layer("conv", _convolution(module), title)
        if isinstance(module, nn.Dense):
            return Layer("linear", {}, title)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            inner = module.bn2d if isinstance(module, nn.BatchNorm3d) else module
            return Layer("batch_norm", {"eps": inner.eps, "momentum": inner.momentum}, title)
        if isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            p = module.p if getattr(module, "p", None) is not None else 1.0 - module.keep_prob
            return Layer("dropout", {"p": p, "channels": not isinstance(module, nn.Dropout)}, title)
        if isinstance(module, nn.GELU):
            return Layer("gelu", {"approximate": "tanh" if module.approximate else "none"}, title)
        for kind, name in ACTIVATIONS.items():
            if isinstance(module, kind):
                own: dict[str, dict[str, Any]] = {"leaky_relu": {"slope": getattr(module, "alpha", None)}, "elu": {"alpha": 1.0}}
                return Layer(name, own.get(name, {}), title)
        layer, (name, dimensions) = known_layer(module, "mindspore.nn", MINDSPORE), stock_class(module, "mindspore.nn")
        if layer is not None and name in ("MaxPool", "AvgPool"):
            more = {"padding": _pooling_padding(module, dimensions), "ceil_mode": False}
            return Layer(layer.kind, {**layer.settings, **more}, title)
        return layer

    def set_settings(self, module: nn.Cell, changes: Mapping[str, Any]) -> bool:
        if stock_class(module, "mindspore.nn")[0] not in LIVE:
            return False  # the layer's operator holds a copy of them
        return set_settings(module, MINDSPORE[stock_class(module, "mindspore.nn")[0]][1], changes, lambda value: value)

    # --- exact mode --------------------------------------------------------------------------------------------------------

    def in_float64(self, model: nn.Cell) -> nn.Cell:
        for module in self.modules(model).values():
            for held in (module._params, module._buffers):
                for tensor in held.values():
                    if tensor is not None and tensor.is_floating_point():
                        wide = mindspore.Tensor(self.array(tensor).astype(np.float64))
                        if isinstance(tensor, mindspore.Parameter):
                            tensor.set_dtype(mindspore.float64)  # or operations that have seen it go on with its old type
                        tensor.assign_value(wide)  # in place: an optimizer may hold it
        return model

    def exact_functions(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        return replacements(mindspore)


class Descent:
    """Gradient descent with the gradients that lie on the parameters. (``nn.SGD`` has no float64 kernel on a CPU.)

    Args:
        framework: whose parameters they are.
        model: to be updated.
        rate: the learning rate.
    """

    def __init__(self, framework: MindSpore, model: nn.Cell, rate: float) -> None:
        own = {id(tensor): tensor for _, tensor in framework.described(model) if framework.is_parameter(tensor)}
        self.framework, self.tensors, self.rate = framework, [*own.values()], rate

    def get_lr(self) -> mindspore.Tensor:
        return mindspore.Tensor(np.float64(self.rate).reshape(()))

    def step(self) -> None:
        with mindspore._no_grad():
            for tensor in self.tensors:
                if tensor._grad is not None and self.framework.trainable(tensor):
                    tensor.assign_value(tensor.value() - self.framework.times(tensor._grad, np.array(self.rate)))


class _MindsporeOutside(_Function):
    """Arrays that were computed elsewhere, and their gradients."""

    @staticmethod
    def forward(ctx: Any, side: MindSpore, outputs: list, pull: Callable, *inputs: mindspore.Tensor) -> tuple:
        ctx.side, ctx.pull = side, pull
        return tuple(side.tensor(array) for array in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: mindspore.Tensor) -> tuple:
        found = ctx.pull([ctx.side.array(one) for one in cotangents])
        return None, None, None, *(None if array is None else ctx.side.tensor(array) for array in found)


LIVE = frozenset({"GroupNorm", "Embedding"})  # layers that read their settings at each call


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Operations on parameters, and on tensors that require gradients, are recorded inside the block."""
    before = executor.grad_flag()
    executor.set_grad_flag(True)
    try:
        yield
    finally:
        executor.set_grad_flag(before)


def _convolution(module: nn.Cell) -> dict[str, Any]:
    """A convolution's settings under torch's names; "same" as the padding that it is, where that is equal on both sides."""
    count = module.weight.ndim - 2
    each = lambda value: (tuple(value) if isinstance(value, tuple | list) else (value,) * count)[-count:]  # noqa: E731
    stride, dilation, kernel = each(module.stride), each(module.dilation), each(module.kernel_size)
    padding: Any = (0,) * count
    if module.pad_mode == "pad":
        given = module.padding if isinstance(module.padding, tuple) else (module.padding,) * (2 * count)
        padding = given[::2] if len(given) == 2 * count and given[::2] == given[1::2] else given
    elif module.pad_mode == "same":
        wide = [spread * (size - 1) for spread, size in zip(dilation, kernel, strict=True)]
        padding = tuple(w // 2 for w in wide) if set(stride) == {1} and not any(w % 2 for w in wide) else "same"
    return {"stride": stride, "dilation": dilation, "groups": module.group, "padding": padding, "padding_mode": "zeros"}


def _pooling_padding(module: nn.Cell, count: int) -> Any:
    if getattr(module, "pad_mode", "VALID") == "SAME":
        return "same"
    if getattr(module, "pad_mode", "VALID") == "VALID":
        return (0,) * count
    padding = getattr(module, "padding", 0)
    return tuple(padding)[-count:] if isinstance(padding, tuple | list) else (padding,) * count


def _first_number() -> None:
    """MindSpore was built for numpy 1: under numpy 2 the first operation with a number fails, and the next ones work."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemError, ImportError):  # it is told at length
        _ = mindspore.Tensor(np.zeros(1, np.float32)) + 0


# Operations handed to other threads cost five times the CPU time on small networks, and far more on a busy machine.
mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
_first_number()
FRAMEWORK = MindSpore
