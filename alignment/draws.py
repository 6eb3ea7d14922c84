"""How the random parameters of training pictures ought to be distributed, as somebody outside the project states it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

Operations = tuple[tuple[str, float], ...]  # (operation, signed magnitude) in order: what automatic augmentation does to a picture
MagnitudeTable = Mapping[str, tuple[Sequence[float], bool]]  # operation -> one value a bin (or none), whether its sign is random


class Draws(Protocol):
    """Distributions of drawn parameters. Boxes are (top, left, height, width) in pixels, int64 (count, 4).

    Samples are drawn from a fixed seed of their own: equal arguments give equal samples.
    """

    def crops(
        self,
        count: int,
        height: int,
        width: int,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] | None = None,
    ) -> np.ndarray:
        """Random resized crops of a picture; ``scale`` and ``ratio`` are the default ones where None."""
        ...

    def padded_crops(self, count: int, height: int, width: int, padding: int) -> np.ndarray:
        """Crops of the picture's own size out of the picture with ``padding`` pixels around it, from -``padding`` on.

        A part that draws none leaves this out; nothing is then compared with it.
        """
        ...

    def ranges(self, what: str) -> tuple[tuple[float, float], tuple[float, float]]:
        """The default range of the area's share, and of the aspect ratio, of ``"crop"`` or ``"erase"``."""
        ...

    def flip_probability(self) -> float:
        """Default probability of a horizontal flip."""
        ...

    def erasures(self, count: int, height: int, width: int) -> np.ndarray:
        """Boxes of random erasing where it is done; a row of -1 where no box was found."""
        ...

    def operations(self, policy: str, height: int, width: int, magnitude: int | None = None) -> Mapping[Operations, float]:
        """The probability of everything that a policy can do to one picture.

        Args:
            policy: ``"imagenet"`` (AutoAugment), ``"ra"`` (RandAugment) or ``"ta_wide"`` (TrivialAugment Wide).
            height, width: of the picture in pixels.
            magnitude: RandAugment's bin, 0..30; its default where None.
        """
        ...

    def magnitudes(self, policy: str, height: int, width: int) -> MagnitudeTable:
        """A policy's table of magnitudes."""
        ...

    def mixup_shares(self, count: int, alpha: float) -> np.ndarray:
        """A sample's own share under mixup, float64 (count,)."""
        ...

    def cutmix_boxes(self, count: int, alpha: float, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """A sample's own share under cutmix, float64 (count,), and the boxes taken from the other sample."""
        ...
