"""A run's folder as the checks see it."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alignment_doctor.check.command import config_of_run
from alignment_doctor.compare.logs import RunLog, read_run
from mobilenetv3_common.checkpoint import BEST, LATEST, checkpoint_meta
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.dataset_index import SPLITS, has_split
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.evaluation_record import Record, read_record
from mobilenetv3_common.run_lock import at_work
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import TEXT_LOG

SHOWN_OF_A_LINE = 200


@dataclass
class RunFolder:
    """A run.

    Attributes:
        folder: that tools/train.py wrote, or one with another program's log; that of the log where only this was given.
        log: what it says.
    """

    folder: Path
    log: RunLog

    @functools.cached_property
    def record(self) -> Record | None:
        """The evaluation of its best weights; None where there is none."""
        return read_record(self.folder)

    @functools.cached_property
    def at_work(self) -> bool:
        """Whether the run still goes on."""
        return at_work(self.folder)

    @functools.cached_property
    def stands(self) -> dict[str, Any]:
        """What its latest checkpoint says; empty where it has none that can be read."""
        return checkpoint_meta(self.folder / LATEST)

    @functools.cached_property
    def config(self) -> TrainConfig:
        """Its effective settings.

        Raises:
            UserError: it has none that can be read.
        """
        return make_config(TrainConfig, config_of_run(str(self.folder), None), {})

    @property
    def first_weights(self) -> float:
        """Their share in the moving average that was evaluated, 0..1; 0 where the settings cannot be read."""
        with contextlib.suppress(UserError):
            return self.config.first_weights_left(int(self.stands.get("update", 0)))
        return 0.0

    @functools.cached_property
    def checkpoints(self) -> list[tuple[int, Path]]:
        """Its checkpoints that can be read, each with its update, the earliest first."""
        paths = [*self.folder.glob("update_*.safetensors"), self.folder / BEST, self.folder / LATEST]
        found = [(checkpoint_meta(path).get("update"), path) for path in paths]
        return sorted((update, path) for update, path in found if isinstance(update, int))

    @property
    def last_line(self) -> str:
        """The last line that the run wrote for people; empty where there is none."""
        try:
            lines = (self.folder / TEXT_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return lines[-1][:SHOWN_OF_A_LINE] if lines else ""


def load(path: Path) -> RunFolder:
    """A run by its folder or its log.

    Raises:
        UserError: it has no log that can be read.
    """
    try:
        log = read_run(path)
    except UserError:
        if path.is_dir() and any(has_split(path, split) for split in SPLITS):
            raise UserError(f"{path} holds pictures and no run: python tools/doctor.py data {path}") from None
        raise
    return RunFolder(path if path.is_dir() else path.parent, log)
