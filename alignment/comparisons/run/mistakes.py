"""Mistakes of a training run, each a hypothesis: other recipes, moving averages, counts and evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import norm
from alignment.finding import Hint
from alignment.formulas import log_softmax
from alignment.frameworks.base import STATISTICS
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, seen
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

# --- the first updates -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """Whose first updates differ.

    Attributes:
        config: the recipe.
        updates: what the reference's first updates give with other settings, or with something changed in them.
        dropped: by role, which values each dropout dropped, bool arrays.
    """

    config: TrainConfig
    updates: Callable[..., Any]
    dropped: tuple[Sequence[np.ndarray], Sequence[np.ndarray]]


FIRST_UPDATES = Family("first_updates")  # an observation is given what it takes of the measured updates


def _trained(recipe: Recipe, kind: Kind, words: str, **changes: Any) -> Hypothesis:
    """The reference's own updates with a mistake in them, made when they are first asked for."""
    made = cache(partial(recipe.updates, **changes))
    return Hypothesis(kind, words, lambda look: look(made()))


@FIRST_UPDATES
def settings(recipe: Recipe) -> Hypotheses:
    """Recipes with one mistake; those that change nothing of this one explain nothing, and are not run."""
    lr = recipe.config.lr
    mistakes: list[tuple[Kind, str, dict[str, Any]]] = [
        (Kind.DROPOUT_MISSING, "dropout is missing in training", {"dropout": 0.0}),
        (Kind.SMOOTHING_MISSING, "label smoothing is left out", {"label_smoothing": 0.0}),
        (Kind.SMOOTHING, "label smoothing 0.1", {"label_smoothing": 0.1}),
        (Kind.CLIPPING_MISSING, "gradients are not clipped", {"clip_norm": None}),
        (Kind.WEIGHT_DECAY_MISSING, "weight decay is left out", {"weight_decay": 0.0}),
        (Kind.NORM_WEIGHT_DECAY, "weight decay on norm layers is left out", {"norm_weight_decay": 0.0}),
        (Kind.BIAS_WEIGHT_DECAY, "weight decay on biases is left out", {"bias_weight_decay": 0.0}),
        (Kind.OPTIMIZER_EPS, "eps 1e-08", {"eps": 1e-8}),
        (Kind.BETAS, "beta1 and beta2 are 0.9 and 0.999", {"beta1": 0.9, "beta2": 0.999}),
        (Kind.LR_SCALED, "the learning rate is twice the recipe's", {"lr": 2 * lr}),
        (Kind.LR_SCALED, "the learning rate is half the recipe's", {"lr": lr / 2}),
        (Kind.STATISTICS_FROZEN, "BatchNorm is frozen, or in evaluation mode while training", {"freeze_bn": True}),
        (
            Kind.EVALUATION_MODE,
            "the model stays in evaluation mode while training: neither dropout nor the statistics of the batch",
            {"freeze_bn": True, "dropout": 0.0},
        ),
        (Kind.MOMENTUM, "BatchNorm keeps the momentum of the model, not that of the recipe", {"bn_momentum": None}),
        (Kind.DROPOUT_RATE, "dropout keeps the model's own rate, 0.2, not that of the recipe", {"dropout": 0.2}),
    ]
    for kind, words, changes in mistakes:
        if any(getattr(recipe.config, name) != value for name, value in changes.items()):
            yield _trained(recipe, kind, words, changes=changes)


@FIRST_UPDATES
def dropout_unscaled(recipe: Recipe) -> Hypotheses:
    if recipe.config.dropout:
        words = "dropout keeps values unscaled in training, expected the factor 1 / (1 - p)"
        yield _trained(recipe, Kind.DROPOUT_SCALE, words, unscaled=True)


@FIRST_UPDATES
def dropout_drawn_otherwise(recipe: Recipe) -> Hypotheses:
    """A dropout drops about as many values as the reference's, of which most are others."""
    for a, b in zip(*recipe.dropped, strict=False) if recipe.config.dropout else ():
        if a.shape == b.shape and min(a.sum(), b.sum()) > 0.8 * max(a.sum(), b.sum()) and (a & b).sum() < 0.5 * (a | b).sum():
            yield seen(Kind.ORDER, "dropout drops other values: another seed, or its numbers are drawn in another order")
            return


