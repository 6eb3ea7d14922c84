"""Mistakes in mixing the samples of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from alignment import tolerance
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Hypotheses, Hypothesis
from alignment.localize.hypotheses.pictures import PictureCases, first_wrong, picture_family
from mobilenetv3_common.sampling import Box, MixParams


class MixedGroup(NamedTuple):
    """A group that is mixed with given parameters.

    Attributes:
        images, labels: float64 (N, C, H, W), and rows of probabilities (N, classes).
        params: of the kind ``"mixup"`` or ``"cutmix"``.
        whole: whether the labels are looked at, too.
        ours: what the port makes of the images.
    """

    images: np.ndarray
    labels: np.ndarray
    params: MixParams
    whole: bool
    ours: np.ndarray

    def otherwise(self, share: float | None = None, box: Box | None = None, partner: Callable | None = None) -> np.ndarray:
        """Images, and labels where they are looked at, as one flat array."""
        share, box = self.params.lam if share is None else share, box or self.params.box
        partner = partner or (lambda batch: np.roll(batch, 1, axis=0))
        images = share * self.images + (1 - share) * partner(self.images)
        if box is not None:
            images = self.pasted(self.images, partner(self.images), box)
        return self.flat(images, share * self.labels + (1 - share) * partner(self.labels))

    def with_box(self, box: Box) -> np.ndarray:
        return self.otherwise(box=box)

    def flat(self, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """One flat array."""
        return np.concatenate([images.ravel(), labels.ravel()]) if self.whole else images.ravel()

    @staticmethod
    def pasted(batch: np.ndarray, other: np.ndarray, box: Box) -> np.ndarray:
        """A box of another batch in a batch."""
        made, (top, left, height, width) = batch.copy(), box
        made[..., top : top + height, left : left + width] = other[..., top : top + height, left : left + width]
        return made


MIXING = picture_family("mixing")  # given: MixedGroup
PARTNERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the sample before it": lambda batch: np.roll(batch, 1, axis=0),
    "the next sample": lambda batch: np.roll(batch, -1, axis=0),
    "the reversed batch": lambda batch: batch[::-1],
}


@MIXING
def share_swapped(cases: PictureCases) -> Hypotheses:
    share = first_wrong(cases).given.params.lam
    words = f"a sample's own share is {1 - share:.4f}, expected {share:.4f} = 1 - it"
    yield Hypothesis(Kind.LAMBDA_SWAPPED, words, lambda given: given.otherwise(1 - given.params.lam))


def _with_order(order: Sequence[int]) -> Callable[[MixedGroup], np.ndarray | None]:
    def made(given: MixedGroup) -> np.ndarray | None:
        sides = given.params.box
        return None if sides is None else given.otherwise(box=(sides[order[0]], sides[order[1]], sides[order[2]], sides[order[3]]))

    return made


for _words, _order in (("rows and columns", (1, 0, 3, 2)), ("height and width", (0, 1, 3, 2)), ("top and left", (1, 0, 2, 3))):
    MIXING.add(Kind.AXES_SWAPPED, f"{_words} of the box are exchanged", _with_order(_order))
MIXING.add(Kind.DOES_NOTHING, "the batch is not mixed", lambda given: given.flat(given.images, given.labels))


def _with_partner(partner: Callable, given: MixedGroup) -> np.ndarray | None:
    return given.otherwise(partner=partner)


@MIXING
def other_partner(cases: PictureCases) -> Hypotheses:
    for what, partner in list(PARTNERS.items())[1:]:
        words = f"mixed with {what}, expected the sample before it"
        yield Hypothesis(Kind.MIX_PARTNER, words, functools.partial(_with_partner, partner))


@MIXING
def box_and_rest_exchanged(cases: PictureCases) -> Hypotheses:
    for what, partner in PARTNERS.items():
        words = f"the box holds the sample itself and the rest {what}, expected the other way round"

        def made(given: MixedGroup, partner: Callable = partner) -> np.ndarray | None:
            share, box = given.params.lam, given.params.box
            labels = share * given.labels + (1 - share) * partner(given.labels)
            return None if box is None else given.flat(given.pasted(partner(given.images), given.images, box), labels)

        yield Hypothesis(Kind.LAMBDA_SWAPPED, words, made)


@MIXING
def other_share(cases: PictureCases) -> Hypotheses:
    """Another share in each case, which the port's own images show."""

    def fitted(given: MixedGroup) -> float:
        before = np.roll(given.images, 1, axis=0)
        gap = (given.images - before).ravel()
        return float((given.ours - before).ravel() @ gap / max(gap @ gap, tolerance.TINY))

    first = first_wrong(cases).given
    if all(one.given.params.kind == "mixup" and one.given.ours.shape == one.given.images.shape for one in cases):
        words = f"a sample's own share is {fitted(first):.4f}, expected {first.params.lam:.4f}"
        yield Hypothesis(Kind.LAMBDA, words, lambda given: given.otherwise(fitted(given)), tolerance.PICTURE_FITTED)
