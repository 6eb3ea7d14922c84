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
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import Batch
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.averages import DECAY, given_states
from alignment.comparisons.run.engine import Ground, engine, start_run
from alignment.comparisons.run.mistakes import Counted, agrees, counted_figures, evaluation_hint
from alignment.comparisons.run.states import part, under
from alignment.finding import Finding
from alignment.kinds import Kind

PLACES = (0, 2, 7, 0, 4, 1, 5, 0, 3)  # of the labels among the classes, the largest output first
LEFT_OUT = 2  # number of the picture that counts as damaged
GIVEN = ("given_pictures", "given_labels", "numbers")  # by the loader
FIGURES = ("samples", "skipped", "top1", "top5", "loss", "confusion")


@dataclass(frozen=True)
class RunEvaluation:
    """A side's own loader and evaluation loop, alone and as two ranks, and the outputs that the figures are counted from.

    Attributes:
        ground: what the runs begin from.
        labels: of the pictures, int64 (N,); placed by a side's own outputs where None, as the reference's are.
    """

    ground: Ground
    labels: np.ndarray | None = None

    def after(self, reference: Measurement) -> RunEvaluation:
        """The same with the labels that the reference's outputs gave, for the port."""
        return replace(self, labels=np.asarray(reference["labels"]))

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        framework, train = context.sides[role].framework, engine(context, role)
        run = start_run(context, role, replace(self.ground.short, ema_decay=DECAY), "64", self.ground.weights)
        given: list[Batch] = [tuple(map(framework.array, batch)) for batch in train.evaluation_loader(run)]  # type: ignore[misc]
        averaged, own = given_states(self.ground)[:2]

        def outputs(state: Any, training: bool) -> np.ndarray:
            context.networks.load(role, run.model, state)
            framework.set_training(run.model, training)
            return np.concatenate([framework.call(run.model, (batch[0].astype(np.float64),)).outputs[0] for batch in given])

        logits, own_logits, training_logits = outputs(averaged, False), outputs(own, False), outputs(averaged, True)
        labels = placed_labels(logits) if self.labels is None else self.labels
        context.networks.load(role, run.model, averaged)
        run.average.update()
        context.networks.load(role, run.model, own)
        batches = relabelled(given, labels)

        def figures(ranks: Any, share: Iterable[Batch]) -> dict[str, np.ndarray]:
            run.train_mode()  # as after training; the loop itself has to leave it
            run.ranks = ranks
            loader = [(framework.tensor(images), framework.tensor(labels), Numbers(numbers)) for images, labels, numbers in share]
            with framework.precision("float64"):
                result = train.evaluate_run(run, loader)
            return {name: np.asarray(getattr(result, name)) for name in FIGURES if hasattr(result, name)}

        alone = run.ranks
        second = Together(alone, [])
        made: dict[str, Value] = {**under("alone", figures(alone, batches))}
        figures(second, batches[1::2])
        made |= under("merged", figures(Together(alone, second.summed), batches[::2]))
        made |= {name: np.concatenate([batch[column] for batch in given]) for column, name in enumerate(GIVEN)}
        sizes = np.array([len(batch[2]) for batch in given])
        outputs_of = {"outputs": logits, "own_outputs": own_logits, "training_outputs": training_logits}
        return {**made, **outputs_of, "batches": sizes, "labels": labels}

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        ours, theirs = ({name: np.asarray(side[name]) for name in (*GIVEN, "batches", "outputs")} for side in (port, reference))
        rows = [judge_equal(f"evaluation.{name.removeprefix('given_')}", ours[name], theirs[name]) for name in (*GIVEN, "batches")]
        rows.append(judge_close("evaluation.outputs", ours["outputs"], theirs["outputs"], tolerance.EXACT_RTOL * 10))
        expected = self._expected(reference)
        for of, kind in (("alone", ""), ("merged", "ranks.")):
            own, other = part(port, of), part(reference, of)
            rows += [judge_figure(f"evaluation.{kind}{name}", own.get(name), other[name], expected[name]) for name in other]
        return rows

    @staticmethod
    def _expected(reference: Measurement) -> dict[str, Any]:
        return counted_figures(np.asarray(reference["outputs"]), np.asarray(reference["labels"]), (LEFT_OUT,))

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what shows that there was something to compare."""
        expected, sizes = self._expected(reference), np.asarray(reference["batches"]).tolist()
        shares = expected["top1"], expected["top5"]
        result.require("evaluation.top1_and_top5", shares, 0 < shares[0] < shares[1] < 1, "two different shares, neither 0 nor 1")
        result.require("evaluation.last_batch", sizes[-1], sizes[-1] < sizes[0], f"fewer pictures than {sizes[0]}")
        result.cover("evaluation loop")

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """The loader's batches, then the figures of outputs that agree."""
        counts = [len(np.asarray(side["batches"])) for side in (port, reference)]
        for name in GIVEN:
            for number, (one, other) in enumerate(zip(_split(port, name), _split(reference, name), strict=False)):
                if one.shape != other.shape or (one != other).any():
                    what = name.removeprefix("given_")
                    return Finding("train", "evaluation_loader", measured=f"{what} of batch {number} differ")
        if counts[0] != counts[1]:
            kind = Kind.LAST_BATCH_FORGOTTEN if counts[0] == counts[1] - 1 else Kind.EVALUATION
            words = f"{counts[0]} batches, expected {counts[1]}"
            return Finding("train", "evaluation_loader", kind, words, words)
        right = self._expected(reference)
        for of in ("alone", "merged"):
            found = part(port, of)
            wrong = [name for name in part(reference, of) if not agrees(found.get(name), right[name])]
            if wrong:
                counted = Counted(port, LEFT_OUT, right, of == "merged")
                hint = evaluation_hint(counted, found, ", ".join(f"{name} {_figure(found.get(name))}" for name in wrong))
                pairs = ", ".join(f"{name} {_figure(found.get(name))}, expected {_figure(right[name])}" for name in wrong)
                return Finding("train", "evaluate_run", *hint, pairs)
        return None


def _split(measured: Measurement, name: str) -> list[np.ndarray]:
    """What the loader gave, batch by batch."""
    return np.split(np.asarray(measured[name]), np.cumsum(np.asarray(measured["batches"]))[:-1])


def _figure(value: Any) -> str:
    return (
        "missing" if value is None else f"{float(value):.6g}" if np.ndim(value) == 0 else f"a matrix of {int(np.sum(value))} counts"
    )


def placed_labels(logits: np.ndarray) -> np.ndarray:
    """Labels at ``PLACES`` among the outputs: int64 (N,)."""
    order = np.argsort(-logits, axis=1)
    return np.array([row[place % len(row)] for row, place in zip(order, cycle(PLACES), strict=False)], dtype=np.int64)


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


def judge_figure(name: str, ours: Any, theirs: Any, counted: Any) -> Quantity:
    """A count must be equal; a loss agrees to ``EXACT_RTOL``."""
    if ours is None:
        return Quantity(name, []).fail("missing in the port")
    row, again = (judge_close(name, np.asarray(ours), np.asarray(other), tolerance.EXACT_RTOL) for other in (theirs, counted))
    if np.ndim(ours) == 0:
        row.note(f"{float(ours):.6g}, counted {float(counted):.6g}")
    return row if again.passed else row.fail(f"not what the outputs give: {again.reason}")