@FIRST_UPDATES
def gradients_kept(recipe: Recipe) -> Hypotheses:
    words = "gradients are not cleared: each update takes those of all before it too"
    yield _trained(recipe, Kind.GRADIENT_NOT_CLEARED, words, keep_gradients=True)


# --- moving average --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Averaged:
    """A moving average that is wrong.

    Attributes:
        states: that it was given, one after another.
        decay: of the right one.
        ours, right: the port's average of all states, and the right one.
        wrong: names of the tensors that are wrong.
    """

    states: Sequence[State]
    decay: float
    ours: State
    right: State
    wrong: Sequence[str]

    def flat(self, state: State) -> np.ndarray | None:
        """The wrong tensors of a state, float64 (elements,); None where one is missing."""
        if not self.wrong or any(name not in state for name in self.wrong):
            return None
        return np.concatenate([state[name].ravel() for name in self.wrong]).astype(np.float64)

    @property
    def shares(self) -> np.ndarray | None:
        """Shares of the states in the port's average, by least squares, float64 (states,); None where it is no such mixture."""
        made = self.flat(self.ours)
        if made is None:
            return None
        columns = np.stack([column for state in self.states if (column := self.flat(state)) is not None], axis=1)
        found = np.linalg.lstsq(columns, made, rcond=None)[0]
        return found if norm(columns @ found - made) <= tolerance.AVERAGE_FITTED * max(norm(made), 1e-30) else None


def _observed_average(subject: Averaged) -> list[Observed]:
    """The wrong tensors; a prediction is made of the states' own."""
    given = [subject.flat(state) for state in subject.states]
    return [Observed(given, subject.flat(subject.ours), subject.flat(subject.right), rtol=tolerance.AVERAGE_FITTED)]


AVERAGE = Family("moving_average", _observed_average)


def _decayed(decay: float, count: int, start: float = 1.0) -> np.ndarray:
    """Shares of the states in an average: the first is copied with ``start``, each later one has 1 - decay."""
    powers = decay ** np.arange(count - 1, -1, -1.0)
    return np.append(start * powers[0], (1 - decay) * powers[1:])


def _mixed(kind: Kind, words: str, shares: Sequence[float] | np.ndarray) -> Hypothesis:
    return Hypothesis(kind, words, lambda states: sum(share * state for share, state in zip(shares, states, strict=True)))


def _one(subject: Averaged, place: int) -> np.ndarray:
    """All of one state, nothing of the others."""
    return np.eye(len(subject.states))[place]


@AVERAGE
def statistics_left_out(subject: Averaged) -> Hypotheses:
    right = [name for name in subject.right if name not in subject.wrong]
    if right and all(map(is_running, subject.wrong)) and not any(map(is_running, right)):
        words = "running statistics are not averaged: the model keeps its own"
        yield _mixed(Kind.AVERAGE_WITHOUT_STATISTICS, words, _one(subject, -1))


def is_running(name: str) -> bool:
    """Whether a canonical name is that of a running statistic."""
    return name.rpartition(".")[2] in STATISTICS


def _always(name: str, kind: Kind, words: str, shares: Callable[[Averaged], np.ndarray]) -> None:
    """Register a mixture that can always be made."""
    AVERAGE.register(name, lambda subject: [_mixed(kind, words, shares(subject))])


_always("nothing_averaged", Kind.MOVING_AVERAGE, "nothing is averaged: the model keeps its own weights", lambda s: _one(s, -1))
_always("never_updated", Kind.MOVING_AVERAGE, "the average stays the first state: it is not updated", lambda s: _one(s, 0))


