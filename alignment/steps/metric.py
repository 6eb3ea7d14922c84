"""Step 3, metric: top-1 and top-5 on real pictures, with ties, NaN, a short last batch, padding and several ranks."""

from __future__ import annotations

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.sides import Side
from alignment.steps.context import Context, Lane, StepResult
from alignment.steps.data import batches, first_pictures
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan

KS = (1, 5)


def run(context: Context) -> StepResult:
    """Compare counts of right answers of both sides with each other and with a plain numpy sort."""
    result = StepResult(3, "metric")
    index = first_pictures(context.index("val"))
    logits, labels = {}, np.zeros(0, dtype=np.int64)
    for name in ("ref32", "paddle32"):
        lane = Lane(context, name, share_dropout=False)
        logits[lane.side.name], labels = _evaluate(context, lane, index)
    _end_to_end(context, result, logits, labels)
    real = logits["ref"]
    for case, (case_logits, case_labels) in made_up_cases(real, labels).items():
        result.extend(_compare(context, case, case_logits, case_labels))
    for size in (1, 5, len(labels)):
        result.extend(_accumulated(context, f"batch_size{size}", real, labels, size, 1))
    for world in (2, 3):
        result.extend(_accumulated(context, f"ranks{world}", real, labels, 5, world))
    result.extend(_padded(context, real, labels))
    return result


def oracle(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Right answers by a stable sort, class order among equals, NaN rows wrong; bool (N, len(KS))."""
    ranked = np.argsort(-logits, axis=1, kind="stable")
    rank = (ranked == labels[:, None]).argmax(axis=1)
    valid = ~np.isnan(logits).any(axis=1)
    return np.stack([(rank < k) & valid for k in KS], axis=1)


def made_up_cases(logits: np.ndarray, labels: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Logits where accuracies in circulation go wrong: ties, all equal, NaN, infinities, fewer classes than usual."""
    ties = np.round(logits).astype(np.float32)
    ties[np.arange(len(labels)), labels] = np.sort(ties, axis=1)[:, -3]
    broken = logits.copy()
    broken[::2] = np.nan
    broken[1, 7] = np.nan
    infinite = logits.copy()
    infinite[0, labels[0]] = np.inf
    infinite[1, (labels[1] + 1) % logits.shape[1]] = np.inf
    few = logits[:, : max(int(labels.max()) + 1, 6)]
    return {
        "real": (logits, labels),
        "ties": (ties, labels),
        "all_equal": (np.zeros_like(logits), labels),
        "nan": (broken, labels),
        "infinite": (infinite, labels),
        "few_classes": (np.ascontiguousarray(few), labels),
    }


def _evaluate(context: Context, lane: Lane, index) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of every picture, by the side's own loader and model."""
    parts = []
    with lane.side.no_grad():
        for images, labels, _ in batches(lane.side, context, index, EvalPreset(), epoch=0):
            parts.append((lane.side.array(lane.network(lane.side.tensor(images))), labels))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _counts(side: Side, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return side.array(side.metric.top_k_correct(side.tensor(logits), side.tensor(labels), KS))


def _compare(context: Context, case: str, logits: np.ndarray, labels: np.ndarray) -> list[Quantity]:
    paddle, ref = _counts(context.paddle, logits, labels), _counts(context.ref, logits, labels)
    return [judge_equal(f"{case}.correct", paddle, ref), judge_equal(f"{case}.correct.sorted", paddle, oracle(logits, labels))]


def _end_to_end(context: Context, result: StepResult, logits: dict[str, np.ndarray], labels: np.ndarray) -> None:
    values = {}
    for side in (context.paddle, context.ref):
        metric = side.metric.TopKAccuracy(KS)
        metric.update(side.tensor(logits[side.name]), side.tensor(labels))
        values[side.name] = metric.compute()
    truth = oracle(logits["ref"], labels).mean(axis=0)
    for k, expected in zip(KS, truth, strict=True):
        ours, theirs = (np.array(values[side][f"top{k}"]) for side in ("paddle", "ref"))
        result.quantities.append(judge_equal(f"acc_top{k}", ours, theirs))
        result.quantities.append(judge_equal(f"acc_top{k}.sorted", ours, np.array(expected)))
        result.record(f"acc_top{k}", ours, theirs)
        result.require(f"top{k}", round(float(theirs), 4), 0 < float(theirs) < 1, "strictly between 0 and 1")
    result.require("pictures", len(labels), len(labels) >= 4, "4 or more")


def _accumulated(context: Context, name: str, logits: np.ndarray, labels: np.ndarray, size: int, world: int) -> list[Quantity]:
    """The metric fed batch by batch, the batches shared out over ranks and merged."""
    totals = {}
    for side in (context.paddle, context.ref):
        merged = side.metric.TopKAccuracy(KS)
        for rank in range(world):
            part = side.metric.TopKAccuracy(KS)
            for keys in BatchPlan(len(labels), size, rank=rank, world_size=world):
                chosen = [key.sample for key in keys]
                part.update(side.tensor(logits[chosen]), side.tensor(labels[chosen]))
            merged.merge(part)
        totals[side.name] = np.array([*merged.correct, merged.count])
    truth = np.array([*oracle(logits, labels).sum(axis=0), len(labels)])
    return [
        judge_equal(f"{name}.counts", totals["paddle"], totals["ref"]),
        judge_equal(f"{name}.counts.sorted", totals["paddle"], truth),
    ]


def _padded(context: Context, logits: np.ndarray, labels: np.ndarray) -> list[Quantity]:
    """Padding rows, which repeat a rightly named picture, must not count."""
    right = int(oracle(logits, labels)[:, 0].argmax())
    padded = np.concatenate([logits, np.repeat(logits[right : right + 1], 3, axis=0)])
    padded_labels = np.concatenate([labels, np.repeat(labels[right], 3)])
    mask = np.arange(len(padded)) < len(labels)
    totals = {}
    for side in (context.paddle, context.ref):
        metric = side.metric.TopKAccuracy(KS)
        metric.update(side.tensor(padded), side.tensor(padded_labels), side.tensor(mask))
        totals[side.name] = np.array([*metric.correct, metric.count])
    truth = np.array([*oracle(logits, labels).sum(axis=0), len(labels)])
    return [
        judge_equal("padding.counts", totals["paddle"], totals["ref"]),
        judge_equal("padding.counts.sorted", totals["paddle"], truth),
    ]
