"""Pictures that are the same but for coding, size and small changes of brightness: a perceptual hash, then a comparison.

The hash (dHash, N. Krawetz, 2013) says where brightness rises from left to right on an 8 x 8 grid. Two hashes that differ in at
most three of 64 bits agree in one of four quarters, so that only pictures with an equal quarter are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# Relative difference of two 16 x 16 grey thumbnails. Measured: JPEG of quality 30 to 95 and scaling by 0.5 to 1.7 change a
# photograph by up to 0.066; the two nearest of 1797 different digits differ by 0.09, of lite_data's crops of one scene by 0.64.
LIMIT = 0.07
HASH_BITS = 3  # hashes of the same picture may differ by
RISE = 2.0  # levels of 255 below which a step of brightness is flat
CONTRAST = 4.0  # levels: a picture with less is too empty to be recognised
PAIRS_AT_MOST = 200_000_000
BLOCK = 2048  # thumbnails at a time: what is computed of them stays in the cache


@dataclass(frozen=True)
class Pairs:
    """Pairs of samples that look the same.

    Attributes:
        first, second: numbers of the samples.
        difference: L2 norm of the difference of their thumbnails over that of the emptier one's contrast.
        complete: whether every pair was looked at.
    """

    first: np.ndarray
    second: np.ndarray
    difference: np.ndarray
    complete: bool = True


def hashes(thumbs: np.ndarray) -> np.ndarray:
    """Perceptual hashes, uint64 (N,), of grey thumbnails, uint8 (N, 16, 16)."""
    found = np.zeros(len(thumbs), np.uint64)
    for start in range(0, len(thumbs), BLOCK):
        levels = thumbs[start : start + BLOCK].astype(np.int16)
        rows = levels[:, ::2] + levels[:, 1::2]
        grid = rows[:, :, ::2] + rows[:, :, 1::2]  # four times the mean
        rises = np.roll(grid, -1, axis=2) - grid > 4 * RISE
        found[start : start + BLOCK] = np.packbits(rises.reshape(-1, 64), axis=1).view(">u8")[:, 0]
    return found


@dataclass(frozen=True)
class Recognisable:
    """Pictures with enough contrast to be compared.

    Attributes:
        samples: their numbers, int64 (M,).
        contrast: standard deviation of their thumbnails, levels of 255, float32 (M,).
    """

    samples: np.ndarray
    contrast: np.ndarray


def recognisable(thumbs: np.ndarray, samples: np.ndarray) -> Recognisable:
    """Those of some samples that have enough contrast.

    Args:
        thumbs: grey thumbnails of all samples, uint8 (N, 16, 16).
        samples: numbers of decodable samples, no two of which are the same file.
    """
    contrast = np.zeros(len(samples), np.float32)
    for start in range(0, len(samples), BLOCK):
        cut = slice(start, start + BLOCK)
        levels = thumbs[samples[cut]].reshape(-1, thumbs[0].size).astype(np.float32)
        levels -= levels.mean(1, keepdims=True)
        contrast[cut] = np.sqrt(np.einsum("ij,ij->i", levels, levels) / levels.shape[1])
    enough = contrast >= CONTRAST
    return Recognisable(samples[enough], contrast[enough])


def pairs(thumbs: np.ndarray, among: Recognisable, limit: float) -> Pairs:
    """Look among recognisable pictures.

    Args:
        thumbs: as of ``recognisable``; they may be mirrored, which leaves the contrast as it is.
        limit: largest relative difference; 0 finds nothing.
    """
    chosen, contrast = among.samples, among.contrast
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    complete = True
    if limit > 0 and len(chosen) > 1:
        codes = hashes(thumbs[chosen])
        levels = thumbs[chosen].reshape(len(chosen), -1)
        places, sizes = _same_quarter(codes)
        looked_at = np.cumsum(sizes**2 // 2) <= PAIRS_AT_MOST
        complete = bool(looked_at.all())
        for a, b in _pairs_of(places[np.repeat(looked_at, sizes)], sizes[looked_at]):
            close = np.bitwise_count(codes[a] ^ codes[b]) <= HASH_BITS
            a, b = a[close], b[close]
            difference = _difference(levels, a, b) / np.minimum(contrast[a], contrast[b])
            near = difference <= limit
            found.append((chosen[a[near]], chosen[b[near]], difference[near]))
    if not found:
        empty = np.zeros(0, np.int64)
        return Pairs(empty, empty, np.zeros(0), complete)
    first, second, difference = (np.concatenate(part) for part in zip(*found, strict=True))
    _, once = np.unique(np.stack([first, second]), axis=1, return_index=True)
    order = once[np.argsort(difference[once], kind="stable")]
    return Pairs(first[order], second[order], difference[order], complete)


def _same_quarter(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places whose hashes agree in one quarter, group after group of at least two, each rising; and how many each group has."""
    places, sizes = [], []
    for quarter in range(4):
        part = ((codes >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)).astype(np.uint16)
        order = np.argsort(part, kind="stable")
        edges = np.flatnonzero(np.diff(part[order])) + 1
        lengths = np.diff(edges, prepend=0, append=len(order))
        places.append(order[np.repeat(lengths > 1, lengths)])
        sizes.append(lengths[lengths > 1])
    return np.concatenate(places), np.concatenate(sizes)


def _pairs_of(places: np.ndarray, sizes: np.ndarray, block: int = 1 << 20) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All pairs a < b within each group of rising places, about ``block`` at a time."""
    ends = np.repeat(np.cumsum(sizes), sizes)
    partners = ends - np.arange(len(places)) - 1  # of each place: those behind it in its group
    totals = np.cumsum(partners)
    start = 0
    while start < len(places):
        stop = max(start + 1, int(np.searchsorted(totals, (totals[start - 1] if start else 0) + block, side="right")))
        counts = partners[start:stop]
        first = np.repeat(np.arange(start, stop), counts)
        behind = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
        yield places[first], places[first + behind]
        start = stop


def _difference(levels: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Root mean square difference of rows of ``levels``, uint8 (N, 256), in levels, float32."""
    found = np.zeros(len(a), np.float32)
    for start in range(0, len(a), BLOCK):
        cut = slice(start, start + BLOCK)
        gap = levels[a[cut]].astype(np.float32) - levels[b[cut]]
        found[cut] = np.sqrt(np.einsum("ij,ij->i", gap, gap) / levels.shape[1])
    return found