@AVERAGE
def decay_inverted(subject: Averaged) -> Hypotheses:
    decay = subject.decay
    words = f"the new weights have the share {decay:g}, expected {1 - decay:g}: decay is inverted"
    yield _mixed(Kind.AVERAGE_DECAY_INVERTED, words, _decayed(1 - decay, len(subject.states)))


_always(
    "begun_at_zero",
    Kind.AVERAGE_START,
    "the average begins at 0, expected a copy of the first state",
    lambda s: _decayed(s.decay, len(s.states), 1 - s.decay),
)
_always(
    "first_left_out",
    Kind.AVERAGE_START,
    "the first state is left out of the average, expected a copy of it",
    lambda s: _decayed(s.decay, len(s.states), 0.0),
)


@AVERAGE
def another_decay(subject: Averaged) -> Hypotheses:
    """The last state's share says which."""
    found = subject.shares
    if found is not None and 0 < (fitted := 1 - float(found[-1])) < 1 and abs(fitted - subject.decay) > 1e-4:
        words = f"decay {fitted:.4g}, expected {subject.decay:g}"
        yield _mixed(Kind.AVERAGE_DECAY, words, _decayed(fitted, len(subject.states)))


@AVERAGE
def other_shares(subject: Averaged) -> Hypotheses:
    if (found := subject.shares) is not None:
        shares = (", ".join(f"{share:.4g}" for share in some) for some in (found, _decayed(subject.decay, len(found))))
        yield _mixed(Kind.MOVING_AVERAGE, "the states have the shares {}, expected {}".format(*shares), found)


# --- right answers of training ---------------------------------------------------------------------------------------------

TRAINED_RIGHT = Family("right_answers_of_training", lambda ours, right: [Observed(right, ours, right)])
TRAINED_RIGHT.add(Kind.TOP_K, "top-5 counts the largest output alone", lambda right: right[:, [0, 0]])
TRAINED_RIGHT.add(Kind.TOP_K, "top-1 counts the five largest outputs", lambda right: right[:, [1, 1]])


# --- evaluation ------------------------------------------------------------------------------------------------------------

Figures = dict[str, Any]


@dataclass(frozen=True)
class Counted:
    """Outputs of a port, which the figures of its evaluation are counted from.

    Attributes:
        port: its measurement: see ``alignment.comparisons.run.evaluation``.
        left_out: number of the picture that does not count.
        right: the figures that are expected.
        merged: whether two ranks shared the batches.
    """

    port: Mapping[str, Any]
    left_out: int
    right: Figures
    merged: bool

    @property
    def labels(self) -> np.ndarray:
        return self.port["labels"]

    @property
    def logits(self) -> np.ndarray:
        return self.port["outputs"]

    @property
    def batches(self) -> list[slice]:
        ends = np.cumsum(self.port["batches"])
        return [slice(end - size, end) for end, size in zip(ends.tolist(), self.port["batches"].tolist(), strict=True)]

    @property
    def counts(self) -> np.ndarray:
        """Which pictures count, bool (N,)."""
        return np.arange(len(self.labels)) != self.left_out

    @property
    def losses(self) -> np.ndarray:
        return -log_softmax(self.logits)[np.arange(len(self.labels)), self.labels]

    def figures(self, logits: np.ndarray | None = None, left_out: Sequence[int] | None = None) -> Figures:
        """Figures of the same pictures with other outputs, or with others left out."""
        left_out = (self.left_out,) if left_out is None else left_out
        return counted_figures(self.logits if logits is None else logits, self.labels, left_out)

    def without(self, numbers: Sequence[int]) -> Figures:
        """Figures in which further pictures do not count."""
        return {**self.figures(left_out=(self.left_out, *numbers)), "skipped": self.right["skipped"]}

    def top(self, k: int) -> float:
        """Share of the pictures whose label is among the ``k`` largest outputs."""
        better = (self.logits > self.logits[np.arange(len(self.labels)), self.labels][:, None]).sum(1)
        return float((better < k)[self.counts].mean())


def counted_figures(logits: np.ndarray, labels: np.ndarray, left_out: Sequence[int]) -> Figures:
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


