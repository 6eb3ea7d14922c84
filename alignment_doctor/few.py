"""Whether the labels of few pictures follow from them: a permutation test, and whether these pictures could have shown it.

Labels at chance mean nothing where no labelling of so few pictures would be far from it. So labellings are drawn that do follow
from the features, as a Gaussian process with the classifier's kernel draws them. Where it would see those, and does not see the
given labels, these do not follow the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PERMUTED, DRAWN = 400, 40
CHANCE = 0.01  # of the given labels or better ones, for labels that are shuffled: above it, nothing shows that they follow
TELLING = 3.5  # deviations from chance that half of the drawn labellings reach: below it, sound labels may stay at chance
JITTER = 1e-4  # on the diagonal of a kernel, to draw from it


@dataclass(frozen=True)
class Chance:
    """How the given labels compare with shuffled ones, and with ones that follow from the features.

    Attributes:
        p: share of shuffled labellings that are told as well as the given one, by the best of all features.
        telling: median distance of the drawn labellings from chance, in deviations of shuffled ones, by the best features.
    """

    p: float = 0.0
    telling: float = 0.0

    @property
    def at_chance(self) -> bool:
        return self.p > CHANCE

    @property
    def could_tell(self) -> bool:
        return self.telling >= TELLING


def chance_of(
    tellers: Sequence[np.ndarray], kernels: Sequence[np.ndarray], labels: np.ndarray, told: np.ndarray, by: np.ndarray
) -> Chance:
    """Compare labels of some pictures, told from those of others or of the same.

    Args:
        tellers: of each kind of features, what each picture of ``by`` counts for each of ``told``, (told, by).
        kernels: of all pictures, one a kind of features, (N, N).
        labels: of all pictures, 0..classes - 1, (N,).
        told, by: numbers of the pictures; the same where each is told from all others.
    """
    rng, one_hot = np.random.default_rng(0), np.eye(int(labels.max()) + 1)
    orders = [np.arange(len(labels))]
    for _ in range(PERMUTED):  # each split within itself: shares of classes stay
        order = np.arange(len(labels))
        order[told] = told[rng.permutation(len(told))]
        if len(by) != len(told) or (by != told).any():
            order[by] = by[rng.permutation(len(by))]
        orders.append(order)
    best, telling = np.full(len(orders), -np.inf), 0.0
    for teller, kernel in zip(tellers, kernels, strict=True):

        def sums(many: np.ndarray, teller: np.ndarray = teller) -> np.ndarray:
            own, others = one_hot[many[:, told]], one_hot[many[:, by]]
            return ((teller @ (others - others.mean(1, keepdims=True))) * own).sum((1, 2))

        given = sums(labels[np.stack(orders)])
        mean, deviation = given[1:].mean(), max(float(given[1:].std()), 1e-12)
        best = np.maximum(best, (given - mean) / deviation)
        drawn = rng.normal(size=(DRAWN, len(labels))) @ np.linalg.cholesky(kernel + JITTER * np.eye(len(labels))).T
        ranked = np.empty(drawn.shape, dtype=np.int64)
        np.put_along_axis(ranked, drawn.argsort(1), np.broadcast_to(np.sort(labels), drawn.shape), 1)
        telling = max(telling, float(np.median((sums(ranked) - mean) / deviation)))
    return Chance(float(np.mean(best >= best[0])), telling)
