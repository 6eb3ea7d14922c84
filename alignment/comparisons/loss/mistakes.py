"""Other losses than the reference's, by what mistake they are: their values and gradients as closed formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment.compare import distance, norm
from alignment.comparisons.loss.cases import ALPHA, TEMPERATURE, LossCase
from alignment.finding import Hint
from alignment.formulas import cross_entropy, log_softmax
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import HALVES
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed


@dataclass
class Tried:
    """One case on both sides: the loss () and its gradient by the logits."""

    case: LossCase
    ours: tuple[np.ndarray, np.ndarray]
    right: tuple[np.ndarray, np.ndarray]

    def wrong(self, rtol: float, floor: tuple[float, float] = (0.0, 0.0)) -> str:
        """``"value"`` or ``"gradient"``, what first differs by more than rounding; ``""`` where nothing does."""
        for what, a, b, noise in zip(("value", "gradient"), self.ours, self.right, floor, strict=True):
            if a.shape != b.shape or not distance(a, b) <= max(rtol * max(norm(b), 1e-30), noise):
                return what
        return ""


Guesses = Iterator[tuple[Hint, Any]]


# The cases that a loss may have a branch of its own for: a mistake in it shows there, and the loss is right elsewhere.
BRANCHES: dict[str, Callable[[LossCase], bool]] = {
    "": lambda case: True,
    ", for hard labels": lambda case: case.hard,
    ", for soft labels": lambda case: not case.hard,
    ", with smoothing": lambda case: case.smoothing > 0,
    ", without smoothing": lambda case: case.smoothing == 0,
    ", for hard labels without smoothing": lambda case: case.hard and case.smoothing == 0,
}


def _hypotheses(guesses: Callable[[LossCase], Guesses], tried: Sequence[Tried], wrong: Sequence[Tried]) -> Hypotheses:
    """What is guessed of a wrong case, everywhere or in one branch; where a mistake cannot be made, the value is right."""
    made = {id(one): dict(guesses(one.case)) for one in (*tried, *wrong)}
    guessed = dict.fromkeys(hint for one in wrong for hint in made[id(one)])
    for words, within in BRANCHES.items():
        if not all(within(one.case) for one in wrong):
            continue
        for kind, hint in guessed:

            def predict(one: Tried, hint: Hint = (kind, hint), within: Callable[[LossCase], bool] = within) -> Any:
                return made[id(one)].get(hint, one.right[0]) if within(one.case) else one.right[0]

            yield Hypothesis(kind, hint + words, predict)


def _observed_values(tried: Sequence[Tried], wrong: Sequence[Tried], rtol: float) -> list[Observed]:
    """Values of cases; one that is not wrong is the right one to rounding."""
    shown = {id(one) for one in wrong}
    return [Observed(one, one.ours[0], one.right[0] if id(one) in shown else one.ours[0], rtol) for one in tried]


def _observed_gradients(wrong: Sequence[Tried], rtol: float) -> list[Observed]:
    return [Observed(one, one.ours[1], one.right[1], rtol) for one in wrong]


VALUES = Family("loss_values", _observed_values)
WEIGHTINGS = Family("class_weights", _observed_values)
DISTILLATIONS = Family("distillations", _observed_values)
DEFAULTS = Family("distillation_defaults", _observed_values)  # none is known: with all arguments given such a loss is right
GRADIENTS = Family("loss_gradients", _observed_gradients)


def _of_values(family: Family) -> Callable[[Callable[[LossCase], Guesses]], Callable[[LossCase], Guesses]]:
    """Register what guesses values of a case."""

    def register(guesses: Callable[[LossCase], Guesses]) -> Callable[[LossCase], Guesses]:
        family.register(guesses.__name__, lambda tried, wrong, rtol: _hypotheses(guesses, tried, wrong))
        return guesses

    return register


@GRADIENTS
def through_a_part_alone(wrong: Sequence[Tried], rtol: float) -> Hypotheses:
    made = {id(one): dict(other_gradients(one.case)) for one in wrong}
    for hint in made[id(wrong[0])]:
        yield Hypothesis(*hint, lambda one, hint=hint: made[id(one)][hint])  # type: ignore[misc]


def other_gradients(case: LossCase) -> Guesses:
    """Gradients by the logits where a part of the loss lets none through."""
    x, target, kept = case.logits, *targets(case)
    share = np.where(kept, 1.0 / max(int(kept.sum()), 1), 0.0)[:, None]
    softmax = np.exp(log_softmax(x)) * target.sum(1, keepdims=True)
    yield (Kind.DETACHED, "no gradient flows through the logarithm of the softmax's sum"), -target * share
    yield (Kind.DETACHED, "no gradient flows through the logits of the labels"), softmax * share


def targets(case: LossCase) -> tuple[np.ndarray, np.ndarray]:
    """The smoothed labels as rows of probabilities, and which samples count."""
    y, n = case.labels, case.logits.shape[1]
    soft = y.dtype.kind == "f"
    kept = np.ones(len(y), bool) if soft else y != case.ignore_index
    target = y if soft else np.eye(n)[np.where(kept, y, 0)]
    return target * (1 - case.smoothing) + case.smoothing / n, kept


def _kept(case: LossCase) -> np.ndarray:
    """Which samples are not ignored; bool (N,)."""
    return np.ones(len(case.labels), bool) if case.labels.dtype.kind == "f" else case.labels != case.ignore_index


def _mean_of(case: LossCase) -> Callable[..., float]:
    """The reference's loss of a case, of which logits, labels, the share of smoothing or the ignored label may be others."""
    soft = case.labels.dtype.kind == "f"

    def mean(
        logits: np.ndarray = case.logits,
        labels: np.ndarray = case.labels,
        share: float = case.smoothing,
        ignore: int | None = None if soft else case.ignore_index,
    ) -> float:
        losses = cross_entropy(logits, labels, share, ignore)
        return float(losses.sum() / (len(losses) if ignore is None else max((labels != ignore).sum(), 1)))

    return mean


