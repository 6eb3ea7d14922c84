"""Accumulation: gradients of one micro-batch and of two, by each side's own ``accumulate_gradients``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.update.schedules import train_part
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import factor_hint
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, seen
from mobilenetv3_common.counted import counted
from mobilenetv3_common.weights import State

PARTS = {"one": [slice(0, 4)], "two": [slice(0, 4), slice(4, 8)], "the second": [slice(4, 8)]}
Vectors = Mapping[str, np.ndarray]  # by part, all gradients as one array


class Accumulation:
    """Gradients of the first micro-batch, of the second, and of both, float64."""

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        inputs, labels = context.material.samples(8, small=True)
        lane = context.networks.of(f"{role}64")
        framework, loss = lane.framework, lane.side.loss
        assert loss is not None
        criterion = loss.CrossEntropyLoss(0.1)
        found: dict[str, np.ndarray] = {}
        for name, chosen in PARTS.items():
            lane.reset()
            images = [lane.inputs((inputs[0][c],))[0] for c in chosen]
            batches = [(framework.tensor(x), framework.tensor(labels[c])) for x, c in zip(images, chosen, strict=True)]
            with framework.precision(lane.dtype):
                train_part(lane.side).accumulate_gradients(lane.model, criterion, batches)
            found |= {f"{name}/{tensor}": gradient for tensor, gradient in framework.gradients(lane.model).items()}
            framework.clear_gradients(lane.model)
        return found

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        """Nothing: the runs have the rows of their gradients."""
        return ()

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for name in ("one", "two"):
            ours, theirs = _of(port, name), _of(reference, name)
            least = tolerance.ACCUMULATION_LEAST * max(norm(array) for array in theirs.values())
            for tensor in [tensor for tensor in theirs if tensor in ours]:
                gap = distance(ours[tensor], theirs[tensor])
                if not gap <= tolerance.ACCUMULATION_RTOL * max(norm(theirs[tensor]), least):
                    names = [n for n in theirs if n in ours]
                    own, right = ({part: _vector(_of(side, part), names) for part in PARTS} for side in (port, reference))
                    batches = counted(len(PARTS[name]), "batch")
                    measured = f"{tensor}: relative L2 {relative(gap, norm(theirs[tensor])):.1e}, {batches}"
                    return Finding("backward", "accumulate_gradients", *ACCUMULATED.hint(name, own, right), measured)
        return None


def _of(made: Measurement, part: str) -> State:
    """A part's gradients by tensor."""
    return {name.partition("/")[2]: np.asarray(array) for name, array in made.items() if name.partition("/")[0] == part}


def _vector(state: State, names: Sequence[str]) -> np.ndarray:
    return np.concatenate([state[name].ravel() for name in names if name in state])


def _observed(name: str, ours: Vectors, right: Vectors) -> list[Observed]:
    return [Observed((part, right), ours[part], right[part]) for part in ("one", "two")]


ACCUMULATED = Family("accumulation", _observed)  # of the part that is wrong first; a prediction is a part's gradients


@ACCUMULATED
def not_finite(name: str, ours: Vectors, right: Vectors) -> Hypotheses:
    if not np.isfinite(ours[name]).all():
        yield seen(Kind.NOT_FINITE, "gradients are NaN or infinite")


def _of_two(kind: Kind, words: str, share: float, taken: str) -> Hypothesis:
    """Two micro-batches give a share of the gradients of some part; one is right."""

    def predict(given: tuple[str, Vectors]) -> np.ndarray:
        part, right = given
        return share * right[taken] if part == "two" else right[part]

    return Hypothesis(kind, words, predict)


@ACCUMULATED
def one_micro_batch(name: str, *_: Vectors) -> Hypotheses:
    for share, how in ((0.5, "half "), (1.0, "")):
        words = f"{how}the gradient of the last micro-batch alone: gradients are cleared between micro-batches"
        yield _of_two(Kind.GRADIENT_CLEARED_EARLY, words, share, "the second")
        yield _of_two(Kind.BATCH_DROPPED, f"{how}the gradient of the first micro-batch alone", share, "one")


@ACCUMULATED
def summed(name: str, *_: Vectors) -> Hypotheses:
    yield _of_two(Kind.SUM_FOR_MEAN, "gradients of micro-batches are summed, expected their mean", 2.0, "two")


@ACCUMULATED
def scaled(name: str, ours: Vectors, right: Vectors) -> Hypotheses:
    ratio = factor_hint(ours[name], right[name])
    if ratio is not None:
        words = f"every gradient is {ratio:.4g} times the reference's"
        predict = lambda given: given[1][given[0]] * (ratio if name in ("one", given[0]) else 1.0)  # noqa: E731
        yield Hypothesis(Kind.GRADIENT_SCALED, words, predict)
