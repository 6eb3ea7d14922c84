"""Checkpoints: one safetensors file each, whole or absent, read without running code.

The tensors are named ``model/...``, ``ema/...`` and ``optimizer/...``, and in mid-epoch, where ranks have BatchNorm statistics of
their own, ``rankN/model/...`` and ``rankN/ema/...``; everything else (where the run stands, schedule, scaler, config, classes) is
JSON in the file's metadata, in which Python's floats survive to the last bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.config_file import recipe_text
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.evaluation_record import EVALUATION
from mobilenetv3_common.files import atomic_open, ensure_writable_dir, regular_file
from mobilenetv3_common.tracking import TRACKED
from mobilenetv3_common.train_log import EVENTS, JSON_LINES, SCALARS, TABLES, TEXT_LOG

FORMAT = "mobilenetv3-checkpoint-1"
LATEST, BEST = "latest.safetensors", "best.safetensors"
BEST_WEIGHTS, CARD = "best_weights", "model_card.md"  # the tensors alone, in several kinds of file, and what they are
PAGE = "report.html"
SPLIT_LISTS = "split"  # folder with the lists of what was trained on and what was held out
CONFIG, OTHER_CONFIG = "config.yaml", "config.effective.yaml"
HEADER = "The effective config of this run: give it as --config."


@dataclass
class Checkpoint:
    """Everything that a run needs to go on.

    Attributes:
        arrays: tensors by ``kind/name``, kind being ``model``, ``ema``, ``optimizer`` or ``rankN``.
        meta: JSON values; ``framework``, ``epoch``, ``update``, ``config`` and ``classes`` among them.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def part(self, kind: str) -> dict[str, np.ndarray]:
        """The tensors of one kind under their own names."""
        return {name.removeprefix(f"{kind}/"): array for name, array in self.arrays.items() if name.startswith(f"{kind}/")}

    def weights(self) -> dict[str, np.ndarray]:
        """The weights to evaluate with: the moving average where the run keeps one, else the model's."""
        return self.part("ema") or self.part("model")


def is_checkpoint(path: str | os.PathLike) -> bool:
    """Whether a safetensors file is a checkpoint; False for one that cannot be read at all."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():  # opening a pipe would hang
        return False
    try:
        with safe_open(str(path), framework="numpy") as file:
            return (file.metadata() or {}).get("format") == FORMAT
    except (SafetensorError, OSError):
        return False


def checkpoint_meta(path: str | os.PathLike) -> dict[str, Any]:
    """What a checkpoint says beside its tensors: ``config``, ``classes`` and so on; empty for any other file."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():  # opening a pipe would hang; who reads the weights says what is wrong
        return {}
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
        meta = json.loads(metadata["meta"]) if metadata.get("format") == FORMAT else {}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


