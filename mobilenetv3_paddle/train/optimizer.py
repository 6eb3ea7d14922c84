"""Optimizers that update as torch's do."""

from __future__ import annotations

import paddle
from paddle import nn

from mobilenetv3_common.train_config import OptimizerConfig


class RMSProp(paddle.optimizer.Optimizer):
    """RMSProp in torch's form, epsilon outside the root: g / (sqrt(mean square) + eps).

    ``paddle.optimizer.RMSProp`` divides by sqrt(mean square + eps), which no choice of eps makes equal; with
    torchvision's eps of 0.0316 the first step differs by 1 %.

    Args:
        learning_rate, parameters, weight_decay: as for every Paddle optimizer; the decay is an L2 penalty.
        alpha: share of the old mean square.
        epsilon: added to the root.
        momentum: of the velocity, which starts at zero.
    """

    def __init__(self, learning_rate, alpha=0.99, epsilon=1e-8, momentum=0.0, parameters=None, weight_decay=None) -> None:
        super().__init__(learning_rate, parameters=parameters, weight_decay=weight_decay)
        self.type = "rmsprop_torch"
        self._alpha, self._epsilon, self._momentum = alpha, epsilon, momentum
        self._multi_precision = False  # paddle.amp.decorate turns it on: half-precision weights then have float32 masters

    def _create_accumulators(self, block, parameters) -> None:
        for parameter in parameters["params"] if isinstance(parameters, dict) else parameters:
            if parameter.name not in self._already_create_accumulator:
                half = self._multi_precision and self._is_dtype_fp16_or_bf16(parameter.dtype)
                own = self._create_master_weight(parameter) if half else parameter
                self._add_accumulator("mean_square", own)
                self._add_accumulator("velocity", own)
                self._already_create_accumulator.add(parameter.name)

    def _append_optimize_op(self, block, param_and_grad) -> None:
        if isinstance(param_and_grad, dict):
            param_and_grad = self._update_param_group(param_and_grad)
        parameter, gradient = param_and_grad
        mean_square = self._get_accumulator_master("mean_square", parameter)
        velocity = self._get_accumulator_master("velocity", parameter)
        own = self._master_weights.get(parameter.name, parameter)
        gradient = gradient.astype(own.dtype)
        lr = self._create_param_lr(param_and_grad).astype(own.dtype)
        mean_square.scale_(self._alpha).add_(gradient * gradient * (1.0 - self._alpha))
        velocity.scale_(self._momentum).add_(gradient / (mean_square.sqrt() + self._epsilon))
        own.subtract_(velocity * lr)
        if own is not parameter:
            parameter.set_value(own.astype(parameter.dtype))

    def _update_param_group(self, parameters):
        return parameters.get("params")


def build_optimizer(model: nn.Layer, config: OptimizerConfig) -> paddle.optimizer.Optimizer:
    """The optimizer for a model's trainable parameters.

    BatchNorm's weights and biases, and the biases of other layers, have weight decays of their own where the config says so.
    """
    groups = parameter_groups(model, config)
    if config.name == "sgd":
        return paddle.optimizer.Momentum(config.lr, momentum=config.momentum, parameters=groups, weight_decay=config.weight_decay)
    if config.name == "rmsprop":
        return RMSProp(
            config.lr,
            alpha=config.alpha,
            epsilon=config.eps,
            momentum=config.momentum,
            parameters=groups,
            weight_decay=config.weight_decay,
        )
    return paddle.optimizer.AdamW(
        config.lr,
        beta1=config.beta1,
        beta2=config.beta2,
        epsilon=config.eps,
        parameters=groups,
        weight_decay=config.weight_decay,
    )


def parameter_groups(model: nn.Layer, config: OptimizerConfig) -> list[dict]:
    """Parameters by their weight decay, one group for each that differs."""
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
    groups: dict[float, list] = {}
    for parameter in trainable:
        decay = decays["norm"] if id(parameter) in norm else decays["bias"] if id(parameter) in bias else config.weight_decay
        groups.setdefault(decay, []).append(parameter)
    return [{"params": parameters, "weight_decay": decay} for decay, parameters in groups.items()]
