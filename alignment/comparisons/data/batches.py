"""Batches of loaders: every pixel, label and picture's number, of one side after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import BATCH_SIZE, REFERENCE, Batch, arrays_of, batches, measured_sides, only
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.presets import EvalPreset, TrainPreset

KINDS = ("images", "labels", "order")


@dataclass(frozen=True)
class Loading:
    """One epoch of a loader, or its first ``most`` batches; the other fields are the arguments of ``batches``."""

    index: DatasetIndex
    preset: EvalPreset | TrainPreset
    epoch: int = 0
    workers: int = 0
    rank: int = 0
    world_size: int = 1
    mix_group: int | None = None
    backend: str = ""
    most: int | None = None

    def load(self, side: Any, context: Context) -> Iterator[Batch]:
        """The batches of one side."""
        given = {name: value for name, value in vars(self).items() if name != "most"}
        return islice(batches(side, context, **given), self.most)


class Batches:
    """Epochs of both sides' loaders.

    Args:
        loadings: by the names of their rows.
        whom: whom the port is compared with.
        named: whether rows name them.
    """

    def __init__(self, loadings: Mapping[str, Loading], whom: Sequence[str] = (REFERENCE,), named: bool = False) -> None:
        self.loadings, self.whom, self.named = loadings, whom, named

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        made: dict[str, np.ndarray] = {}
        for prefix, side in measured_sides(context, role).items():
            for name, loading in self.loadings.items() if not prefix or prefix[:-1] in self.whom else ():
                for number, batch in enumerate(loading.load(side, context)):
                    made |= {f"{prefix}{name}/{number}/{kind}": array for kind, array in zip(KINDS, batch, strict=True)}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows: list[Quantity] = []
        for name in self.loadings:
            for who in self.whom:
                row = f"{name}.{who}" if self.named else name
                rows += compare_batches(row, batches_of(port, name), batches_of(only(reference, who), name))
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """How many batches there are, and which pictures in which order; pixels are explained by one transform at a time."""
        orders = {name: (order_of(port, name), order_of(reference, name)) for name in self.loadings}
        wrong = [name for name, (ours, theirs) in orders.items() if ours != theirs]
        if not wrong:
            return None
        loading, size = self.loadings[wrong[0]], BATCH_SIZE + isinstance(self.loadings[wrong[0]].preset, EvalPreset)
        alike = [n for n, one in self.loadings.items() if (one.preset, one.index) == (loading.preset, loading.index)]
        every, right = ([orders[name][side] for name in alike] for side in (0, 1))
        epoch = self.loadings[alike[0]].epoch
        measured = f"epoch {epoch}: {every[0][:6]}..., expected {right[0][:6]}..."
        ours, theirs = orders[wrong[0]]
        if len(ours) < len(theirs):
            words = f"{len(ours)} of {len(theirs)} pictures: the last, short batch is dropped"
            return Finding("data", "batches", Kind.BATCH_DROPPED, words, measured)
        with_workers = all(self.loadings[name].workers for name in wrong)
        kind, words = Kind.ORDER, "another order with workers, the right one without" if with_workers else "another order"
        if not with_workers and len(set(every)) == 1 and len(set(right)) > 1:
            kind, words = Kind.NOT_RESHUFFLED, "every epoch has the same order: set_epoch is never called"
        if all(one == tuple(sorted(one)) for one in every) and every != right:
            kind, words = Kind.NOT_SHUFFLED, "not shuffled"
        parts = [theirs[i : i + size][::-1] for i in range(0, len(theirs), size)]
        if ours in (theirs[::-1], tuple(n for part in parts for n in part)):
            kind, words = Kind.REVERSED, "the order is reversed"
        return Finding("data", "order", kind, words, measured)


def batches_of(measured: Measurement, name: str) -> list[Batch]:
    """The batches of one epoch."""
    found: list[Batch] = []
    arrays = arrays_of(measured)
    while f"{name}/{len(found)}/order" in arrays:
        images, labels, order = (arrays[f"{name}/{len(found)}/{kind}"] for kind in KINDS)
        found.append((images, labels, order))
    return found


def order_of(measured: Measurement, name: str) -> tuple[int, ...]:
    """The numbers of the pictures in an epoch."""
    return tuple(int(n) for key, array in arrays_of(measured).items() if _is_order(key, name) for n in array)


def _is_order(key: str, name: str) -> bool:
    return key.startswith(f"{name}/") and key.endswith("/order")


def without_pixels(measured: Measurement) -> Measurement:
    """What ``explain`` reads: pixels of whole epochs are not kept."""
    return {name: value for name, value in measured.items() if name.endswith("/order")}


def compare_batches(name: str, port: list[Batch], reference: list[Batch]) -> Iterator[Quantity]:
    """Rows for pixels, labels and order over all batches of an epoch, batch by batch on failure."""
    count = Quantity(f"{name}.batches", [len(reference)])
    same = len(port) == len(reference)
    yield count if same else count.fail(f"{len(port)} batches in the port, {len(reference)} in the reference")
    for place, kind in enumerate(KINDS):
        pairs = zip(port, reference, strict=False)
        rows = [judge_equal(f"{name}.{kind}.batch{i}", p[place], r[place]) for i, (p, r) in enumerate(pairs)]
        failed = [row for row in rows if not row.passed]
        row = Quantity(f"{name}.{kind}", [len(rows), *(rows[0].shape if rows else [])])
        differences = [r.max_abs_diff for r in rows if r.max_abs_diff is not None]
        row.max_abs_diff = max(differences, default=None)
        row.mean_abs_diff = float(np.mean([r.mean_abs_diff for r in rows if r.mean_abs_diff is not None])) if differences else None
        if failed:
            row.fail(f"{failed[0].name}: {failed[0].reason}")
        yield row
