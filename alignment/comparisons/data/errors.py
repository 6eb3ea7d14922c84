"""Step 2: what a loader does with a picture that cannot be decoded, and with an error that its data set raises.

A loader that leaves such a picture out, or ends early, trains on other data than the reference without saying so. Loaders are run
without worker processes: where one is left behind by an error, a later fork of the same process can hang.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import BATCH_SIZE, first_pictures, part
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.project import Side
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan, SampleKey

PICTURES, WRONG = 3 * BATCH_SIZE, BATCH_SIZE + 2  # the wrong one is in the second of three batches
SAID = "raised on purpose"
SMALL = EvalPreset(36, 32)


@dataclass
class Ended:
    """How far a loader came.

    Attributes:
        batches: that it gave.
        error: its message; None where it came to the end.
    """

    batches: int
    error: str | None

    def words(self, named: str) -> str:
        if self.error is None:
            return f"no error after {self.batches} batch(es)"
        return f"an error after {self.batches} batch(es) that {'names' if named in self.error else 'does not name'} it"


def run(context: Context, result: StepResult) -> None:
    """Compare how both sides' loaders end."""
    with tempfile.TemporaryDirectory() as folder:
        index = _damaged(context, Path(folder))
        for name, says, broken in (("picture", str(index.path(WRONG)), False), ("data_set", SAID, True)):
            ended = {role: _loaded(side, context, index, broken) for role, side in context.sides.items()}
            _judge(result, Quantity(f"errors.{name}", []), says, ended["port"], ended["reference"])
    result.cover("damaged pictures")


def _judge(result: StepResult, row: Quantity, says: str, port: Ended, reference: Ended) -> None:
    """Both give as many batches and then raise, and the port's message has what the reference's has."""
    ours, theirs = port.words(says), reference.words(says)
    if ours != theirs and not (port.batches == reference.batches and says in (port.error or "")):
        row.fail(f"{ours}, expected {theirs}")
        if not result.differs:
            cause = "a damaged picture" if "picture" in row.name else "an error in the data set"
            words = f"of {cause} it makes {ours}, expected {theirs}"
            result.place = Finding("data", "build_loader", Kind.RAISES, words, row.name)
    result.quantities.append(row)


def _damaged(context: Context, folder: Path) -> DatasetIndex:
    """Pictures of the validation split, one of which is no picture."""
    index, target = first_pictures(context.material.index("val")), folder / "val" / "damaged"
    target.mkdir(parents=True)
    for number in range(PICTURES):
        source = Path(index.path(number % len(index)))
        shutil.copyfile(source, target / f"{number:02}{source.suffix}")
    found = index_dataset(folder, "val")
    Path(found.path(WRONG)).write_bytes(b"this is no picture")
    return found


def _loaded(side: Side, context: Context, index: DatasetIndex, broken: bool) -> Ended:
    dataset: Any = part(side).ImageDataset(index, SMALL, context.seed, context.image_backend)
    if broken:
        dataset.__class__ = _raising(type(dataset))
    loader = part(side).build_loader(dataset, BatchPlan(PICTURES, BATCH_SIZE, context.seed))
    count = 0
    try:
        for count, _ in enumerate(loader, start=1):  # noqa: B007  # how many there were is the result
            pass
    except Exception as error:  # each framework has its own
        return Ended(count, str(error))
    return Ended(count, None)


def _raising(kind: type) -> type:
    """The same data set, which raises an error at one picture."""

    class Raising(kind):
        def __getitem__(self, key: SampleKey) -> Any:
            if key.sample == WRONG:
                raise ValueError(SAID)
            return super().__getitem__(key)

    return Raising