@_of_values(VALUES)
def other_losses(case: LossCase) -> Guesses:
    """Other losses of the same case, by what mistake they are."""
    x, y, smoothing, n, mean = case.logits, case.labels, case.smoothing, case.logits.shape[1], _mean_of(case)
    soft, kept = y.dtype.kind == "f", _kept(case)
    each = cross_entropy(x, y, smoothing, None if soft else case.ignore_index)
    yield (Kind.SUM_FOR_MEAN, "reduced by sum instead of mean"), float(each.sum())
    yield (Kind.MEAN_OVER_CLASSES, "divided by the number of classes too"), mean() / n
    yield (Kind.SMOOTHING_MISSING, "label smoothing is left out"), mean(share=0.0)
    if soft:
        yield (Kind.SMOOTHING_MISSING, "label smoothing of soft labels is left out"), mean(share=0.0)
    elif smoothing:
        yield (Kind.SMOOTHING_MISSING, "label smoothing of hard labels is left out"), mean(share=0.0)
    yield from _other_smoothings(case)
    saturated = np.minimum(each, 64.0)[kept].mean() if kept.any() else 0.0
    yield (Kind.SATURATED, "the loss saturates at 64, as Paddle's own CPU kernel does"), float(saturated)
    yield (Kind.MEAN_OVER_IGNORED, "the mean is taken over ignored samples too"), float(each.mean())
    yield (Kind.SOFTMAX_TWICE, "softmax is applied twice"), mean(logits=np.exp(log_softmax(x)))
    for base in (2, 10):
        yield (Kind.LOGARITHM, f"logarithms to the base {base}"), mean() / np.log(base)
    yield (Kind.SIGN, "the sign is turned"), -mean()
    yield from _reformed(case)
    for name, rounded in HALVES.items():
        yield (Kind.HALF_PRECISION, f"the logits are rounded to {name}"), mean(logits=rounded(x).astype(np.float64))
        yield (Kind.HALF_PRECISION, f"the loss is rounded to {name}"), float(rounded(np.array([mean()]))[0])
    yield from _soft_labels_otherwise(case) if soft else _labels_otherwise(case)


