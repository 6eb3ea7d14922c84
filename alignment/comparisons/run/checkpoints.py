"""What a side's checkpoints hold, as parts of a measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.run.engine import engine
from alignment.comparisons.run.states import part, under
from mobilenetv3_common.checkpoint import LATEST, CheckpointFolder, read_checkpoint
from mobilenetv3_common.weights import State, is_statistic

PARTS = ("weights", "statistics", "optimizer", "average")
POSITION = ("epoch", "iteration", "update", "schedule", "lr", "best", "scaler")


def lacks_checkpoints(context: Context) -> str:
    """Why runs cannot be resumed; ``""`` where they can."""
    without = [role for role in ("port", "reference") if not hasattr(context.sides[role].train, "save")]
    return f"resumption: the train part of the {' and the '.join(without)} has no save" if without else ""


def saved(context: Context, role: str, run: Any, folder: Path, name: str) -> dict[str, Value]:
    """Write a checkpoint of a run, and measure under ``name`` the arrays that it holds, and where the run stands."""
    train: Any = engine(context, role)
    train.save(run, CheckpointFolder(folder / name), False)  # see lacks_checkpoints
    checkpoint = read_checkpoint(folder / name / LATEST)
    model = checkpoint.part("model")
    made = {f"weights.{n}": array for n, array in model.items() if not is_statistic(n)}
    made |= {f"statistics.{n}": array for n, array in model.items() if is_statistic(n)}
    made |= under("optimizer", checkpoint.part("optimizer")) | under("average", checkpoint.part("ema"))
    position = json.dumps({key: checkpoint.meta.get(key) for key in POSITION})
    return {**under(name, made), f"{name}.position": position}


def parts(measured: Measurement, name: str) -> dict[str, State]:
    """The arrays of a checkpoint by what they are for."""
    return {kind: part(measured, f"{name}.{kind}") for kind in PARTS}


def position(measured: Measurement, name: str) -> dict[str, Any]:
    """Where the run of a checkpoint stands."""
    return json.loads(str(measured[f"{name}.position"]))


def unequal_parts(measured: Measurement, restored: str, then: str) -> list[str]:
    """Parts that a resumed run does not have as they were saved, to the last bit; ``"schedule"`` is where the run stands."""
    ours, theirs = parts(measured, restored), parts(measured, then)
    wrong = [kind for kind in PARTS if lost(ours[kind], theirs[kind]) or ours[kind].keys() != theirs[kind].keys()]
    return wrong + (["schedule"] if position(measured, restored) != position(measured, then) else [])


def lost(restored: State, then: State) -> list[str]:
    """Names of the arrays that are missing, or not what they were."""
    return [name for name in then if name not in restored or not np.array_equal(restored[name], then[name])]
