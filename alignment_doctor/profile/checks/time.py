"""Where a run's time and memory go."""

from __future__ import annotations

import numpy as np

from alignment_doctor.findings import Outcome, check, found, not_applicable, nothing
from alignment_doctor.profile.subject import Profile
from alignment_doctor.watch.kept import HELD
from mobilenetv3_common.counted import counted

WAIT = 0.1  # share of an update
GAP = 0.1
GROWTH = 1.0  # MiB with every update


@check(
    "profile.data_wait",
    "003 profiling",
    measures="the time that an update waits for its pictures",
    fix="give --workers as many processes as there are processors, store smaller pictures, or decode with --image-backend cv2",
)
def data_wait(profile: Profile) -> Outcome:
    share, seconds = profile.share("data wait"), profile.typical("data wait")
    said = f"{seconds * 1e3:.1f} ms, {share:.0%} of an update, with {counted(profile.config.workers, 'worker')}"
    said += f", which have {np.median(profile.ready):g} of {profile.room} batches ready" if profile.ready else ""
    return found(said, ["data wait"]) if share > WAIT else nothing(said)


@check(
    "profile.gap",
    "003 profiling",
    measures="the time between the optimizer's step and the next update: schedule, averages, checks",
    fix="take the moving average less often (--ema-every), check less often (--check-every)",
)
def gap(profile: Profile) -> Outcome:
    share, seconds = profile.share("iteration gap"), profile.typical("iteration gap")
    said = f"{seconds * 1e3:.1f} ms, {share:.0%} of an update"
    return found(said, ["iteration gap"]) if share > GAP else nothing(said)


@check(
    "profile.memory",
    "003 profiling",
    measures="graphs of earlier updates that are still alive; memory of the process and the GPU after each update",
    fix="keep loss.item() or float(loss), not the loss: a tensor that is kept keeps its graph; look at lists that grow",
)
def memory(profile: Profile) -> Outcome:
    if profile.held >= HELD:
        return found(f"the graphs of {profile.held} earlier updates are still alive: a sum or a list keeps them", ["memory"])
    steps = np.diff(profile.memory)
    if len(steps) < 4:
        return not_applicable("fewer than 5 updates were measured")
    said = f"{profile.memory[-1]:.0f} MiB, {np.median(steps):.2f} MiB more with every update"
    return found(said, ["memory"]) if np.median(steps) > GROWTH and (steps > 0).mean() > 0.8 else nothing(said)
