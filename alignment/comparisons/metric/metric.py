"""Step 3, metric: top-1 and top-5 on real pictures, with ties, NaN, a short last batch, padding and several ranks."""

from __future__ import annotations

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.context import Context, Lane
from alignment.comparisons.data.loading import batches, first_pictures
from alignment.comparisons.result import StepResult
from alignment.project import MetricPart, Side
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan

KS = (1, 5)
RAISED, NO_SHARE = -1.0, -2.0  # in the place of a share where there was an error, or NaN


def run(context: Context) -> StepResult:
    """Compare counts of right answers of both sides with each other and with a plain numpy sort."""
    result = StepResult(3, "metric")
    logits, labels = _evaluated(context)
    real = logits["reference"]
    _end_to_end(context, result, logits, labels)
    for case, (case_logits, case_labels) in made_up_cases(real, labels).items():
        result.extend(_compare(context, case, case_logits, case_labels))
    for size in (1, 5, len(labels)):
        result.extend(_accumulated(context, f"batch_size{size}", real, labels, size, 1))
    for world in (2, 3):
        result.extend(_accumulated(context, f"ranks{world}", real, labels, 5, world))
    result.extend(_padded(context, real, labels))
    result.extend(_by_default(context, real, labels))
    result.extend(_few(context, real, labels))
    return result


def part(side: Side) -> MetricPart:
    """The side's metrics; the step is not run where there are none."""
    assert side.metric is not None
    return side.metric


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
    # One NaN in a row whose label is the largest of the others: by comparisons alone such a row is right.
    broken[1, labels[1]] = np.nanmax(logits[1]) + 1
    broken[1, (labels[1] + 1) % logits.shape[1]] = np.nan
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


def _evaluated(context: Context) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Logits of every picture by role, each by the side's own loader and model, and the labels."""
    logits: dict[str, np.ndarray] = {}
    labels = np.zeros(0, dtype=np.int64)
    for role in ("reference", "port"):
        lane = Lane(context, f"{role}32", share_dropout=False)
        if context.has_pictures and lane.side.data is not None:
            index = first_pictures(context.index("val"))
            size = context.shape()[-1]
            preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)  # at 224 the published one
            made = list(batches(lane.side, context, index, preset, epoch=0))
            logits[role] = np.concatenate([lane.outputs((images,))[0] for images, _, _ in made])
            labels = np.concatenate([numbers for _, numbers, _ in made])
        else:
            inputs, labels = context.samples(16)
            logits[role] = lane.outputs(inputs)[0]
    return logits, labels


