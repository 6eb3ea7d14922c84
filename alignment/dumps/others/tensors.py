"""Tensors in files of other tools: ``.npy``, ``.pt`` and ``.safetensors``, read without running code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from alignment.record import load_arrays
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import refuse_stand_in
from mobilenetv3_common.safetensors_file import read_safetensors
from mobilenetv3_common.torch_file import as_array, is_tensor, read_torch


def reader(flag: str, file: Path) -> Callable[[], np.ndarray]:
    """What reads the one tensor of a file when it is asked for."""
    return partial(tensor, flag, file)


def tensor(flag: str, file: Path) -> np.ndarray:
    """The one tensor of a file.

    Raises:
        UserError: it is missing, damaged, would run code, or holds something else.
    """
    if not file.is_file():
        raise UserError(f"{flag} {file}: the table names this file, which is missing: copy the whole folder")
    refuse_stand_in(file)
    if file.suffix == ".npy":
        return _only(flag, file, load_arrays(file))
    if file.suffix == ".safetensors":
        return _only(flag, file, read_safetensors(file))
    if file.suffix == ".pt":
        held = read_torch(file)
        if not is_tensor(held):
            raise UserError(f"{flag} {file}: holds no tensor, expected one alone")
        return as_array(held.detach(), "the tensor", file)
    raise UserError(f"{flag} {file}: expected a file that ends in .npy, .pt or .safetensors")


def _only(flag: str, file: Path, arrays: dict[str, np.ndarray]) -> np.ndarray:
    if len(arrays) != 1:
        raise UserError(f"{flag} {file}: holds {len(arrays)} arrays, expected one")
    return next(iter(arrays.values()))
