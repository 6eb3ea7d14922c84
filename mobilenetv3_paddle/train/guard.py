"""Stop a diverging run before it spoils anything, and say where it broke."""

from __future__ import annotations

from collections.abc import Callable

import paddle
from paddle import nn

from mobilenetv3_common.weights import is_statistic


class Guard:
    """Watches the logits and gradients of one update.

    The loss alone tells nothing: of NaN logits Paddle's softmax makes a uniform one, and the loss reads ln(classes).
    """

    def __init__(self) -> None:
        self.finite = paddle.ones([], dtype="bool")

    def watch(self, logits: paddle.Tensor) -> None:
        self.finite = paddle.logical_and(self.finite, paddle.isfinite(logits).all())

    @paddle.no_grad()
    def healthy(self, model: nn.Layer, gradients: bool = True) -> bool:
        """Whether logits, weights, and gradients where asked for, are finite; waits for the device.

        A weight has to be looked at itself: on a CPU Paddle's ReLU makes 0 of NaN, with a gradient of 0.
        """
        weights = [weight for name, weight in model.named_parameters() if not is_statistic(name)]  # Paddle's own layers have both
        sums = paddle.stack([weight.sum(dtype="float32") for weight in weights])
        self.finite = paddle.logical_and(self.finite, paddle.isfinite(sums).all())
        if gradients:
            self.finite = paddle.logical_and(self.finite, paddle.isfinite(gradient_norm(model)))
        return bool(self.finite)


def gradient_norm(model: nn.Layer) -> paddle.Tensor:
    """L2 norm of all gradients together, a float32 scalar; NaN or infinite where any element is."""
    flat = [p.grad.astype("float32").reshape([-1]) for p in model.parameters() if not p.stop_gradient and p.grad is not None]
    return paddle.stack([paddle.dot(g, g) for g in flat]).sum().sqrt()  # linalg.norm takes ten times as long


def first_offender(model: nn.Layer, forward: Callable[[], object]) -> str:
    """The first place that is not finite: a weight, a layer in the order of computation, or a gradient.

    Args:
        model: with the weights and gradients of the update in question.
        forward: computes the update's forward pass once more.
    """
    # A pass that is not finite has spoilt BatchNorm's statistics by now: they are a trace of the place, not the place.
    statistics = {name for name in model.state_dict() if is_statistic(name)}
    for name, tensor in model.state_dict().items():
        if name not in statistics and not bool(paddle.isfinite(tensor).all()):
            return f"weight {name}"
    found: list[str] = []

    def look(name: str) -> Callable:
        def hook(layer: nn.Layer, inputs: tuple, output: paddle.Tensor) -> None:
            if not found and isinstance(output, paddle.Tensor) and not bool(paddle.isfinite(output).all()):
                fed = all(bool(paddle.isfinite(x).all()) for x in inputs if isinstance(x, paddle.Tensor))
                found.append(f"output of layer {name} ({type(layer).__name__})" if fed else f"input of layer {name}")

        return hook

    handles = [layer.register_forward_post_hook(look(name)) for name, layer in model.named_sublayers()]
    try:
        with paddle.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return found[0]
    for name, parameter in reversed(list(model.named_parameters())):  # the backward pass comes from the end
        if parameter.grad is not None and not bool(paddle.isfinite(parameter.grad).all()):
            return f"gradient of {name}"
    return "nothing in this forward pass: another rank's"
