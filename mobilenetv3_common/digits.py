"""The handwritten digits that scikit-learn installs, written out as ImageNet folders: real pictures to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from mobilenetv3_common.files import ensure_writable_dir

SIZE = 32
EVERY = 5  # each fifth picture of a class is for validation


def write_digits(folder: str | Path, train_per_class: int | None = None, val_per_class: int | None = None) -> Path:
    """Write the 1797 digits (Alpaydin and Kaynak 1998, 8 x 8 grey levels) as RGB PNG files of 32 x 32 pixels.

    Args:
        folder: gets ``train/digit_0 .. digit_9`` and ``val/digit_0 .. digit_9``: 1433 and 364 pictures.
        train_per_class, val_per_class: keep only so many pictures a class.

    Returns:
        The folder, for ``--data-path``.

    Raises:
        UserError: it cannot be written.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    root = ensure_writable_dir(folder)
    seen = dict.fromkeys(range(10), 0)
    for levels, label in zip(digits.images, digits.target, strict=True):
        number = seen[int(label)]
        seen[int(label)] += 1
        split = "val" if number % EVERY == 0 else "train"
        place, limit = (number // EVERY, val_per_class) if split == "val" else (number - number // EVERY - 1, train_per_class)
        if limit is not None and place >= limit:
            continue
        grey = Image.fromarray(np.round(levels * (255 / 16)).astype(np.uint8))
        target = root / split / f"digit_{label}"
        target.mkdir(parents=True, exist_ok=True)
        grey.resize((SIZE, SIZE), Image.Resampling.BICUBIC).convert("RGB").save(target / f"{number:04d}.png")
    return root
