"""Data sets of any size from lite_data's photographs: class folders or list files, with uneven classes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import LITE_DATA

CLASSES = ("astronaut", "cat", "coffee", "flower", "galaxies")


def class_sizes(count: int) -> list[int]:
    """Uneven sizes of the five classes, which add up to ``count``: about 1 : 2 : 4 : 8 : 16, one picture at least."""
    sizes = [max(1, count * 2**number // 31) for number in range(len(CLASSES))]
    sizes[-1] += count - sum(sizes)
    return sizes


def make_data(root: Path, count: int, listed: bool) -> Path:
    """A data path whose ``train`` and ``val`` have ``count`` pictures each.

    Args:
        root: made here.
        count: pictures of a split, at least 5.
        listed: files in one folder and ``SPLIT_list.txt``, whose lines are in an order of their own; class folders otherwise.
    """
    for split in ("train", "val"):
        lines = []
        for label, (name, size) in enumerate(zip(CLASSES, class_sizes(count), strict=True)):
            photographs = sorted((LITE_DATA / split / name).glob("*.JPEG"))
            folder = root / ("pictures" if listed else f"{split}/{name}")
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(size):
                target = folder / f"{split}_{name}_{number}.JPEG"  # 10 sorts before 9, as in every such folder
                os.link(photographs[number % len(photographs)], target)
                lines.append(f"{target.relative_to(root)} {label}\n")
        if listed:
            (root / f"{split}_list.txt").write_text("".join(lines[1::2] + lines[::2]))
    return root
