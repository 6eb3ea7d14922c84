"""Parameters of mixed groups, drawn through ``mix_params`` from a run's own keys: kinds, shares and boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.drawn_boxes import AXES, reason
from alignment.distributions import as_stated, gap, same_shares, same_values
from alignment.draws import Draws
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common import sampling
from mobilenetv3_common.presets import TrainPreset

WHERE = ("top", "left", "height", "width")


class Mix(NamedTuple):
    """Groups that are mixed: with which parameter, how many, of pictures of which size."""

    name: str
    preset: TrainPreset
    groups: int
    height: int = 300
    width: int = 500


MIXES = (
    Mix("mixup", TrainPreset(mixup_alpha=0.2), 3000),
    Mix("mixup_1", TrainPreset(mixup_alpha=1.0), 1000),
    Mix("cutmix", TrainPreset(cutmix_alpha=1.0), 1500),
    Mix("cutmix_0.3", TrainPreset(cutmix_alpha=0.3), 600),
    Mix("cutmix_tiny", TrainPreset(cutmix_alpha=1.0), 1000, 5, 8),
    Mix("either", TrainPreset(mixup_alpha=0.2, cutmix_alpha=1.0), 1500),
)


def _rounded(shares: np.ndarray) -> np.ndarray:
    return np.round(shares, 6)  # one of two samples may be of float32, where many are 1


class DrawnMixing:
    """Groups of one kind of mixing.

    Args:
        draws: the independent part.
        mix: one of MIXES.
    """

    def __init__(self, draws: Draws, mix: Mix) -> None:
        self.draws, self.mix = draws, mix

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        """Of the port kinds (N,), shares (N,) and boxes (N, 4) of groups; of the independent part those of each kind."""
        mix, preset = self.mix, self.mix.preset
        if role == "reference":
            theirs: dict[str, np.ndarray] = {}
            if preset.mixup_alpha:
                theirs["mixup"] = self.draws.mixup_shares(mix.groups, preset.mixup_alpha)
            if preset.cutmix_alpha:
                theirs["cutmix"], theirs["boxes"] = self.draws.cutmix_boxes(mix.groups, preset.cutmix_alpha, mix.height, mix.width)
            return theirs
        keys = (context.seed, MIXES.index(mix))
        made = [sampling.mix_params(preset, *keys, group, mix.height, mix.width) for group in range(mix.groups)]
        return {
            "kinds": np.array([params.kind for params in made]),
            "shares": np.array([params.lam for params in made]),
            "boxes": np.array([params.box or (0, 0, 0, 0) for params in made]),
        }

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        return list(self._rows(port, reference))

    def _rows(self, port: Measurement, reference: Measurement) -> Iterator[Quantity]:
        name, mix, preset = f"draws.{self.mix.name}", self.mix, self.mix.preset
        kinds, shares, boxes = (np.asarray(port[what]) for what in ("kinds", "shares", "boxes"))
        coin = (preset.mixup_alpha > 0) / ((preset.mixup_alpha > 0) + (preset.cutmix_alpha > 0))
        yield as_stated(f"{name}.kind", Counter(kinds.tolist()), mix.groups, {"mixup": coin, "cutmix": 1 - coin})
        of_mixup = kinds == "mixup"
        if of_mixup.any() and "mixup" in reference:
            yield same_values(f"{name}.share", _rounded(shares[of_mixup]), _rounded(np.asarray(reference["mixup"])))
        if not of_mixup.all() and "cutmix" in reference:
            ours, theirs = boxes[~of_mixup], np.asarray(reference["boxes"])
            yield same_values(f"{name}.share", shares[~of_mixup], np.asarray(reference["cutmix"]))
            for column, measure in enumerate(WHERE):
                yield same_values(f"{name}.{measure}", ours[:, column].astype(float), theirs[:, column].astype(float))
            size = min(len(ours), len(theirs))
            yield same_shares(f"{name}.boxes", *(map(tuple, found[:size].tolist()) for found in (ours, theirs)))
            row, exact = Quantity(f"{name}.share_of_box", [len(ours)]), 1 - ours[:, 2] * ours[:, 3] / (mix.height * mix.width)
            right = np.allclose(shares[~of_mixup], exact, rtol=0, atol=1e-12)
            yield row if right else row.fail("the share is not what the box leaves")

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        coin, *rows = self._rows(port, reference)
        kinds, shares = np.asarray(port["kinds"]), np.asarray(port["shares"])
        if not coin.passed:
            words = f"mixup in a share of {(kinds == 'mixup').mean():.3f} of the groups"
            return Finding("data", "mix_params: kind", Kind.PROBABILITY, words, coin.reason)
        if not (measured := reason(rows)):
            return None
        if self.mix.preset.cutmix_alpha:
            ours, theirs = np.asarray(port["boxes"])[kinds == "cutmix"].astype(float), np.asarray(reference["boxes"]).astype(float)

            def right(order: list[int]) -> bool:
                return all(gap(ours[:, place], theirs[:, i]).same for i, place in enumerate(order))

            for order, words in AXES:
                if right(order):
                    return Finding("data", "mix_params: box", Kind.AXES_SWAPPED, f"{words} of the box are exchanged", measured)
            part = "share" if right([0, 1, 2, 3]) else "box"
            return Finding("data", f"mix_params: {part}", Kind.DISTRIBUTION, "another distribution", measured)
        guess, alpha = float(f"{max((0.25 / shares.var() - 1) / 2, 1e-3):.1g}"), self.mix.preset.mixup_alpha
        likely = _rounded(self.draws.mixup_shares(self.mix.groups, guess))
        if guess != alpha and gap(_rounded(shares), likely).same:
            words = f"shares of Beta({guess:g}, {guess:g}), expected Beta({alpha:g}, {alpha:g})"
            return Finding("data", "mix_params: share", Kind.RANGE, words, measured)
        return Finding("data", "mix_params: share", Kind.DISTRIBUTION, "another distribution", measured)


class MixesApart:
    """That epochs, groups and seeds are mixed differently."""

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        """The shares of 100 groups of two seeds and five epochs; of the reference nothing is drawn."""
        groups = [(a, b, c) for a in range(2) for b in range(5) for c in range(10)] if role == "port" else []
        mix = sampling.mix_params
        return {"shares": np.array([mix(MIXES[0].preset, context.seed + a, b, c, 8, 8).lam for a, b, c in groups])}

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        row, shares = Quantity("draws.mixup.independence", [100]), np.unique(np.asarray(port["shares"]))
        words = f"100 groups of two seeds and five epochs have {len(shares)} different shares"
        return [row if len(shares) > 90 else row.fail(words)]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        (row,) = self.judge(port, reference)
        if row.passed:
            return None
        return Finding("data", "generator", Kind.NOT_INDEPENDENT, "groups share their parameters", row.reason)
