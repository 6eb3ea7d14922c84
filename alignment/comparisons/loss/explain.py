"""The loss: the first case whose value or gradient is wrong, and which other loss it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.comparisons.context import Context
from alignment.comparisons.loss.loss import Case, cases, value_and_gradient
from alignment.finding import NO_HINT, Finding, Hint
from alignment.formulas import cross_entropy, log_softmax
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import HALVES, UNEXPLAINED, factor_hint

RTOL = 1e-9
HINT_RTOL = 1e-6
FLOAT32_RTOL = 3e-6  # one number can be right by luck: nothing below a few dozen units of float32 is a mistake
LOCATION = "CrossEntropyLoss"


@dataclass
class Tried:
    """One case on both sides: the loss () and its gradient by the logits."""

    case: Case
    ours: tuple[np.ndarray, np.ndarray]
    right: tuple[np.ndarray, np.ndarray]

    def wrong(self, rtol: float, floor: tuple[float, float] = (0.0, 0.0)) -> str:
        """``"value"`` or ``"gradient"``, what first differs by more than rounding; ``""`` where nothing does."""
        for what, a, b, noise in zip(("value", "gradient"), self.ours, self.right, floor, strict=True):
            if a.shape != b.shape or not distance(a, b) <= max(rtol * max(norm(b), 1e-30), noise):
                return what
        return ""


def values(context: Context) -> Finding | None:
    """Every case of step 4 in float64, values before gradients."""
    tried = []
    for case in _cases(context):
        try:
            ours = value_and_gradient(context.port, case)
        except Exception as error:
            hint = _default_hint(context, case) or (Kind.RAISES, f"raises {type(error).__name__}")
            return Finding("loss", LOCATION, *hint, f"case {case.name}: {error}")
        tried.append(Tried(case, ours, value_and_gradient(context.reference, case)))
    wrong = [(one, what) for one in tried if (what := one.wrong(RTOL))]
    return _finding(tried, wrong, HINT_RTOL) if wrong else None


def _default_hint(context: Context, case: Case) -> Hint | None:
    """A port that is right where all arguments are given, and not where the defaults are left out."""
    try:
        ours = value_and_gradient(context.port, case, defaults=False)
    except Exception:
        return None
    if Tried(case, ours, value_and_gradient(context.reference, case)).wrong(RTOL):
        return None
    given = f"{case.smoothing:g}, {case.ignore_index}"
    return Kind.IGNORE_INDEX, f"right with CrossEntropyLoss({given}), not with these as defaults: another default of ignore_index"


def in_float32(context: Context) -> Finding | None:
    """What float64 does not have: a loss that is wrong in float32 alone."""
    tried, wrong = [], []
    for case in _cases(context):
        low = cast(case, np.float32)
        try:
            ours = value_and_gradient(context.port, low)
        except Exception as error:
            words = f"raises {type(error).__name__} in float32 alone"
            return Finding("loss", LOCATION, Kind.RAISES, words, f"case {case.name}: {error}")
        right, noisy = value_and_gradient(context.reference, case), value_and_gradient(context.reference, low)
        one = Tried(case, ours, right)
        value, gradient = (tolerance.FLOOR_FACTOR * distance(n, r) for n, r in zip(noisy, right, strict=True))
        tried.append(one)
        if what := one.wrong(FLOAT32_RTOL, (value, gradient)):
            wrong.append((one, what))
    if not wrong:
        return None
    finding = _finding(tried, wrong, 1e-4)
    finding.measured += ", in float32 alone"
    return finding


def _cases(context: Context) -> list[Case]:
    return [cast(case, np.float64) for case in cases(*material(), context.seed)]


def material() -> tuple[np.ndarray, np.ndarray]:
    """Logits float32 (6, 11) and labels."""
    rng = np.random.default_rng(1)
    return rng.standard_normal((6, 11)).astype(np.float32), rng.integers(0, 11, 6)


def cast(case: Case, dtype: type) -> Case:
    """A case whose numbers have another type."""
    labels = case.labels.astype(dtype) if case.labels.dtype.kind == "f" else case.labels
    teacher: np.ndarray | None = None if case.teacher is None else case.teacher.astype(dtype)
    return replace(case, logits=case.logits.astype(dtype), labels=labels, teacher=teacher)


def _finding(tried: list[Tried], wrong: list[tuple[Tried, str]], rtol: float) -> Finding:
    first, what = wrong[0]
    a, b = (side[what == "gradient"] for side in (first.ours, first.right))
    name = first.case.name
    if a.shape != b.shape:
        return Finding("loss", LOCATION, Kind.SHAPE, f"shape {a.shape}, expected {b.shape}", f"case {name}, {what}")
    kind, words = _value_hint(tried, [one for one, what in wrong if what == "value"], rtol)
    if what == "gradient" and not kind:
        kind, words = _gradient_hint([one for one, _ in wrong], rtol)
    shown = (
        f"{float(a):.6g}, expected {float(b):.6g}" if what == "value" else f"relative L2 {relative(distance(a, b), norm(b)):.1e}"
    )
    return Finding("loss", LOCATION, kind, words, f"case {name}, {what} {shown}; {len(wrong)} differ")


def _gradient_hint(wrong: list[Tried], rtol: float) -> Hint:
    """What explains the gradients of every wrong case; the values are right."""
    if not all(one.ours[1].shape == one.right[1].shape and np.isfinite(one.ours[1]).all() for one in wrong):
        return NO_HINT
    if not any(one.ours[1].any() for one in wrong):
        return Kind.GRADIENT_SCALED, "the gradient is 0 times the reference's: no gradient flows back to the logits"
    if (ratio := _one_factor([one.ours[1] for one in wrong], [one.right[1] for one in wrong])) is not None:
        return Kind.GRADIENT_SCALED, f"the gradient is {ratio:.6g} times the reference's"
    made = [dict(_other_gradients(one.case)) for one in wrong]
    for hint in made[0]:
        pairs = [(one.ours[1], others[hint]) for one, others in zip(wrong, made, strict=True)]
        if all(distance(a, b) <= rtol * max(norm(b), 1e-30) for a, b in pairs):
            return hint
    return NO_HINT


def _one_factor(ours: list[np.ndarray], right: list[np.ndarray]) -> float | None:
    """The factor, not 1, that all the arrays have to the right ones."""
    ratios = [factor_hint(a, b) for a, b in zip(ours, right, strict=True)]
    first = ratios[0]
    if first is None or any(ratio is None or abs(ratio - first) > 1e-6 * abs(first) for ratio in ratios):
        return None
    return first


def _other_gradients(case: Case) -> Iterator[tuple[Hint, np.ndarray]]:
    """Gradients by the logits where a part of the loss lets none through."""
    x, target, kept = case.logits, *targets(case)
    share = np.where(kept, 1.0 / max(int(kept.sum()), 1), 0.0)[:, None]
    softmax = np.exp(log_softmax(x)) * target.sum(1, keepdims=True)
    yield (Kind.DETACHED, "no gradient flows through the logarithm of the softmax's sum"), -target * share
    yield (Kind.DETACHED, "no gradient flows through the logits of the labels"), softmax * share


def targets(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The smoothed labels as rows of probabilities, and which samples count."""
    y, n = case.labels, case.logits.shape[1]
    soft = y.dtype.kind == "f"
    kept = np.ones(len(y), bool) if soft else y != case.ignore_index
    target = y if soft else np.eye(n)[np.where(kept, y, 0)]
    return target * (1 - case.smoothing) + case.smoothing / n, kept


