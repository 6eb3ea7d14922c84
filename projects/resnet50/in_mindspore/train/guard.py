"""Stop a diverging run before it spoils anything, and say where it broke."""

from __future__ import annotations

import math
from collections.abc import Callable

import mindspore
import numpy as np
from mindspore import Tensor, nn

from mobilenetv3_common.weights import is_statistic
from projects.resnet50.in_mindspore.train.optimizer import parameter_names, trainable


def is_finite(tensor: Tensor) -> bool:
    """Whether every element is finite; on the host, as MindSpore's operations take a hundred times as long on a CPU."""
    return bool(np.isfinite(tensor.asnumpy()).all())


class Guard:
    """Watches the logits, gradients, weights and statistics of one update.

    Logits and gradients alone tell too little: MindSpore's ReLU makes 0 of NaN on a CPU, with a gradient of 0.
    """

    def __init__(self) -> None:
        self.finite = True

    def watch(self, logits: Tensor) -> None:
        self.finite = self.finite and is_finite(logits)

    def healthy(self, model: nn.Cell, gradients: bool = True) -> bool:
        """Whether logits, weights and statistics, and gradients where asked for, are finite."""
        return self.finite and all_finite(model) and (not gradients or math.isfinite(gradient_norm(model)))


def all_finite(model: nn.Cell) -> bool:
    """Whether every element of every parameter is finite, statistics included."""
    return all(is_finite(parameter) for _, parameter in model.parameters_and_names())


def gradient_norm(model: nn.Cell) -> float:
    """L2 norm of all gradients together, computed in float32; NaN or infinite where any element is."""
    flat = [p._grad.asnumpy().astype(np.float32, copy=False).ravel() for p in trainable(model) if p._grad is not None]
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(sum(np.dot(one, one) for one in flat)))


def first_offender(model: nn.Cell, forward: Callable[[], object]) -> str:
    """The first place that is not finite: a weight, a layer in the order of computation, a gradient, or a statistic.

    Args:
        model: with the weights and gradients of the update in question.
        forward: computes the update's forward pass once more.
    """
    # A pass that is not finite has spoilt BatchNorm's statistics by now: they are a trace of the place, not the place.
    spoilt = [name for name, parameter in model.parameters_and_names() if not is_finite(parameter)]
    for name in spoilt:
        if not is_statistic(name):
            return f"weight {name}"
    found: list[str] = []

    def look(name: str) -> Callable:
        def hook(layer: nn.Cell, inputs: tuple, output: Tensor) -> None:
            if not found and isinstance(output, Tensor) and not is_finite(output):
                fed = all(is_finite(x) for x in inputs if isinstance(x, Tensor))
                found.append(f"output of layer {name} ({type(layer).__name__})" if fed else f"input of layer {name}")

        return hook

    handles = [cell.register_forward_hook(look(name)) for name, cell in model.cells_and_names() if name]
    try:
        with mindspore._no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return found[0]
    names = parameter_names(model)
    for parameter in reversed(trainable(model)):  # the backward pass comes from the end
        if parameter._grad is not None and not is_finite(parameter._grad):
            return f"gradient of {names[id(parameter)]}"
    return f"statistic {spoilt[0]}" if spoilt else "nothing in this forward pass"
