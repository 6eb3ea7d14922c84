"""Runs that end before their end: killed while they evaluate, or with weights that are no numbers when they would be saved."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alignment.kinds import Kind
from alignment.witness import Told
from mobilenetv3_common.checkpoint import read_checkpoint
from mobilenetv3_common.errors import Diverged
from projects.witnesses.loop.backend import Backend, Killed
from projects.witnesses.loop.cases import compared, features_of, lines_of, material, trained, written
from projects.witnesses.loop.script import Script

PER_EPOCH, BATCHES = 5, 3  # updates of an epoch, and batches of an evaluation, of the pictures
KILLED: dict[str, dict[str, Any]] = {
    "plain": {"epochs": 3, "momentum": 0.5},
    "averaged": {"epochs": 4, "ema_decay": 0.5, "eval_every": 2, "early_stop": 3},
}


def ends() -> Iterator[Told]:
    """A run that was killed is gone on with; one that has diverged leaves no checkpoint of it."""
    yield from _killed()
    yield from _not_finite()


def _killed() -> Iterator[Told]:
    """Killed in its second evaluation: the epoch is saved, is evaluated when the run goes on, and nothing is told twice."""
    for case, changes in KILLED.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            data = written(folder / "data")
            expected = Script(material(), **changes).run()
            with contextlib.suppress(Killed):
                trained(folder, data, "run", Backend(killed=BATCHES + 2), **changes)
            done = 2 * PER_EPOCH * changes.get("eval_every", 1)
            where, meta = f"{case}, killed in its second evaluation", read_checkpoint(folder / "run/latest.safetensors").meta
            saved = [meta.get("update"), meta.get("to_evaluate")]
            yield Told(
                f"{where}: updates saved, to be evaluated", saved, [done, True], "run.checkpoint_of", Kind.STATE_NOT_SAVED, 1
            )
            backend, output = trained(folder, data, "run", **changes, resume="auto")
            evaluated = [line["update"] for line in lines_of(output) if line["kind"] == "eval"]
            right = [line["update"] for line in expected.lines if line["kind"] == "eval"]
            yield Told(f"{where}: evaluations after", evaluated, right, "run.restore: to_evaluate", Kind.STATE_NOT_RESTORED, 1)
            yield from compared(where, expected, backend, output, features_of(changes) + 1, done, whole_log=True)


def _not_finite() -> Iterator[Told]:
    """Weights that are no numbers are not saved, at an epoch's end nor between."""
    for case, update, left in (("at an epoch's end", PER_EPOCH, [2, 4]), ("within an epoch", PER_EPOCH + 1, [2, 4, 5])):
        with tempfile.TemporaryDirectory() as name:
            folder, said = Path(name), ""
            backend = Backend(poisoned=(update,))
            try:
                trained(folder, written(folder / "data"), "run", backend, epochs=2, save_every=2, keep=9)
            except Diverged as error:
                said = error.line
            found = ["diverged" in said, len(backend.updates)]
            where = f"weights become no numbers {case}"
            yield Told(where, found, [True, update], "training.save", Kind.NOT_FINITE, 1)
            saved = [int(path.stem.removeprefix("update_")) for path in sorted((folder / "run").glob("update_*"))]
            yield Told(f"{where}: checkpoints", saved, left, "training.save", Kind.STATE_NOT_SAVED, 1)
