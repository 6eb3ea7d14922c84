"""What the gradient at a model's output tells of the loss: each function confirms one mistake by the loss's own formula."""

from __future__ import annotations

import numpy as np

from doctor.watch.look import Look

FEW = 4  # samples: with fewer a formula fits by chance


def take(look: Look, output: np.ndarray, gradient: np.ndarray, squashed: bool) -> None:
    """Note in a look what an output (N,) or (N, C) and its gradient, float64, tell; ``squashed``: a sigmoid made the output."""
    if output.shape != gradient.shape or not (np.isfinite(output).all() and np.isfinite(gradient).all()):
        return
    look.softmax_twice = look.softmax_twice or softmax_of_probabilities(output, gradient)
    look.sigmoid_twice = look.sigmoid_twice or (squashed and sigmoid_of_probabilities(output, gradient))
    look.unnormalised = look.unnormalised or likelihood_of_logits(output, gradient)
    look.one_target = look.one_target or one_target(output, gradient)


def softmax_of_probabilities(output: np.ndarray, gradient: np.ndarray) -> bool:
    """Whether rows of probabilities (N, C) were given to a cross-entropy that takes logits.

    The gradient of the cross-entropy of logits z with class t is c (softmax(z) - onehot(t)), with one factor c for all rows; it is
    held against that of z = output. A loss of the probabilities themselves has a gradient at the class alone.
    """
    if output.shape != gradient.shape or len(output) < 2 or output.shape[1] < 2 or not np.isfinite(output).all():
        return False
    if (output < 0).any() or (np.abs(output.sum(1) - 1) > 1e-3).any() or not np.isfinite(gradient).all():
        return False
    soft = np.exp(output) / np.exp(output).sum(1, keepdims=True)
    rows, target = np.arange(len(output)), gradient.argmin(1)
    soft[rows, target] -= 1
    factor = float((gradient * soft).sum() / (soft * soft).sum())
    return factor > 0 and bool(np.allclose(gradient, factor * soft, rtol=1e-2, atol=1e-4 * factor))


def sigmoid_of_probabilities(output: np.ndarray, gradient: np.ndarray) -> bool:
    """Whether a sigmoid's values were given to a binary cross-entropy that takes logits.

    The gradient of that loss at z is c (sigmoid(z) - t), with t of 0 or 1 and one factor c for each t.
    """
    output, gradient = output.ravel(), gradient.ravel()
    soft = 1 / (1 + np.exp(-output))
    up = gradient > 0
    groups = [(gradient / soft)[up], (gradient / (soft - 1))[~up & (gradient < 0)]]
    shown = [values for values in (output[up], output[~up]) if len(values) >= FEW and np.ptp(values) > 5e-3]
    return bool(shown) and all(np.ptp(group) <= 1e-3 * np.abs(group).max() for group in groups if len(group))


def likelihood_of_logits(output: np.ndarray, gradient: np.ndarray) -> bool:
    """Whether a loss of log-probabilities, -z[t], was given rows z (N, C) that are none: it then falls without end."""
    if output.ndim != 2 or len(output) < FEW or output.shape[1] < 3 or ((gradient != 0).sum(1) != 1).any():
        return False
    rows, target = np.arange(len(output)), gradient.argmin(1)
    pulls = gradient[rows, target]
    equal = pulls.max() < 0 and np.ptp(pulls) <= 1e-4 * -pulls.min() and len(set(target.tolist())) > 1
    highest = output.max(1, keepdims=True)
    sums = highest[:, 0] + np.log(np.exp(output - highest).sum(1))
    return bool(equal and np.abs(sums).max() > 1e-2)


def one_target(output: np.ndarray, gradient: np.ndarray) -> tuple[float, float] | None:
    """The factor a > 0 and the target t where all samples of (N,) or (N, 1) are pulled to one value, by a (z - t); else None."""
    if output.size != len(output) or len(output) < FEW:
        return None
    values, pulls = output.ravel(), gradient.ravel()
    spread = np.ptp(pulls)
    if np.ptp(values) <= 1e-3 * np.abs(values).max() or spread <= 1e-3 * np.abs(pulls).max():
        return None
    factor, constant = np.polyfit(values, pulls, 1)
    if factor <= 0 or np.abs(factor * values + constant - pulls).max() > 1e-4 * spread:
        return None
    return float(factor), float(-constant / factor)