def _other_smoothings(case: LossCase) -> Guesses:
    """Label smoothing with another share, or over something else than all classes."""
    x, smoothing, n, mean, kept = case.logits, case.smoothing, case.logits.shape[1], _mean_of(case), _kept(case)
    for other in (0.05, 0.1, 0.2, 0.9):
        if smoothing:
            yield (Kind.SMOOTHING, f"label smoothing {other:g} in place of what is asked for"), mean(share=other)
        yield (Kind.SMOOTHING, f"label smoothing {other:g} always"), mean(share=other)
    yield (Kind.SMOOTHING, "label smoothing takes 1 less what is asked for"), mean(share=1 - smoothing)
    yield (
        (Kind.SMOOTHING_OVER_OTHERS, "label smoothing spreads over the other classes only (n - 1 of n)"),
        mean(share=min(1.0, smoothing * n / (n - 1))),
    )
    uniform = float((-log_softmax(x).mean(1))[kept].mean()) if kept.any() else 0.0
    own = mean(share=0.0)
    yield (Kind.SMOOTHING, "label smoothing is added, and not taken off the label"), own + smoothing * uniform
    yield (
        (Kind.SMOOTHING, "the sum over the classes is smoothed, expected their mean"),
        (1 - smoothing) * own + smoothing * n * uniform,
    )
    means = float(x.mean(1)[kept].mean()) if kept.any() else 0.0  # a class's logit, over all of them
    below = float((x.max(1) - x.mean(1))[kept].mean()) if kept.any() else 0.0  # and how far it lies below the largest
    for words, of_others in (
        ("the sum over all n classes is divided by n - 1", uniform * n / (n - 1)),
        ("the sum of all n logits is divided by n - 1", uniform - means / (n - 1)),
        ("the sum of all n logits less the largest is divided by n - 1", uniform + below / (n - 1)),
    ):
        yield (Kind.SMOOTHING_OVER_OTHERS, f"{words} in label smoothing"), (1 - smoothing) * own + smoothing * of_others
    for words, of_all in (
        ("the largest logit's term", uniform - below),
        ("the sum of the shifted logits", uniform + (n - 1) * below),
        ("the sum of the logits", uniform - (n - 1) * means),
    ):
        yield (
            (Kind.SMOOTHING, f"label smoothing takes {words}, expected the mean over the classes"),
            (1 - smoothing) * own + smoothing * of_all,
        )
    yield (Kind.SMOOTHING, "the label loses what is smoothed, the other classes get nothing"), (1 - smoothing) * own


def _soft_labels_otherwise(case: LossCase) -> Guesses:
    y, mean = case.labels, _mean_of(case)
    yield (Kind.SOFT_AS_HARD, "soft labels are taken as hard ones"), mean(labels=y.argmax(1))
    entropy = float(-(y * np.log(np.where(y > 0, y, 1.0))).sum(1).mean())
    yield (Kind.DIVERGENCE, "the labels' entropy is taken off: a Kullback-Leibler divergence"), mean() - entropy


def _labels_otherwise(case: LossCase) -> Guesses:
    """Hard labels of other classes, and other ways of ignoring some."""
    x, y, smoothing, n, mean, kept = case.logits, case.labels, case.smoothing, case.logits.shape[1], _mean_of(case), _kept(case)
    inside = y.clip(0, n - 1)
    yield (Kind.IGNORE_INDEX, "ignore_index is not heeded"), mean(labels=inside, ignore=None)
    wrapped = np.where(y < 0, y % n, y)
    yield (Kind.IGNORE_INDEX, "ignore_index is not heeded, and counts from the last class"), mean(labels=wrapped, ignore=None)
    for other in (0, -1, 255) if case.ignore_index == -100 else ():  # -100 then counts from the last class, as in numpy
        counted = y != other
        value = float(cross_entropy(x, wrapped, smoothing)[counted].mean()) if counted.any() else 0.0
        yield (Kind.IGNORE_INDEX, f"the default of ignore_index is {other}, expected -100"), value
    fixed = cross_entropy(x, np.where(y == -100, 0, inside), smoothing)
    yield (
        (Kind.IGNORE_INDEX, "-100 is ignored, whatever ignore_index says"),
        float(fixed[y != -100].mean()) if (y != -100).any() else 0.0,
    )
    if kept.any():
        for step in (1, -1):
            shifted = (inside + step) % n
            yield (
                (Kind.LABEL_OFF_BY_ONE, f"labels are off by {step:+d}"),
                float(cross_entropy(x[kept], shifted[kept], smoothing).mean()),
            )