def checkpoint_classes(path: str | os.PathLike) -> tuple[str, ...] | None:
    """The names of the classes that a checkpoint's last layer gives; None for any other file."""
    names = checkpoint_meta(path).get("classes")
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def write_checkpoint(path: str | os.PathLike, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all.

    Raises:
        UserError: it cannot be written, e.g. the disk is full; an older file of that name is then untouched.
    """
    from safetensors.numpy import save

    metadata = {"format": FORMAT, "meta": json.dumps(checkpoint.meta)}
    data = save({name: np.array(array, order="C") for name, array in checkpoint.arrays.items()}, metadata)
    with atomic_open(path) as file:
        file.write(data)


def read_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        UserError: the file is missing, cut short, damaged, or something else than a checkpoint.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise UserError(f"no such checkpoint: {path}")
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise UserError(f"{path} holds weights, but is no checkpoint to resume from: give it as --pretrained")
            names = file.keys()  # not a dict: safe_open offers keys() alone
            return Checkpoint({name: file.get_tensor(name) for name in names}, json.loads(metadata["meta"]))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"checkpoint {path} is damaged or cut short ({error}): resume from another one in its folder") from error


class CheckpointFolder:
    """The checkpoints of a run: the last ``keep``, the latest and the best.

    ``latest`` and ``best`` are hard links where the file system has them, so that they cost no space.

    Args:
        folder: made if need be.
        keep: numbered checkpoints to keep, at least 1.
        keep_best: evaluated ones to keep by their top-1 besides, at least 1; with 1 that is ``best`` alone.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 3, keep_best: int = 1) -> None:
        self.folder = ensure_writable_dir(folder)
        self.keep, self.keep_best = keep, keep_best
        for name in (
            "*.safetensors",
            CONFIG,
            OTHER_CONFIG,
            BEST_WEIGHTS,
            CARD,
            TEXT_LOG,
            JSON_LINES,
            *TABLES,
        ):  # of a run that was killed while it wrote
            for leftover in self.folder.glob(f".{name}*.tmp"):
                leftover.unlink(missing_ok=True)

    def numbered(self) -> list[Path]:
        """The numbered checkpoints, oldest first."""
        return sorted(self.folder.glob("update_*.safetensors"))

    def top(self) -> list[Path]:
        """The checkpoints kept by their top-1, best first; of equal ones the earlier."""
        found = [(path, re.fullmatch(r"top_(\d\.\d+)_update_(\d+)\.safetensors", path.name)) for path in self.folder.glob("top_*")]
        return [path for path, name in sorted(found, key=lambda of: (of[1] and (-float(of[1][1]), int(of[1][2]))) or ()) if name]

    def set_aside(self, source: Path | None) -> Path | None:
        """Move what an earlier run left here into ``earlier_N``, so that another run writes nothing over.

        Args:
            source: the checkpoint from which the new run goes on; nothing is moved where it is of this very folder.

        Returns:
            The folder that now holds the earlier run's checkpoints, config and logs; None where there was no such run.
        """
        if source is not None and source.resolve().parent == self.folder.resolve():
            return None
        logs = [
            self.folder / name for name in (TEXT_LOG, JSON_LINES, *TABLES, EVENTS, TRACKED, SPLIT_LISTS, EVALUATION, PAGE, *SCALARS)
        ]
        released = (*sorted(self.folder.glob(f"{BEST_WEIGHTS}.*")), self.folder / CARD)
        runs = (*self.numbered(), *self.top(), self.folder / LATEST, self.folder / BEST, *released, *logs)
        found = [path for path in runs if os.path.lexists(path)]
        if not found:
            return None
        found += [path for path in (self.folder / CONFIG, self.folder / OTHER_CONFIG) if _is_effective(path)]
        number = 1
        while os.path.lexists(earlier := self.folder / f"earlier_{number}"):
            number += 1
        earlier.mkdir()
        for path in found:
            path.rename(earlier / path.name)
        return earlier

    def save(self, checkpoint: Checkpoint, best: bool, top1: float | None = None) -> Path:
        """Write a checkpoint, point ``latest`` (and ``best``) at it, and remove what is beyond ``keep`` and ``keep_best``."""
        path = self.folder / f"update_{checkpoint.meta['update']:09d}.safetensors"
        write_checkpoint(path, checkpoint)
        self._link(path, LATEST)
        if best:
            self._link(path, BEST)
        if top1 is not None and self.keep_best > 1:
            self._link(path, f"top_{top1:.6f}_{path.name}")
            for worse in self.top()[self.keep_best :]:
                worse.unlink(missing_ok=True)
        for old in self.numbered()[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def back_to(self, path: Path | None) -> None:
        """Forget the numbered checkpoints that come after one, or all where None; ``latest`` is then that one."""
        for later in self.numbered():
            if path is None or later.name > f"update_{update_of(path):09d}.safetensors":
                later.unlink(missing_ok=True)
        if path is None:
            (self.folder / LATEST).unlink(missing_ok=True)
        else:
            self._link(path, LATEST)

    def _link(self, path: Path, name: str) -> None:
        temporary = self.folder / f".{name}.tmp"
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
            os.replace(temporary, self.folder / name)
        except OSError:  # a file system without hard links
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            with atomic_open(self.folder / name) as file:
                file.write(path.read_bytes())


def update_of(path: Path) -> int:
    """How many updates a run had done when it wrote a checkpoint.

    Raises:
        UserError: the file is no checkpoint.
    """
    return int(read_checkpoint(path).meta["update"])


def newest(folder: str | os.PathLike, counts: Callable[[int], bool]) -> Path | None:
    """The newest checkpoint of a run's folder from after a number of updates that ``counts``; None where there is none."""
    found = [path for path in (*Path(folder).glob("update_*.safetensors"), Path(folder) / BEST) if path.is_file()]
    updates = {path: update_of(path) for path in found}
    return max((path for path in found if counts(updates[path])), key=lambda path: updates[path], default=None)


def write_effective(folder: Path, config: Any) -> Path:
    """Write the effective config of a run beside its checkpoints; a ``config.yaml`` that is not a run's own is kept.

    Returns:
        The file: ``config.yaml``, or ``config.effective.yaml`` where the former is the user's.

    Raises:
        UserError: both are the user's, or the file cannot be written.
    """
    free = [p for p in (folder / CONFIG, folder / OTHER_CONFIG) if not os.path.lexists(p) or _is_effective(p)]
    if not free:
        raise UserError(f"neither {folder / CONFIG} nor {OTHER_CONFIG} is a run's: move one away, or choose another --output-dir")
    path, text = free[0], recipe_text(config, HEADER)
    with atomic_open(path, "w") as file:
        file.write(text)
    return path


def _is_effective(path: Path) -> bool:
    """Whether a run wrote this config."""
    if not path.is_file():
        return False
    try:
        return path.read_text(encoding="utf-8").startswith(f"# {HEADER}\n")
    except (OSError, UnicodeDecodeError):
        return False


def find_checkpoint(resume: str, output_dir: str | os.PathLike) -> Path | None:
    """The file that ``--resume`` means: a checkpoint, the latest of a folder, or with ``auto`` the latest of the run.

    Returns:
        The file; None where ``auto`` finds none, so that the run begins anew. Where only the latest's name is gone, ``auto`` and a
        folder mean the newest numbered one.

    Raises:
        UserError: the folder holds none, or there is no such file; with ``auto``, what has the latest's name is no file.
    """
    if resume == "auto":
        return _latest(Path(output_dir))
    path = Path(resume)
    if path.is_dir():
        if (found := _latest(path)) is None:
            raise UserError(f"--resume {resume}: the folder holds no {LATEST}, and no other checkpoint of a run")
        return found
    if not path.is_file():
        raise UserError(f"--resume {resume}: no such file or folder")
    return path


def _latest(folder: Path) -> Path | None:
    if regular_file(folder / LATEST):
        return folder / LATEST
    return max((path for path in folder.glob("update_*.safetensors") if path.is_file()), default=None)
