"""The weights of the reference, which one attempt leaves for those that follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mobilenetv3_common.weights import State


def kept_state(weights: Path, model: str, seed: int) -> State | None:
    """The kept weights of the reference; None where there are none yet."""
    file = state_file(weights, model, seed)
    if not file.exists():
        return None
    with np.load(file) as kept:
        return dict(kept)


def state_file(weights: Path, model: str, seed: int) -> Path:
    """Where they are kept, of a model and a seed."""
    return weights / f"{model}{seed or ''}.npz"
