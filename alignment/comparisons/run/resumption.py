"""A run that is stopped, saved, loaded and goes on: against the same run without a stop, and against the reference's.

Accumulation, the scaled learning rate, warm-up by update and the moving average of a real run are compared on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import (
    Change,
    Group,
    Lanes,
    Leeway,
    Quantity,
    distance,
    judge_all_close,
    judge_close,
    judge_measured,
    norm,
    relative,
)
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.averages import averaged
from alignment.comparisons.run.engine import Ground, Update, engine, start_run, updates_of
from alignment.comparisons.run.recipe import topics
from alignment.comparisons.update.rates import expected_rates, judge_rates
from mobilenetv3_common.checkpoint import LATEST, Checkpoint, CheckpointFolder, read_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import OPTIMIZERS
from mobilenetv3_common.weights import State, is_statistic

UPDATES = 3  # before the stop, and after it
LARGE = 8_000_000  # numbers of a network
POSITION = ("epoch", "iteration", "update", "schedule", "lr", "best", "scaler")


@dataclass
class LongRun:
    """One side's run without a stop, or the part after it.

    Attributes:
        made: the updates, their states left out.
        last: weights and statistics after the last update, canonical, float64.
        average: what the model has while the moving average is applied, after the last.
        expected_average: what it shall have then, from the run's own states.
        saved: file of the checkpoint after ``UPDATES`` updates; of a resumed run, of what it holds before it goes on.
        end: file of the checkpoint after the last update.
        updates_per_epoch: of the run.
    """

    made: list[Update]
    last: State
    average: State
    expected_average: State
    saved: Path | None
    end: Path | None
    updates_per_epoch: int

    @property
    def rates(self) -> np.ndarray:
        """Learning rates, float64 (updates,)."""
        return np.array([update.rate for update in self.made])


def lacks_checkpoints(context: Any) -> str:
    """Why runs cannot be resumed; ``""`` where they can."""
    without = [role for role in ("port", "reference") if not hasattr(context.sides[role].train, "save")]
    return f"resumption: the train part of the {' and the '.join(without)} has no save" if without else ""


def long_run(
    ground: Ground, role: str, weights: State | None = None, folder: Path | None = None, resume: Path | None = None
) -> LongRun:
    """Train one side by the long recipe.

    Args:
        ground: recipe, pictures, checkpoint folders.
        role: ``"port"`` or ``"reference"``.
        weights: to begin with; those of the checkpoint where None.
        folder: for checkpoints; none are written where None.
        resume: the folder of the run to go on with, for its second half.
    """
    context, framework, train = ground.context, ground.context.sides[role].framework, engine(ground.context, role)
    config = replace(ground.long, resume=str(resume)) if resume is not None else ground.long
    run = start_run(context, role, config, "64", weights)

    def checkpoint(name: str) -> Path | None:
        if folder is None:
            return None
        train.save(run, CheckpointFolder(folder / name), False)  # type: ignore[attr-defined]  # see lacks_checkpoints
        return folder / name / LATEST

    saved = checkpoint("restored") if resume is not None else None
    made, expected = [], State()
    for number, update in enumerate(updates_of(context, role, run, UPDATES if resume is not None else 2 * UPDATES), start=1):
        made.append(update._replace(state={}))
        last = update.state
        if config.ema_decay and number % config.ema_every == 0:
            expected = averaged(expected, last, config.ema_decay)
        if number == UPDATES and resume is None:
            saved = checkpoint("stopped")
    with run.average.applied():
        average = framework.state(run.model)
    return LongRun(made, last, average, expected or last, saved, checkpoint("end"), run.updates_per_epoch)


def resumed(ground: Ground, role: str) -> tuple[LongRun, LongRun | str]:
    """One side's run without a stop, and the second half of the run that is resumed from its checkpoint.

    In place of the second half stands why the side refuses to go on from what it saved, where it does.
    """
    folder = ground.folder / role
    whole = long_run(ground, role, ground.weights, folder)
    try:
        return whole, long_run(ground, role, folder=folder / "resumed", resume=folder / "stopped")
    except UserError as error:
        return whole, error.line


def parts(checkpoint: Checkpoint) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of a checkpoint by what they are for."""
    model = checkpoint.part("model")
    return {
        "weights": {name: array for name, array in model.items() if not is_statistic(name)},
        "statistics": {name: array for name, array in model.items() if is_statistic(name)},
        "optimizer": checkpoint.part("optimizer"),
        "average": checkpoint.part("ema"),
    }


