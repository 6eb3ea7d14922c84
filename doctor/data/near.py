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
    grid = thumbs.reshape(-1, 8, 2, 8, 2).mean((2, 4), dtype=np.float32)
    rises = np.roll(grid, -1, axis=2) - grid > RISE
    return np.packbits(rises.reshape(-1, 64), axis=1).view(">u8")[:, 0].astype(np.uint64)


def pairs(rows: np.ndarray, chosen: np.ndarray, limit: float) -> Pairs:
    """Look among the chosen rows.

    Args:
        rows: of type ``measure.ROW``.
        chosen: numbers of decodable rows, no two of which are the same file.
        limit: largest relative difference; 0 finds nothing.
    """
    contrast = rows["thumb"][chosen].reshape(len(chosen), -1).std(1, dtype=np.float32)
    chosen, contrast = chosen[contrast >= CONTRAST], contrast[contrast >= CONTRAST]
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    complete = True
    if limit > 0 and len(chosen) > 1:
        codes = hashes(rows["thumb"][chosen])
        looked_at = 0
        for group in _same_quarter(codes):
            looked_at += len(group) ** 2 // 2
            if looked_at > PAIRS_AT_MOST:
                complete = False
                continue
            for a, b in _close(codes, group):
                difference = _difference(rows["thumb"], chosen[a], chosen[b]) / np.minimum(contrast[a], contrast[b])
                near = difference <= limit
                found.append((chosen[a[near]], chosen[b[near]], difference[near]))
    if not found:
        empty = np.zeros(0, np.int64)
        return Pairs(empty, empty, np.zeros(0), complete)
    first, second, difference = (np.concatenate(part) for part in zip(*found, strict=True))
    _, once = np.unique(np.stack([first, second]), axis=1, return_index=True)
    order = once[np.argsort(difference[once], kind="stable")]
    return Pairs(first[order], second[order], difference[order], complete)


def _same_quarter(codes: np.ndarray) -> Iterator[np.ndarray]:
    """Groups of at least two places whose hashes agree in one quarter."""
    for quarter in range(4):
        part = (codes >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)
        order = np.argsort(part, kind="stable")
        starts = np.flatnonzero(np.diff(part[order])) + 1
        for group in np.split(order, starts):
            if len(group) > 1:
                yield np.sort(group)


def _close(codes: np.ndarray, group: np.ndarray, block: int = 512) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places a < b of a group whose hashes differ by at most ``HASH_BITS``."""
    for start in range(0, len(group), block):
        rows = group[start : start + block]
        others = group[start:]
        apart = np.bitwise_count(codes[rows][:, None] ^ codes[others][None])
        a, b = np.nonzero(apart <= HASH_BITS)
        keep = rows[a] < others[b]
        yield rows[a[keep]], others[b[keep]]


def _difference(thumbs: np.ndarray, a: np.ndarray, b: np.ndarray, block: int = 65536) -> np.ndarray:
    """Root mean square difference of thumbnails, in levels."""
    parts = []
    for start in range(0, len(a), block):
        cut = slice(start, start + block)
        gap = thumbs[a[cut]].astype(np.float32) - thumbs[b[cut]].astype(np.float32)
        parts.append(np.sqrt((gap**2).mean((1, 2))))
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)
