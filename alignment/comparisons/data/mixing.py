"""Mixup and cutmix: groups with given shares and boxes, then batches in groups smaller than a batch, of one rank of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.batches import KINDS, Batches, Loading, batches_of
from alignment.comparisons.data.eval_transform import SIZE
from alignment.comparisons.data.loading import BATCHES, arrays_of, few_pictures, measured_sides, only, part
from alignment.comparisons.data.transformed import differ, difference
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Observed
from alignment.localize.hypotheses.mixing import MIXING, MixedGroup
from alignment.localize.hypotheses.picture_boxes import BOXES, Boxed
from alignment.localize.hypotheses.pictures import in_every_case
from alignment.project import Side
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import MixParams, mix_params

MIXED = {"mixup": TrainPreset(mixup_alpha=0.2), "cutmix": TrainPreset(cutmix_alpha=1.0)}
GROUP = 6
# Shares and boxes on pictures of 20 x 32 pixels; rows and columns of a box differ, so that exchanged axes are seen.
GROUPS = {
    f"{params.kind}{number}": params
    for number, params in enumerate(
        (
            MixParams("mixup", 0.3),
            MixParams("mixup", 1.0),
            MixParams("cutmix", 0.85, (2, 11, 7, 13)),
            MixParams("cutmix", 0.7, (0, 25, 12, 7)),
            MixParams("cutmix", 1.0, (5, 8, 0, 3)),
        )
    )
}
Halves = tuple[np.ndarray, np.ndarray]  # images (N, C, H, W) and labels


class Mixing:
    """Groups and batches of both sides.

    Args:
        context: whose pictures.
        whom: whom the port is compared with.
    """

    def __init__(self, context: Context, whom: Sequence[str]) -> None:
        self.index, self.whom, self.seed = few_pictures(context.material.index("train")), whom, context.seed
        rng = np.random.default_rng([context.seed, GROUP])
        images = rng.standard_normal((GROUP, 3, 20, 32), dtype=np.float32)
        self.given = images, rng.integers(0, self.index.num_classes, GROUP)
        ranks = {"rank0of1": (0, 1), "rank1of2": (1, 2)}
        rows = {(f"mixing.{name}.{r}", rank): preset for name, preset in MIXED.items() for r, rank in ranks.items()}
        self.batches = Batches({name: self._loading(preset, 2, *rank) for (name, rank), preset in rows.items()}, whom, named=True)
        # Explained without a data set's own mixing of one group: whole batches, and what they are mixed of.
        plain = {"plain": TrainPreset()}
        self.whole = Batches({name: self._loading(preset) for name, preset in (MIXED | plain).items()}, whom)

    def _loading(self, preset: TrainPreset, group: int | None = None, rank: int = 0, world: int = 1) -> Loading:
        small = replace(preset, crop_size=SIZE)
        return Loading(self.index, small, epoch=1, mix_group=group, rank=rank, world_size=world, most=BATCHES)

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        made: dict[str, np.ndarray] = {}
        for prefix, side in measured_sides(context, role).items():
            for name, params in GROUPS.items():
                if (mixed := self._mixed_by(side, params)) is not None:
                    made |= {f"{prefix}{name}/{kind}": array for kind, array in zip(KINDS, mixed, strict=False)}
        return made | self.batches.measure(context, role) | self.whole.measure(context, role)

    def _mixed_by(self, side: Side, params: MixParams) -> Halves | None:
        """What a side's data set makes of one group; None where it has no ``mix_batch``."""
        dataset: Any = part(side).ImageDataset(self.index, MIXED["mixup"], self.seed)
        if not hasattr(dataset, "mix_batch") or not hasattr(dataset, "arrays"):
            return None
        images, labels = (dataset.arrays.asarray(array) for array in self.given)
        mixed = dataset.mix_batch(images, labels, params, self.index.num_classes)
        return np.asarray(mixed[0]), np.asarray(mixed[1])

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows, ours = [], arrays_of(port)
        for name in GROUPS:
            for who in self.whom:
                right = arrays_of(only(reference, who))
                for key in (f"{name}/{kind}" for kind in KINDS[:2]):
                    if key in ours and key in right:
                        rows.append(judge_equal(f"mixing.{name}.{who}.{key.rpartition('/')[2]}", ours[key], right[key]))
        return [*rows, *self.batches.judge(port, reference)]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """Pictures before labels."""
        ours, right = arrays_of(port), arrays_of(reference)
        alone = [name for name in GROUPS if all(f"{name}/images" in side for side in (ours, right))]
        for name in alone:
            for kind in KINDS[:2]:
                if differ(ours[key := f"{name}/{kind}"], right[key]):
                    alike = [other for other in alone if GROUPS[other].kind == GROUPS[name].kind]
                    raw = self.given[0], np.eye(self.index.num_classes)[self.given[1]]
                    hint = mixing_hint([(GROUPS[one], raw, _halves(ours, one), _halves(right, one)) for one in alike])
                    return difference(f"mix_batch:{GROUPS[name].kind}", ours[key], right[key], hint)
        for name in (*MIXED, *self.batches.loadings):
            for a, b in zip(batches_of(port, name), batches_of(reference, name), strict=False):
                for place in (0, 1):
                    if differ(a[place], b[place]):
                        kind = name if name in MIXED else name.split(".")[1]
                        if alone:
                            words = "the groups of a batch are mixed otherwise, one group by itself is mixed right"
                            return difference(f"collate:{kind}", a[place], b[place], (Kind.BATCH, words))
                        hint = self._whole_hint(port, reference, kind) if name in MIXED else NO_HINT
                        return difference(f"mix_batch:{kind}", a[place], b[place], hint)
        return None

    def _whole_hint(self, port: Measurement, reference: Measurement, kind: str) -> Hint:
        """Of batches that are one group each."""
        cases = []
        loaded = batches_of(port, kind), batches_of(reference, kind), batches_of(reference, "plain")
        for number, (ours, right, plain) in enumerate(zip(*loaded, strict=False)):
            params = mix_params(self.whole.loadings[kind].preset, self.seed, 1, number, SIZE, SIZE)  # type: ignore[arg-type]
            if right[1].ndim == 2 and plain[1].ndim == 1:
                raw = plain[0], np.eye(right[1].shape[1])[plain[1]]
                cases.append((params, raw, ours[:2], right[:2]))
        return mixing_hint(cases)


