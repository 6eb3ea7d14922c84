"""What the benchmarks load, list and examine, made from lite_data's photographs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tools.benchmarks.models import ROOT


def write_jpegs(folder: Path, pictures: int) -> None:
    """ImageNet-sized JPEGs (500 x 375) cut from lite_data's photographs, one class."""
    from PIL import Image

    sources = sorted((ROOT / "lite_data").glob("*/*/*.JPEG"))
    (folder / "train" / "all").mkdir(parents=True)
    for number in range(pictures):
        image = Image.open(sources[number % len(sources)]).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / "train" / "all" / f"{number:05d}.JPEG", quality=90)


def write_small(folder: Path, pictures: int, size: int) -> None:
    """Square JPEGs, each two random crops of lite_data's photographs, one over the other: ten classes, a sixth for validation."""
    import numpy as np
    from PIL import Image

    root = ROOT / "lite_data"
    sources = [Image.open(path).convert("RGB") for path in sorted(root.glob("*/*/*.JPEG"))]
    rng = np.random.default_rng(0)
    for number in range(pictures):
        place = folder / ("val" if number % 6 == 0 else "train") / str(number // 6 % 10)
        place.mkdir(parents=True, exist_ok=True)
        crops = []
        for source in (sources[choice] for choice in rng.choice(len(sources), 2, replace=False)):
            side = int(rng.integers(64, min(source.size)))
            left, top = (int(rng.integers(0, length - side + 1)) for length in source.size)
            crops.append(source.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + side, top + side)))
        Image.blend(crops[0], crops[1], 0.5).save(place / f"{number:05d}.JPEG", quality=90)


def write_names(folder: Path, pictures: int) -> list[str]:
    """Empty files with ImageNet's names in up to 1,000 class folders; gives the lines of a list file."""
    classes = min(1000, pictures)
    lines = []
    for number in range(pictures):
        label = number * classes // pictures
        name = f"train/n{label:08d}/n{label:08d}_{number}.JPEG"
        if number == 0 or label != (number - 1) * classes // pictures:
            (folder / name).parent.mkdir(parents=True)
        os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY))
        lines.append(f"{name} {label}")
    time.sleep(3)  # a folder that has just changed is listed again (mobilenetv3_common.index_cache)
    return lines
