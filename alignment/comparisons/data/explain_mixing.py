"""Mixup and cutmix: how a batch whose samples are right is mixed, pictures and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.data.data import POLICIES
from alignment.comparisons.data.explain import SIZE, differ, found
from alignment.comparisons.data.loading import batches as loaded
from alignment.comparisons.data.loading import first_pictures
from alignment.comparisons.data.pixels import MIXES, mixed_by
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import close, explains
from alignment.localize.hypotheses.pictures import box_hint
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.sampling import Box, MixParams

Partners = Iterator[tuple[str, np.ndarray]]


def mixed(context: Context) -> Finding | None:
    """One group with given parameters, then every batch of an epoch and its groups; pictures before labels."""
    index = first_pictures(context.material.index("train"))
    alone = False
    for params in MIXES:
        ours, theirs = (mixed_by(side, context, index, params) for side in context.sides.values())
        if ours is None or theirs is None:
            continue
        alone = True
        for place in (0, 1):
            if differ((ours[place], theirs[place])):
                hint = _group_hint(context, index, params, ours, theirs)
                return found(f"mix_batch:{params.kind}", (ours[place], theirs[place]), hint)
    for name, group in (("mixup", None), ("cutmix", None), ("mixup", 2), ("cutmix", 2)):
        preset = replace(POLICIES[name], crop_size=SIZE)
        plain = replace(preset, mixup_alpha=0.0, cutmix_alpha=0.0)
        sides = (loaded(side, context, index, preset, 0, mix_group=group) for side in context.sides.values())
        for ours, theirs, raw in zip(*sides, loaded(context.reference, context, index, plain, 0), strict=False):
            for place in (0, 1):
                pair = ours[place], theirs[place]
                if not differ(pair):
                    continue
                if alone:
                    words = "the groups of a batch are mixed otherwise, one group by itself is mixed right"
                    return found(f"collate:{name}", pair, (Kind.BATCH, words))
                hint = _pictures_hint(name, raw[0], *pair) if place == 0 else _labels_hint(raw[1], *pair)
                return found(f"mix_batch:{name}", pair, hint)
    return None


def _group_hint(context: Context, index: DatasetIndex, params: MixParams, ours: tuple, theirs: tuple) -> Hint:
    """Whether the reference makes the same of other parameters."""

    def same(other: MixParams) -> bool:
        made = mixed_by(context.reference, context, index, other)
        if made is None:
            return False
        pairs = [(m, a, b) for m, a, b in zip(made, ours, theirs, strict=True) if differ((a, b))]
        return all(explains(*arrays) for arrays in pairs) and all(close(a, m) for a, m in zip(ours, made, strict=True))

    if same(replace(params, lam=1 - params.lam)):
        return Kind.LAMBDA_SWAPPED, f"a sample's own share is {1 - params.lam:.4f}, expected {params.lam:.4f} = 1 - it"
    if params.box is not None:
        top, left, height, width = params.box
        for box, words in (
            ((left, top, width, height), "rows and columns of the box are exchanged"),
            ((top, left, width, height), "height and width of the box are exchanged"),
            ((left, top, height, width), "top and left of the box are exchanged"),
        ):
            if same(replace(params, box=box)):
                return Kind.AXES_SWAPPED, words
    unmixed = mixed_by(context.reference, context, index, replace(params, lam=1.0, box=None))
    if differ((ours[0], theirs[0])) and unmixed is not None:
        return _pictures_hint(params.kind, unmixed[0], ours[0], theirs[0])
    return (Kind.MIXED_LABELS, "the labels are mixed otherwise than the pictures") if close(ours[0], theirs[0]) else NO_HINT


def _partners(batch: np.ndarray) -> Partners:
    """The samples that a batch may be mixed with; the right ones first."""
    yield "the sample before it", np.roll(batch, 1, axis=0)
    yield "the next sample", np.roll(batch, -1, axis=0)
    yield "the reversed batch", batch[::-1]


def _share(batch: np.ndarray, other: np.ndarray, mixed: np.ndarray) -> float:
    """The share of the batch in what is mixed of it and another, as it would be."""
    gap = (batch - other).ravel().astype(np.float64)
    return float((mixed - other).ravel().astype(np.float64) @ gap / max(gap @ gap, 1e-300))


def _pictures_hint(name: str, raw: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> Hint:
    if not ours.shape == theirs.shape == raw.shape:
        return NO_HINT
    if explains(raw, ours, theirs):
        return Kind.DOES_NOTHING, "the batch is not mixed"
    before = np.roll(raw, 1, axis=0)
    if name == "mixup":
        return _weighted_hint(raw, ours, theirs)
    inside = (theirs != raw).any(axis=(0, 1))
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    if not rows.size:
        return NO_HINT
    box = int(rows[0]), int(columns[0]), int(rows[-1] - rows[0] + 1), int(columns[-1] - columns[0] + 1)

    def pasted(batch: np.ndarray, other: np.ndarray, place: Box) -> np.ndarray:
        made = batch.copy()
        region = np.s_[..., place[0] : place[0] + place[2], place[1] : place[1] + place[3]]
        made[region] = other[region]
        return made

    for what, other in _partners(raw):
        if explains(pasted(raw, other, box), ours, theirs):
            return Kind.MIX_PARTNER, f"mixed with {what}, expected the sample before it"
        if explains(pasted(other, raw, box), ours, theirs):
            return Kind.LAMBDA_SWAPPED, f"the box holds the sample itself and the rest {what}, expected the other way round"
    return box_hint(box, lambda place: pasted(raw, before, place), ours, theirs)


def _weighted_hint(batch: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> Hint:
    """Two batches that are mixed by weights: which partner, and which share."""
    before = np.roll(batch, 1, axis=0)
    wanted = _share(batch, before, theirs)
    for number, (what, other) in enumerate(_partners(batch)):
        share = _share(batch, other, ours)
        if not explains(share * batch + (1 - share) * other, ours, theirs, 1e-5):
            continue
        if number:
            return Kind.MIX_PARTNER, f"mixed with {what}, expected the sample before it"
        if abs(share + wanted - 1) < 1e-4:
            return Kind.LAMBDA_SWAPPED, f"a sample's own share is {share:.4f}, expected {wanted:.4f} = 1 - it"
        return Kind.LAMBDA, f"a sample's own share is {share:.4f}, expected {wanted:.4f}"
    return NO_HINT


def _labels_hint(labels: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> Hint:
    if ours.shape != theirs.shape or theirs.ndim != 2 or labels.ndim != 1:
        return NO_HINT
    own = np.eye(theirs.shape[1], dtype=np.float32)[labels]
    kind, words = _weighted_hint(own, ours, theirs)
    return (Kind.MIXED_LABELS, f"the labels are mixed otherwise than the pictures: {words}") if kind else NO_HINT
