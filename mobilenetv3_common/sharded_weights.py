"""Weights that lie in several files of a folder: Hugging Face's index of shards, and the folders of MMEngine and DeepSpeed.

An index is somebody else's text that names files. It names them within its own folder alone; a link there is followed to the
blobs of Hugging Face's cache, and nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError

INDEX = "index.json"  # how the names of indices end: model.safetensors.index.json, pytorch_model.bin.index.json
LARGEST_INDEX = 1 << 26  # bytes; a hundred thousand tensors take ten million
WHOLE = (
    "model.safetensors",
    "pytorch_model.bin",
    "mp_rank_00_model_states.pt",
)  # of a folder; the last is DeepSpeed's and MMEngine's
# Files with parts of tensors: of DeepSpeed's tensor parallelism and ZeRO-3, of MMEngine's FSDP.
PARTS = ("mp_rank_01_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt", "rank0.pth")


def is_index(path: Path) -> bool:
    """Whether a file's name is that of an index of shards."""
    return path.name.endswith(INDEX)


def file_in(path: Path, missing: str = "is a folder: give the file of weights in it") -> Path:
    """The file of weights that is meant: of a folder that a trainer wrote, the one in it.

    Args:
        path: of a file or a folder.
        missing: what is said of a folder that has none.

    Raises:
        UserError: the folder has several, parts that only the program that wrote them puts together, or none that is known.
    """
    if not path.is_dir():
        return path
    names = sorted(os.listdir(path))
    if parts := [name for name in names if name in PARTS]:
        raise UserError(
            f"{path} holds parts of tensors, one file for each process ({parts[0]}): write a full state_dict with the program that "
            "trained them (FSDP: state_dict_type='full'; DeepSpeed: zero_to_fp32.py)"
        )
    found = [name for name in names if is_index(Path(name))] or [name for name in WHOLE if name in names]
    if len(found) > 1:
        raise UserError(f"{path} holds {' and '.join(found)}: give the file of weights in it")
    if not found:
        raise UserError(f"{path} {missing}")
    return path / found[0]


def read_shards(path: Path, read: Callable[[Path], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The tensors that an index names, each from its shard; one shard is in memory at a time beside what was taken.

    Args:
        path: of the index.
        read: gives the tensors of a shard.

    Raises:
        UserError: it is no index, names a file outside its folder, or a shard or a tensor is missing.
    """
    shards: dict[str, list[str]] = {}
    for name, shard in _weight_map(path).items():
        shards.setdefault(shard, []).append(name)
    files = {shard: _beside(path, shard) for shard in shards}
    state: dict[str, np.ndarray] = {}
    for shard, names in shards.items():
        held = read(files[shard])
        if missing := [name for name in names if name not in held]:
            raise UserError(f"{path}: {shard} does not hold {missing[0]}, which the index says: download both again")
        state |= {name: held[name] for name in names}
    return state


def _weight_map(path: Path) -> dict[str, str]:
    if path.stat().st_size > LARGEST_INDEX:
        raise UserError(f"{path} has more than {LARGEST_INDEX} bytes: an index of weights is smaller")
    try:
        content: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no index of weights: it is not JSON ({str(error)[:80]})") from error
    named = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(named, dict) or not named or not all(isinstance(shard, str) for shard in named.values()):
        raise UserError(f"{path} is no index of weights: its weight_map must say the file of each tensor")
    return named


def _beside(path: Path, shard: str) -> Path:
    """A shard's file in the folder of its index.

    Raises:
        UserError: it lies elsewhere, is none of weights, or is not there.
    """
    file = path.parent / shard
    if shard != os.path.basename(shard) or "\\" in shard or "\0" in shard or is_index(file) or not file.suffix:
        raise UserError(f"{path} names {shard[:200]!r}, which is no file of weights beside it: only its own folder is read")
    if not file.is_file():
        raise UserError(f"{path} names {shard}, which is missing: download it to the same folder")
    folder = path.parent.resolve()
    if file.resolve().parent not in (folder, folder.parent.parent / "blobs"):
        raise UserError(f"{file} is a link to another folder, which is not followed: put the file itself beside {path.name}")
    return file
