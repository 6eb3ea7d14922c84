"""PaddlePaddle behind the engine's interface."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=".*No ccache found.*")
    import paddle
from paddle import nn
from paddle.base import initializer, unique_name
from paddle.nn.utils.weight_norm_hook import WeightNorm

from alignment import tolerance
from alignment.frameworks import _attention
from alignment.frameworks._attention import Attention, AttentionForm
from alignment.frameworks._calls import FUNCTIONS, CallChange, Recorder, by_name
from alignment.frameworks._low import Low, is_bfloat16, patched, rounded
from alignment.frameworks._paddle_amp import MixedPrecisionHere
from alignment.frameworks._paddle_draws import drawing
from alignment.frameworks._paddle_initialisers import loaded_next
from alignment.frameworks._paddle_norms import exact_norms, put_activations_behind, run_alone, with_given_eps
from alignment.frameworks._paddle_resampling import resampling
from alignment.frameworks._paddle_widening import is_float32, widened
from alignment.frameworks._settings import PADDLE, SLOPES_OF_PADDLE, known_layer, set_settings, settings_of, stock_class
from alignment.frameworks._taped import Taped
from alignment.frameworks.base import Handle, Layer, Layout
from alignment.strangers import Refused
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import PADDLE_STATISTICS, State

warnings.filterwarnings("ignore", message="When training, we now always track")  # Paddle's BatchNorm, at every training pass

ACTIVATIONS: dict[type[nn.Layer], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Sigmoid: "sigmoid",
    nn.Silu: "silu",
    nn.Swish: "silu",
    nn.Tanh: "tanh",
    nn.LeakyReLU: "leaky_relu",
    nn.ELU: "elu",
    nn.Identity: "identity",
}
STOCK_ATTENTION = {
    kind.forward: kind.__name__.lower()
    for kind in (nn.MultiHeadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.TransformerDecoderLayer,
                 nn.TransformerDecoder, nn.Transformer)
}  # fmt: skip
RENAMED: dict[str, dict[str, str]] = {
    **{f"instancenorm{count}d": {"scale": "weight"} for count in (1, 2, 3)},
    "prelu": {"_weight": "weight"},
}

SAMPLE = 64  # numbers of a parameter, which say whether it was filled again


def _of_weight_norm(module: nn.Layer, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that torch gives the sizes of ``weight_norm``: the axes of the weight, each of 1 but for the one that stays."""
    hook = next((one for one in module._forward_pre_hooks.values() if isinstance(one, WeightNorm) and one.name == name), None)
    if hook is None or hook.dim < 0:
        return shape
    axes = len(module._parameters[f"{name}_v"].shape)
    kept = 1 - hook.dim if axes == 2 and isinstance(module, nn.Linear) else hook.dim
    return tuple(shape[0] if axis == kept else 1 for axis in range(axes))