def _reformed(case: LossCase) -> Guesses:
    """Losses with something else in the place of the logarithm of a softmax over the classes."""
    x, target, kept = case.logits, *targets(case)

    def mean(logs: np.ndarray) -> float:
        return float(-(target * logs).sum(1)[kept].mean()) if kept.any() else 0.0

    softmax: Callable[[np.ndarray], np.ndarray] = lambda a: np.exp(log_softmax(a))  # noqa: E731
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        yield (Kind.SOFTMAX_AXIS, "softmax over the samples, expected over the classes"), mean(log_softmax(x.T).T)
        words = "the maximum over the samples is taken off, expected that over the classes"
        yield (Kind.SOFTMAX_AXIS, words), mean(log_softmax(x - x.max(0)))
        shifted = x - x.max(1, keepdims=True)
        total = np.log(np.exp(shifted).sum(1, keepdims=True))
        for base in (2, 10):
            words = f"the logarithm of the softmax's sum is to the base {base}, the logits are not"
            yield (Kind.LOGARITHM, words), mean(shifted - total / np.log(base))
        for eps in (1e-12, 1e-8, 1e-7, 1e-10, 1e-5, 1e-6):
            words = f"{eps:g} is added to the softmax's sum before the logarithm"
            yield (Kind.SATURATED, words), mean(shifted - np.log(np.exp(shifted).sum(1, keepdims=True) + eps))
        yield (Kind.LOGARITHM, "no logarithm: the mean of minus the probability"), mean(softmax(x))
        yield (Kind.LOGARITHM, "no softmax: the logits themselves"), mean(x)
        signs = np.logaddexp(0, -x) * target + np.logaddexp(0, x) * (1 - target)
        words = "binary cross-entropy of each class, summed"
        yield (Kind.LOGARITHM, words), float(signs.sum(1)[kept].mean()) if kept.any() else 0.0
        yield (Kind.LOGARITHM, f"{words} over the classes and divided by their number"), float(signs.mean(1)[kept].mean())
        for eps in (1e-12, 1e-8, 1e-7, 1e-10, 1e-5, 1e-6):
            yield (Kind.SATURATED, f"{eps:g} is added to the probability before the logarithm"), mean(np.log(softmax(x) + eps))
            yield (Kind.SATURATED, f"the probability is at least {eps:g}"), mean(np.log(np.maximum(softmax(x), eps)))


@_of_values(WEIGHTINGS)
def other_weightings(case: LossCase) -> Guesses:
    """Other uses of class weights."""
    plain = replace(case, weight=None)
    assert case.weight is not None
    target, kept = targets(plain)
    logs, hard = log_softmax(case.logits), case.labels.dtype.kind != "f"
    own = case.weight[np.where(kept, case.labels, 0)] if hard else np.ones(len(kept))
    weighed = -(target * case.weight * logs).sum(1)[kept]
    of_label = -(target * logs).sum(1)[kept] * own[kept]
    guesses = {
        "class weights are left out": -(target * logs).sum(1)[kept].mean(),
        "the mean is over the samples, expected over the weights of their classes": weighed.mean(),
        "smoothing takes the label's weight for every class, expected each class's own": of_label.sum() / own[kept].sum(),
        "the mean is over the weights of the classes, expected over the samples for soft labels": (
            weighed.sum() / (target * case.weight).sum(1)[kept].sum()
        ),
        "the sum is not divided": weighed.sum(),
    }
    yield from (((Kind.CLASS_WEIGHTS, words), float(value)) for words, value in guesses.items())


@_of_values(DISTILLATIONS)
def other_distillations(case: LossCase) -> Guesses:
    """Other distillations."""
    teacher = np.asarray(case.teacher)
    target, kept = targets(case)
    hard = float(-(target * log_softmax(case.logits)).sum(1)[kept].mean())

    def soft(temperature: float, turned: bool = False) -> float:
        ours, theirs = (log_softmax(x / temperature) for x in (case.logits, teacher))
        ours, theirs = (theirs, ours) if turned else (ours, theirs)
        return float((np.exp(theirs) * (theirs - ours)).sum(1).mean())

    part, square, classes = soft(TEMPERATURE), TEMPERATURE**2, case.logits.shape[1]
    guesses = {
        "the divergence is not multiplied by the square of the temperature": hard * (1 - ALPHA) + part * ALPHA,
        "the divergence is multiplied by the temperature, expected by its square": hard * (1 - ALPHA) + part * ALPHA * TEMPERATURE,
        "the logits are not divided by the temperature": hard * (1 - ALPHA) + soft(1.0) * ALPHA * square,
        "the divergence is that of the teacher from the student": hard * (1 - ALPHA) + soft(TEMPERATURE, True) * ALPHA * square,
        "the divergence is a mean over the classes too": hard * (1 - ALPHA) + part * ALPHA * square / classes,
        "the shares of the two parts are exchanged": hard * ALPHA + part * (1 - ALPHA) * square,
        "the labels' part is not weighed by 1 - alpha": hard + part * ALPHA * square,
    }
    yield from (((Kind.DISTILLATION, words), float(value)) for words, value in guesses.items())
