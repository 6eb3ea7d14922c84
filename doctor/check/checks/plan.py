"""The learning rate over the whole run."""

from __future__ import annotations

import numpy as np

from doctor.check.subject import RunSubject
from doctor.findings import Outcome, check, judged


def _leeway(schedule: str, units: int) -> float:
    """How far the largest of so many rates may lie below the base: the top of one cycle falls between two units."""
    return 0.01 if schedule != "onecycle" else 0.1 if units >= 20 else 1.0


@check(
    "check.schedule",
    "002 hp.01",
    "000 step 6",
    "004 lr",
    measures="the learning rate of every update or epoch of the whole run",
    fix="set the schedule's length and unit (lr_unit) to those of the run, and its base to the rate of the whole batch",
)
def schedule(subject: RunSubject) -> Outcome:
    config, rates = subject.config, np.array(subject.rates)
    pictures = config.batch_size * subject.run.ranks.world_size * config.accumulate
    base = config.optimizer_config(pictures).lr
    where = []
    if not np.isfinite(rates).all() or (rates < 0).any():
        where.append("a rate is negative or no number")
    elif abs(rates.max() - base) > _leeway(config.lr_schedule, len(rates)) * base:
        where.append(f"the largest rate is {rates.max():.4g}, the configured one {base:.4g}")
    elif config.lr_schedule == "cosine" and len(rates) >= 20 and rates[-1] > config.lr_min + 0.1 * base:
        where.append(f"the cosine ends at {rates[-1]:.4g} and not near {config.lr_min:g}: it is longer than the run")
    elif config.lr_schedule == "step" and config.lr_step_epochs < config.epochs and rates[-1] >= rates.max():
        where.append("the rate never steps down")
    said = f"{rates[0]:.4g}, at most {rates.max():.4g}, at last {rates[-1]:.4g} over {len(rates)} {config.lr_unit}s"
    return judged(where, said, said)