class Paddle(Taped):
    """PaddlePaddle; ``alignment.frameworks.base.Framework`` says what each method does."""

    name = "paddle"
    title = "Paddle"
    tensor_type = paddle.Tensor
    module_type = nn.Layer
    suffixes = (".pdparams",)
    scaler: ClassVar[Mapping[str, str]] = {
        "scale": "scale", "growth": "incr_ratio", "backoff": "decr_ratio", "interval": "incr_every_n_steps", "count": "incr_count",
    }  # fmt: skip
    repeating = frozenset({"lstmcell", "grucell", "simplernncell"})
    rank_variable = "PADDLE_TRAINER_ID"
    convention = AttentionForm(_attention.PADDLE)
    layout = Layout(statistics=PADDLE_STATISTICS, renamed=RENAMED, transposed=frozenset({"linear"}), flat=frozenset({"layernorm"}))

    def use(self, device: str) -> None:
        if device == "gpu":
            if not (paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0):
                raise UserError(
                    "--device gpu: this Paddle finds no GPU; install paddlepaddle-gpu on a GPU machine or use --device cpu"
                )
        elif device != "cpu":
            raise UserError(f"unknown device {device!r}: use cpu or gpu")
        paddle.set_device(device)
        self.device = device

    def seed(self, number: int) -> None:
        paddle.seed(number)

    def threads(self, count: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # OMP_NUM_THREADS sets them, before Paddle is imported

    def launch(self, processes: int, logs: Path) -> list[str]:
        return [sys.executable, "-m", "paddle.distributed.launch", f"--nproc_per_node={processes}", f"--log_dir={logs}"]

    @contextlib.contextmanager
    def default_dtype(self, dtype: str) -> Iterator[None]:
        before = paddle.get_default_dtype()
        paddle.set_default_dtype(dtype)
        try:
            yield
        finally:
            paddle.set_default_dtype(before)

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        before = unique_name.dygraph_parameter_name_checker
        unique_name.dygraph_parameter_name_checker = type(before)()  # a name twice in one model is still refused
        try:
            yield
        finally:
            unique_name.dygraph_parameter_name_checker = before

    def unfilled(self) -> contextlib.AbstractContextManager[Any]:
        return paddle.LazyGuard()

    def loaded_next(self) -> contextlib.AbstractContextManager[None]:
        return loaded_next(paddle)

    def tensor(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(np.asarray(array), dtype="bfloat16" if is_bfloat16(array) else None)

    def array(self, tensor: paddle.Tensor) -> np.ndarray:
        if any(side < 0 for side in tensor.shape):  # of a window that is larger than its input; reading it ends the process
            raise Refused(f"Paddle gave a tensor of shape {tuple(tensor.shape)}: a window is larger than what it is moved over")
        if tensor.dtype == paddle.bfloat16:
            return rounded(tensor.astype("float32").numpy())
        return tensor.numpy()  # a copy

    def times(self, tensor: paddle.Tensor, factors: np.ndarray) -> paddle.Tensor:
        return tensor * paddle.to_tensor(factors).astype(tensor.dtype)

    def assign(self, tensor: paddle.Tensor, array: np.ndarray) -> None:
        if tensor.ndim == 1 and array.size == tensor.shape[0]:  # the sizes of a weight_norm, which have more axes elsewhere
            array = array.reshape(-1)
        tensor.set_value(paddle.to_tensor(array).astype(tensor.dtype))

    def children(self, module: nn.Layer) -> list[tuple[str, nn.Layer]]:
        if isinstance(module, nn.layer.rnn.RNNBase):
            return []  # its cells hold the parameters that it has itself
        return [(name, child) for name, child in module._sub_layers.items() if child is not None]

    def own_tensors(self, module: nn.Layer) -> dict[str, paddle.Tensor]:
        own = {name: tensor for name, tensor in module._parameters.items() if tensor is not None}
        buffers = module._buffers.items()
        kept = {
            name: tensor for name, tensor in buffers if tensor is not None and name not in module._non_persistable_buffer_names_set
        }
        return own | kept

    def unsaved(self, module: nn.Layer) -> dict[str, paddle.Tensor]:
        names = module._non_persistable_buffer_names_set
        return {name: tensor for name, tensor in module._buffers.items() if tensor is not None and name in names}

    def canonical_shape(self, module: nn.Layer, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if name.endswith("_g") and len(shape) == 1:
            return _of_weight_norm(module, name.removesuffix("_g"), shape)
        return tuple(module._normalized_shape) if isinstance(module, nn.LayerNorm) and name in ("weight", "bias") else shape

    def is_parameter(self, tensor: paddle.Tensor) -> bool:
        return isinstance(tensor, paddle.base.framework.EagerParamBase)

    def trainable(self, tensor: paddle.Tensor) -> bool:
        return not tensor.stop_gradient

    def set_trainable(self, tensor: paddle.Tensor, on: bool) -> None:
        tensor.stop_gradient = not on

    def training(self, model: nn.Layer) -> bool:
        return model.training

    def set_training(self, model: nn.Layer, on: bool) -> None:
        model.train() if on else model.eval()
        for layer in model.sublayers(include_self=True):
            if isinstance(layer, nn.layer.rnn.RNNBase):
                layer.given_dropout = getattr(layer, "given_dropout", layer.dropout)
                layer.dropout = layer.given_dropout if on else 0.0
                layer.training = True  # without dropout it computes the same, and in evaluation mode its kernel has no gradient

    def place(self, model: nn.Layer) -> nn.Layer:
        put_activations_behind(paddle, model)
        return model

    def _run(self, module: nn.Layer, args: tuple, kwargs: dict[str, Any]) -> Any:
        return run_alone(module, args, kwargs)

    def hook(self, module: nn.Layer, before: Callable | None = None, after: Callable | None = None) -> Handle:
        if before is not None:
            return module.register_forward_pre_hook(before)
        return module.register_forward_post_hook(after, with_kwargs=True)

    # --- gradients ---------------------------------------------------------------------------------------------------------

    def _no_graph(self) -> contextlib.AbstractContextManager:
        return paddle.no_grad()

    def _leaf(self, array: np.ndarray) -> paddle.Tensor:
        leaf = self.tensor(array)
        leaf.stop_gradient = False
        return leaf

    def _pull(self, outputs: list, cotangents: list, wanted: list) -> list[np.ndarray | None]:
        given = [self.tensor(c).astype(o.dtype) for o, c in zip(outputs, cotangents, strict=True)]
        if _PaddleOutside.running:
            return self._pull_leaves(outputs, given, wanted)
        # Paddle stops at a tensor that is both an output and wanted, so the outputs are made anew.
        found = paddle.grad([o + 0 for o in outputs], wanted, given, allow_unused=True)
        return [None if gradient is None else self.array(gradient) for gradient in found]

    def _pull_leaves(self, outputs: list, given: list, wanted: list) -> list[np.ndarray | None]:
        """``_pull`` inside another pass back, where ``paddle.grad`` ends the process; of leaves alone."""
        for leaf in wanted:
            leaf.clear_gradient(set_to_zero=False)
        paddle.autograd.backward(outputs, given)
        found = [None if leaf.grad is None else self.array(leaf.grad) for leaf in wanted]
        for leaf in wanted:
            leaf.clear_gradient(set_to_zero=False)
        return found

    def _pulled_too(self, module: nn.Layer) -> list[paddle.Tensor]:
        inside = module.sublayers(include_self=True) if isinstance(module, nn.Layer) else []
        if any(self.computing in vars(layer) for layer in inside):  # what _PaddleOutside is given, but nobody asks for, is refused
            return list(module.parameters())
        return [tensor for layer in inside if isinstance(layer, nn.layer.rnn.RNNBase) for tensor in layer.parameters()]

    def _outside(self, outputs: list, inputs: list, pull: Callable) -> list[paddle.Tensor]:
        return list(_PaddleOutside.apply(self, outputs, pull, *inputs))

    def gradients(self, model: nn.Layer) -> State:
        found = [(e, t) for e, t in self.described(model) if not t.stop_gradient and t.grad is not None]
        return {entry.canonical: entry.to_canonical(self.array(tensor.grad)) for entry, tensor in found}

    def add_gradients(self, model: nn.Layer, gradients: Mapping[str, np.ndarray]) -> None:
        for entry, tensor in self.described(model):
            if self.trainable(tensor) and entry.canonical in gradients:
                given = self.tensor(entry.to_own(gradients[entry.canonical])).astype(tensor.dtype)
                tensor.grad = given if tensor.grad is None else tensor.grad + given

    def clear_gradients(self, model: nn.Layer) -> None:
        for tensor in self.tensors(model).values():
            if tensor.grad is not None:  # a buffer that an operation made has none, and raises
                tensor.clear_gradient(set_to_zero=False)

    def descent(self, model: nn.Layer, rate: float) -> paddle.optimizer.Optimizer:
        return paddle.optimizer.SGD(rate, parameters=model.parameters())

    def learning_rate(self, optimizer: paddle.optimizer.Optimizer) -> float:
        return float(optimizer.get_lr())

    @contextlib.contextmanager
    def _recording(self, model: nn.Layer, watched: Mapping[str, nn.Layer], changes: Mapping[int, CallChange]) -> Iterator[Recorder]:
        recorder = Recorder(self, watched, changes, ROOT, [str(Path(ROOT) / "vision" / "models")])
        with by_name(recorder, OPERATIONS, model, ROOT):
            yield recorder

    # --- layers ------------------------------------------------------------------------------------------------------------

    def attention(self, module: nn.Layer) -> Attention | None:
        kind = STOCK_ATTENTION.get(type(module).forward)
        inside = next((one for one in module.sublayers(include_self=True) if isinstance(one, nn.MultiHeadAttention)), None)
        return None if kind is None or inside is None or inside.need_weights else Attention(kind, inside.num_heads)

    def _stock(self, module: nn.Layer) -> Layer | None:
        title = type(module).__name__
        if isinstance(module, nn.Conv1D | nn.Conv2D | nn.Conv3D):
            count = module.weight.ndim - 2
            own = {"stride": _sizes(module._stride, count), "dilation": _sizes(module._dilation, count), "groups": module._groups}
            padding = module._padding if isinstance(module._padding, str) else _sizes(module._padding, count)
            return Layer("conv", {**own, "padding": padding, "padding_mode": module._padding_mode}, title)
        if isinstance(module, nn.Linear):
            return Layer("linear", {}, title)
        if isinstance(module, nn.layer.norm._BatchNormBase | nn.BatchNorm):
            return Layer("batch_norm", {"eps": module._epsilon, "momentum": 1.0 - module._momentum}, title)
        if isinstance(module, nn.Dropout):
            own = {"p": module.p, "channels": False, "mode": module.mode}
            return Layer("dropout", own | ({"axis": module.axis} if module.axis is not None else {}), title)
        if isinstance(module, nn.Dropout2D | nn.Dropout3D):
            return Layer("dropout", {"p": module.p, "channels": True}, title)
        if isinstance(module, nn.GELU):
            return Layer("gelu", {"approximate": "tanh" if module._approximate else "none"}, title)
        for kind, name in ACTIVATIONS.items():
            if isinstance(module, kind):
                return Layer(name, settings_of(module, SLOPES_OF_PADDLE.get(name, {}), 0), title)
        name = stock_class(module, "paddle.nn")[0]
        if name in ("Pad", "ZeroPad"):
            own = {"mode": module._mode, "padding": tuple(map(int, module.padding)), "value": float(module.value)}
            return Layer("pad", own, title)
        return known_layer(module, "paddle.nn", PADDLE)

    def set_settings(self, module: nn.Layer, changes: Mapping[str, Any]) -> bool:
        if factor := changes.get("score_factor"):
            held = [module.q_proj.weight, module.q_proj.bias] if isinstance(module, nn.MultiHeadAttention) else []
            for tensor in (one for one in held if one is not None):
                tensor.set_value(tensor * factor)
            return bool(held)
        known = PADDLE.get(stock_class(module, "paddle.nn")[0], ("", SLOPES_OF_PADDLE.get(self.layer(module).kind, {})))[1]
        return set_settings(module, known, changes, lambda value: list(value) if isinstance(value, tuple) else value)

    # --- exact mode --------------------------------------------------------------------------------------------------------

    def in_float64(self, model: nn.Layer) -> nn.Layer:
        # Unlike astype, it covers BatchNorm's statistics; unlike to(), it leaves integer buffers as they are.
        return model._to_impl(device=None, dtype="float64", blocking=None, include_sublayers=True, floating_only=True)

    def chooses_initialiser(self, module: nn.Layer, tensor: str) -> bool:
        names = ("_bias_attr",) if tensor == "bias" else ("_weight_attr", "_param_attr")
        given = [vars(module).get(name) for name in names]
        return any(map(_initialises, given))

    @contextlib.contextmanager
    def noting_parameters(self) -> Iterator[Callable[[paddle.Tensor], bool]]:
        noted: dict[int, tuple[paddle.Tensor, np.ndarray]] = {}  # the tensors, too, so that their ids stay theirs
        own, by_global, chosen = nn.Layer.create_parameter, set[int](), set[int]()

        def held(tensor: paddle.Tensor) -> np.ndarray:
            values = tensor.flatten().numpy()
            return values[:: max(1, len(values) // SAMPLE)].copy()

        def filled_again(tensor: paddle.Tensor) -> bool:
            if id(tensor) not in noted:
                return False
            now, first = held(tensor), noted[id(tensor)][1]
            other = now != first
            if not other.any():
                return id(tensor) in by_global or id(tensor) in chosen
            copied = lambda one: one.shape == now.shape and np.allclose(now, one, rtol=tolerance.FLOAT32_CONSTANT, atol=0.0)  # noqa: E731
            if drawn := [made for made, one in noted.values() if made.shape == tensor.shape and copied(one)]:
                return id(drawn[0]) in by_global  # in another parameter: weight_norm takes a layer's apart, and puts it together
            if any(_is_gain(tensor, made) for made, _ in noted.values()):
                return False  # and gives it a gain
            return bool(not now.any() or (now != 0)[other].any())  # nn.Embedding fills the row of padding with 0

        def created(layer: nn.Layer, *args: Any, **kwargs: Any) -> paddle.Tensor:
            made = own(layer, *args, **kwargs)
            if made is not None:  # as of a bias that is left out
                noted[id(made)] = made, held(made)
                given = inspect.signature(own).bind(layer, *args, **kwargs).arguments
                is_bias = given.get("is_bias", False)
                if (initializer._global_bias_initializer if is_bias else initializer._global_weight_initializer)() is not None:
                    by_global.add(id(made))
                by_paddle = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] == "paddle"
                said = [given.get(name) for name in ("attr", "default_initializer")]
                if not by_paddle and any(_initialises(one) and not _is_constant(one) for one in said):
                    chosen.add(id(made))
            return made

        with patched(nn.Layer, create_parameter=created):
            yield filled_again

    def rounds_eps(self, module: nn.Layer) -> bool:
        stock = nn.layer.norm._BatchNormBase.forward, nn.BatchNorm.forward, nn.LayerNorm.forward
        if type(module).forward not in stock:
            return False  # a class of others, whose __getattr__ may answer any name
        channels_first = getattr(module, "_data_format", getattr(module, "_data_layout", "NCHW"))[1] == "C"
        return channels_first and not getattr(module, "_trainable_statistics", False)

    def round_eps(self, module: nn.Layer, training: bool, rounded: bool) -> None:
        if not hasattr(module, "given_in_mode"):
            module.given_in_mode = {}
            self.hook(module, after=functools.partial(with_given_eps, paddle))
        module.given_in_mode[training] = not rounded

    def exact_functions(self) -> list[tuple[Any, str, Callable[..., paddle.Tensor]]]:
        return [
            (nn.functional, "hardsigmoid", exact_hardsigmoid),
            (nn.functional, "elu", exact_elu),
            (nn.functional, "celu", exact_celu),
            (nn.functional, "selu", exact_selu),
            (nn.functional, "hardtanh", exact_hardtanh),
            (nn.functional, "softshrink", exact_softshrink),
            (nn.functional, "log_softmax", exact_log_softmax),
            *drawing(paddle),
            *[(nn.functional, name, function) for name, function in resampling(paddle).items()],
            *widened(paddle),
            (paddle._C_ops, "p_norm", exact_p_norm),
            (paddle._C_ops, "grid_sample", sampled),
            (paddle.Tensor, "__getitem__", within_bounds),
            *exact_norms(paddle),
        ]

    # --- low precision -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def autocast(self, low: Low) -> Iterator[None]:
        with self.mixed_precision_here(), paddle.amp.auto_cast(level=low.level, dtype=low.dtype):
            yield

    @contextlib.contextmanager
    def mixed_precision_here(self) -> Iterator[None]:
        if self.device == "gpu":
            yield
            return
        with MIXED_PRECISION():
            yield


ROOT = str(Path(paddle.__file__).parent) + os.sep
# Paddle has no means to watch all calls of its functions, so they are watched by name.
ARITHMETIC = ("add", "sub", "mul", "truediv", "div", "pow", "mod", "floordiv", "matmul")
OPERATORS = [f"__{side}{name}__" for name in ARITHMETIC for side in ("", "r")]
COMPARISONS = [f"__{name}__" for name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "invert", "getitem", "setitem", "neg")]
OPERATIONS: list[tuple[Any, str]] = [
    *((owner, name) for owner in (nn.functional, paddle.linalg, paddle) for name, value in vars(owner).items()
      if isinstance(value, FUNCTIONS) and not name.startswith("_")),
    *((owner, name) for owner in (paddle.fft, paddle.signal) for name in owner.__all__),
    *((paddle.Tensor, name) for name, value in vars(paddle.Tensor).items()
      if (isinstance(value, FUNCTIONS) and not name.startswith("_")) or name in (*OPERATORS, *COMPARISONS, "T", "mT")),
]  # fmt: skip

SATURATED = 64 - math.log(1e6)  # below the largest number: of a million classes alike, the logarithm of each is as far again

AMP = [importlib.import_module(f"paddle.amp.{name}") for name in ("auto_cast", "grad_scaler")]  # functions hide the modules
MIXED_PRECISION = MixedPrecisionHere(paddle, *AMP)


class _PaddleOutside(paddle.autograd.PyLayer):
    """Arrays that were computed elsewhere, and their gradients; ``running`` counts the passes back that are inside one."""

    running = 0

    @staticmethod
    def forward(ctx: Any, side: Paddle, outputs: list, pull: Callable, *inputs: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
        ctx.side, ctx.pull, ctx.inputs, ctx.stopped = side, pull, inputs, [tensor.stop_gradient for tensor in inputs]
        return tuple(side.tensor(array) for array in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: paddle.Tensor) -> tuple:
        side: Paddle = ctx.side
        _PaddleOutside.running += 1
        try:
            with paddle.enable_grad():
                found = ctx.pull([side.array(one) for one in cotangents])
        finally:
            _PaddleOutside.running -= 1
        # Paddle takes no None for a tensor that was trainable when it was given, and nothing else for one that was not.
        made = [
            None if stopped else paddle.zeros_like(t) if array is None else side.tensor(array)
            for t, stopped, array in zip(ctx.inputs, ctx.stopped, found, strict=True)
        ]
        return tuple(made)


def _initialises(given: Any) -> bool:
    """Whether a parameter's attribute, or what stands for it, says how the parameter is filled."""
    return isinstance(getattr(given, "initializer", given), nn.initializer.Initializer)


def _is_constant(given: Any) -> bool:
    """Whether it fills with one number, as the framework itself fills a bias."""
    return isinstance(getattr(given, "initializer", given), nn.initializer.Constant)


def _is_gain(tensor: paddle.Tensor, drawn: paddle.Tensor) -> bool:
    """Whether a parameter is the norm of another one, over all of its axes or all but one."""
    axes = [None, *range(drawn.ndim)] if drawn.ndim > 1 else []
    fitting = [axis for axis in axes if tensor.size == (1 if axis is None else drawn.shape[axis])]
    if not fitting or tensor is drawn:
        return False
    values, own = drawn.numpy().astype(np.float64), tensor.numpy().ravel()
    over = (tuple(n for n in range(drawn.ndim) if n != axis) for axis in fitting)
    return any(np.allclose(own, np.sqrt((values**2).sum(axes)).ravel(), tolerance.FLOAT32_CONSTANT, 0.0) for axes in over)


def _sizes(value: Any, count: int) -> tuple:
    """A size for each dimension of a picture, from one number or a list."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * count


STOCK_GRID_SAMPLE = paddle._C_ops.grid_sample
PADDLES_SIXTH = 0.1666667  # the default slope of Paddle's hard sigmoid, 1e-7 off
SIXTHS = (PADDLES_SIXTH, 1 / 6, float(np.float32(1 / 6)))  # no other slope is taken for a sixth


def exact_hardsigmoid(
    x: paddle.Tensor, slope: float = PADDLES_SIXTH, offset: float = 0.5, name: str | None = None
) -> paddle.Tensor:
    """clip(slope * x + offset, 0, 1), with Paddle's default slope taken for the sixth that it means."""
    if x.dtype != paddle.float64:
        return NotImplemented
    if slope in SIXTHS and offset == 0.5:
        return nn.functional.relu6(x + 3.0) / 6.0
    return paddle.clip(x * slope + offset, 0.0, 1.0)


def exact_elu(x: paddle.Tensor, alpha: float = 1.0, name: str | None = None) -> paddle.Tensor:
    """x, or alpha * (exp(x) - 1) where x < 0; the stock kernel holds alpha in float32."""
    if x.dtype != paddle.float64:
        return NotImplemented
    return paddle.where(x > 0, x, alpha * paddle.expm1(x.minimum(paddle.zeros_like(x))))


def exact_celu(x: paddle.Tensor, alpha: float = 1.0, name: str | None = None) -> paddle.Tensor:
    """ELU of x / alpha, times alpha."""
    return NotImplemented if x.dtype != paddle.float64 else exact_elu(x / alpha) * alpha


def exact_selu(
    x: paddle.Tensor, scale: float = 1.0507009873554804934193349852946, alpha: float = 1.6732632423543772848170429916717,
    name: str | None = None,
) -> paddle.Tensor:  # fmt: skip
    """ELU, times scale."""
    return NotImplemented if x.dtype != paddle.float64 else scale * exact_elu(x, alpha)


def exact_hardtanh(x: paddle.Tensor, min: float = -1.0, max: float = 1.0, name: str | None = None) -> paddle.Tensor:
    """x within bounds that are not rounded to float32."""
    if x.dtype != paddle.float64:
        return NotImplemented
    return x.maximum(paddle.full_like(x, min)).minimum(paddle.full_like(x, max))


def exact_log_softmax(x: paddle.Tensor, axis: int = -1, dtype: Any = None, name: str | None = None) -> paddle.Tensor:
    """x less the logarithm of the sum of exp(x); the stock kernel gives nothing below -64 on a CPU, in float32 neither."""
    if x.dtype not in (paddle.float32, paddle.float64) or x.ndim == 0 or not (dtype is None or is_float32(paddle, dtype)):
        return NotImplemented
    if x.dtype == paddle.float32 and (x.numel() == 0 or (x.max(axis) - x.min(axis)).max() < SATURATED):
        return NotImplemented  # all are above it
    return x - paddle.logsumexp(x, axis, keepdim=True)


def exact_p_norm(
    x: paddle.Tensor, porder: float = 2.0, axis: int = -1, epsilon: float = 1e-12, keepdim: bool = False, asvector: bool = False
) -> paddle.Tensor:
    """The Euclidean norm; the gradient of Paddle's kernel adds its epsilon to the norm by which it divides."""
    if x.dtype != paddle.float64 or porder != 2.0 or asvector:
        return NotImplemented
    squares = (x * x).sum(axis, keepdim=keepdim)
    zero = (squares == 0).astype(x.dtype)
    return (squares + zero).sqrt() * (1 - zero)  # no gradient at zero


def within_bounds(x: paddle.Tensor, index: Any) -> Any:
    """Nothing of its own: Paddle's kernel reads any memory where an index lies outside, as of a largest value among NaN.

    Raises:
        IndexError: one does.
    """
    axis, parts = 0, list(index) if isinstance(index, tuple) else [index]
    for place, part in enumerate(parts):
        if part is Ellipsis:
            axis = x.ndim - sum(getattr(one, "ndim", 1) if _is_bool(one) else one is not None for one in parts[place + 1 :])
        elif _is_bool(part):
            axis += part.ndim
        elif part is not None:
            whole = isinstance(part, paddle.Tensor) and part.size > 0 and axis < x.ndim
            if whole and not -x.shape[axis] <= int(part.min()) <= int(part.max()) < x.shape[axis]:
                raise IndexError(f"an index is out of bounds for axis {axis} of size {x.shape[axis]}")
            axis += 1
    return NotImplemented


def _is_bool(part: Any) -> bool:
    return isinstance(part, paddle.Tensor) and part.dtype == paddle.bool


def sampled(*args: Any, **kwargs: Any) -> paddle.Tensor:
    """The same, of a picture that hangs on the grid: Paddle's CPU kernel ends the process where only the grid has a gradient."""
    picture, grid = [*args, *kwargs.values()][:2]
    if grid.stop_gradient or 0 in grid.shape:
        return NotImplemented
    hanging = paddle.where(paddle.ones(picture.shape, "bool"), picture, grid.flatten()[0].astype(picture.dtype))
    of_it = lambda value: hanging if value is picture else value  # noqa: E731
    return STOCK_GRID_SAMPLE(*map(of_it, args), **{name: of_it(value) for name, value in kwargs.items()})


def exact_softshrink(x: paddle.Tensor, threshold: float = 0.5, name: str | None = None) -> paddle.Tensor:
    """x moved towards zero by the threshold, and zero within it."""
    if x.dtype != paddle.float64:
        return NotImplemented
    return nn.functional.relu(x - threshold) - nn.functional.relu(-x - threshold)


FRAMEWORK = Paddle