def _halves(measured: Mapping[str, np.ndarray], name: str) -> Halves:
    return measured[f"{name}/images"], measured[f"{name}/labels"]


def mixing_hint(cases: Sequence[tuple[MixParams, Halves, Halves, Halves]]) -> Hint:
    """The mistake in groups of one kind: parameters, what is mixed, what the port makes of it, and the reference.

    Pictures and labels together come first, then the pictures alone.
    """
    if any(ours[0].shape != right[0].shape or ours[1].shape != right[1].shape for _, _, ours, right in cases):
        return NO_HINT
    for whole in (True, False):
        observed, boxed = [], []
        for params, raw, ours, right in cases:
            group = MixedGroup(raw[0].astype(np.float64), raw[1].astype(np.float64), params, whole, ours[0].astype(np.float64))
            a, b = (group.flat(*(array.astype(np.float64) for array in side)) for side in (ours, right))
            observed.append(Observed(group, a, b))
            if params.box is not None:
                boxed.append(Observed(Boxed(params.box, group.with_box), a, b))
        for family, given in ((MIXING, observed), (BOXES, boxed)):
            if given and (hint := in_every_case(family, given))[0]:
                return hint
    alike = all(np.array_equal(ours[0], right[0]) for _, _, ours, right in cases)
    return (Kind.MIXED_LABELS, "the labels are mixed otherwise than the pictures") if alike else NO_HINT
