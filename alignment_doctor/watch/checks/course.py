"""The run's course: learning rate, optimizer state, loss, activations, memory."""

from __future__ import annotations

import numpy as np

from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing
from alignment_doctor.watch.kept import HELD
from alignment_doctor.watch.look import Seen

SURE = 6  # looks at an activation of few channels
STANDING = 20  # losses that are equal but for rounding
GROWING = 6  # looks in each of which the memory grew
GROWTH = 8.0  # MiB from one look to the next


@check(
    "watch.rate",
    "002 hp.01",
    "000 step 6",
    "004 lr",
    measures="the optimizer's learning rate against the schedule's for the same update",
    fix="step the schedule once in its unit (update or epoch), after the optimizer; in Paddle give the scheduler to the optimizer",
)
def rate(seen: Seen) -> Outcome:
    look = seen.look
    looks = seen.last(2)
    if looks and all(one.rates and not any(one.rates.values()) for one in looks):
        return found("the learning rate is 0", [f"update {look.update}"])
    if look.meant is None:
        return not_applicable("no schedule is known: Watch(..., rates=...)")
    if abs(look.rate - look.meant) <= 1e-5 * max(look.meant, 1e-12):
        return nothing(f"{look.rate:g}, as the schedule says")
    return found(f"{look.rate:g}, where the schedule has {look.meant:g}", [f"update {look.update}"])


@check(
    "watch.state",
    "000 step 10",
    "004 optimizer",
    measures="the optimizer's state (momentum and the like) before and after the first update of a resumed run, and later",
    fix="load the optimizer's state beside the weights, after the optimizer is built; keep one optimizer for the whole run",
)
def state(seen: Seen) -> Outcome:
    look, begun = seen.look, seen.settings.begun_at
    if look.state_after == 0 and any(one.state_after for one in seen.looks):
        return found("the optimizer has lost its state during the run", [f"update {look.update}"])
    first = next((one for one in seen.looks if one.update == begun + 1), None)
    if not begun or first is None:
        return not_applicable("the run was not resumed, or its first update was not seen")
    if first.state_before >= first.state_after:
        return nothing(f"{first.state_before} tensors")
    said = "none of" if first.state_before == 0 else f"only {first.state_before} of"
    return found(
        f"{said} the optimizer's {first.state_after} tensors of state were there after the resumption", [f"update {begun + 1}"]
    )


@check(
    "watch.loss",
    "002 phenomenon",
    "004 training",
    measures=f"the last {STANDING} losses",
    fix="look whether the labels belong to the pictures, whether the outputs depend on them, and at the learning rate",
)
def loss(seen: Seen) -> Outcome:
    losses = [loss for look in seen.looks for _, loss in look.losses][-STANDING:]
    if len(losses) < STANDING:
        return not_applicable(f"fewer than {STANDING} updates were seen")
    spread, size = float(np.ptp(losses)), float(np.mean(np.abs(losses)))
    if not np.isfinite(size):
        return not_applicable("losses are not finite")
    if spread <= 1e-6 * size and size > 1e-4:
        return found(f"the loss no longer moves: {losses[-1]:g} in {STANDING} updates", [f"update {seen.look.update}"])
    return nothing(f"{min(losses):g} to {max(losses):g}")


@check(
    "watch.dead",
    "002 wi.01",
    "004 model",
    measures="activations that give zero in all channels for all pictures, in the last two looks",
    fix="lower the learning rate, look at the bias and the normalisation before the activation and at its initialisation",
)
def dead(seen: Seen) -> Outcome:
    looks = [look for look in seen.last(2) if look.finite]
    if len(looks) < 2 or not looks[-1].dead:
        return not_applicable("no activation that can die was seen in two looks")
    where = [n for n in looks[-1].dead if all(look.dead.get(n, 0.0) == 1.0 for look in looks) and not _by_chance(seen, n)]
    return judged(where, f"{len(where)} activations are dead", f"{len(looks[-1].dead)} activations respond")


def _by_chance(seen: Seen, name: str) -> bool:
    """Whether an activation of few channels gives zero by its first weights: it has never responded, or does so now and then."""
    if name not in seen.look.narrow:
        return False
    states = [look.dead[name] for look in seen.looks if name in look.dead]
    return len(states) <= SURE or min(states) == 1.0 or min(states[-SURE:]) < 1.0


@check(
    "watch.memory",
    "003 profiling",
    measures=f"graphs of earlier updates that are still alive; memory of the process and of the GPU over {GROWING + 1} looks",
    fix="keep loss.item() or float(loss), not the loss: a tensor that is kept keeps its graph; look at lists that grow",
)
def memory(seen: Seen) -> Outcome:
    look = seen.look
    if look.held >= HELD:
        return found(
            f"the graphs of {look.held} earlier losses are still alive: a sum or a list keeps them", [f"update {look.update}"]
        )
    if look.held_outputs >= HELD:
        said = f"the graphs of {look.held_outputs} earlier outputs of the model are still alive: a list keeps them"
        return found(said, [f"update {look.update}"])
    looks = seen.last(GROWING + 1)
    if not looks:
        return not_applicable(f"it takes {GROWING + 1} looks")
    steps = np.diff([look.memory for look in looks])
    grown = bool((steps >= GROWTH).all() and steps.min() >= 0.3 * np.median(steps))
    updates = looks[-1].update - looks[0].update
    said = f"{looks[-1].memory:.0f} MiB"
    if not grown:
        return nothing(said)
    return found(
        f"{said}, {steps.sum() / max(updates, 1):.1f} MiB more with every update",
        [f"updates {looks[0].update} to {looks[-1].update}"],
    )
