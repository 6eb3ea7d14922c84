"""What a checkpoint keeps of every optimizer that the recipe does not have: two updates without a stop, and one after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.run.checkpoints import saved, unequal_parts
from alignment.comparisons.run.engine import Ground, start_run, updates_of
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import OPTIMIZERS

LARGE = 8_000_000  # numbers of a network


def remembered(context: Context, role: str, ground: Ground) -> dict[str, Value]:
    """What became of a side's runs with other optimizers, by ``memory.NAME``.

    ``.refused`` says why the side does not go on from its own checkpoint. Else ``.lost`` names the parts that the resumed run does
    not begin with as they were saved, and ``.apart`` has each tensor's relative L2 from the run without a stop, after one update.
    Of a large network it is the first optimizer alone: how a state is saved does not depend on the network.
    """
    names = [name for name in OPTIMIZERS if name != ground.long.optimizer]
    large = sum(array.size for array in ground.weights.values()) > LARGE
    made: dict[str, Value] = {}
    for name in names[: 1 if large else None]:
        made |= {f"memory.{name}.{key}": value for key, value in _remembered(context, role, ground, name).items()}
    return made


def _remembered(context: Context, role: str, ground: Ground, name: str) -> dict[str, Value]:
    folder = ground.folder / f"{role}-{name}"
    config = replace(ground.short, optimizer=name, momentum=0.75, nesterov=False, seed=ground.short.seed + 1)
    whole = start_run(context, role, config, "64", ground.weights)
    updates = updates_of(context, role, whole, 2)
    next(updates)
    kept = saved(context, role, whole, folder, "stopped")
    try:
        rest = start_run(context, role, replace(config, resume=str(folder / "stopped")), "64")
    except UserError as error:
        return {"refused": error.line, "apart": {}}
    kept |= saved(context, role, rest, folder, "restored")
    once, again = next(updates).state, next(updates_of(context, role, rest, 1)).state
    apart = {tensor: relative(distance(again[tensor], array), norm(array)) for tensor, array in once.items()}
    return {"lost": " and ".join(unequal_parts(kept, "restored", "stopped")), "apart": apart}


def _wrong(measured: Measurement, name: str) -> tuple[str, Kind]:
    """What is wrong with what a checkpoint keeps of an optimizer; ``""`` for nothing."""
    if refused := measured.get(f"memory.{name}.refused"):
        return f"the port does not go on from its checkpoint: {refused}", Kind.RAISES
    if lost := measured[f"memory.{name}.lost"]:
        return f"the resumed run does not begin with the saved {lost}", Kind.STATE_NOT_RESTORED
    apart: Any = measured[f"memory.{name}.apart"]
    if moved := [tensor for tensor, size in apart.items() if not size <= tolerance.EXACT_RTOL]:
        words = f"the update after the resumption is another one: {len(moved)} tensors, first {moved[0]}"
        return words, Kind.STATE_NOT_SAVED
    return "", Kind.UNKNOWN


def _names(port: Measurement) -> list[str]:
    return [name for name in OPTIMIZERS if f"memory.{name}.apart" in port]


def judge_memory(port: Measurement) -> list[Quantity]:
    """Each resumed run against the same run without a stop."""
    rows = []
    for name in _names(port):
        apart: Any = port[f"memory.{name}.apart"]
        row, (words, _) = Quantity(f"resume.with.{name}", [len(apart)]), _wrong(port, name)
        rows.append(row.fail(words) if words else row)
    return rows


def explain_memory(port: Measurement) -> Finding | None:
    """An optimizer whose state a resumed run does not have, while the recipe's has its own."""
    for name in _names(port):
        words, kind = _wrong(port, name)
        if words:
            hint = f"a run with {name} does not go on as it was: {words}"
            return Finding("train", "resume.optimizer", kind, hint, "one update after the resumption")
    return None