def _value_hint(tried: list[Tried], wrong: list[Tried], rtol: float) -> Hint:
    """The other loss that gives the port's value in every case, wrong or right; else in every case that is wrong."""
    if not wrong:
        return NO_HINT
    if overflow := _overflow(tried, wrong):
        return overflow
    made = {id(one): dict(_others(one.case)) for one in tried}
    known = list(dict.fromkeys(hint for one in wrong for hint in made[id(one)]))

    def met(hint: Hint, one: Tried) -> bool:
        """Whether a hypothesis gives the port's value; where it cannot be made, nothing may be wrong."""
        ours, right = float(one.ours[0]), float(one.right[0])
        guess = made[id(one)].get(hint, right)
        return bool(np.isfinite(ours) and np.isfinite(guess) and abs(ours - guess) <= rtol * max(abs(ours), abs(guess), 1e-9))

    def counts(hint: Hint, one: Tried) -> bool:
        """Whether it explains the port's value in a wrong case, and the right value it does not."""
        ours, right = float(one.ours[0]), float(one.right[0])
        guess = made[id(one)].get(hint, right)
        gap = abs(ours - right) if np.isfinite(right) else np.inf
        return met(hint, one) and abs(ours - guess) <= UNEXPLAINED * gap

    for everywhere in (True, False):
        for hint in known:
            if all(counts(hint, one) for one in wrong) and (not everywhere or all(met(hint, one) for one in tried)):
                return hint
    ratio = _one_factor([one.ours[0] for one in wrong], [one.right[0] for one in wrong]) if len(wrong) == len(tried) else None
    return NO_HINT if ratio is None else (Kind.SCALED, f"the loss is {ratio:.6g} times the reference's")


