"""Optimizers that update as torch's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import mindspore
from mindspore import Parameter, Tensor, nn, ops

from mobilenetv3_common.param_groups import check_rules, rate_factors, rule_of
from mobilenetv3_common.train_config import OptimizerConfig

RENAMED = {"gamma": "weight", "beta": "bias"}  # of every normalisation, not of batch normalisation alone


@dataclass
class Group:
    """Parameters that share a weight decay, an L1 penalty and a factor of the learning rate."""

    params: list[Parameter]
    weight_decay: float
    l1_decay: float
    lr_factor: float


@dataclass
class Optimizer:
    """An optimizer written in MindSpore's operations, in the precision of its parameters.

    MindSpore's own are not torch's: ``nn.SGD``, ``nn.Adam`` and ``nn.RMSProp`` have no float64 kernel on a CPU, all hold the
    learning rate in float32, ``nn.AdamWeightDecay`` corrects no bias, ``nn.RMSProp`` has epsilon inside the root and begins with a
    mean square of 1, and without groups the weight decay leaves out every parameter with "beta" or "gamma" in its name.

    Args:
        groups: of the trainable parameters.
        config: its settings.

    Attributes:
        lr: of the next update; a schedule sets it.
        count: updates so far.
        state: what is remembered of each parameter, by its id: the tensors that the update names.
    """

    groups: list[Group]
    config: OptimizerConfig
    lr: float = 0.0
    count: int = 0
    state: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lr = self.config.lr

    def get_lr(self) -> Tensor:
        """The rate of the next update, float64 (): as MindSpore's optimizers tell it."""
        return Tensor(self.lr, mindspore.float64)

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.count += 1
        move = MOVES[self.config.name]
        with mindspore._no_grad():
            for group in self.groups:
                for parameter in group.params:
                    if parameter._grad is None:
                        continue
                    own = Own(self, parameter, group.weight_decay)
                    parameter.assign_value(move(own, parameter._grad, self.lr * group.lr_factor, self.config))


