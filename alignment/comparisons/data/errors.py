"""Step 2: what a loader does with a picture that cannot be decoded, and with an error that its data set raises.

A loader that leaves such a picture out, or ends early, trains on other data than the reference without saying so. Loaders are run
without worker processes: where one is left behind by an error, a later fork of the same process can hang.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement, compare
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import BATCH_SIZE, first_pictures, part
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.project import Side
from alignment.strangers import strangers
from mobilenetv3_common.counted import counted
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan, SampleKey

PICTURES, WRONG = 3 * BATCH_SIZE, BATCH_SIZE + 2  # the wrong one is in the second of three batches
SAID = "raised on purpose"
SMALL = EvalPreset(36, 32)


ROWS = {"picture": "a damaged picture", "data_set": "an error in the data set"}


class Errors:
    """How far each side's loader comes: the batches that it gave, whether it raised, and whether the message names the cause."""

    def measure(self, context: Context, role: str) -> dict[str, Mapping[str, float]]:
        side = context.sides[role]
        with tempfile.TemporaryDirectory() as folder:
            index = _damaged(context, Path(folder))
            said = {"picture": str(index.path(WRONG)), "data_set": SAID}
            return {name: _ended(side, context, index, name == "data_set", says) for name, says in said.items()}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        """Both give as many batches and then raise, and the port's message has what the reference's has."""
        rows = []
        for name in ROWS:
            row, (ours, theirs) = Quantity(f"errors.{name}", []), self._words(name, port, reference)
            rows.append(row if self._same(name, port, reference) else row.fail(f"{ours}, expected {theirs}"))
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for name, cause in ROWS.items():
            if not self._same(name, port, reference):
                ours, theirs = self._words(name, port, reference)
                words = f"of {cause} it makes {ours}, expected {theirs}"
                return Finding("data", "build_loader", Kind.RAISES, words, f"errors.{name}")
        return None

    @staticmethod
    def _same(name: str, port: Measurement, reference: Measurement) -> bool:
        ours, theirs = dict(port[name]), dict(reference[name])  # type: ignore[arg-type]
        return ours == theirs or (ours["batches"] == theirs["batches"] and bool(ours["named"]))

    @staticmethod
    def _words(name: str, *measured: Measurement) -> list[str]:
        words = []
        for one in (dict(side[name]) for side in measured):  # type: ignore[arg-type]
            batches, naming = counted(int(one["batches"]), "batch"), "names" if one["named"] else "does not name"
            words.append(f"an error after {batches} that {naming} it" if one["raised"] else f"no error after {batches}")
        return words


def run(context: Context, result: StepResult) -> None:
    """Compare how both sides' loaders end."""
    compare(context, result, Errors())
    result.cover("damaged pictures")


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


def _ended(side: Side, context: Context, index: DatasetIndex, broken: bool, says: str) -> dict[str, float]:
    dataset: Any = part(side).ImageDataset(index, SMALL, context.seed, context.image_backend)
    if broken:
        dataset.__class__ = _raising(type(dataset))
    loader = part(side).build_loader(dataset, BatchPlan(PICTURES, BATCH_SIZE, context.seed))
    count = 0
    with strangers("loader", alone=True) as raised:  # each framework has its own; the data set raises on purpose
        for count, _ in enumerate(loader, start=1):  # noqa: B007  # how many there were is the result
            pass
    if raised.error is not None:
        return {"batches": count, "raised": True, "named": says in str(raised.error)}
    return {"batches": count, "raised": False, "named": False}


def _raising(kind: type) -> type:
    """The same data set, which raises an error at one picture."""

    class Raising(kind):
        def __getitem__(self, key: SampleKey) -> Any:
            if key.sample == WRONG:
                raise ValueError(SAID)
            return super().__getitem__(key)

    return Raising
