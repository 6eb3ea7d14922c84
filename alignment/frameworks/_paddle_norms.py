"""Paddle's normalisations: in float64 throughout, and without the activation that the older layer computes too.

``paddle.py`` alone uses this, and hands the framework in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from alignment.frameworks._exact import Replaced
from alignment.frameworks._passes import Module, Tensor

# Names of operators, which the older layer takes for activations -> the function that computes the same, and with which settings.
OLDER: dict[str, tuple[str, dict[str, float]]] = {
    "hard_swish": ("hardswish", {}),
    "hard_sigmoid": ("hardsigmoid", {"slope": 0.2}),
}
STOCK: list[Callable] = []  # batch normalisation as it is outside exact mode


def exact_norms(paddle: Any) -> list[Replaced]:
    """What exact mode puts in the place of Paddle's batch normalisation, as ``Framework.exact_functions`` lists it."""
    nn = paddle.nn
    STOCK[:] = STOCK or [nn.functional.batch_norm]
    exact = functools.partial(_batch_norm, paddle, STOCK[0])

    def layer(module: Module, x: Tensor) -> Tensor:
        if not module.training or module._trainable_statistics or module._act is not None:
            return NotImplemented
        settings = (module._momentum, module._epsilon, module._data_layout, module._use_global_stats)
        return exact(x, module._mean, module._variance, module.weight, module.bias, True, *settings)

    return [
        (nn.functional, "batch_norm", functools.partial(_given_eps, paddle, exact)),
        (nn.functional, "layer_norm", functools.partial(_layer_norm, paddle)),
        (nn.functional, "instance_norm", functools.partial(_instance_norm, paddle)),
        (nn.layer.norm, "batch_norm", exact),  # the layers hold the functions themselves: ``rounds_eps`` chooses for them
        (nn.BatchNorm, "forward", layer),  # the older layer calls the kernel itself
    ]


