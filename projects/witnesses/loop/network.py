"""A network in numpy that has what a training loop can get wrong, and its arithmetic: neither is the code under test.

Centred features, a scale, dropout and one linear layer. The centre is a running statistic, as BatchNorm's: of the batch in
training, the running one in evaluation. Both the plain script and the backend that the loop trains compute by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]
SIZE = 4  # pixels of a picture's side
FEATURES = 3 * SIZE * SIZE
MOMENTUM, DROPOUT = 0.25, 0.25


def initial(seed: int, classes: int) -> Arrays:
    """The weights and the statistic of a run that begins."""
    rng = np.random.default_rng([seed, 99])
    return {
        "norm.weight": 1 + rng.normal(size=FEATURES) / 8,
        "norm.running": rng.normal(size=FEATURES) / 8,
        "fc.weight": rng.normal(size=(FEATURES, classes)) / 4,
        "fc.bias": rng.normal(size=classes) / 4,
    }


TRAINED = ("norm.weight", "fc.weight", "fc.bias")


@dataclass
class Forward:
    """One forward pass, with what its backward pass needs."""

    logits: np.ndarray
    centred: np.ndarray
    kept: np.ndarray


def forward(state: Arrays, images: np.ndarray, training: bool, centring: bool, uniform: np.ndarray | None) -> Forward:
    """Logits; in training the running statistic moves.

    Args:
        state: weights and statistic, which changes in place.
        images: (N, 3, 4, 4).
        training: whether features are dropped.
        centring: whether the centre is the batch's.
        uniform: numbers in [0, 1), (N, features), by which features are dropped.
    """
    features = np.asarray(images, dtype=np.float64).reshape(len(images), -1)
    centre = state["norm.running"]
    if centring:
        centre = features.mean(0)
        state["norm.running"] = (1 - MOMENTUM) * state["norm.running"] + MOMENTUM * centre
    kept = np.ones_like(features) if not training or uniform is None else (uniform >= DROPOUT) / (1 - DROPOUT)
    centred = (features - centre) * kept
    return Forward(centred * state["norm.weight"] @ state["fc.weight"] + state["fc.bias"], centred, kept)


def backward(state: Arrays, passed: Forward, by_logits: np.ndarray) -> Arrays:
    """The gradients of the weights from that of the logits."""
    scaled = passed.centred * state["norm.weight"]
    by_scaled = by_logits @ state["fc.weight"].T
    return {
        "norm.weight": (by_scaled * passed.centred).sum(0),
        "fc.weight": scaled.T @ by_logits,
        "fc.bias": by_logits.sum(0),
    }


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


def cross_entropy(
    logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0, weight: Sequence[float] | None = None
) -> tuple[float, np.ndarray]:
    """torch's cross-entropy, and its gradient by the logits. Labels are numbers (N,), or probabilities (N, classes)."""
    classes = logits.shape[1]
    of_class = np.ones(classes) if weight is None else np.asarray(weight, dtype=np.float64)
    hard = labels.ndim == 1
    target = np.eye(classes)[labels] if hard else labels
    target = ((1 - smoothing) * target + smoothing / classes) * of_class
    total = of_class[labels].sum() if hard else len(labels)
    shares = np.exp(log_softmax(logits))
    loss = -(target * log_softmax(logits)).sum() / total
    return float(loss), (shares * target.sum(1, keepdims=True) - target) / total


def divergence(logits: np.ndarray, teacher: np.ndarray, temperature: float) -> tuple[float, np.ndarray]:
    """Hinton's part of a teacher: T^2 KL(teacher || student) of logits over T, mean over samples; and its gradient."""
    ours, theirs = log_softmax(logits / temperature), log_softmax(teacher / temperature)
    loss = temperature**2 * (np.exp(theirs) * (theirs - ours)).sum(1).mean()
    return float(loss), temperature * (np.exp(ours) - np.exp(theirs)) / len(logits)


def cosine(unit: int, total: int, warmup: int, beginning: float) -> float:
    """The share of the learning rate in a unit of a cosine schedule with linear warm-up."""
    if unit < warmup:
        return beginning + (1 - beginning) * unit / warmup
    return (1 + math.cos(math.pi * (unit - warmup) / (total - warmup))) / 2


def step(unit: int, size: int, gamma: float) -> float:
    """The share of the learning rate in a unit of a step schedule."""
    return float(gamma ** (unit // size))


def moved(state: Arrays, velocity: Arrays, gradients: Arrays, rate: float, momentum: float, decays: dict[str, float]) -> None:
    """One update by torch's SGD with momentum, in place."""
    for name, gradient in gradients.items():
        velocity[name] = momentum * velocity.get(name, np.zeros_like(gradient)) + gradient + decays[name] * state[name]
        state[name] = state[name] - rate * velocity[name]


def clipped(gradients: Arrays, most: float | None) -> Arrays:
    """Gradients of a global norm of ``most`` at most, as torch's ``clip_grad_norm_``."""
    norm = math.sqrt(sum(float((one**2).sum()) for one in gradients.values()))
    factor = 1.0 if most is None else min(1.0, most / (norm + 1e-6))
    return {name: one * factor for name, one in gradients.items()}


def transformed(
    pixels: np.ndarray, crop: tuple[int, int, int, int], flip: bool, erase: tuple[int, int, int, int] | None
) -> np.ndarray:
    """RGB pixels (H, W, 3) cut, scaled by the nearest pixel, mirrored and erased: (3, 4, 4), each 0..1."""
    top, left, height, width = crop
    rows = top + np.arange(SIZE) * height // SIZE
    columns = left + np.arange(SIZE) * width // SIZE
    made = pixels[np.ix_(rows, columns)].transpose(2, 0, 1) / 255.0
    made = made[:, :, ::-1].copy() if flip else made.copy()
    if erase is not None:
        top, left, height, width = erase
        made[:, top : top + height, left : left + width] = 0.0
    return made


def mixed(
    images: np.ndarray, labels: np.ndarray, share: float, box: tuple[int, int, int, int] | None, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each sample mixed with the one before it; the labels as probabilities."""
    targets = np.eye(classes)[labels]
    if box is None:
        pictures = share * images + (1 - share) * np.roll(images, 1, axis=0)
    else:
        top, left, height, width = box
        pictures = images.copy()
        pictures[:, :, top : top + height, left : left + width] = np.roll(images, 1, axis=0)[
            :, :, top : top + height, left : left + width
        ]
    return pictures, share * targets + (1 - share) * np.roll(targets, 1, axis=0)
