"""Evaluation pictures and how ranks share them: against the reference, and against code that shares nothing with the project."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.batches import Batches, Loading, batches_of, order_of
from alignment.comparisons.data.loading import arrays_of, first_pictures
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.presets import EvalPreset


class Evaluation(Batches):
    """The evaluation pictures, the list of files and labels."""

    def __init__(self, context: Context) -> None:
        self.whole = context.material.index("val")
        self.index = first_pictures(self.whole)  # some of its pictures, spread over all classes
        super().__init__({"eval": Loading(self.index, EvalPreset(), workers=2)})
        self.outside = context.project.independent if context.image_backend == "pil" else None

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        made = super().measure(context, role)
        if role == "reference" and self.outside is not None:
            made["outside/images"] = self.outside.pictures(self.index)
            if (listed := self.outside.listed(self.whole, "val")) is not None:
                made |= {"outside/file_names": np.array(listed[0]), "outside/labels": np.array(listed[1])}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        names = np.array([self.index.names[i] for i in order_of(port, "eval")])
        rows = [*super().judge(port, reference), judge_equal("eval.file_names", names, np.array(self.index.names))]
        ours = {
            "images": lambda: np.concatenate([batch[0] for batch in batches_of(port, "eval")]),
            "file_names": lambda: np.array([str(self.whole.path(i)) for i in range(len(self.whole))]),
            "labels": lambda: np.array(self.whole.labels),
        }
        for kind, found in ours.items():
            if self.outside is not None and (truth := arrays_of(reference).get(f"outside/{kind}")) is not None:
                rows.append(judge_equal(f"eval.{kind}.{self.outside.name}", found(), truth))
        return rows


class SharedOut:
    """Three ranks of evaluation together see every picture once, with the labels that one rank sees."""

    def __init__(self, context: Context) -> None:
        self.index = first_pictures(context.material.index("val"))

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        made: dict[str, np.ndarray] = {}
        for rank in range(3) if role == "port" else ():
            loading = Loading(self.index, EvalPreset(), rank=rank, world_size=3)
            for number, (_, labels, order) in enumerate(loading.load(context.port, context)):
                made |= {f"rank{rank}/{number}/labels": labels, f"rank{rank}/{number}/order": order}
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        arrays = arrays_of(port)
        seen = np.concatenate([np.zeros(0, int), *(array for name, array in arrays.items() if name.endswith("/order"))])
        given = np.concatenate([np.zeros(0, int), *(array for name, array in arrays.items() if name.endswith("/labels"))])
        labels = dict(zip(seen.tolist(), given.tolist(), strict=True))
        found = np.array([labels.get(i, -1) for i in range(len(self.index))])
        return [
            judge_equal("eval.ranks.coverage", np.sort(seen), np.arange(len(self.index))),
            judge_equal("eval.ranks.labels", found, np.array(self.index.labels)),
        ]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        parts = [order_of(port, f"rank{rank}") for rank in range(3)]
        seen = sorted(n for part in parts for n in part)
        if seen == list(range(len(self.index))):
            return None
        kind, words = Kind.SHARDS_OVERLAP, "ranks share pictures, or pad, or leave some out"
        if parts[0] == parts[1] == parts[2]:
            kind, words = Kind.NOT_SHARDED, "every rank sees the same pictures: the batches are not shared out"
        measured = f"3 ranks see {len(seen)} samples of {len(self.index)}, {len(set(seen))} different ones"
        return Finding("data", "ranks", kind, words, measured)