def _overflow(tried: list[Tried], wrong: list[Tried]) -> Hint | None:
    """Not finite where logits are far apart or large, and right elsewhere: the exponential overflows."""
    finite = [bool(np.isfinite(one.ours[0]).all()) for one in tried]
    if all(finite) or any(np.isfinite(one.ours[0]).all() for one in wrong):
        return None
    size = [float(np.abs(one.case.logits).max()) for one in tried]
    largest = max((n for n, good in zip(size, finite, strict=True) if good), default=np.inf)
    if largest < min(n for n, good in zip(size, finite, strict=True) if not good):
        return (
            Kind.EXP_OVERFLOWS,
            f"NaN or infinite from logits beyond {largest:.3g}: an exponential overflows, or a logarithm of 0",
        )
    return Kind.NOT_FINITE, "NaN or infinite where the reference is finite"


def _others(case: Case) -> Iterator[tuple[Hint, float]]:
    """Other losses of the same case, by what mistake they are."""
    x, y, smoothing = case.logits, case.labels, case.smoothing
    soft = y.dtype.kind == "f"
    ignored = None if soft else case.ignore_index
    kept = np.ones(len(y), bool) if soft else y != case.ignore_index
    n = x.shape[1]

    def mean(logits: np.ndarray = x, labels: np.ndarray = y, share: float = smoothing, ignore: int | None = ignored) -> float:
        losses = cross_entropy(logits, labels, share, ignore)
        return float(losses.sum() / (len(losses) if ignore is None else max((labels != ignore).sum(), 1)))

    yield (Kind.SUM_FOR_MEAN, "reduced by sum instead of mean"), float(cross_entropy(x, y, smoothing, ignored).sum())
    yield (Kind.MEAN_OVER_CLASSES, "divided by the number of classes too"), mean() / n
    yield (Kind.SMOOTHING_MISSING, "label smoothing is left out"), mean(share=0.0)
    if soft:
        yield (Kind.SMOOTHING_MISSING, "label smoothing of soft labels is left out"), mean(share=0.0)
    elif smoothing:
        yield (Kind.SMOOTHING_MISSING, "label smoothing of hard labels is left out"), mean(share=0.0)
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
    each = cross_entropy(x, y, smoothing, ignored)
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
    if soft:
        yield (Kind.SOFT_AS_HARD, "soft labels are taken as hard ones"), mean(labels=y.argmax(1))
        entropy = float(-(y * np.log(np.where(y > 0, y, 1.0))).sum(1).mean())
        yield (Kind.DIVERGENCE, "the labels' entropy is taken off: a Kullback-Leibler divergence"), mean() - entropy
        return
    inside = y.clip(0, n - 1)
    yield (Kind.IGNORE_INDEX, "ignore_index is not heeded"), mean(labels=inside, ignore=None)
    wrapped = np.where(y < 0, y % n, y)
    yield (Kind.IGNORE_INDEX, "ignore_index is not heeded, and counts from the last class"), mean(labels=wrapped, ignore=None)
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


def _reformed(case: Case) -> Iterator[tuple[Hint, float]]:
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
