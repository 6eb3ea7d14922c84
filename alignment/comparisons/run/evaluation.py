"""The evaluation loop on weights under a moving average: a short last batch, a picture left out, and the counts of two ranks.

The labels are made from the reference's outputs, so that some are the largest, some among the five largest, some neither,
and the confusion matrix is not symmetric. All figures are counted here once more from each side's own outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, judge_close, judge_equal
from alignment.comparisons.data.loading import Batch
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.averages import DECAY, given_states
from alignment.comparisons.run.engine import Ground, engine, start_run
from alignment.formulas import log_softmax

PLACES = (0, 2, 7, 0, 4, 1, 5, 0, 3)  # of the labels among the classes, the largest output first
LEFT_OUT = 2  # number of the picture that counts as damaged
FIGURES = ("samples", "skipped", "top1", "top5", "loss", "confusion")


@dataclass
class Evaluated:
    """One side's evaluation.

    Attributes:
        given: the batches of its own loader.
        logits: of every picture, float64 (N, classes), with the averaged weights.
        own_logits: the same with the run's own weights, and in training mode ...
        training_logits: ... with the averaged ones.
        labels: int64 (N,), those that were given instead.
        figures: what the evaluation gave, by name.
        merged: the same of two ranks that share the batches.
    """

    given: list[Batch]
    logits: np.ndarray
    own_logits: np.ndarray
    training_logits: np.ndarray
    labels: np.ndarray
    figures: dict[str, Any]
    merged: dict[str, Any]


def placed_labels(logits: np.ndarray) -> np.ndarray:
    """Labels at ``PLACES`` among the outputs: int64 (N,)."""
    order = np.argsort(-logits, axis=1)
    return np.array([row[place % len(row)] for row, place in zip(order, cycle(PLACES), strict=False)], dtype=np.int64)


def evaluated(ground: Ground, role: str, labels: np.ndarray | None = None) -> Evaluated:
    """Evaluate one side by its own loop, alone and as two ranks; labels are placed by its own outputs where None."""
    context, framework, train = ground.context, ground.context.sides[role].framework, engine(ground.context, role)
    run = start_run(context, role, replace(ground.short, ema_decay=DECAY), "64", ground.weights)
    given: list[Batch] = [tuple(map(framework.array, batch)) for batch in train.evaluation_loader(run)]  # type: ignore[misc]
    averaged, own = given_states(ground)[:2]

    def outputs(state: Any, training: bool) -> np.ndarray:
        context.networks.load(role, run.model, state)
        framework.set_training(run.model, training)
        return np.concatenate([framework.call(run.model, (batch[0].astype(np.float64),)).outputs[0] for batch in given])

    logits, own_logits, training_logits = outputs(averaged, False), outputs(own, False), outputs(averaged, True)
    labels = placed_labels(logits) if labels is None else labels
    context.networks.load(role, run.model, averaged)
    run.average.update()
    context.networks.load(role, run.model, own)
    batches = relabelled(given, labels)

    def figures(ranks: Any, share: Iterable[Batch]) -> dict[str, Any]:
        run.train_mode()  # as after training; the loop itself has to leave it
        run.ranks = ranks
        loader = [(framework.tensor(images), framework.tensor(labels), Numbers(numbers)) for images, labels, numbers in share]
        with framework.precision("float64"):
            result = train.evaluate_run(run, loader)
        return {name: getattr(result, name) for name in FIGURES if hasattr(result, name)}

    alone = run.ranks
    second = Together(alone, [])
    of_one = figures(alone, batches)
    figures(second, batches[1::2])
    merged = figures(Together(alone, second.summed), batches[::2])
    return Evaluated(given, logits, own_logits, training_logits, labels, of_one, merged)


class Numbers:
    """Numbers of pictures as a loader gives them: a tensor on the CPU, whatever the device."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def numpy(self) -> np.ndarray:
        return self._array


