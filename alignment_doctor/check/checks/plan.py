"""What the settings plan for the whole run: learning rate, pictures, moving average, clipping, statistics."""

from __future__ import annotations

import numpy as np

from alignment_doctor.check.subject import RunSubject
from alignment_doctor.findings import Outcome, check, found, judged, not_applicable, nothing

FEW_UPDATES = 20  # a run of fewer only tries something out
NOT_SEEN = 0.2  # share of an epoch's pictures
HALF = 0.5  # of the average
CUT = 1000.0  # times longer than it may be
TOO_LOW = 300.0  # times lower than where the loss begins to fall
TOO_HIGH = 30.0  # times higher than where it is least
LAST_BATCH = 0.9  # momentum in torch's sense: the share of the newest batch


def _leeway(schedule: str, units: int) -> float:
    """How far the largest of so many rates may lie below the base: the top of one cycle falls between two units."""
    return 0.01 if schedule != "onecycle" else 0.1 if units >= 20 else 1.0


def _never_falls(rates: np.ndarray) -> bool:
    after = rates[int(rates.argmax()) :]
    return len(after) > 1 and bool(after.min() == after.max())


@check(
    "check.schedule",
    "002 hp.01",
    "000 step 6",
    "004 lr",
    measures="the learning rate of every update or epoch of the whole run",
    fix="set the schedule's length and unit (lr_unit) to those of the run, and its base to the rate of the whole batch",
)
def schedule(subject: RunSubject) -> Outcome:
    config, rates, base = subject.config, np.array(subject.rates), subject.base_rate
    where = []
    if not np.isfinite(rates).all() or (rates < 0).any():
        where.append("a rate is negative or no number")
    elif abs(rates.max() - base) > _leeway(config.lr_schedule, len(rates)) * base:
        where.append(f"the largest rate is {rates.max():.4g}, the configured one {base:.4g}")
    elif config.lr_schedule == "cosine" and len(rates) >= 20 and rates[-1] > config.lr_min + 0.1 * base:
        where.append(f"the cosine ends at {rates[-1]:.4g} and not near {config.lr_min:g}: it is longer than the run")
    elif (
        config.lr_schedule == "step" and config.lr_step_epochs < config.epochs and rates[-1] >= rates.max() and config.lr_gamma < 1
    ):
        where.append("the rate never steps down")
    elif config.lr_schedule != "constant" and len(rates) >= FEW_UPDATES and _never_falls(rates) and config.lr_gamma < 1:
        where.append(
            f"the {config.lr_schedule} schedule never lowers the rate: its steps lie behind the end, or lr_min is the base"
        )
    said = f"{rates[0]:.4g}, at most {rates.max():.4g}, at last {rates[-1]:.4g} over {len(rates)} {config.lr_unit}s"
    return judged(where, said, said)


@check(
    "check.learning_rate",
    "002 hp.01",
    measures="the loss of the first batch while the learning rate grows from a hundredth to a thousand times the configured one",
    fix="set the learning rate between the two that are named, about a third of the higher one, and see what tools/lr_find.py says",
)
def learning_rate(subject: RunSubject) -> Outcome:
    made, base = subject.rate_range, subject.base_rate
    if made is None:
        return not_applicable(_not_asked(subject))
    if made.begins is None or made.best is None:
        return not_applicable("the loss of the first batch falls at no rate, which other checks explain")
    said = f"{base:.3g}; the loss begins to fall at {made.begins:.2g} and is least at {made.best:.2g}"
    if base * TOO_LOW < made.begins and not subject.learnt:
        return found(f"{said}: the rate is {made.begins / base:.0f} times too low", ["learning rate"])
    if base > made.best * TOO_HIGH:
        return found(f"{said}: the rate is {base / made.best:.0f} times the best one", ["learning rate"])
    return nothing(said)


def _not_asked(subject: RunSubject) -> str:
    if subject.config.teacher is not None:
        return "a teacher has a share in the loss"
    if subject.config.amp_level != "O0":
        return "the loss scale moves in mixed precision: --amp-level O0"
    return "no update was made" if not subject.losses else "the learning rate is 0"


@check(
    "check.unseen",
    "002 ds.04",
    "002 hp.03",
    measures="pictures of an epoch that no update has, since its last incomplete batch is left out",
    fix="choose a batch size (times accumulate and ranks) that nearly divides the number of pictures",
)
def unseen(subject: RunSubject) -> Outcome:
    run, config = subject.run, subject.config
    seen, all_of = run.updates_per_epoch * config.accumulate * run.global_batch, run.plan.used
    said = f"{max(0, all_of - seen)} of {all_of} pictures"
    return found(f"{said} are left out of every epoch", ["each epoch"]) if seen < (1 - NOT_SEEN) * all_of else nothing(said)


@check(
    "check.average",
    "000 step 6",
    "004 training",
    measures="how much of the moving average at the end of the run is still the weights of its beginning",
    fix="add ema_warmup, lower ema_decay to about 1 - 10 / updates, or average less often: what is evaluated is the average",
)
def average(subject: RunSubject) -> Outcome:
    config = subject.config
    updates = config.epochs * subject.run.updates_per_epoch
    if config.ema_decay == 0 or updates < FEW_UPDATES:
        return not_applicable("no average is kept" if config.ema_decay == 0 else f"the run has {updates} updates")
    left = config.first_weights_left(updates)
    said = f"{left:.0%} after {updates} updates"
    return found(f"{said}: the average never leaves the start", ["the moving average"]) if left > HALF else nothing(said)


@check(
    "check.clipping",
    "002 hp.01",
    measures="the norm of the first gradients against the one that they are clipped to",
    fix="set clip_norm near the norms of healthy updates (about 1 to 10): below that it takes the place of the learning rate",
)
def clipping(subject: RunSubject) -> Outcome:
    limit = subject.config.clip_norm
    if limit is None or not subject.norms or subject.config.amp_level != "O0":
        return not_applicable("nothing is clipped" if limit is None else "no norm of the unscaled gradients was seen")
    said = f"{min(subject.norms):.3g} to {max(subject.norms):.3g}, clipped to {limit:g}"
    return found(f"{said}: hardly anything is left", ["clip_norm"]) if min(subject.norms) > CUT * limit else nothing(said)


@check(
    "check.statistics",
    "001 module 1",
    "002 api.01",
    measures="the share of the newest batch in the running statistics of normalisation",
    fix="give the momentum in the framework's own sense: 0.1 in torch is 0.9 in Paddle",
)
def statistics(subject: RunSubject) -> Outcome:
    engine, shares = subject.engine, {}
    for path, module in engine.modules(subject.run.model).items():
        layer = engine.layer(module)
        if layer.kind.startswith("batch_norm") and layer.settings.get("momentum") is not None and engine.training(module):
            shares[path] = float(getattr(module, "momentum", layer.settings["momentum"]))  # a layer's own, in torch's sense
    if not shares:
        return not_applicable("no BatchNorm layer is in training mode")
    where = [f"{path}: {share:g}" for path, share in shares.items() if share >= LAST_BATCH]
    said = f"{min(shares.values()):g} to {max(shares.values()):g}"
    return judged(where, f"{said}: evaluation has the statistics of the last batch alone", said)
