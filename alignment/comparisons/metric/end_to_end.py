"""Top-1 and top-5 of every picture, each by the side's own loader and model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import batches, first_pictures
from alignment.comparisons.metric.mistakes import KS
from alignment.comparisons.metric.right_answers import oracle, part
from alignment.finding import Finding
from mobilenetv3_common.presets import EvalPreset


class EndToEnd:
    """The shares that each side's metric gives for its own logits."""

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        lane = context.networks.of(f"{role}32", share_dropout=False)
        if context.material.has_pictures and lane.side.data is not None:
            index = first_pictures(context.material.index("val"))
            size = context.shape()[-1]
            preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)  # at 224 the published one
            made = list(batches(lane.side, context, index, preset, epoch=0))
            logits = np.concatenate([lane.outputs((images,))[0] for images, _, _ in made])
            labels = np.concatenate([numbers for _, numbers, _ in made])
        else:
            inputs, labels = context.material.samples(16)
            logits = lane.outputs(inputs)[0]
        metric = part(lane.side).TopKAccuracy(KS)
        metric.update(lane.framework.tensor(logits), lane.framework.tensor(labels))
        shares = metric.compute()
        return {"logits": logits, "labels": labels, **{f"top{k}": np.array(shares[f"top{k}"]) for k in KS}}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        truth = oracle(np.asarray(reference["logits"]), np.asarray(port["labels"])).mean(axis=0)
        for k, expected in zip(KS, truth, strict=True):
            ours, theirs = np.asarray(port[f"top{k}"]), np.asarray(reference[f"top{k}"])
            rows.append(judge_equal(f"acc_top{k}", ours, theirs))
            rows.append(judge_equal(f"acc_top{k}.sorted", ours, np.array(expected)))
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """Nothing: what makes only these shares differ lies in the pictures or in the model."""
        return None
