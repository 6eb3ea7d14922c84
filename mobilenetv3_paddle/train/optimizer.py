"""Optimizers that update as torch's do."""

from __future__ import annotations

from collections.abc import Callable

import paddle
from paddle import nn

from mobilenetv3_common.param_groups import check_rules, rate_factors, rule_of
from mobilenetv3_common.train_config import OptimizerConfig


class Formula(paddle.optimizer.Optimizer):
    """An optimizer written in Paddle's operations; weights in half precision have float32 masters.

    Args:
        learning_rate, parameters, weight_decay: as for every Paddle optimizer.

    Attributes:
        state: names of what it remembers of each parameter, zeros of its shape at first.
        decoupled: whether ``move`` takes the weight decay itself; otherwise it is an L2 penalty.
    """

    state: tuple[str, ...] = ()
    decoupled = False

    def __init__(self, learning_rate, parameters=None, weight_decay=None) -> None:
        self._decay = weight_decay or 0.0
        self._decays: dict[str, float] = {}
        super().__init__(learning_rate, parameters=parameters, weight_decay=None if self.decoupled else weight_decay)
        self.type = type(self).__name__.lower()
        self._multi_precision = False  # paddle.amp.decorate turns it on

    def move(self, own, gradient, lr, decay, state) -> None:
        """Change one parameter.

        Args:
            own: the parameter or its master.
            gradient: of the same shape and type.
            lr: learning rate, a tensor.
            decay: weight decay.
            state: the tensors named by ``state``, to be changed in place.
        """
        raise NotImplementedError

    def _add_param_group(self, param_group) -> None:
        if self.decoupled:
            param_group = dict(param_group)
            decay = param_group.pop("weight_decay", self._decay)
            self._decays |= {parameter.name: decay for parameter in param_group["params"]}
        super()._add_param_group(param_group)

    def _create_accumulators(self, block, parameters) -> None:
        for parameter in parameters["params"] if isinstance(parameters, dict) else parameters:
            if parameter.name not in self._already_create_accumulator:
                half = self._multi_precision and self._is_dtype_fp16_or_bf16(parameter.dtype)
                own = self._create_master_weight(parameter) if half else parameter
                for name in self.state:
                    self._add_accumulator(name, own)
                self._already_create_accumulator.add(parameter.name)

    def _append_optimize_op(self, block, param_and_grad) -> None:
        if isinstance(param_and_grad, dict):
            param_and_grad = self._update_param_group(param_and_grad)
        parameter, gradient = param_and_grad
        own = self._master_weights.get(parameter.name, parameter)
        lr = self._create_param_lr(param_and_grad).astype(own.dtype)
        state = [self._get_accumulator_master(name, parameter) for name in self.state]
        self.move(own, gradient.astype(own.dtype), lr, self._decays.get(parameter.name, self._decay), state)
        if own is not parameter:
            parameter.set_value(own.astype(parameter.dtype))

    def _update_param_group(self, parameters):
        return parameters.get("params")


class RMSProp(Formula):
    """RMSProp in torch's form, epsilon outside the root: g / (sqrt(mean square) + eps).

    ``paddle.optimizer.RMSProp`` divides by sqrt(mean square + eps), which no choice of eps makes equal; with
    torchvision's eps of 0.0316 the first step differs by 1 %.

    Args:
        learning_rate, parameters, weight_decay: as for every Paddle optimizer.
        alpha: share of the old mean square.
        epsilon: added to the root.
        momentum: of the velocity, which starts at zero.
    """

    state = ("mean_square", "velocity")

    def __init__(self, learning_rate, alpha=0.99, epsilon=1e-8, momentum=0.0, parameters=None, weight_decay=None) -> None:
        super().__init__(learning_rate, parameters, weight_decay)
        self._alpha, self._epsilon, self._momentum = alpha, epsilon, momentum

    def move(self, own, gradient, lr, decay, state) -> None:
        mean_square, velocity = state
        mean_square.scale_(self._alpha).add_(gradient * gradient * (1.0 - self._alpha))
        velocity.scale_(self._momentum).add_(gradient / (mean_square.sqrt() + self._epsilon))
        own.subtract_(velocity * lr)


class Lion(Formula):
    """Lion (Chen et al., 2023, algorithm 2): the sign of an interpolated momentum; Paddle has none.

    Args:
        learning_rate, parameters, weight_decay: as for every Paddle optimizer; the decay is decoupled.
        beta1: share of the momentum in the step's direction.
        beta2: share of the momentum that stays.
    """

    state = ("momentum",)
    decoupled = True

    def __init__(self, learning_rate, beta1=0.9, beta2=0.99, parameters=None, weight_decay=None) -> None:
        super().__init__(learning_rate, parameters, weight_decay)
        self._beta1, self._beta2 = beta1, beta2

    def move(self, own, gradient, lr, decay, state) -> None:
        (momentum,) = state
        direction = (momentum * self._beta1 + gradient * (1.0 - self._beta1)).sign()
        own.multiply_(1.0 - lr * decay)
        own.subtract_(direction * lr)
        momentum.scale_(self._beta2).add_(gradient * (1.0 - self._beta2))


