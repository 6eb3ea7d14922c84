"""Whether the labels of a data set belong to its pictures: simple classifiers against chance, on pictures held out.

A labelling that has nothing to do with the pictures can be learnt by heart, so no loss shows it; only pictures that were held out
do. Kernel ridge regression on a few kinds of features needs no training, tells each picture's label from all the others at once
(leave-one-out in closed form; Rifkin and Lippert 2007), and permuted labels say what chance makes of the same pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import cv2
import numpy as np

from alignment_doctor.few import Chance, chance_of
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image

PICTURES = {"train": 600, "val": 300}  # of a split, at most
CLASSES = 10  # that are looked at, those with the most pictures
NEEDED = 30  # pictures
MANY = 100  # pictures: what natural ones tell is then far from chance; fewer are compared with what they could tell
EACH = 5  # pictures of a class
SIDE = 32  # pixels of what the features see
PATCHES, PATCH = 128, 6  # of pictures, as filters
SAME = 0.99  # correlation of two pictures that show the same: the label of one would be told from its copy's
RIDGE = 0.1
PERMUTED = 100
SURE, NOT = 5.0, 3.0  # distances: a relation that is certain; below the second there is none
ON_AVERAGE = 2.0  # of all kinds of features: two classes of few pictures are exchanged, if each split tells them apart
MOSTLY = 0.1  # share of the other split's distance, from as many pictures: most labels belong to none; half of them leave a quarter
WEAK, WEAKEST = 0.2, 5.0  # of what labels that follow from the pictures reach, and at most: below, most belong to other pictures
FEW, NOT_OF_FEW = 200, 2.0  # of fewer pictures than this, hard but sound ones may come close to chance


@dataclass(frozen=True)
class Relation:
    """What was measured. Distances from chance are in standard deviations of permuted labels, the largest of all features.

    Attributes:
        pictures: looked at, by split.
        classes: class number -> name, of those looked at.
        together: distance of all pictures, each told from all others.
        within: the same of each split alone.
        alike: the same of as many pictures of each split.
        across: of validation, told from training; the smaller of two distances: from permuted labels of either.
        exchanged: pairs of classes that validation's labels have the other way round: all that tells them apart says so.
        right: share of pictures whose label is told from all others, by the features that do it best.
        chance: what permuted labels reach there.
        taken_for: validation's class -> the class of training that its pictures look like.
        reason: why nothing was measured; empty where it was.
        numbers: of the pictures that were looked at, by split.
        few: of fewer than ``MANY`` pictures, all of them told from each other, and validation's from training's.
        telling: what labels that do follow from the features would reach ``together``; asked where the given ones reach little.
    """

    pictures: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[int, str] = field(default_factory=dict)
    together: float = 0.0
    within: Mapping[str, float] = field(default_factory=dict)
    alike: Mapping[str, float] = field(default_factory=dict)
    across: float = 0.0
    exchanged: tuple[tuple[int, int], ...] = ()
    right: float = 0.0
    chance: float = 0.0
    taken_for: Mapping[int, int] = field(default_factory=dict)
    reason: str = ""
    numbers: Mapping[str, list[int]] = field(default_factory=dict)
    few: tuple[Chance, ...] = ()
    telling: float = 0.0


def relate(indices: Mapping[str, DatasetIndex], seed: int = 0) -> Relation:
    """Measure a data set.

    Args:
        indices: of its splits, ``train`` and perhaps ``val``, with the same class numbers.
        seed: of the pictures that are drawn, and of the permutations.
    """
    rng = np.random.default_rng(seed)
    chosen = _classes(indices)
    if len(chosen) < 2:
        return Relation(reason=f"fewer than two classes have {EACH} or more pictures")
    numbers = {split: _drawn(index, chosen, PICTURES[split], rng) for split, index in indices.items() if split in PICTURES}
    if (count := sum(map(len, numbers.values()))) < NEEDED or min(map(len, numbers.values())) < 2:
        return Relation(reason=f"{count} pictures of classes that have {EACH} or more; it takes {NEEDED}")
    pixels, labels, splits, kept = _decoded(indices, numbers)
    if len(labels) < NEEDED or len(set(labels.tolist())) < 2:
        return Relation(reason=f"{len(labels)} pictures can be decoded and are no copies of others; it takes {NEEDED}")
    told = np.unique(labels, return_inverse=True)[1]
    names = max((index.classes for index in indices.values()), key=len)
    made = Relation({name: len(of) for name, of in kept.items()}, {c: names[c] for c in chosen}, numbers=kept)
    return _measured(made, pixels, told, splits, np.unique(labels), rng)


def _classes(indices: Mapping[str, DatasetIndex]) -> list[int]:
    """The classes with the most pictures, of those that have enough of them in all splits together."""
    length = max(index.num_classes for index in indices.values())
    counts = sum(np.bincount(np.asarray(index.labels, dtype=np.int64), minlength=length) for index in indices.values())
    order = np.argsort(-np.asarray(counts), kind="stable")
    return sorted(int(c) for c in order[:CLASSES] if np.asarray(counts)[c] >= EACH)


def _drawn(index: DatasetIndex, chosen: list[int], count: int, rng: np.random.Generator) -> list[int]:
    labels = np.asarray(index.labels)
    of_class = [rng.permutation(np.flatnonzero(labels == c))[: -(-count // len(chosen))] for c in chosen]
    return sorted(int(number) for numbers in of_class for number in numbers)


def _decoded(
    indices: Mapping[str, DatasetIndex], numbers: Mapping[str, list[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, list[int]]]:
    """Pictures float32 (N, SIDE, SIDE, 3) 0..1, their labels, their splits, and their numbers. Damaged ones are left out, and so
    are copies (a label, however wrong, would be told from the copy's), and a split of which hardly anything is left."""
    pixels, labels, splits, places = [], [], [], []
    for split, chosen in numbers.items():
        index = indices[split]
        for number in chosen:
            try:
                picture = np.asarray(decode_image(index.path(number)))
            except UserError:
                continue
            pixels.append(cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA))
            labels.append(index.labels[number])
            splits.append(split)
            places.append(number)
    found = np.asarray(pixels, dtype=np.float32).reshape(-1, SIDE, SIDE, 3) / 255
    single, of = _single(found), np.asarray(splits)
    for split in numbers:
        if (single & (of == split)).sum() < 2:
            single &= of != split
    kept = {split: np.asarray(places)[single & (of == split)].tolist() for split in numbers}
    return found[single], np.asarray(labels)[single], of[single], {split: few for split, few in kept.items() if few}


