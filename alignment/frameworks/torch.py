"""PyTorch behind the engine's interface."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from alignment.frameworks import _attention, _closures, _torch_attention
from alignment.frameworks._attention import ATTENTION, Attention, AttentionForm
from alignment.frameworks._calls import CallChange, Recorder, by_name
from alignment.frameworks._low import Low, is_bfloat16, patched, rounded
from alignment.frameworks._passes import leaves, mapped
from alignment.frameworks._repeated import LARGE, repeated
from alignment.frameworks._settings import SLOPES_OF_TORCH, TORCH, known_layer, set_settings, settings_of, stock_class
from alignment.frameworks._taped import Taped
from alignment.frameworks._torch_draws import drawing
from alignment.frameworks._torch_initialisers import called_by_layer, fills, is_default
from alignment.frameworks._torch_weight_norm import held_by_hook
from alignment.frameworks.base import Handle, Layer, Layout
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.torchvision_operators import declare_missing_operators
from mobilenetv3_common.weights import State

ROOT = str(Path(torch.__file__).parent) + os.sep
ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Sigmoid: "sigmoid",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
    nn.LeakyReLU: "leaky_relu",
    nn.ELU: "elu",
    nn.Identity: "identity",
}
TINY_MAP = 12  # places of a map up to which a depthwise convolution is the faster as a sum over taps, in float64
OTHERS = {name: name for name in ("stride", "padding", "dilation", "padding_mode")}
STOCK_ATTENTION = {
    kind.forward: kind.__name__.lower()
    for kind in (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.TransformerDecoderLayer,
                 nn.TransformerDecoder, nn.Transformer)
}  # fmt: skip
PADS = {
    "ZeroPad": "constant",
    "ConstantPad": "constant",
    "ReflectionPad": "reflect",
    "ReplicationPad": "replicate",
    "CircularPad": "circular",
}


def _in_parameters(drawn: Callable, law: str) -> Callable:
    """``Tensor.normal_`` or ``Tensor.uniform_``, which fills large parameters with repeated numbers, in this thread."""
    thread = threading.get_ident()

    def filled(tensor: torch.Tensor, *given: float, generator: Any = None, **named: float) -> torch.Tensor:
        here = threading.get_ident() == thread and isinstance(tensor, nn.Parameter) and tensor.device.type == "cpu"
        if not here or tensor.numel() < LARGE or tensor.dtype != torch.float32:
            return drawn(tensor, *given, generator=generator, **named)
        names = ("mean", "std") if law == "normal" else ("from", "to")
        first, second = ({names[0]: 0.0, names[1]: 1.0} | dict(zip(names, given, strict=False)) | named).values()
        scale, start = (second, first) if law == "normal" else (second - first, first)
        return tensor.copy_(torch.from_numpy(repeated(law, tensor.shape, scale, start)))

    return filled


class Torch(Taped):
    """PyTorch; ``alignment.frameworks.base.Framework`` says what each method does."""

    name = "torch"
    title = "PyTorch"
    tensor_type = torch.Tensor
    module_type = nn.Module
    suffixes = (".pth", ".pt")
    rank_variable = "RANK"
    layout = Layout(counters=frozenset({"num_batches_tracked"}))
    convention = AttentionForm(
        _attention.TORCH, true_is_masked=True, three_axes=True, defaults={ATTENTION: {"need_weights": False}},
        pairs=frozenset({ATTENTION}),
    )  # fmt: skip
    scaler: ClassVar[Mapping[str, str]] = {
        "scale": "scale", "growth": "growth_factor", "backoff": "backoff_factor", "interval": "growth_interval",
        "count": "_growth_tracker",
    }  # fmt: skip

    @property
    def _device(self) -> torch.device:
        return torch.device("cuda" if self.device == "gpu" else "cpu")

    def use(self, device: str) -> None:
        if device == "gpu":
            if not torch.cuda.is_available():
                raise UserError("--device gpu: this torch finds no GPU; install a CUDA build on a GPU machine or use --device cpu")
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        elif device != "cpu":
            raise UserError(f"unknown device {device!r}: use cpu or gpu")
        self.device = device

    def seed(self, number: int) -> None:
        torch.manual_seed(number)

    def unfilled(self) -> contextlib.AbstractContextManager[Any]:
        return torch.device("meta")

    @contextlib.contextmanager
    def loaded_next(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, law in (("normal_", "normal"), ("uniform_", "uniform")):
                stack.enter_context(patched(torch.Tensor, **{name: _in_parameters(getattr(torch.Tensor, name), law)}))
            yield

    def launch(self, processes: int, logs: Path) -> list[str]:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        return [*command, f"--log-dir={logs}", "--redirects=3"]

    def repaired(self, error: Exception) -> bool:
        if "torchvision::" not in str(error):
            return False
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        declare_missing_operators(torch)
        return True

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextlib.contextmanager
    def default_dtype(self, dtype: str) -> Iterator[None]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            yield
        finally:
            torch.set_default_dtype(before)

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(self._device, torch.bfloat16 if is_bfloat16(array) else None)

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        if tensor.dtype == torch.bfloat16:
            return rounded(tensor.detach().float().cpu().numpy())
        return tensor.detach().cpu().numpy().copy()

    def times(self, tensor: torch.Tensor, factors: np.ndarray) -> torch.Tensor:
        return tensor * torch.from_numpy(np.asarray(factors)).to(tensor)

    def assign(self, tensor: torch.Tensor, array: np.ndarray) -> None:
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(np.asarray(array)))

    def children(self, module: nn.Module) -> list[tuple[str, nn.Module]]:
        return [(name, child) for name, child in module._modules.items() if child is not None]

    def own_tensors(self, module: nn.Module) -> dict[str, torch.Tensor]:
        own = {name: tensor for name, tensor in module._parameters.items() if tensor is not None}
        buffers = module._buffers.items()
        kept = {name: tensor for name, tensor in buffers if tensor is not None and name not in module._non_persistent_buffers_set}
        return own | kept

    def unsaved(self, module: nn.Module) -> dict[str, torch.Tensor]:
        buffers = module._buffers.items()
        return {name: tensor for name, tensor in buffers if tensor is not None and name in module._non_persistent_buffers_set}

    def is_parameter(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, nn.Parameter)

    def trainable(self, tensor: torch.Tensor) -> bool:
        return tensor.requires_grad

    def set_trainable(self, tensor: torch.Tensor, on: bool) -> None:
        tensor.requires_grad_(on)

    def training(self, model: nn.Module) -> bool:
        return model.training

    def set_training(self, model: nn.Module, on: bool) -> None:
        model.train()  # drops what some models keep in evaluation mode, made of the weights of then
        model.train(on)

    def copy(self, model: nn.Module) -> nn.Module:
        kept = [tensor for module in model.modules() for value in vars(module).values() for tensor in _tensors(value)]
        # torch refuses to copy a tensor that was computed, which some models keep.
        computed = {id(tensor): tensor.detach().clone() for tensor in kept if not tensor.is_leaf}
        made = copy.deepcopy(model, computed | {id(one): one for one in sys.modules.values()})
        _closures.follow(self.modules(made).values(), self.modules(model).values())
        return made

    def place(self, model: nn.Module) -> nn.Module:
        return model.to(self._device)

    def follow(self, model: nn.Module) -> None:
        self.device = "gpu" if any(parameter.is_cuda for parameter in model.parameters()) else "cpu"

    def hook(self, module: nn.Module, before: Callable | None = None, after: Callable | None = None) -> Handle:
        if before is not None:
            return module.register_forward_pre_hook(before)
        assert after is not None
        return module.register_forward_hook(after, with_kwargs=True)

    def without_inplace(self, model: nn.Module) -> None:
        for module in model.modules():
            if getattr(module, "inplace", False):
                module.inplace = False

    def in_plain_form(self, model: nn.Module) -> None:
        held_by_hook(torch, model)

    # --- gradients ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _no_graph(self) -> Iterator[None]:
        # The fast path of transformer layers calls no module inside and gives zeros where keys are padded.
        before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.no_grad():
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(before)

    def _leaf(self, array: np.ndarray) -> torch.Tensor:
        return self.tensor(array).requires_grad_()

    def _pull(self, outputs: list, cotangents: list, wanted: list) -> list[np.ndarray | None]:
        given = [self.tensor(c).to(o.dtype) for o, c in zip(outputs, cotangents, strict=True)]
        found = torch.autograd.grad(outputs, wanted, given, allow_unused=True)
        return [None if gradient is None else self.array(gradient) for gradient in found]

    def _outside(self, outputs: list, inputs: list, pull: Callable) -> list[torch.Tensor]:
        return list(_TorchOutside.apply(self, outputs, pull, *inputs))

    def gradients(self, model: nn.Module) -> State:
        found = [(e, t) for e, t in self.described(model) if isinstance(t, nn.Parameter) and t.grad is not None]
        return {entry.canonical: entry.to_canonical(self.array(tensor.grad)) for entry, tensor in found}

    def add_gradients(self, model: nn.Module, gradients: Mapping[str, np.ndarray]) -> None:
        for entry, tensor in self.described(model):
            if self.trainable(tensor) and entry.canonical in gradients:
                given = self.tensor(entry.to_own(gradients[entry.canonical])).to(tensor)
                tensor.grad = given if tensor.grad is None else tensor.grad + given

    def clear_gradients(self, model: nn.Module) -> None:
        model.zero_grad(set_to_none=True)

    def descent(self, model: nn.Module, rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), rate)

    def learning_rate(self, optimizer: torch.optim.Optimizer) -> float:
        return float(optimizer.param_groups[0]["lr"])

    @contextlib.contextmanager
    def _recording(
        self, model: nn.Module, watched: Mapping[str, nn.Module], changes: Mapping[int, CallChange]
    ) -> Iterator[Recorder]:
        recorder = Recorder(self, watched, changes, ROOT)
        hidden = [(owner, name) for owner, name, _ in self.exact_functions()]  # from the mode, while they are exact versions
        with by_name(recorder, hidden, model, ROOT), _Recording(recorder):
            yield recorder

    # --- layers ------------------------------------------------------------------------------------------------------------

    def attention(self, module: nn.Module) -> Attention | None:
        kind = STOCK_ATTENTION.get(type(module).forward)
        inside = next((one for one in module.modules() if isinstance(one, nn.MultiheadAttention)), None)
        return None if kind is None or inside is None else Attention(kind, inside.num_heads, inside.batch_first)

    def _stock(self, module: nn.Module) -> Layer | None:
        title = type(module).__name__
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            padding = module.padding if isinstance(module.padding, str) else tuple(module.padding)
            own = {"stride": tuple(module.stride), "padding": padding, "dilation": tuple(module.dilation), "groups": module.groups}
            return Layer("conv", {**own, "padding_mode": module.padding_mode}, title)
        if isinstance(module, nn.Linear):
            return Layer("linear", {}, title)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return Layer("batch_norm", {"eps": module.eps, "momentum": module.momentum}, title)
        if isinstance(module, nn.Dropout):
            return Layer("dropout", {"p": module.p, "channels": False}, title)
        if isinstance(module, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            return Layer("dropout", {"p": module.p, "channels": True}, title)
        if isinstance(module, nn.GELU):
            return Layer("gelu", {"approximate": module.approximate}, title)
        for kind, name in ACTIVATIONS.items():
            if isinstance(module, kind):
                return Layer(name, settings_of(module, SLOPES_OF_TORCH.get(name, {}), 0), title)
        name = stock_class(module, "torch.nn")[0]
        if name in PADS:
            own = {"mode": PADS[name], "padding": tuple(module.padding), "value": float(getattr(module, "value", 0.0))}
            return Layer("pad", own, title)
        return known_layer(module, "torch.nn", TORCH)

    def set_settings(self, module: nn.Module, changes: Mapping[str, Any]) -> bool:
        if factor := changes.get("score_factor"):
            return isinstance(module, nn.MultiheadAttention) and _scale_query(module, factor)
        if "eps" in changes and hasattr(module, "eps_in_mode"):
            module.eps_in_mode = dict.fromkeys((False, True), changes["eps"])  # type: ignore
        known = TORCH.get(stock_class(module, "torch.nn")[0], ("", SLOPES_OF_TORCH.get(self.layer(module).kind, OTHERS)))[1]
        return set_settings(module, known, changes, lambda value: value)

    # --- exact mode --------------------------------------------------------------------------------------------------------

    def in_float64(self, model: nn.Module) -> nn.Module:
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase | nn.LayerNorm) and not self.rounds_eps(module):
                module.given_eps = module.eps
                module.eps = float(np.float32(module.eps))  # as the other frameworks' kernels hold it
                module.eps_in_mode = {False: module.eps, True: module.eps}
                module.register_forward_pre_hook(_eps_of_mode)
        return model.double()

    def chooses_initialiser(self, module: nn.Module, tensor: str) -> bool:
        return not is_default(type(module))

    @contextlib.contextmanager
    def noting_parameters(self) -> Iterator[Callable[[torch.Tensor], bool]]:
        with _Filling() as noted:
            yield lambda tensor: tensor is not None and tensor.data_ptr() in noted.places

    def rounds_eps(self, module: nn.Module) -> bool:
        return hasattr(module, "given_eps")

    def round_eps(self, module: nn.Module, training: bool, rounded: bool) -> None:
        module.eps_in_mode[training] = float(np.float32(module.given_eps)) if rounded else module.given_eps  # type: ignore

    @contextlib.contextmanager
    def in_full_precision(self) -> Iterator[None]:
        with self.default_dtype("float64"), _Widened():
            yield

    def exact_functions(self) -> list[tuple[Any, str, Callable[..., torch.Tensor]]]:
        return [
            (nn.functional, "hardsigmoid", exact_hardsigmoid),
            (nn.functional, "celu", exact_celu),
            (nn.functional, "conv2d", depthwise_by_taps),
            *drawing(torch),
        ]

    # --- low precision -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def autocast(self, low: Low) -> Iterator[None]:
        with self.mixed_precision_here(), torch.autocast(self._device.type, getattr(torch, low.dtype)):
            yield

    @contextlib.contextmanager
    def mixed_precision_here(self) -> Iterator[None]:
        if self.device == "gpu":
            yield
            return
        slow = {name: _in_float32(getattr(nn.functional, name)) for name in ("conv1d", "conv2d", "conv3d", "linear")}
        here = {"autocast": _AutocastHere}, {"GradScaler": _GradScalerHere}
        with patched(torch, **here[0]), patched(torch.amp, **here[1]), patched(nn.functional, **slow):
            yield


def _scale_query(module: nn.MultiheadAttention, factor: float) -> bool:
    """Multiply the scores of an attention by a factor: through the query's weights."""
    with torch.no_grad():
        weight = module.in_proj_weight if module.q_proj_weight is None else module.q_proj_weight
        weight[: module.embed_dim] *= factor
        if module.in_proj_bias is not None:
            module.in_proj_bias[: module.embed_dim] *= factor
    return True


