"""Going back to the last good checkpoint of a run that has diverged, and on from there with a lower learning rate."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

from mobilenetv3_common.checkpoint import CheckpointFolder, newest
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import Diverged
from mobilenetv3_common.run import Run, build_run
from mobilenetv3_common.training_backend import Builder


def rolled_back(run: Run, folder: CheckpointFolder | None, found: Diverged, builder: Builder | None) -> Run:
    """The run as its last good checkpoint has it, with lower learning rates; every rank has to call this.

    Without such a checkpoint it is the run as it began. One whose evaluation was not finite is not good; one that was written
    since the run was asked to stop does not count, so that a run that is stopped, or killed, and resumed takes the same way.

    Args:
        run: that has diverged; not to be used any more.
        folder: rank 0's; None on the others.
        found: what was seen.
        builder: as of ``build_run``.

    Raises:
        Diverged: ``found``, where the run may not go back (any more).
    """
    config = run.config
    if run.rollbacks >= config.roll_back:
        if run.rollbacks:
            raise Diverged(f"{found} (rolled back {counted(run.rollbacks, 'time')} already)") from found
        raise found
    source = newest(config.output_dir, functools.partial(_good, run))
    resume = config.resume if run.source is None or run.source.resolve().parent != Path(config.output_dir).resolve() else None
    again = build_run(run.backend, replace(config, resume=str(source) if source else resume), run.ranks, builder)
    again.config, again.observer, again.rollbacks = config, run.observer, run.rollbacks + 1
    again.lower_rates(run.rate_factor * config.roll_back_factor / again.rate_factor)
    run.ranks.sum([0.0])  # every rank has read the checkpoint
    if folder is not None:
        folder.back_to(source)
    return again


def _good(run: Run, update: int) -> bool:
    """Whether a checkpoint from after so many updates is one that every run of this config writes, and before ``run``."""
    regular = update % run.updates_per_epoch == 0 or (run.config.save_every > 0 and update % run.config.save_every == 0)
    return regular and update <= run.update - run.to_evaluate