@dataclass
class Own:
    """One parameter during an update."""

    optimizer: Optimizer
    parameter: Parameter
    decay: float

    @property
    def value(self) -> Tensor:
        return self.parameter.value()

    @property
    def count(self) -> int:
        return self.optimizer.count

    def keep(self, name: str, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Change what is remembered under a name, zeros at first, and give it."""
        held = self.optimizer.state.setdefault(id(self.parameter), {})
        held[name] = change(held[name] if name in held else ops.zeros_like(self.value))
        return held[name]

    def average(self, name: str, new: Tensor, share: float) -> Tensor:
        """A moving average that keeps a share of the old."""
        return self.keep(name, lambda old: times(old, share) + times(new, 1.0 - share))


def times(tensor: Tensor, factor: float) -> Tensor:
    """A tensor times a number, in the tensor's precision. (MindSpore takes Python numbers in float32.)"""
    return tensor * Tensor(factor, tensor.dtype)


def plus(tensor: Tensor, term: float) -> Tensor:
    return tensor + Tensor(term, tensor.dtype)


def penalised(own: Own, gradient: Tensor) -> Tensor:
    """The gradient with the L2 penalty."""
    return gradient + times(own.value, own.decay) if own.decay else gradient


def _sgd(own: Own, gradient: Tensor, lr: float, config: OptimizerConfig) -> Tensor:
    gradient = penalised(own, gradient)
    if config.momentum:
        momentum = own.keep("momentum", lambda old: times(old, config.momentum) + gradient)
        gradient = gradient + times(momentum, config.momentum) if config.nesterov else momentum
    return own.value - times(gradient, lr)


def _rmsprop(own: Own, gradient: Tensor, lr: float, config: OptimizerConfig) -> Tensor:
    gradient = penalised(own, gradient)
    mean_square = own.average("mean_square", gradient * gradient, config.alpha)
    scaled = gradient / plus(ops.sqrt(mean_square), config.eps)
    velocity = own.keep("velocity", lambda old: times(old, config.momentum) + scaled)
    return own.value - times(velocity, lr)


def _direction(own: Own, gradient: Tensor, config: OptimizerConfig) -> Tensor:
    """Adam's, with the bias of both averages corrected."""
    first = own.average("first", gradient, config.beta1)
    second = own.average("second", gradient * gradient, config.beta2)
    root = plus(ops.sqrt(times(second, 1.0 / (1.0 - config.beta2**own.count))), config.eps)
    return times(first, 1.0 / (1.0 - config.beta1**own.count)) / root


def _adam(own: Own, gradient: Tensor, lr: float, config: OptimizerConfig) -> Tensor:
    return own.value - times(_direction(own, penalised(own, gradient), config), lr)


def _adamw(own: Own, gradient: Tensor, lr: float, config: OptimizerConfig) -> Tensor:
    return times(own.value, 1.0 - lr * own.decay) - times(_direction(own, gradient, config), lr)


def _adadelta(own: Own, gradient: Tensor, lr: float, config: OptimizerConfig) -> Tensor:
    gradient = penalised(own, gradient)
    mean_square = own.average("mean_square", gradient * gradient, config.alpha)
    moved = own.keep("moved", lambda old: old)
    step = gradient * ops.sqrt(plus(moved, config.eps)) / ops.sqrt(plus(mean_square, config.eps))
    own.average("moved", step * step, config.alpha)
    return own.value - times(step, lr)


def _lamb(own: Own, gradient: Tensor, lr: float, config: OptimizerConfig) -> Tensor:
    direction = _direction(own, gradient, config)
    if own.decay == 0.0:  # as in timm and Paddle
        return own.value - times(direction, lr)
    direction = direction + times(own.value, own.decay)
    length, size = (ops.sqrt((one * one).sum()) for one in (direction, own.value))
    trusted = ops.logical_and(length > 0, size > 0)
    ratio = ops.where(trusted, size / ops.where(trusted, length, ops.ones_like(length)), ops.ones_like(size))
    return own.value - times(direction * ratio, lr)


def _lion(own: Own, gradient: Tensor, lr: float, config: OptimizerConfig) -> Tensor:
    before = own.keep("momentum", lambda old: old)
    direction = ops.sign(times(before, config.beta1) + times(gradient, 1.0 - config.beta1))
    own.average("momentum", gradient, config.beta2)
    return times(own.value, 1.0 - lr * own.decay) - times(direction, lr)


MOVES: dict[str, Callable[[Own, Tensor, float, OptimizerConfig], Tensor]] = {
    "sgd": _sgd,
    "rmsprop": _rmsprop,
    "adam": _adam,
    "adamw": _adamw,
    "adadelta": _adadelta,
    "lamb": _lamb,
    "lion": _lion,
}
KEPT: dict[str, tuple[str, ...]] = {  # optimizer -> what it remembers of each parameter
    "sgd": ("momentum",),
    "rmsprop": ("mean_square", "velocity"),
    "adam": ("first", "second"),
    "adamw": ("first", "second"),
    "adadelta": ("moved", "mean_square"),
    "lamb": ("first", "second"),
    "lion": ("momentum",),
}


def scale_rates(optimizer: Optimizer, factor: float) -> None:
    """Multiply the rates of all parameters from now on; the schedule does not show it."""
    for group in optimizer.groups:
        group.lr_factor *= factor


def accumulators(config: OptimizerConfig) -> tuple[str, ...]:
    """What an optimizer remembers of each parameter after an update."""
    if config.name == "sgd" and not config.momentum:
        return ()
    return KEPT[config.name]


def build_optimizer(model: nn.Cell, config: OptimizerConfig) -> Optimizer:
    """The optimizer for a model's trainable parameters.

    BatchNorm's weights and biases, and the biases of other layers, have weight decays of their own where the config says so.

    Raises:
        NotImplementedError: ``config.name`` is one of ``OPTIMIZERS``, and missing in this package.
    """
    if config.name not in MOVES:
        raise NotImplementedError(f"{__name__} has no optimizer {config.name!r}")
    return Optimizer(parameter_groups(model, config), config)


def parameter_groups(model: nn.Cell, config: OptimizerConfig) -> list[Group]:
    """Parameters by weight decay, L1 penalty and factor of the learning rate, one group for all that have the same."""
    names = parameter_names(model)
    check_rules([*names.values()], config.rules)
    factors = rate_factors([*names.values()], config.rules, config.layer_decay)
    layers = [cell for _, cell in model.cells_and_names() if isinstance(cell, nn.BatchNorm2d)]
    norm = {id(parameter) for layer in layers for parameter in (layer.gamma, layer.beta)}
    bias = {key for key, name in names.items() if name.endswith("bias")} - norm
    decays = {
        "norm": config.weight_decay if config.norm_weight_decay is None else config.norm_weight_decay,
        "bias": config.weight_decay if config.bias_weight_decay is None else config.bias_weight_decay,
    }
    own = norm if config.norm_weight_decay is not None else set()
    own = own | bias if config.bias_weight_decay is not None else own
    groups: dict[tuple[float, float, float], list[Parameter]] = {}
    for parameter in trainable(model):
        key = id(parameter)
        decay = decays["norm"] if key in norm else decays["bias"] if key in bias else config.weight_decay
        rule = rule_of(names[key], config.rules)
        decay = decay if rule.decay is None else rule.decay
        l1 = 0.0 if key in own or rule.decay is not None else config.l1_decay
        groups.setdefault((decay, l1, factors[names[key]]), []).append(parameter)
    return [Group(parameters, decay, l1, factor) for (decay, l1, factor), parameters in groups.items()]


def parameter_names(model: nn.Cell) -> dict[int, str]:
    """id of each parameter, running statistics left out -> its name in torch's words."""
    found: dict[int, str] = {}
    for path, cell in model.cells_and_names():
        for name, parameter in cell._params.items():
            if parameter is not None and name not in ("moving_mean", "moving_variance"):
                found.setdefault(id(parameter), ".".join(filter(None, [path, RENAMED.get(name, name)])))
    return found


def trainable(model: nn.Cell) -> Sequence[Parameter]:
    """The parameters that are trained, each once."""
    names = parameter_names(model)
    found = {id(p): p for _, cell in model.cells_and_names() for p in cell._params.values() if p is not None}
    return [found[key] for key in names if found[key].requires_grad]