def agrees(ours: Any, theirs: Any) -> bool:
    """Whether a figure is the expected one."""
    return ours is not None and np.shape(ours) == np.shape(theirs) and bool(np.allclose(ours, theirs, rtol=tolerance.SAME, atol=0))


def _observed_figures(counted: Counted, found: Figures) -> list[Observed]:
    """Every figure is a case of its own; one that agrees to rounding is the right one."""
    right = {name: value if agrees(value, counted.right[name]) else counted.right[name] for name, value in found.items()}
    return [Observed(name, value, right[name], tolerance.SAME) for name, value in found.items()]


EVALUATED = Family("evaluation", _observed_figures)


def _evaluated(kind: Kind, words: str, mistake: Callable[[Counted], Figures], of_ranks: bool = False) -> None:
    """Register a mistake of every evaluation, or of one by several ranks."""

    def made(counted: Counted, found: Figures) -> Hypotheses:
        if counted.merged or not of_ranks:
            figures = cache(lambda: {**counted.right, **mistake(counted)})
            yield Hypothesis(kind, words, lambda name: figures()[name])

    EVALUATED.register(words, made)


_evaluated(Kind.TOP_K, "top-5 counts the largest output alone", lambda c: {"top5": c.right["top1"]})
_evaluated(Kind.TOP_K, "top-1 counts the five largest outputs", lambda c: {"top1": c.right["top5"]})
_evaluated(Kind.TOP_K, "top-1 and top-5 are swapped", lambda c: {"top1": c.right["top5"], "top5": c.right["top1"]})
for _k in (2, 3, 4, 6, 10):
    _evaluated(Kind.TOP_K, f"top-5 counts the {_k} largest outputs", lambda c, k=_k: {"top5": c.top(k)})  # type: ignore[misc]
_evaluated(Kind.CONFUSION_TRANSPOSED, "the confusion matrix is transposed", lambda c: {"confusion": c.right["confusion"].T})
_evaluated(
    Kind.AVERAGE_NOT_APPLIED,
    "the figures are of the run's own weights, expected its moving average",
    lambda c: c.figures(c.port["own_outputs"]),
)
_evaluated(Kind.TRAINING_MODE, "the model is in training mode", lambda c: c.figures(c.port["training_outputs"]))
_evaluated(Kind.PADDING_COUNTED, "a picture that stands in for a damaged one is counted", lambda c: c.figures(left_out=()))
_evaluated(
    Kind.PADDING_COUNTED,
    "the loss counts a picture that stands in for a damaged one",
    lambda c: {"loss": float(sum(c.losses[b].mean() * c.counts[b].sum() for b in c.batches) / c.counts.sum())},
)
_evaluated(
    Kind.MEAN_OF_BATCH_MEANS,
    "the loss is the mean of the batches' means, expected that of the pictures",
    lambda c: {"loss": float(np.mean([c.losses[b][c.counts[b]].mean() for b in c.batches]))},
)
_evaluated(
    Kind.LAST_BATCH_FORGOTTEN,
    "the last, shorter batch is left out",
    lambda c: c.without(range(c.batches[-1].start, c.batches[-1].stop)),
)


def _of_one_rank(counted: Counted) -> Figures:
    return counted.without([number for batch in counted.batches[1::2] for number in range(batch.start, batch.stop)])


_evaluated(Kind.RANKS_NOT_MERGED, "the figures are those of one rank: sums over the ranks are missing", _of_one_rank, True)
_evaluated(
    Kind.RANKS_NOT_MERGED,
    "the confusion matrix is that of one rank: its sum over the ranks is missing",
    lambda c: {"confusion": _of_one_rank(c)["confusion"]},
    True,
)


def evaluation_hint(counted: Counted, found: Figures, wrong: str) -> Hint:
    """The one mistake that gives every figure that the port's evaluation gives; what is ``wrong`` in words where none does."""
    kind, words = EVALUATED.hint(counted, found)
    return (kind, words) if kind else (Kind.EVALUATION, f"evaluation of the same weights differs: {wrong}")