class Together:
    """The ranks of a run whose sums are those of two processes, of which the other one was run before.

    Args:
        alone: the run's own ranks, of one process.
        others: what the other process summed, in order.

    Attributes:
        summed: what this process summed, in order.
    """

    def __init__(self, alone: Any, others: Sequence[np.ndarray]) -> None:
        self._alone, self._others = alone, others
        self.summed: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._alone, name)

    def sum(self, values: Any) -> np.ndarray:
        """Numbers of this process, with those of the other one where it has run."""
        self.summed.append(np.asarray(values, dtype=np.float64))
        return self.summed[-1] + (self._others[len(self.summed) - 1] if self._others else 0.0)


def relabelled(given: Sequence[Sequence[np.ndarray]], labels: np.ndarray) -> list[Batch]:
    """The batches in float64 with other labels, one picture marked as damaged."""
    made, done = [], 0
    for images, _, numbers in given:
        marked = np.where(np.arange(done, done + len(numbers)) == LEFT_OUT, -1, numbers)
        made.append((images.astype(np.float64), labels[done : done + len(numbers)], marked))
        done += len(numbers)
    return made


def counted_figures(logits: np.ndarray, labels: np.ndarray, left_out: Sequence[int] = (LEFT_OUT,)) -> dict[str, Any]:
    """The figures of an evaluation by arithmetic of its own.

    Args:
        logits: float64 (N, classes).
        labels: int64 (N,).
        left_out: numbers of the pictures that do not count.
    """
    counts = ~np.isin(np.arange(len(labels)), left_out)
    picked = logits[np.arange(len(labels)), labels]
    better = (logits > picked[:, None]).sum(1)
    losses = -log_softmax(logits)[np.arange(len(labels)), labels]
    confusion = np.zeros((logits.shape[1], logits.shape[1]), dtype=np.int64)
    np.add.at(confusion, (labels[counts], logits.argmax(1)[counts]), 1)
    return {
        "samples": int(counts.sum()),
        "skipped": int((~counts).sum()),
        "top1": float((better < 1)[counts].mean()),
        "top5": float((better < 5)[counts].mean()),
        "loss": float(losses[counts].mean()),
        "confusion": confusion,
    }


def judge_evaluation(result: StepResult, ours: Evaluated, theirs: Evaluated) -> None:
    """Hold the port's loader and figures against the reference's, and against counts made here."""
    for column, name in enumerate(("pictures", "labels", "numbers")):
        arrays = [np.concatenate([batch[column] for batch in side.given]) for side in (ours, theirs)]
        result.quantities.append(judge_equal(f"evaluation.{name}", *arrays))
    sizes = [[len(batch[2]) for batch in side.given] for side in (ours, theirs)]
    result.quantities.append(judge_equal("evaluation.batches", *(np.array(row) for row in sizes)))
    result.quantities.append(judge_close("evaluation.outputs", ours.logits, theirs.logits, tolerance.EXACT_RTOL * 10))
    expected = counted_figures(theirs.logits, theirs.labels)
    for kind, own, other in (("", ours.figures, theirs.figures), ("ranks.", ours.merged, theirs.merged)):
        result.extend(judge_figure(f"evaluation.{kind}{name}", own.get(name), other[name], expected[name]) for name in other)
    shares = expected["top1"], expected["top5"]
    result.require("evaluation.top1_and_top5", shares, 0 < shares[0] < shares[1] < 1, "two different shares, neither 0 nor 1")
    short = sizes[1][-1] < sizes[1][0]
    result.require("evaluation.last_batch", sizes[1][-1], short, f"fewer pictures than {sizes[1][0]}")
    result.cover("evaluation loop")


def judge_figure(name: str, ours: Any, theirs: Any, counted: Any) -> Quantity:
    """A count must be equal; a loss agrees to ``EXACT_RTOL``."""
    if ours is None:
        return Quantity(name, []).fail("missing in the port")
    row, again = (judge_close(name, np.asarray(ours), np.asarray(other), tolerance.EXACT_RTOL) for other in (theirs, counted))
    if np.ndim(ours) == 0:
        row.note(f"{float(ours):.6g}, counted {float(counted):.6g}")
    return row if again.passed else row.fail(f"not what the outputs give: {again.reason}")
