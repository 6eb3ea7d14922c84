"""Step 4, loss: hard, smoothed and soft labels, ignored samples, extreme logits; values and gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alignment.compare import Lanes, judge_measured
from alignment.sides import Side
from alignment.steps.context import Context, Lane, StepResult


@dataclass(frozen=True)
class Case:
    """Logits (N, classes), labels, and the arguments of the loss."""

    name: str
    logits: np.ndarray
    labels: np.ndarray
    smoothing: float = 0.0
    ignore_index: int = -100


def cases(logits: np.ndarray, labels: np.ndarray, seed: int) -> list[Case]:
    """Made from the logits of real pictures (float32) and their labels."""
    classes = logits.shape[1]
    rng = np.random.default_rng([seed, 4])
    one_hot = np.eye(classes, dtype=np.float32)[labels]
    mixed = (0.7 * one_hot + 0.3 * np.roll(one_hot, 1, axis=0)).astype(np.float32)
    spread = rng.dirichlet(np.ones(classes), len(labels)).astype(np.float32)
    some_ignored = np.where(np.arange(len(labels)) % 3 == 0, -100, labels)
    last_ignored = np.where(np.arange(len(labels)) % 4 == 0, classes - 1, labels)
    wrong = np.zeros_like(logits)
    wrong[np.arange(len(labels)), (labels + 1) % classes] = 500.0
    return [
        Case("hard", logits, labels),
        Case("smoothed", logits, labels, smoothing=0.1),
        Case("soft", logits, mixed),
        Case("soft_dirichlet", logits, spread),
        Case("soft_smoothed", logits, mixed, smoothing=0.1),
        Case("ignored", logits, some_ignored),
        Case("ignored_smoothed", logits, some_ignored, smoothing=0.1),
        Case("ignored_last_class", logits, last_ignored, ignore_index=classes - 1),
        Case("gap500", wrong + logits, labels),
        Case("gap500_smoothed", wrong + logits, labels, smoothing=0.1),
        Case("gap10000", (wrong * 20 + logits).astype(np.float32), mixed),
        Case("offset", (logits + 3000).astype(np.float32), labels, smoothing=0.1),
        Case("single", logits[:1], (labels[:1] + 1) % classes),
    ]


def run(context: Context) -> StepResult:
    """Compare each case's loss and its gradient by the logits, then the loss of the whole model."""
    result = StepResult(4, "loss")
    photos, labels = context.photographs(8)
    lanes = [Lane(context, name, share_dropout=False) for name in ("paddle32", "ref32", "ulp32", "paddle64", "ref64")]
    logits = {}
    for lane in lanes:
        with lane.side.no_grad():
            logits[lane.name] = lane.side.array(lane.network(lane.side.tensor(lane.images(photos))))
    model_runs = {lane.name: value_and_gradient(lane.side, Case("model", logits[lane.name], labels)) for lane in lanes}
    _judge(result, "model", model_runs, gradient=False)
    values = {}
    for case in cases(logits["ref32"], labels, context.seed):
        runs = {}
        for name in ("paddle32", "ref32", "ulp32", "paddle64", "ref64"):
            side = context.paddle if name.startswith("paddle") else context.ref
            runs[name] = value_and_gradient(side, _in_precision(case, name))
        _judge(result, case.name, runs, gradient=True)
        values[case.name] = float(runs["ref32"][0])
    result.require("hard_loss", round(values["hard"], 4), values["hard"] > 0.01, "above 0.01")
    result.require("extreme_loss", round(values["gap500"], 2), values["gap500"] > 400, "above 400")
    smoothing = abs(values["smoothed"] - values["hard"])
    result.require("smoothing_changes_loss_by", round(smoothing, 4), smoothing > 1e-4, "above 1e-4")
    ignoring = abs(values["ignored"] - values["hard"])
    result.require("ignoring_changes_loss_by", round(ignoring, 4), ignoring > 1e-4, "above 1e-4")
    return result


def value_and_gradient(side: Side, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The loss, shape (), and its gradient by the logits."""
    logits = side.leaf(case.logits)
    criterion = side.loss.CrossEntropyLoss(case.smoothing, case.ignore_index)
    loss = criterion(logits, side.tensor(case.labels))
    loss.backward()
    return side.array(loss), side.gradient(logits)


def _in_precision(case: Case, lane: str) -> Case:
    dtype = np.float64 if lane.endswith("64") else np.float32
    logits = case.logits.astype(dtype)
    if lane.startswith("ulp"):
        logits = np.nextafter(logits, np.where(np.random.default_rng(4).random(logits.shape) < 0.5, -np.inf, np.inf).astype(dtype))
    labels = case.labels.astype(dtype) if case.labels.dtype.kind == "f" else case.labels
    return Case(case.name, logits, labels, case.smoothing, case.ignore_index)


def _judge(result: StepResult, name: str, runs: dict[str, tuple[np.ndarray, np.ndarray]], gradient: bool) -> None:
    loss = Lanes(**{lane: run[0] for lane, run in runs.items()})
    result.quantities.append(judge_measured(f"{name}.loss", loss))
    result.record(f"{name}.loss", loss.paddle32, loss.ref32)
    if gradient:
        result.quantities.append(judge_measured(f"{name}.gradient", Lanes(**{lane: run[1] for lane, run in runs.items()})))
