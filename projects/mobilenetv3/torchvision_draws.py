"""How torchvision's own transforms draw: ``alignment.draws.Draws`` as a module.

Boxes and shares are drawn by torchvision itself. What a policy does has few values, so that its probabilities are computed from
torchvision's own tables; tests/test_sampling.py holds them against what torchvision's policies then really do.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torchvision.transforms import RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop, autoaugment, v2

from alignment.draws import MagnitudeTable, Operations

SEED = 20
Law = Mapping[Operations, float]


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """torch's global generator begins anew inside the block, and goes on outside as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        yield


def _fixed(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)  # it is kept, and handed out again
    return array


def ranges(what: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """What ``RandomResizedCrop`` and ``RandomErasing`` have by default."""
    default = RandomResizedCrop(224) if what == "crop" else RandomErasing()
    (smallest, largest), (narrow, wide) = default.scale, default.ratio
    return (smallest, largest), (narrow, wide)


@functools.cache
def crops(
    count: int,
    height: int,
    width: int,
    scale: tuple[float, float] | None = None,
    ratio: tuple[float, float] | None = None,
) -> np.ndarray:
    """``RandomResizedCrop``'s boxes."""
    default = ranges("crop")
    given = list(scale or default[0]), list(ratio or default[1])
    image = torch.empty((1, height, width), dtype=torch.uint8)
    with _seeded():
        return _fixed(np.array([RandomResizedCrop.get_params(image, *given) for _ in range(count)]))


@functools.cache
def padded_crops(count: int, height: int, width: int, padding: int) -> np.ndarray:
    """``RandomCrop``'s boxes with ``padding``, in the coordinates of the picture without it."""
    padded = torch.empty((1, height + 2 * padding, width + 2 * padding), dtype=torch.uint8)
    with _seeded():
        drawn = [RandomCrop.get_params(padded, (height, width)) for _ in range(count)]
    return _fixed(np.array(drawn) - (padding, padding, 0, 0))


def flip_probability() -> float:
    """``RandomHorizontalFlip``'s."""
    return RandomHorizontalFlip().p


@functools.cache
def erasures(count: int, height: int, width: int) -> np.ndarray:
    """``RandomErasing``'s boxes; where it finds none it gives the whole picture and leaves it as it is."""
    image = torch.empty((1, height, width), dtype=torch.uint8)
    scale, ratio = ranges("erase")
    with _seeded():
        drawn = [RandomErasing.get_params(image, scale, ratio, [0.0]) for _ in range(count)]
    return _fixed(np.array([(-1, -1, -1, -1) if value is image else box for *box, value in drawn]))


@functools.cache
def magnitudes(policy: str, height: int, width: int) -> MagnitudeTable:
    """The policy's own table."""
    if policy == "ta_wide":
        trivial = autoaugment.TrivialAugmentWide()
        table = trivial._augmentation_space(trivial.num_magnitude_bins)
    elif policy == "ra":
        random = autoaugment.RandAugment()
        table = random._augmentation_space(random.num_magnitude_bins, (height, width))
    else:
        table = autoaugment.AutoAugment()._augmentation_space(10, (height, width))
    return {name: ([float(v) for v in values.tolist()] if values.ndim else [], sign) for name, (values, sign) in table.items()}


def _one(table: MagnitudeTable, name: str, magnitude_bin: int | None) -> Law:
    values, signed = table[name]
    value = values[magnitude_bin] if values and magnitude_bin is not None else 0.0
    return {((name, value),): 0.5, ((name, -value),): 0.5} if signed and value else {((name, value),): 1.0}


def _mixed(*parts: tuple[float, Law]) -> Law:
    """The law of one of several things, each with its own probability."""
    law: Counter[Operations] = Counter()
    for share, part in parts:
        for outcome, probability in part.items():
            law[outcome] += share * probability  # type: ignore[assignment]  # a Counter of probabilities
    return {outcome: float(probability) for outcome, probability in law.items() if probability > 0}


def _then(first: Law, second: Law) -> Law:
    """The law of one thing after the other, independently drawn."""
    return _mixed(*((p, {a + b: q for b, q in second.items()}) for a, p in first.items()))


@functools.cache
def operations(policy: str, height: int, width: int, magnitude: int | None = None) -> Law:
    """What each policy can do to a picture."""
    table = magnitudes(policy, height, width)
    if policy == "imagenet":
        pairs = autoaugment.AutoAugment().policies
        maybe = [[_mixed((p, _one(table, name, at)), (1 - p, {(): 1.0})) for name, p, at in pair] for pair in pairs]
        return _mixed(*((1 / len(pairs), _then(first, second)) for first, second in maybe))
    if policy == "ta_wide":
        every = [(name, at, max(len(values), 1)) for name, (values, _) in table.items() for at in range(max(len(values), 1))]
        return _mixed(*((1 / len(table) / bins, _one(table, name, at)) for name, at, bins in every))
    default = autoaugment.RandAugment()
    chosen = default.magnitude if magnitude is None else magnitude
    one = _mixed(*((1 / len(table), _one(table, name, chosen)) for name in table))
    return functools.reduce(_then, [one] * default.num_ops)


@functools.cache
def mixup_shares(count: int, alpha: float) -> np.ndarray:
    """``MixUp``'s share."""
    with _seeded():
        return _fixed(v2.MixUp(alpha=alpha)._dist.sample((count,)).double().numpy().reshape(-1))


@functools.cache
def cutmix_boxes(count: int, alpha: float, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """``CutMix``'s share and box."""
    mixer, images = v2.CutMix(alpha=alpha), [torch.empty((2, 1, height, width), dtype=torch.uint8)]
    with _seeded():
        drawn = [mixer.make_params(images) for _ in range(count)]
    sides = np.array([params["box"] for params in drawn])  # left, top, right, bottom
    boxes = np.stack([sides[:, 1], sides[:, 0], sides[:, 3] - sides[:, 1], sides[:, 2] - sides[:, 0]], axis=1)
    return _fixed(np.array([params["lam_adjusted"] for params in drawn])), _fixed(boxes)