@dataclass
class Remembered:
    """What one side's checkpoint keeps of an optimizer.

    Attributes:
        lost: parts that the resumed run does not begin with as they were saved.
        end: weights and statistics after the next update, of the run without a stop and of the resumed one, canonical, float64.
        refused: why the side does not go on from its own checkpoint; ``""`` where it does.
    """

    lost: list[str]
    end: tuple[State, State]
    refused: str = ""


def remembered(ground: Ground, role: str) -> dict[str, Remembered]:
    """Two updates without a stop, and one after the checkpoint of the first, with each optimizer that the recipe does not have.

    Of a large network the first of them alone: how an optimizer's state is saved does not depend on the network.
    """
    names = [name for name in OPTIMIZERS if name != ground.long.optimizer]
    large = sum(array.size for array in ground.weights.values()) > LARGE
    return {name: _remembered(ground, role, name) for name in names[: 1 if large else None]}


def _remembered(ground: Ground, role: str, name: str) -> Remembered:
    context, train = ground.context, engine(ground.context, role)
    folder = ground.folder / f"{role}-{name}"
    config = replace(ground.short, optimizer=name, momentum=0.75, nesterov=False, seed=ground.short.seed + 1)

    def saved(run: Any, where: str) -> Path:
        train.save(run, CheckpointFolder(folder / where), False)  # type: ignore[attr-defined]  # see lacks_checkpoints
        return folder / where / LATEST

    whole = start_run(context, role, config, "64", ground.weights)
    updates = updates_of(context, role, whole, 2)
    next(updates)
    then = saved(whole, "stopped")
    try:
        rest = start_run(context, role, replace(config, resume=str(folder / "stopped")), "64")
    except UserError as error:
        return Remembered([], (State(), State()), error.line)
    now = saved(rest, "restored")
    lost = unequal_parts(*read_checkpoints(now, then))
    return Remembered(lost, (next(updates).state, next(updates_of(context, role, rest, 1)).state))


def wrong_memory(found: Remembered) -> str:
    """What is wrong with what a checkpoint keeps of an optimizer; ``""`` for nothing."""
    if found.refused:
        return f"the port does not go on from its checkpoint: {found.refused}"
    if found.lost:
        return f"the resumed run does not begin with the saved {' and '.join(found.lost)}"
    whole, rest = found.end
    moved = [n for n in whole if not relative(distance(rest[n], whole[n]), norm(whole[n])) <= tolerance.EXACT_RTOL]
    return f"the update after the resumption is another one: {len(moved)} tensors, first {moved[0]}" if moved else ""


def judge_memory(result: StepResult, found: dict[str, Remembered]) -> None:
    """Hold each resumed run against the same run without a stop."""
    for name, memory in found.items():
        quantity = Quantity(f"resume.with.{name}", [len(memory.end[0])])
        wrong = wrong_memory(memory)
        result.quantities.append(quantity.fail(wrong) if wrong else quantity)


def read_checkpoints(*files: Path | None) -> list[Checkpoint]:
    """Checkpoints of runs that write them."""
    return [read_checkpoint(file) for file in files if file is not None]


def unequal_parts(restored: Checkpoint, saved: Checkpoint) -> list[str]:
    """Parts that a resumed run does not have as they were saved, to the last bit; ``"schedule"`` is where the run stands."""
    ours, theirs = parts(restored), parts(saved)
    wrong = [
        kind
        for kind in theirs
        if ours[kind].keys() != theirs[kind].keys() or any(not np.array_equal(ours[kind][n], theirs[kind][n]) for n in theirs[kind])
    ]
    position = [key for key in POSITION if restored.meta.get(key) != saved.meta.get(key)]
    return wrong + (["schedule"] if position else [])


