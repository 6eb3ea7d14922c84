"""Stop a diverging run before it spoils anything, and say where it broke."""

from __future__ import annotations

from collections.abc import Callable

import mindspore
from mindspore import Tensor, nn, ops

from mobilenetv3_common.weights import is_statistic
from projects.resnet50.in_mindspore.train.optimizer import parameter_names, trainable


def is_finite(tensor: Tensor) -> bool:
    return bool(ops.isfinite(tensor).all().asnumpy())


class Guard:
    """Watches the logits and gradients of one update."""

    def __init__(self) -> None:
        self.finite = True

    def watch(self, logits: Tensor) -> None:
        self.finite = self.finite and is_finite(logits)

    def healthy(self, model: nn.Cell, gradients: bool = True) -> bool:
        """Whether logits, and gradients where asked for, are finite."""
        return self.finite and (not gradients or is_finite(gradient_norm(model)))


def gradient_norm(model: nn.Cell) -> Tensor:
    """L2 norm of all gradients together, a float32 scalar; NaN or infinite where any element is."""
    gradients = [p._grad.astype(mindspore.float32) for p in trainable(model) if p._grad is not None]
    return ops.sqrt(ops.stack([(one * one).sum() for one in gradients]).sum())


def first_offender(model: nn.Cell, forward: Callable[[], object]) -> str:
    """The first place that is not finite: a weight, a layer in the order of computation, or a gradient.

    Args:
        model: with the weights and gradients of the update in question.
        forward: computes the update's forward pass once more.
    """
    # A pass that is not finite has spoilt BatchNorm's statistics by now: they are a trace of the place, not the place.
    for name, parameter in model.parameters_and_names():
        if not is_statistic(name) and not is_finite(parameter):
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
    return "nothing in this forward pass"