def build_optimizer(model: nn.Layer, config: OptimizerConfig) -> paddle.optimizer.Optimizer:
    """The optimizer for a model's trainable parameters.

    BatchNorm's weights and biases, and the biases of other layers, have weight decays of their own where the config says so.

    Raises:
        NotImplementedError: ``config.name`` is one of ``OPTIMIZERS``, and missing in this package.
    """
    make = MAKERS.get(config.name)
    if make is None:
        raise NotImplementedError(f"{__name__} has no optimizer {config.name!r}")
    return make(config, parameter_groups(model, config))


def scale_rates(optimizer: paddle.optimizer.Optimizer, factor: float) -> None:
    """Multiply the rates of all parameters from now on; the schedule does not show it."""
    for group in optimizer._param_groups:
        for parameter in group["params"]:
            parameter.optimize_attr["learning_rate"] *= factor


def _sgd(config: OptimizerConfig, groups: list[dict]) -> paddle.optimizer.Optimizer:
    return paddle.optimizer.Momentum(
        config.lr, momentum=config.momentum, use_nesterov=config.nesterov, parameters=groups, weight_decay=config.weight_decay
    )


def _rmsprop(config: OptimizerConfig, groups: list[dict]) -> paddle.optimizer.Optimizer:
    return RMSProp(
        config.lr,
        alpha=config.alpha,
        epsilon=config.eps,
        momentum=config.momentum,
        parameters=groups,
        weight_decay=config.weight_decay,
    )


def _adam(config: OptimizerConfig, groups: list[dict]) -> paddle.optimizer.Optimizer:
    return paddle.optimizer.Adam(
        config.lr, config.beta1, config.beta2, config.eps, parameters=groups, weight_decay=config.weight_decay
    )


def _adamw(config: OptimizerConfig, groups: list[dict]) -> paddle.optimizer.Optimizer:
    return paddle.optimizer.AdamW(
        config.lr,
        beta1=config.beta1,
        beta2=config.beta2,
        epsilon=config.eps,
        parameters=groups,
        weight_decay=config.weight_decay,
    )


def _adadelta(config: OptimizerConfig, groups: list[dict]) -> paddle.optimizer.Optimizer:
    return paddle.optimizer.Adadelta(config.lr, config.eps, config.alpha, parameters=groups, weight_decay=config.weight_decay)


def _lamb(config: OptimizerConfig, groups: list[dict]) -> paddle.optimizer.Optimizer:
    """Paddle's own; its weight decay has another name."""
    groups = [{"lamb_weight_decay" if key == "weight_decay" else key: value for key, value in g.items()} for g in groups]
    return paddle.optimizer.Lamb(config.lr, config.weight_decay, config.beta1, config.beta2, config.eps, parameters=groups)


def _lion(config: OptimizerConfig, groups: list[dict]) -> paddle.optimizer.Optimizer:
    return Lion(config.lr, config.beta1, config.beta2, parameters=groups, weight_decay=config.weight_decay)


MAKERS: dict[str, Callable[[OptimizerConfig, list[dict]], paddle.optimizer.Optimizer]] = {
    "sgd": _sgd,
    "rmsprop": _rmsprop,
    "adam": _adam,
    "adamw": _adamw,
    "adadelta": _adadelta,
    "lamb": _lamb,
    "lion": _lion,
}


def parameter_groups(model: nn.Layer, config: OptimizerConfig) -> list[dict]:
    """Parameters by weight decay, L1 penalty and factor of the learning rate, one group for all that have the same."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    check_rules(list(names.values()), config.rules)
    factors = rate_factors(list(names.values()), config.rules, config.layer_decay)
    trainable = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    for parameter in trainable:
        # Paddle's optimizers leave a group's weight decay on the parameter itself, where the next optimizer would
        # add it to its own.
        parameter.regularizer = None
    layers = [layer for layer in model.sublayers() if isinstance(layer, nn.BatchNorm2D)]
    norm = {id(parameter) for layer in layers for parameter in layer.parameters(include_sublayers=False)}
    bias = {id(parameter) for name, parameter in model.named_parameters() if name.endswith("bias")} - norm
    decays = {
        "norm": config.weight_decay if config.norm_weight_decay is None else config.norm_weight_decay,
        "bias": config.weight_decay if config.bias_weight_decay is None else config.bias_weight_decay,
    }
    own = {id(p) for p in trainable if id(p) in norm and config.norm_weight_decay is not None}
    own |= {id(p) for p in trainable if id(p) in bias and config.bias_weight_decay is not None}
    groups: dict[tuple[float, float, float], list] = {}
    for parameter in trainable:
        decay = decays["norm"] if id(parameter) in norm else decays["bias"] if id(parameter) in bias else config.weight_decay
        rule = rule_of(names[id(parameter)], config.rules)
        decay = decay if rule.decay is None else rule.decay
        l1 = 0.0 if id(parameter) in own or rule.decay is not None else config.l1_decay
        groups.setdefault((decay, l1, factors[names[id(parameter)]]), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay} | {"l1_decay": l1, "learning_rate": factor}
        for (decay, l1, factor), parameters in groups.items()
    ]