def _single(pixels: np.ndarray) -> np.ndarray:
    """Which of N pictures show what none before them shows, however bright, mirrored or turned by right angles; bool (N,)."""
    small = pixels.reshape(len(pixels), SIDE // 2, 2, SIDE // 2, 2, 3).mean((2, 4))
    small = small - small.mean((1, 2, 3), keepdims=True)
    small /= np.sqrt((small**2).sum((1, 2, 3), keepdims=True)) + 1e-3
    flat, closest = small.reshape(len(small), -1), np.full((len(small),) * 2, -1, np.float32)
    for mirrored in (small, small[:, :, ::-1]):
        for turns in range(4):
            np.maximum(closest, flat @ np.rot90(mirrored, turns, (1, 2)).reshape(len(small), -1).T, out=closest)
    return np.logical_not(np.tril(closest >= SAME, -1).any(1))


def _measured(
    made: Relation, pixels: np.ndarray, told: np.ndarray, splits: np.ndarray, numbers: np.ndarray, rng: np.random.Generator
) -> Relation:
    one_hot = np.eye(told.max() + 1, dtype=np.float32)[told]
    parts = {name: splits == name for name in made.pictures}
    within, together, across = dict.fromkeys(parts, -np.inf), (-np.inf, 0.0, 0.0), -np.inf
    apart, alike = np.random.default_rng(0), dict.fromkeys(parts, -np.inf)
    least = min(int(part.sum()) for part in parts.values())
    equal = {name: np.sort(apart.permutation(np.flatnonzero(part))[:least]) for name, part in parts.items()}
    pairs, kernels, taken, best = [], [], {}, -np.inf
    for features in _features(pixels, rng):
        kernel = _kernel(features)
        kernels.append(kernel)
        together = max(together, _left_out(kernel, one_hot, rng))
        alone = {name: _left_out(kernel[np.ix_(part, part)], one_hot[part], rng)[0] for name, part in parts.items()}
        within = {name: max(within[name], distance) for name, distance in alone.items()}
        alike = {name: max(alike[name], _left_out(kernel[np.ix_(of, of)], one_hot[of], apart)[0]) for name, of in equal.items()}
        if len(parts) > 1:
            train, val = parts["train"], parts["val"]
            told_by = np.linalg.solve(_with_ridge(kernel[np.ix_(train, train)]), kernel[np.ix_(train, val)]).T
            across = max(across, _told_across(told_by, one_hot[train], one_hot[val], rng))
            pairs.append(_pairs(told_by, one_hot[train], one_hot[val]))
            if alone["val"] > best:  # by the features that tell the most
                best, taken = alone["val"], _taken_for(told_by @ _centred(one_hot[train]), one_hot[val], numbers)
    distance, right, chance = together
    few = _few(kernels, told, splits) if len(told) < MANY else ()
    doubtful = next((number for number, one in enumerate(few) if one.at_chance), None)
    if doubtful is not None and not few[doubtful].could_tell:
        which = (f"{len(told)} pictures", f"{(splits == 'val').sum()} pictures of validation")[doubtful]
        words = f"stay at chance (p = {few[doubtful].p:.2g}), and so few of them would not be told if they were right"
        return Relation(reason=f"the labels of {which} {words}")
    turned = _turned(np.asarray(pairs), kernels, one_hot, parts, rng) if pairs else []
    asked = distance < WEAKEST and not few
    return replace(
        made,
        together=distance,
        within=within,
        alike=alike,
        across=across if len(parts) > 1 else 0.0,
        exchanged=tuple((int(numbers[a]), int(numbers[b])) for a, b in turned),
        right=right,
        chance=chance,
        taken_for=taken,
        few=few,
        telling=_all(kernels, told).telling if asked else 0.0,
    )


def _all(kernels: list[np.ndarray], told: np.ndarray) -> Chance:
    """All pictures, each told from all others."""
    every = np.arange(len(told))
    return chance_of([_others(kernel) for kernel in kernels], kernels, told, every, every)


def _few(kernels: list[np.ndarray], told: np.ndarray, splits: np.ndarray) -> tuple[Chance, ...]:
    """All pictures, each told from all others; and where there is a validation, its pictures told from training's."""
    made = [_all(kernels, told)]
    train, val = np.flatnonzero(splits == "train"), np.flatnonzero(splits == "val")
    if len(train) and len(val):
        by = [np.linalg.solve(_with_ridge(one[np.ix_(train, train)]), one[np.ix_(train, val)]).T for one in kernels]
        made.append(chance_of(by, kernels, told, val, train))
    return tuple(made)


def _features(pixels: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Kinds of features, each (N, some): places, colours, edges where they are, and textures wherever they are."""
    count = len(pixels)
    small = np.stack([cv2.resize(one, (12, 12), interpolation=cv2.INTER_AREA) for one in pixels]).reshape(count, -1)
    yield (small - small.mean(1, keepdims=True)) / (small.std(1, keepdims=True) + 0.02)
    levels = pixels.reshape(count, -1, 3)
    yield np.concatenate(
        [levels.mean(1), levels.std(1), np.quantile(levels, (0.1, 0.5, 0.9), axis=1).transpose(1, 0, 2).reshape(count, -1)], 1
    )
    grey = pixels.mean(3)
    edges = _edges(grey)
    yield edges.reshape(count, -1)
    spectrum = np.log(1e-3 + np.abs(np.fft.rfft2(grey - grey.mean((1, 2), keepdims=True))))
    yield np.concatenate([edges.mean((1, 2)), spectrum.reshape(count, SIDE // 2, 2, -1).mean(2).reshape(count, -1)], 1)
    yield _patches(pixels, rng)


def _edges(grey: np.ndarray, bins: int = 9, cells: int = 8) -> np.ndarray:
    """Histograms of the directions of edges, (N, cells, cells, bins); Dalal and Triggs 2005."""
    across, down = np.gradient(grey, axis=2), np.gradient(grey, axis=1)
    size = np.hypot(across, down)
    place = np.minimum(np.mod(np.arctan2(down, across), np.pi) / np.pi * bins, bins - 1).astype(np.int64)
    votes = np.eye(bins, dtype=np.float32)[place] * size[..., None]
    made = votes.reshape(len(grey), cells, SIDE // cells, cells, SIDE // cells, bins).sum((2, 4))
    return np.sqrt(made / (made.sum((1, 2, 3), keepdims=True) + 1e-3))


def _patches(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How much of each of some patches a picture holds, wherever it is; Coates, Ng and Lee 2011."""
    views = np.lib.stride_tricks.sliding_window_view(pixels, (PATCH, PATCH), (1, 2))[:, ::2, ::2]  # (N, rows, columns, 3, P, P)
    count, rows, columns = views.shape[:3]
    filters = views[rng.integers(count, size=PATCHES), rng.integers(rows, size=PATCHES), rng.integers(columns, size=PATCHES)]
    filters = filters.reshape(PATCHES, -1)
    filters = filters - filters.mean(1, keepdims=True)
    filters /= np.linalg.norm(filters, axis=1, keepdims=True) + 1e-3
    made = []
    for part in np.array_split(np.arange(count), max(1, count // 100)):
        held = views[part].reshape(len(part), rows * columns, -1)
        held = held - held.mean(2, keepdims=True)
        held = held / (held.std(2, keepdims=True) * held.shape[2] ** 0.5 + 0.3)
        response = np.maximum(held @ filters.T - 0.1, 0)
        made.append(np.concatenate([response.mean(1), response.max(1)], 1))
    return np.concatenate(made)


def _kernel(features: np.ndarray) -> np.ndarray:
    """Gaussian kernel of standardised features, as wide as half of the pictures are apart, float32 (N, N)."""
    features = features.astype(np.float32)
    scaled = (features - features.mean(0)) / (features.std(0) + 1e-6)
    squares = (scaled**2).sum(1)
    apart = np.maximum(squares[:, None] + squares - 2 * scaled @ scaled.T, 0)
    return np.exp(-apart / max(float(np.median(apart)), 1e-12)).astype(np.float32)


def _centred(one_hot: np.ndarray) -> np.ndarray:
    return one_hot - one_hot.mean(0)


def _with_ridge(kernel: np.ndarray) -> np.ndarray:
    return kernel + RIDGE * np.eye(len(kernel), dtype=np.float32)


def _others(kernel: np.ndarray) -> np.ndarray:
    """What each other picture counts for a picture that is left out, (N, N)."""
    inverse = np.linalg.inv(_with_ridge(kernel))
    others = -inverse / np.diag(inverse)[:, None]
    np.fill_diagonal(others, 0.0)
    return others


def _left_out(kernel: np.ndarray, one_hot: np.ndarray, rng: np.random.Generator) -> tuple[float, float, float]:
    """Each picture told from all others: distance from chance, share that is right, and what chance makes of that share."""
    count = len(one_hot)
    others = _others(kernel)
    orders = [np.arange(count), *(rng.permutation(count) for _ in range(PERMUTED))]
    labels = np.stack([one_hot[order] for order in orders], 1)  # (pictures, orders, classes)
    scores = (others @ (labels - one_hot.mean(0)).reshape(count, -1)).reshape(labels.shape)
    sums, right = (scores * labels).sum((0, 2)), (scores.argmax(2) == labels.argmax(2)).mean(0)
    return _from_chance(float(sums[0]), sums[1:].tolist()), float(right[0]), float(right[1:].mean())


def _told_across(told_by: np.ndarray, train: np.ndarray, val: np.ndarray, rng: np.random.Generator) -> float:
    """How far validation's labels, told from training's, are from chance: from permuted labels of validation, and of training. One
    alone would not do: what a shuffled training set happens to say of a class, it says of all pictures of that class.

    Args:
        told_by: what each picture of training counts for each of validation, float32 (V, T).
        train, val: labels, one-hot float32 (T, classes) and (V, classes).
    """
    train, counts = _centred(train), val.T @ told_by  # (classes, T)
    scores = told_by @ train
    own = float((scores * val).sum())
    of_val = [float((scores * val[rng.permutation(len(val))]).sum()) for _ in range(PERMUTED)]
    of_train = [float((counts * train[rng.permutation(len(train))].T).sum()) for _ in range(PERMUTED)]
    return min(_from_chance(own, of_val), _from_chance(own, of_train))


def _pairs(told_by: np.ndarray, train: np.ndarray, val: np.ndarray) -> np.ndarray:
    """The same for each pair of classes alone, told from each other, (classes, classes), upper triangle: negative where validation
    has them the other way round. Mean and deviation over all permutations are known in closed form."""
    found = np.zeros((train.shape[1],) * 2)
    for a, b in zip(*np.triu_indices(len(found), 1), strict=True):
        here, there = val[:, a] + val[:, b] > 0, train[:, a] + train[:, b] > 0
        if min(here.sum(), there.sum()) >= 2 * EACH:
            signs, learnt = (val[:, a] - val[:, b])[here], (train[:, a] - train[:, b])[there]
            by = told_by[np.ix_(here, there)]
            distances = _distance(signs, by @ learnt), _distance(learnt, signs @ by)
            found[a, b] = min(distances, key=abs)
    return found


def _distance(signs: np.ndarray, values: np.ndarray) -> float:
    """Of the sum of products from that of permuted signs, in standard deviations."""
    signs, values = signs - signs.mean(), values - values.mean()
    deviation = float(np.sqrt((signs**2).sum() * (values**2).sum() / max(1, len(signs) - 1)))
    return float(signs @ values) / max(deviation, 1e-12)


def _turned(
    pairs: np.ndarray, kernels: list[np.ndarray], one_hot: np.ndarray, parts: Mapping[str, np.ndarray], rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Pairs of classes that validation has the other way round. Many pictures show it by one kind of features; few, of which no
    labelling is far from all others, by the mean of all kinds, where the pictures of each split tell the two from each other."""

    def apart(a: int, b: int, part: np.ndarray) -> float:
        here = part & (one_hot[:, a] + one_hot[:, b] > 0)
        return max(_left_out(kernel[np.ix_(here, here)], one_hot[here][:, [a, b]], rng)[0] for kernel in kernels)

    found = []
    for a, b in np.argwhere(pairs.max(0) < NOT):
        few = pairs[:, a, b].mean() <= -ON_AVERAGE and apart(a, b, parts["train"]) >= SURE and apart(a, b, parts["val"]) >= NOT
        if pairs[:, a, b].min() <= -SURE or few:
            found.append((int(a), int(b)))
    return found


def _taken_for(scores: np.ndarray, val: np.ndarray, numbers: np.ndarray) -> dict[int, int]:
    """Class number of validation -> that of training which its pictures look like."""
    seen = [c for c in range(val.shape[1]) if val[:, c].any()]
    return {int(numbers[c]): int(numbers[scores[val[:, c] > 0].mean(0).argmax()]) for c in seen}


def _from_chance(own: float, permuted: list[float]) -> float:
    return (own - float(np.mean(permuted))) / max(float(np.std(permuted)), 1e-12)


def unrelated(made: Relation) -> tuple[str, list[str]] | None:
    """What is wrong with the labels, and its places; None where nothing is, or too little was measured to say so."""
    if made.reason:
        return None
    if made.few:
        return _unrelated_few(made)
    count = sum(made.pictures.values())
    limit = NOT if count >= FEW else NOT_OF_FEW
    if len(made.within) > 1:
        train, val = made.within["train"], made.within["val"]
        fewer = (made.pictures["val"] / made.pictures["train"]) ** 0.5
        if made.across >= limit:
            if made.exchanged:
                return "some classes of validation are others of training", _exchanged(made)
            return _mostly_wrong(made) or _weak(made)
        if train >= SURE and val >= SURE:
            return "validation's pictures are told from each other, and not from training's", _exchanged(made)
        if val >= SURE and train < limit:
            return "validation's pictures have labels that belong to them, training's have not", ["the labels of training"]
        if train * min(fewer, 1.0) >= SURE and val < limit:
            return "training's pictures have labels that belong to them, validation's have not", ["the labels of validation"]
        if (mostly := _mostly_wrong(made)) is not None:
            return mostly
    if made.together >= limit:
        return _weak(made)
    said = f"held-out pictures stay at chance: {measured_words(made)}"
    return said, [f"the labels of {' and '.join(made.pictures)}: none belongs to its picture"]


def _unrelated_few(made: Relation) -> tuple[str, list[str]] | None:
    """The same of few pictures, where labels that follow from them would have been seen."""
    hedge = "classes that differ by more than simple features show look alike"
    together = made.few[0]
    if together.at_chance:
        said = f"labels do not follow the pictures: {measured_words(made)} (p = {together.p:.2g}; {hedge})"
        return said, [f"the labels of {' and '.join(made.pictures)}: most belong to other pictures"]
    if len(made.few) > 1 and (across := made.few[1]).at_chance and across.could_tell:
        said = f"labels of validation do not follow from those of training (p = {across.p:.2g}; {hedge})"
        return said, _exchanged(made) if min(made.within.values()) >= SURE else ["the labels of training or of validation"]
    return None


def _weak(made: Relation) -> tuple[str, list[str]] | None:
    """Labels that are hardly told from their pictures, where labels that follow from these pictures would be told clearly."""
    if made.together >= min(WEAKEST, WEAK * made.telling):
        return None
    said = (
        f"labels hardly follow the pictures: {measured_words(made)}, {made.together:.1f} deviations from chance; labels that "
        f"follow from them reach {made.telling:.0f} (classes that differ by more than simple features show look alike)"
    )
    return said, [f"the labels of {' and '.join(made.pictures)}: most belong to other pictures"]


def _mostly_wrong(made: Relation) -> tuple[str, list[str]] | None:
    """The split that has hardly any of the relation which as many pictures of the other one have: most of its labels are wrong."""
    low, high = sorted(made.alike, key=lambda name: made.alike[name])
    if made.alike[high] < 3 * SURE or max(made.alike[low], made.across / 3) >= MOSTLY * made.alike[high]:
        return None
    named = {"train": "training", "val": "validation"}
    said = f"most labels of {named[low]} belong to other pictures, and those of {named[high]} to their own"
    return said, [f"the labels of {named[low]}"]


def measured_words(made: Relation) -> str:
    """What was measured, in a line."""
    count, classes = sum(made.pictures.values()), len(made.classes)
    shares = f"follow from the others; by chance those of {made.chance:.0%}"
    return f"the labels of {made.right:.0%} of {count} pictures of {classes} classes {shares}"


def _exchanged(made: Relation) -> list[str]:
    concerned = {number for pair in made.exchanged for number in pair} or set(made.taken_for)
    others = {a: b for a, b in made.taken_for.items() if a != b and a in concerned}
    if made.exchanged and not others:
        return [f"validation: classes {a} and {b} ({made.classes[a]}, {made.classes[b]})" for a, b in made.exchanged]
    if (not made.exchanged and len(set(made.taken_for.values())) < len(made.taken_for)) or not others:
        return ["validation: pictures of another kind than training's, or labels of another list"]
    return [
        f"validation: class {a} ({made.classes.get(a, a)}) looks like class {b} ({made.classes.get(b, b)}) of training"
        for a, b in others.items()
    ]