def judge_resumption(
    result: StepResult, ground: Ground, ours: tuple[LongRun, LongRun | str], theirs: tuple[LongRun, LongRun | str], moved: LongRun
) -> None:
    """Hold the port's run without a stop against the reference's, and the resumed one against its own."""
    judge_long_run(result, ground, ours[0], theirs[0], moved)
    whole, rest = ours
    here, there = (parts(checkpoint) for checkpoint in read_checkpoints(whole.saved, theirs[0].saved))
    if isinstance(rest, str):
        result.quantities.append(Quantity("resume.loaded", []).fail(f"the port does not go on from its checkpoint: {rest}"))
    else:
        _judge_second_half(result, whole, rest)
    # The reference's checkpoints hold what an optimizer must remember; how it is called there is the framework's own matter.
    kept = Quantity("resume.saved", [len(here)])
    for kind in there:
        if there[kind] and not here[kind]:
            kept.fail(f"the port's checkpoint holds no {kind}, the reference's does")
    result.quantities.append(kept)
    result.evidence["resume.optimizer_tensors"] = [len(here["optimizer"]), len(there["optimizer"])]
    result.cover("resumed run")


def _judge_second_half(result: StepResult, whole: LongRun, rest: LongRun) -> None:
    """Hold a resumed run against the same run without a stop."""
    lost = unequal_parts(*read_checkpoints(rest.saved, whole.saved))
    once, again = (parts(checkpoint) for checkpoint in read_checkpoints(whole.end, rest.end))
    for kind in once:
        if not once[kind] and not again[kind]:
            continue
        rows = judge_all_close(f"resume.{kind}", again[kind], once[kind], tolerance.EXACT_RTOL)
        if kind in lost:
            rows[0].fail("the resumed run does not begin with what was saved")
        result.extend(rows)
    expected = whole.rates[UPDATES:]
    schedule = judge_rates("resume.schedule", rest.rates, expected, expected)
    if "schedule" in lost:
        schedule.fail("the resumed run does not begin where the other one stopped")
    result.quantities.append(schedule)


def judge_long_run(result: StepResult, ground: Ground, ours: LongRun, theirs: LongRun, moved: LongRun) -> None:
    """Weights, statistics, learning rates and moving average of both sides' runs without a stop."""
    statistics = set(ground.context.reference.framework.statistics_names())
    for kind in ("weights", "statistics"):

        def chosen(state: State, kind: str = kind) -> State:
            return {n: a for n, a in state.items() if (n.rpartition(".")[2] in statistics) == (kind == "statistics")}

        judge_states(result, f"run.{kind}", *(chosen(run.last) for run in (ours, theirs, moved)))
    pictures = ground.long.batch_size * ground.long.accumulate
    formula = expected_rates(ground.long, theirs.updates_per_epoch, pictures)[: len(theirs.rates)]
    result.quantities.append(judge_rates("run.learning_rates", ours.rates, theirs.rates, formula))
    for kind, rtol in (("right", 0.0), ("loss", tolerance.EXACT_CURVE[1])):
        figures = [np.array([getattr(update, kind) for update in run.made]) for run in (ours, theirs)]
        result.quantities.append(judge_close(f"run.{kind}", figures[0], figures[1], rtol))
    result.extend(judge_all_close("run.average", ours.average, ours.expected_average, tolerance.RECOMPUTED_32))
    result.cover(*topics(ground.long))


def judge_states(result: StepResult, name: str, ours: State, theirs: State, moved: State) -> None:
    """Canonical float64 states after several updates, tensor by tensor, within what one-ulp changes do to the reference."""
    names = [n for n in dict.fromkeys([*theirs, *ours]) if theirs.get(n, ours.get(n)).dtype.kind == "f"]  # type: ignore[union-attr]
    changes = {n: Change(distance(moved[n], theirs[n]), norm(theirs[n])) for n in names if n in theirs}
    pooled = max((change.share for change in changes.values() if change.share < tolerance.NOISE_SHARE), default=0.0)
    if not names:
        return
    group = Group(name)
    for tensor in names:
        leeway = Leeway(pooled64=pooled, change64=changes.get(tensor))
        group.add(judge_measured(f"{name}.{tensor}", Lanes(port64=ours.get(tensor), reference64=theirs.get(tensor)), leeway))
    if all(n in ours and n in theirs and ours[n].shape == theirs[n].shape for n in names):
        # As one vector: the mean after a normalisation without a shift is 1e-8, and its relative difference says nothing.
        together = sum(distance(ours[n], theirs[n]) ** 2 for n in names) ** 0.5
        group.quantity.float64_diff = relative(together, sum(change.scale**2 for change in changes.values()) ** 0.5)
    result.extend(group.rows())