def _counts(side: Side, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    tensor = side.framework.tensor
    return side.framework.array(part(side).top_k_correct(tensor(logits), tensor(labels), KS))


def _compare(context: Context, case: str, logits: np.ndarray, labels: np.ndarray) -> list[Quantity]:
    port, reference = (_counts(side, logits, labels) for side in (context.port, context.reference))
    return [judge_equal(f"{case}.correct", port, reference), judge_equal(f"{case}.correct.sorted", port, oracle(logits, labels))]


def _end_to_end(context: Context, result: StepResult, logits: dict[str, np.ndarray], labels: np.ndarray) -> None:
    values = {}
    for role, side in context.sides.items():
        metric = part(side).TopKAccuracy(KS)
        metric.update(side.framework.tensor(logits[role]), side.framework.tensor(labels))
        values[role] = metric.compute()
    truth = oracle(logits["reference"], labels).mean(axis=0)
    for k, expected in zip(KS, truth, strict=True):
        ours, theirs = (np.array(values[role][f"top{k}"]) for role in ("port", "reference"))
        result.quantities.append(judge_equal(f"acc_top{k}", ours, theirs))
        result.quantities.append(judge_equal(f"acc_top{k}.sorted", ours, np.array(expected)))
        result.record(f"acc_top{k}", ours, theirs)
        # Given weights may name every picture rightly; the made-up cases have right and wrong answers then, too.
        shows = 0 < float(theirs) < 1 or not context.weights.calibrated
        result.require(f"top{k}", round(float(theirs), 4), shows, "strictly between 0 and 1")
    result.require("pictures", len(labels), len(labels) >= 4, "4 or more")


def _accumulated(context: Context, name: str, logits: np.ndarray, labels: np.ndarray, size: int, world: int) -> list[Quantity]:
    """The metric fed batch by batch, the batches shared out over ranks and merged."""
    totals = {}
    for role, side in context.sides.items():
        tensor = side.framework.tensor
        merged = part(side).TopKAccuracy(KS)
        for rank in range(world):
            counted = part(side).TopKAccuracy(KS)
            for keys in BatchPlan(len(labels), size, rank=rank, world_size=world):
                chosen = [key.sample for key in keys]
                counted.update(tensor(logits[chosen]), tensor(labels[chosen]))
            merged.merge(counted)
        totals[role] = np.array([*merged.correct, merged.count])
    return _judged(f"{name}.counts", totals, logits, labels)


def _padded(context: Context, logits: np.ndarray, labels: np.ndarray) -> list[Quantity]:
    """Padding rows must not count: three that repeat a correctly named picture, and all rows but that one."""
    right = int(oracle(logits, labels)[:, 0].argmax())
    padded = np.concatenate([logits, np.repeat(logits[right : right + 1], 3, axis=0)])
    padded_labels = np.concatenate([labels, np.repeat(labels[right], 3)])
    rows = []
    for name, mask in (("padding", np.arange(len(padded)) < len(labels)), ("mostly_padding", np.arange(len(padded)) == right)):
        totals = {}
        for role, side in context.sides.items():
            metric = part(side).TopKAccuracy(KS)
            metric.update(*(side.framework.tensor(array) for array in (padded, padded_labels, mask)))
            totals[role] = np.array([*metric.correct, metric.count])
        rows += _judged(f"{name}.counts", totals, padded[mask], padded_labels[mask])
    return rows


def _by_default(context: Context, logits: np.ndarray, labels: np.ndarray) -> list[Quantity]:
    """The shares of a metric that nobody told the values of k; nothing where the reference has none by default."""
    try:
        part(context.reference).TopKAccuracy()
    except TypeError:
        return []
    found = {}
    for role, side in context.sides.items():
        metric = part(side).TopKAccuracy()
        metric.update(side.framework.tensor(logits), side.framework.tensor(labels))
        found[role] = metric.compute()
    names = sorted({*found["port"]} | {*found["reference"]})
    return [
        judge_equal(f"by_default.{name}", *(np.array(found[role].get(name, np.nan)) for role in ("port", "reference")))
        for name in names
    ]


def _few(context: Context, logits: np.ndarray, labels: np.ndarray) -> list[Quantity]:
    """Shares of one picture, and of none: both sides give the same, or both raise an error."""
    right = int(oracle(logits, labels)[:, 0].argmax())
    rows = []
    for name, count in (("one_picture", 1), ("no_picture", 0)):
        found = {}
        for role, side in context.sides.items():
            metric = part(side).TopKAccuracy(KS)
            try:
                if count:
                    metric.update(*(side.framework.tensor(array[right : right + 1]) for array in (logits, labels)))
                shares = metric.compute()
            except Exception:  # each framework has its own
                found[role] = np.array([RAISED] * len(KS))
            else:
                found[role] = np.nan_to_num(np.array([shares[f"top{k}"] for k in KS], dtype=np.float64), nan=NO_SHARE)
        rows.append(judge_equal(name, found["port"], found["reference"]))
    return rows


def _judged(name: str, totals: dict[str, np.ndarray], logits: np.ndarray, labels: np.ndarray) -> list[Quantity]:
    """Both sides' counts, and the port's against a plain sort."""
    truth = np.array([*oracle(logits, labels).sum(axis=0), len(labels)])
    return [judge_equal(name, totals["port"], totals["reference"]), judge_equal(f"{name}.sorted", totals["port"], truth)]
