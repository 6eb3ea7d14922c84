"""Stop a diverging run before it spoils anything, and say where it broke."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from mobilenetv3_common.weights import is_statistic


class Guard:
    """Watches the logits and gradients of one update."""

    def __init__(self) -> None:
        self.finite = torch.ones([], dtype=torch.bool)

    def watch(self, logits: torch.Tensor) -> None:
        self.finite = self.finite.to(logits.device) & torch.isfinite(logits).all()

    def healthy(self, model: nn.Module, gradients: bool = True) -> bool:
        """Whether logits, and gradients where asked for, are finite; waits for the device."""
        if gradients:
            self.finite = self.finite & torch.isfinite(gradient_norm(model))
        return bool(self.finite)


def gradient_norm(model: nn.Module) -> torch.Tensor:
    """L2 norm of all gradients together, a float32 scalar; NaN or infinite where any element is."""
    gradients = [p.grad for p in model.parameters() if p.requires_grad and p.grad is not None]
    return nn.utils.get_total_norm([g.float() for g in gradients])


def first_offender(model: nn.Module, forward: Callable[[], object]) -> str:
    """The first place that is not finite: a weight, a layer in the order of computation, or a gradient.

    Args:
        model: with the weights and gradients of the update in question.
        forward: computes the update's forward pass once more.
    """
    # A pass that is not finite has spoilt BatchNorm's statistics by now: they are a trace of the place, not the place.
    statistics = {name for name in model.state_dict() if is_statistic(name)}
    for name, tensor in model.state_dict().items():
        if name not in statistics and not bool(torch.isfinite(tensor).all()):
            return f"weight {name}"
    found: list[str] = []

    def look(name: str) -> Callable:
        def hook(layer: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
            if not found and isinstance(output, torch.Tensor) and not bool(torch.isfinite(output).all()):
                fed = all(bool(torch.isfinite(x).all()) for x in inputs if isinstance(x, torch.Tensor))
                found.append(f"output of layer {name} ({type(layer).__name__})" if fed else f"input of layer {name}")

        return hook

    handles = [layer.register_forward_hook(look(name)) for name, layer in model.named_modules() if name]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return found[0]
    for name, parameter in reversed(list(model.named_parameters())):  # the backward pass comes from the end
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
            return f"gradient of {name}"
    return "nothing in this forward pass: another rank's"