def _batch_norm(
    paddle: Any,
    stock: Callable,
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_format: str | None = None,
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """Batch normalisation whose running statistics do not take the momentum in float32; the biased variance stays."""
    if x.dtype != paddle.float64 or not training or use_global_stats or momentum == 0:
        return NotImplemented
    mean, variance = paddle.zeros_like(running_mean), paddle.zeros_like(running_var)
    settings: dict[str, Any] = {"epsilon": epsilon, "use_global_stats": use_global_stats, "name": name}
    if data_format is not None:
        settings["data_format"] = data_format
    # With momentum 0 the kernel overwrites the two with the statistics of this batch.
    output = stock(x, mean, variance, weight, bias, True, 0.0, **settings)
    with paddle.no_grad():
        running_mean.set_value(running_mean * momentum + mean * (1.0 - momentum))
        running_var.set_value(running_var * momentum + variance * (1.0 - momentum))
    return output


def _given_eps(
    paddle: Any,
    exact: Callable,
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_format: str | None = "NCHW",
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """``_batch_norm`` with eps as it is given, where the running statistics are used and channels come first."""
    of_batch = training if use_global_stats is None else not use_global_stats
    if of_batch or x.dtype != paddle.float64 or (data_format or "NCHW")[1:2] != "C":
        return exact(x, running_mean, running_var, weight, bias, training, momentum, epsilon, data_format, use_global_stats, name)
    shape = [1, -1] + [1] * (x.ndim - 2)
    variance = running_var.reshape(shape) + paddle.to_tensor(epsilon, x.dtype)
    return _scaled((x - running_mean.reshape(shape)) / paddle.sqrt(variance), weight, bias, shape)


def _layer_norm(
    paddle: Any,
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """Layer normalisation with eps as it is given; the kernel rounds it to float32."""
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    x = _widened(paddle, x, weight, bias)
    if x.dtype != paddle.float64 or shape != list(x.shape[x.ndim - len(shape) :]):
        return NotImplemented
    return _scaled(_normal(paddle, x, list(range(x.ndim - len(shape), x.ndim)), epsilon), weight, bias, shape)


def _instance_norm(
    paddle: Any,
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-5,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """Instance normalisation of the input's own statistics, with eps as it is given."""
    x = _widened(paddle, x, weight, bias)
    if x.dtype != paddle.float64 or not use_input_stats or running_mean is not None or data_format[1:2] != "C" or x.ndim < 3:
        return NotImplemented
    return _scaled(_normal(paddle, x, list(range(2, x.ndim)), eps), weight, bias, [1, -1] + [1] * (x.ndim - 2))


def _widened(paddle: Any, x: Tensor, *others: Tensor | None) -> Tensor:
    """An input in float64 where what comes with it is; the kernels refuse two types."""
    return x.astype("float64") if any(one is not None and one.dtype == paddle.float64 for one in others) else x


def _normal(paddle: Any, x: Tensor, across: list[int], eps: float) -> Tensor:
    """Of mean 0 and variance 1 over some axes."""
    mean = x.mean(across, keepdim=True)
    variance = ((x - mean) ** 2).mean(across, keepdim=True)
    return (x - mean) / paddle.sqrt(variance + paddle.to_tensor(eps, x.dtype))


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: list[int]) -> Tensor:
    """Times a weight, plus a bias, which have a shape."""
    weight, bias = (tensor if tensor is None else tensor.astype(x.dtype).reshape(shape) for tensor in (weight, bias))
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def with_given_eps(paddle: Any, module: Module, args: tuple, kwargs: dict, output: Tensor) -> Tensor | None:
    """What a stock normalisation would give if its kernel did not round eps to float32."""
    if not module.given_in_mode.get(module.training):
        return None
    x = args[0] if args else next(iter(kwargs.values()))
    shape, layers = [1, -1] + [1] * (x.ndim - 2), hasattr(module, "_normalized_shape")
    across = list(range(x.ndim - len(module._normalized_shape), x.ndim)) if layers else [i for i in range(x.ndim) if i != 1]
    if layers or _uses_batch(module):
        result = _normal(paddle, x, across, module._epsilon)
    else:
        variance = module._variance.reshape(shape) + paddle.to_tensor(module._epsilon, x.dtype)
        result = (x - module._mean.reshape(shape)) / paddle.sqrt(variance)
    return _scaled(result, module.weight, module.bias, list(module._normalized_shape) if layers else shape)


def _uses_batch(module: Module) -> bool:
    """Whether a batch normalisation takes the statistics of the batch: ``use_global_stats=False`` says so in evaluation, too."""
    if hasattr(module, "_trainable_statistics"):  # the older layer, whose use_global_stats is False where nothing is said
        return (module.training or module._trainable_statistics) and not module._use_global_stats
    return module.training if module._use_global_stats is None else not module._use_global_stats


def put_activations_behind(paddle: Any, model: Module) -> None:
    """In place: from now on the normalisations of a model and the activations that are fused into them can be watched apart.

    Hooks, and ``run_alone``, see the normalisation of ``paddle.nn.BatchNorm(act=...)``; whoever calls the layer gets what it
    always gave.
    """
    old, functional = paddle.nn.BatchNorm, paddle.nn.functional
    for layer in model.sublayers(include_self=True):
        own = type(layer)
        if (
            isinstance(layer, old)
            and own.forward is old.forward
            and hasattr(functional, OLDER.get(layer._act, (layer._act or "", {}))[0])
        ):
            layer.activation_behind, layer._act = layer._act, None
            layer.__class__ = type(own.__name__, (own,), {"__module__": own.__module__, "__call__": _both(functional, own)})


def _both(functional: Any, own: type) -> Callable:
    def called(self: Module, *args: Any, **kwargs: Any) -> Tensor:
        name, settings = OLDER.get(self.activation_behind, (self.activation_behind, {}))
        return getattr(functional, name)(own.__call__(self, *args, **kwargs), **settings)

    return called


def run_alone(layer: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call one layer: of a normalisation with an activation behind it, the normalisation."""
    own = type(layer).__mro__[1] if hasattr(layer, "activation_behind") else type(layer)
    return own.__call__(layer, *args, **kwargs)