class _Recording(TorchFunctionMode):
    """Hands every call of a function of torch to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__":  # a property
            name = getattr(function.__self__, "__name__", "")
        if name == _torch_attention.NAME and self.recorder.outside and (given := _torch_attention.steps(torch, args, kwargs or {})):
            with self:
                return _torch_attention.spelled_out(torch, given)
        return self.recorder.run(function, name, args, kwargs or {})


class _Filling(TorchFunctionMode):
    """Active while a model is built; notes what is changed in place by anybody but a layer of PyTorch.

    Attributes:
        places: where the memory of each such tensor begins.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: set[int] = set()

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given = kwargs or {}
        done = function(*args, **given)
        tensor = args[0] if args else given.get("tensor")
        if isinstance(tensor, torch.Tensor) and fills(function, torch.Tensor.data) and not called_by_layer():
            self.places.add(tensor.data_ptr())
        return done


OF_ARRAYS = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy)  # of the type of the array


class _Widened(TorchFunctionMode):
    """What a model makes or casts in float32 is float64, also a tensor of its own beside float64 where a function refuses both."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        wide = lambda value: torch.float64 if value is torch.float32 else value  # noqa: E731
        function = torch.Tensor.double if function is torch.Tensor.float else function
        args, kwargs = tuple(map(wide, args)), {name: wide(value) for name, value in (kwargs or {}).items()}
        try:
            made = function(*args, **kwargs)
        except RuntimeError:
            given = {one.dtype for one in leaves((args, kwargs), torch.Tensor)}
            if not {torch.float32, torch.float64} <= given:
                raise
            double = lambda one: one.double() if one.dtype is torch.float32 else one  # noqa: E731
            args, kwargs = mapped((args, kwargs), torch.Tensor, double)
            return function(*args, **kwargs)
        return made.double() if function in OF_ARRAYS and made.dtype is torch.float32 else made


class _TorchOutside(torch.autograd.Function):
    """Arrays that were computed elsewhere, and their gradients."""

    @staticmethod
    def forward(ctx: Any, side: Torch, outputs: list, pull: Callable, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.side, ctx.pull = side, pull
        return tuple(side.tensor(array) for array in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple:
        side: Torch = ctx.side
        with torch.enable_grad():
            found = ctx.pull([side.array(one) for one in cotangents])
        return None, None, None, *(None if array is None else side.tensor(array) for array in found)


def _in_float32(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function on torch's list of half precision, on a CPU: operands rounded, added up in float32, the result rounded.

    Without instructions for half precision torch's own kernels take up to a hundred times as long for the same numbers.
    """

    def computed(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return original(*args, **kwargs)
        dtype = torch.get_autocast_dtype("cpu")
        narrow = lambda t: t.to(dtype).float() if t.is_floating_point() and t.dtype != torch.float64 else t  # noqa: E731
        with torch.autocast("cpu", enabled=False):
            args, kwargs = mapped((args, kwargs), torch.Tensor, narrow)
            return original(*args, **kwargs).to(dtype)

    return computed


class _AutocastHere(torch.autocast):
    """torch's, on the CPU whatever device is asked for."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)


class _GradScalerHere(torch.amp.GradScaler):
    """torch's, on the CPU whatever device is asked for."""

    def __init__(self, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)


def _eps_of_mode(module: nn.Module, _args: tuple) -> None:
    module.eps = module.eps_in_mode[module.training]  # type: ignore


def _is_float64(value: Any) -> bool:
    """Whether a function is given a tensor in float64; what else a caller may give is for torch to refuse."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def exact_hardsigmoid(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """relu6(x + 3) / 6: the gradient of torch's own kernel has 1/6 in float32 (3e-8 off)."""
    if not _is_float64(input):
        return NotImplemented
    return nn.functional.relu6(input + 3.0) / 6.0


def exact_celu(input: torch.Tensor, alpha: float = 1.0, inplace: bool = False) -> torch.Tensor:
    """alpha * ELU(x / alpha): the gradient of torch's own kernel has 1 / alpha in float32."""
    if not _is_float64(input):
        return NotImplemented
    return nn.functional.elu(input / alpha) * alpha


def depthwise_by_taps(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor:
    """A depthwise convolution on a tiny map as a sum over the kernel's taps.

    In float64 torch convolves group by group: on maps of 2x2 this takes ten times as long as the sum over taps, which is the same
    (a test holds it to 1e-14 of torch's own, forward and backward). From 4x4 on torch's own is the faster one.
    """
    if not _is_float64(input):
        return NotImplemented
    depthwise = groups > 1 and input.ndim == 4 and groups == input.shape[1] == weight.shape[0] and weight.shape[1] == 1
    if not depthwise or bias is not None or isinstance(padding, str):
        return NotImplemented
    pair = lambda value: (value, value) if isinstance(value, int) else tuple(value)  # noqa: E731
    stride, padding, dilation = pair(stride), pair(padding), pair(dilation)
    samples, channels = input.shape[:2]
    taps = weight.shape[2:]
    height, width = (
        (size + 2 * before - spread * (tap - 1) - 1) // step + 1
        for size, before, spread, tap, step in zip(input.shape[2:], padding, dilation, taps, stride, strict=True)
    )
    if height * width > TINY_MAP:
        return NotImplemented
    seen = nn.functional.unfold(input, taps, dilation, padding, stride)
    seen = seen.reshape(samples, channels, -1, height * width)  # what each tap sees, place by place
    return (seen * weight.reshape(1, channels, -1, 1)).sum(2).reshape(samples, channels, height, width)


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


FRAMEWORK = Torch
