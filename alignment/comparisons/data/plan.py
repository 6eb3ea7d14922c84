"""Step 2: which picture is in which batch of which rank and epoch, against a statement in plain numpy.

The plan stands once for both frameworks, so that a comparison of the two sides cannot see a mistake in it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement, Value, compare
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.distributions import as_stated
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common import sampling
from mobilenetv3_common.counted import counted
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import BatchPlan, RunPlan, SampleKey

CASES = [(size, batch, world) for size in (1, 5, 16, 33) for batch in (1, 4) for world in (1, 2, 3)]
RankBatches = list[list[SampleKey]]


class BadPlan(NamedTuple):
    """A statement that does not hold: the function, what is wrong, and under which circumstances."""

    location: str
    words: str
    measured: str


def _of_ranks(world: int, size: int, batch: int, seed: int, epoch: int, training: bool) -> list[RankBatches]:
    plans = [BatchPlan(size, batch, seed, training, training, rank, world) for rank in range(world)]
    for plan in plans:
        plan.set_epoch(epoch)
    return [list(plan) for plan in plans]


def evaluation(seed: int) -> Iterator[BadPlan]:
    """Every picture once, in order, in consecutive batches that go round the ranks; nothing is dropped or repeated."""
    for size, batch, world in CASES:
        case = f"{size} pictures in batches of {batch} on {counted(world, 'rank')}"
        ranks = _of_ranks(world, size, batch, seed, 0, False)
        chunks = [list(range(start, min(start + batch, size))) for start in range(0, size, batch)]
        for rank, found in enumerate(ranks):
            samples = [[key.sample for key in keys] for keys in found]
            if samples != chunks[rank::world]:
                seen = sorted(key.sample for of_rank in ranks for keys in of_rank for key in keys)
                measured = f"{case}: rank {rank} sees {samples[:3]}, expected {chunks[rank::world][:3]}"
                if seen == list(range(size)):
                    yield BadPlan("BatchPlan: order", "other pictures are in a rank's batches", measured)
                else:
                    yield BadPlan("BatchPlan: shards", "not every picture is seen exactly once", measured)
            if len(BatchPlan(size, batch, seed, rank=rank, world_size=world)) != len(found):
                yield BadPlan("BatchPlan: length", "len() is not the number of batches", case)


def training(seed: int) -> Iterator[BadPlan]:
    """Ranks together see what one process with the N-fold batch sees; the incomplete last global batch is left out."""
    for size, batch, world in CASES:
        if size < batch * world:
            continue
        case = f"{size} pictures in batches of {batch} on {counted(world, 'rank')}"
        ranks = _of_ranks(world, size, batch, seed, 1, True)
        steps = size // (batch * world)
        if any(len(found) != steps or any(len(keys) != batch for keys in found) for found in ranks):
            full = f"expected {counted(steps, 'full batch')} a rank"
            more = sum(len(keys) for found in ranks for keys in found) > steps * batch * world
            place = "BatchPlan: short batch" if more else "BatchPlan: last batch"
            yield BadPlan(place, f"a short batch is kept, {full}" if more else full, f"{case}: {[len(f) for f in ranks]}")
            continue
        shuffled = sampling.epoch_order(size, seed, 1).tolist()
        together = [key for step in range(steps) for found in ranks for key in found[step]]
        if [key.sample for key in together] != shuffled[: steps * batch * world]:
            yield BadPlan("BatchPlan: ranks", "the ranks together do not follow the epoch's order", case)
        if [key.position for key in together] != list(range(len(together))) or {key.epoch for key in together} != {1}:
            yield BadPlan("BatchPlan: keys", "a sample's key has another epoch or place in the order", case)


def kept(seed: int) -> Iterator[BadPlan]:
    """With ``pad`` the incomplete last batch is shared equally, and filled up from the epoch's beginning where ranks need it."""
    for size, batch, world in CASES:
        plans = [BatchPlan(size, batch, seed, True, True, rank, world, epoch=1, pad=True) for rank in range(world)]
        ranks = [list(plan) for plan in plans]
        case = f"{size} pictures in batches of {batch} on {counted(world, 'rank')}"
        steps = -(-size // (batch * world))
        equal = all(len({len(of_rank[step]) for of_rank in ranks}) == 1 for step in range(steps) if _all_have(ranks, step))
        if any(len(found) != steps for found in ranks) or not equal:
            yield BadPlan("BatchPlan: last batch", "ranks have batches of different sizes", f"{case}: {[len(f) for f in ranks]}")
            continue
        shuffled = sampling.epoch_order(size, seed, 1).tolist()
        together = [key.sample for step in range(steps) for found in ranks for key in found[step]]
        expected = (shuffled * world)[: -(-size // world) * world]
        if together != expected:
            yield BadPlan("BatchPlan: last batch", "the last batch is not what is left, filled up from the beginning", case)


def _all_have(ranks: list[RankBatches], step: int) -> bool:
    return all(step < len(found) for found in ranks)


def repeated(seed: int) -> Iterator[BadPlan]:
    """Each picture ``repeats`` times in a row, dealt out to the ranks in turn: torchvision's ``RASampler``."""
    for size, world, repeats in ((300, 1, 3), (300, 2, 3), (600, 3, 2)):
        case = f"{size} pictures, {repeats} repetitions on {counted(world, 'rank')}"
        in_a_row = np.repeat(sampling.epoch_order(size, seed, 1), repeats)
        for rank in range(world):
            plan = BatchPlan(size, 4, seed, True, True, rank, world, epoch=1, repeats=repeats)
            keys = [key for batch in plan for key in batch]
            length = size // 256 * 256 // world // 4 * 4
            if [key.sample for key in keys] != in_a_row[rank::world][:length].tolist():
                yield BadPlan("BatchPlan: repeats", "other pictures than torchvision's RASampler", f"{case}: rank {rank}")
            if any(key.repeat != (rank + world * at) % repeats for at, key in enumerate(keys)):
                yield BadPlan("BatchPlan: repeats", "repetitions are not told apart", f"{case}: rank {rank}")
    preset = TrainPreset()
    crops = {sampling.sample_params(preset, seed, SampleKey(0, 3, 0, repeat), 300, 400).crop for repeat in range(4)}
    if len(crops) < 4:
        yield BadPlan("sample_params", "repetitions of a picture have the same draws", f"{crops}")


def order(seed: int) -> Iterator[BadPlan]:
    """A permutation, another one for every epoch and seed; the pictures' own order where they are not shuffled."""
    orders = {(s, e): tuple(sampling.epoch_order(40, s, e).tolist()) for s in (seed, seed + 1, seed + 2) for e in range(4)}
    for (s, epoch), found in orders.items():
        if sorted(found) != list(range(40)):
            yield BadPlan("epoch_order", "not every picture once", f"seed {s}, epoch {epoch}: {found[:6]}...")
    for s in (seed, seed + 1, seed + 2):
        if len({orders[s, e] for e in range(4)}) < 4:
            yield BadPlan("epoch_order: epoch", "epochs have the same order", f"seed {s}")
    if len({orders[s, 0] for s in (seed, seed + 1, seed + 2)}) < 3:
        yield BadPlan("epoch_order: seed", "seeds have the same order", f"seeds {seed} to {seed + 2}")
    if sampling.epoch_order(9, seed, 2, shuffle=False).tolist() != list(range(9)):
        yield BadPlan("epoch_order: shuffle", "shuffled where it must not be", "shuffle=False")


def resumed(seed: int) -> Iterator[BadPlan]:
    """A run that begins in the middle goes on with exactly the batches that were left."""

    def plan() -> BatchPlan:
        return BatchPlan(22, 4, seed, True, True, 0, 2)

    whole = []
    for epoch in range(3):
        one = plan()
        one.set_epoch(epoch)
        whole.append(list(one))
    for batches in (None, 1):
        kept = [found[:batches] for found in whole]
        for epoch, batch in ((0, 0), (1, 0), (1, 1), (2, len(kept[2]))):
            expected = [keys for found in kept[epoch:] for keys in found][batch:]
            run = RunPlan(plan(), 3, epoch, batch, batches)
            if list(run) != expected or len(run) != len(expected):
                yield BadPlan("RunPlan", "other batches than were left", f"from epoch {epoch}, batch {batch}")


def groups(seed: int) -> Iterator[BadPlan]:
    """Mixing groups are consecutive samples of the epoch's order, whichever rank has them, numbered through the epoch."""
    for world, batch, size in ((1, 8, 2), (2, 4, 2), (2, 4, 4), (1, 6, 4)):
        for rank, found in enumerate(_of_ranks(world, 24, batch, seed, 0, True)):
            for keys in found:
                if keys[0].position % size:
                    continue
                places = [key.position for key in keys]
                expected = [(places[at] // size, places[at : at + size]) for at in range(0, len(keys), size)]
                made = [(number, places[part]) for number, part in sampling.mix_groups(keys, size)]
                if made != expected:
                    yield BadPlan("mix_groups", "other groups", f"rank {rank}: groups of {size}: {made}, expected {expected}")


STATEMENTS = {
    "evaluation": evaluation,
    "training": training,
    "kept": kept,
    "repeated": repeated,
    "order": order,
    "resumed": resumed,
    "groups": groups,
}
BAD = {
    "BatchPlan: shards": Kind.SHARDS_OVERLAP,
    "BatchPlan: order": Kind.ORDER,
    "BatchPlan: ranks": Kind.ORDER,
    "BatchPlan: last batch": Kind.BATCH_DROPPED,
    "BatchPlan: short batch": Kind.COUNT,
    "BatchPlan: repeats": Kind.ORDER,
    "epoch_order: epoch": Kind.NOT_RESHUFFLED,
    "epoch_order: seed": Kind.NOT_INDEPENDENT,
}
PERMUTATIONS, ORDERED, EPOCHS = "permutations", 4, 2400


class Planned:
    """What does not hold of the plan, a statement each; and how often an epoch has each order of four pictures.

    Both sides share the plan: the statements stand in the reference's place.
    """

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        if role == "reference":
            return {}
        made: dict[str, Value] = {}
        for name, statement in STATEMENTS.items():
            if (wrong := next(statement(context.seed), None)) is not None:
                made[name] = "\n".join(wrong)
        orders = (sampling.epoch_order(ORDERED, context.seed, epoch).tolist() for epoch in range(EPOCHS))
        return {**made, PERMUTATIONS: Counter(" ".join(map(str, order)) for order in orders)}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        for name in STATEMENTS:
            row, wrong = Quantity(f"plan.{name}", []), _wrong(port, name)
            rows.append(row.fail(f"{wrong.location}: {wrong.words} ({wrong.measured})") if wrong else row)
        return [*rows, _permutations(port)]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """The first statement that does not hold."""
        for wrong in filter(None, (_wrong(port, name) for name in STATEMENTS)):
            return Finding("data", wrong.location, BAD.get(wrong.location, Kind.UNKNOWN), wrong.words, wrong.measured)
        row, words = _permutations(port), "orders are not equally likely"
        return None if row.passed else Finding("data", "epoch_order", Kind.DISTRIBUTION, words, row.reason)


def _wrong(port: Measurement, name: str) -> BadPlan | None:
    return BadPlan(*str(port[name]).split("\n", 2)) if name in port else None


def _permutations(port: Measurement) -> Quantity:
    """Every order of four pictures is as likely as any other."""
    counted = port[PERMUTATIONS]
    assert isinstance(counted, Mapping)
    seen = {tuple(int(n) for n in order.split()): int(number) for order, number in counted.items()}
    every = list(itertools.permutations(range(ORDERED)))
    return as_stated("plan.permutations", seen, EPOCHS, {order: 1 / len(every) for order in every})


def run(context: Context, result: StepResult) -> None:
    """One row a statement; each is tried on several sizes, batch sizes and numbers of ranks."""
    compare(context, result, Planned())
    result.cover("order of batches", "batches over ranks", "kept last batch", "repeated augmentation", outside=True)
