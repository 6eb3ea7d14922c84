"""What the gradient at a model's output tells of the loss: each function confirms one mistake by the loss's own formula."""

from __future__ import annotations

import numpy as np

from alignment_doctor.watch.look import Look

FEW = 4  # samples: with fewer a formula fits by chance


def take(look: Look, output: np.ndarray, gradient: np.ndarray, how: str) -> None:
    """Note in a look what an output (N,) or (N, C) and its gradient, float64, tell; ``how``: the activation that made it."""
    if output.ndim == 1 and len(output):
        output, gradient = output[:, None], gradient.reshape(-1, 1)
    if output.shape != gradient.shape or not (np.isfinite(output).all() and np.isfinite(gradient).all()):
        return
    look.one_class = look.one_class or one_class(output, gradient)
    look.cut_off = look.cut_off or (how == "relu" and cross_entropy_of(output, gradient))
    look.softmax_twice = look.softmax_twice or softmax_of_probabilities(output, gradient)
    look.sigmoid_twice = look.sigmoid_twice or (how == "sigmoid" and sigmoid_of_probabilities(output, gradient))
    look.unnormalised += [float((gradient * output).sum())] if likelihood_of_logits(output, gradient) else []
    look.one_target = look.one_target or one_target(output, gradient)


def softmax_of_probabilities(output: np.ndarray, gradient: np.ndarray) -> bool:
    """Whether rows of probabilities (N, C) were given to a cross-entropy that takes logits.

    The gradient of the cross-entropy of logits z with class t is c (softmax(z) - onehot(t)), with one factor c for all rows; it is
    held against that of z = output. A loss of the probabilities themselves has a gradient at the class alone, or, as a squared
    distance, one of c (output - onehot(t)); where all classes are nearly equal, the two cannot be told apart.
    """
    if output.shape != gradient.shape or len(output) < 2 or output.shape[1] < 2 or not np.isfinite(output).all():
        return False
    if (output < 0).any() or (np.abs(output.sum(1) - 1) > 1e-3).any() or not np.isfinite(gradient).all():
        return False
    return cross_entropy_of(output, gradient) and not _is_multiple(gradient, output - _pulled_up(gradient))


def cross_entropy_of(output: np.ndarray, gradient: np.ndarray) -> bool:
    """Whether the loss is a cross-entropy with one class a row that takes the output (N, C), at least two of each, for logits."""
    if output.ndim != 2 or min(output.shape) < 2:
        return False
    soft = np.exp(output - output.max(1, keepdims=True))
    return _is_multiple(gradient, soft / soft.sum(1, keepdims=True) - _pulled_up(gradient))


def one_class(output: np.ndarray, gradient: np.ndarray) -> str:
    """Why outputs of one column (N, 1) tell nothing of a class, whatever they are; empty where they may."""
    if output.shape[1:] != (1,) or len(output) < 2:
        return ""
    if (output == 1).all():
        return "a softmax over one column gives 1 for every sample"
    return "" if gradient.any() or not np.ptp(output) else "a cross-entropy over one column is 0 whatever the output"


def _pulled_up(gradient: np.ndarray) -> np.ndarray:
    """1 at the class of each row that the gradient raises most, else 0."""
    right = np.zeros_like(gradient)
    right[np.arange(len(gradient)), gradient.argmin(1)] = 1
    return right


def _is_multiple(gradient: np.ndarray, of: np.ndarray) -> bool:
    """Whether a gradient is a positive multiple of another array, but for a hundredth."""
    square = float((of * of).sum())
    factor = float((gradient * of).sum()) / square if square else 0.0
    return factor > 0 and bool(np.allclose(gradient, factor * of, rtol=1e-2, atol=1e-4 * factor))


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


def one_target(output: np.ndarray, gradient: np.ndarray) -> tuple[float, float, float] | None:
    """Where all samples of (N,) or (N, 1) are pulled to one value, by a (z - t) with a > 0, else None.

    Returns:
        a, t, and the loss if t is the target of all.
    """
    if output.size != len(output) or len(output) < FEW:
        return None
    values, pulls = output.ravel(), gradient.ravel()
    spread = np.ptp(pulls)
    if np.ptp(values) <= 1e-3 * np.abs(values).max() or spread <= 1e-3 * np.abs(pulls).max():
        return None
    factor, constant = np.polyfit(values, pulls, 1)
    if factor <= 0 or np.abs(factor * values + constant - pulls).max() > 1e-4 * spread:
        return None
    target = -constant / factor
    return float(factor), float(target), float(factor / 2 * np.square(values - target).sum())
