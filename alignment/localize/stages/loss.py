"""The loss: the first case whose value or gradient is wrong, and which other loss it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.compare import distance, norm, relative
from alignment.formulas import cross_entropy, log_softmax
from alignment.localize.finding import NO_HINT, Finding, Hint
from alignment.localize.kinds import Kind
from alignment.steps.context import Context
from alignment.steps.loss import Case, cases, value_and_gradient

RTOL = 1e-9
LOCATION = "CrossEntropyLoss"


def values(context: Context) -> Finding | None:
    """Every case of step 4 in float64, values before gradients."""
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((6, 11)).astype(np.float32)
    labels = rng.integers(0, 11, 6)
    wrong = []
    for case in cases(logits, labels, context.seed):
        soft = case.labels.dtype.kind == "f"
        given = Case(
            case.name,
            case.logits.astype(np.float64),
            case.labels.astype(np.float64) if soft else case.labels,
            case.smoothing,
            case.ignore_index,
        )
        try:
            ours = value_and_gradient(context.port, given)
        except Exception as error:
            return Finding("loss", LOCATION, Kind.RAISES, f"raises {type(error).__name__}", f"case {case.name}: {error}")
        theirs = value_and_gradient(context.reference, given)
        for what, a, b in zip(("value", "gradient"), ours, theirs, strict=True):
            if a.shape != b.shape or not distance(a, b) <= RTOL * max(norm(b), 1e-30):
                wrong.append((given, what, a, b))
    if not wrong:
        return None
    case, what, a, b = wrong[0]
    if a.shape != b.shape:
        return Finding("loss", LOCATION, Kind.SHAPE, f"shape {a.shape}, expected {b.shape}", f"case {case.name}, {what}")
    known = [dict(_others(c)) for c, w, _, _ in wrong if w == "value"]
    given_values = [float(x) for _, w, x, _ in wrong if w == "value"]
    kind, words = NO_HINT
    for candidate in known[0] if known else ():
        if all(
            abs(v - k[candidate]) <= 1e-6 * max(abs(v), 1e-9) for v, k in zip(given_values, known, strict=True) if candidate in k
        ):
            kind, words = candidate
            break
    else:  # several mistakes at once: what explains the first case
        for candidate, value in known[0].items() if known else ():
            if abs(given_values[0] - value) <= 1e-6 * max(abs(given_values[0]), 1e-9):
                kind, words = candidate
                break
    if what == "gradient" and not kind:
        ratio = float(a.ravel() @ b.ravel() / max(b.ravel() @ b.ravel(), 1e-300))
        if not distance(a, ratio * b) > 1e-6 * norm(a) and abs(ratio - 1) > 1e-6:
            kind, words = Kind.GRADIENT_SCALED, f"the gradient is {ratio:.6g} times the reference's"
    shown = (
        f"{float(a):.6g}, expected {float(b):.6g}" if what == "value" else f"relative L2 {relative(distance(a, b), norm(b)):.1e}"
    )
    return Finding("loss", LOCATION, kind, words, f"case {case.name}, {what} {shown}; {len(wrong)} differ")


def _others(case: Case) -> Iterator[tuple[Hint, float]]:
    """Other losses of the same case, by what mistake they are."""
    x, y, smoothing = case.logits, case.labels, case.smoothing
    soft = y.dtype.kind == "f"
    ignored = None if soft else case.ignore_index
    kept = np.ones(len(y), bool) if soft else y != case.ignore_index

    def mean(logits: np.ndarray = x, labels: np.ndarray = y, share: float = smoothing, ignore: int | None = ignored) -> float:
        losses = cross_entropy(logits, labels, share, ignore)
        return float(losses.sum() / (len(losses) if ignore is None else max((labels != ignore).sum(), 1)))

    yield (Kind.SUM_FOR_MEAN, "reduced by sum instead of mean"), float(cross_entropy(x, y, smoothing, ignored).sum())
    yield (Kind.SMOOTHING_MISSING, "label smoothing is left out"), mean(share=0.0)
    for other in (0.05, 0.1, 0.2):
        yield (Kind.SMOOTHING, f"label smoothing {other:g}"), mean(share=other)
    n = x.shape[1]
    yield (
        (Kind.SMOOTHING_OVER_OTHERS, "label smoothing spreads over the other classes only (n - 1 of n)"),
        mean(share=min(1.0, smoothing * n / (n - 1))),
    )
    each = cross_entropy(x, y, smoothing, ignored)
    saturated = np.minimum(each, 64.0)[kept].mean() if kept.any() else 0.0
    yield (Kind.SATURATED, "the loss saturates at 64, as Paddle's own CPU kernel does"), float(saturated)
    yield (Kind.MEAN_OVER_IGNORED, "the mean is taken over ignored samples too"), float(each.mean())
    yield (Kind.SOFTMAX_TWICE, "softmax is applied twice"), mean(logits=np.exp(log_softmax(x)))
    if soft:
        yield (Kind.SOFT_AS_HARD, "soft labels are taken as hard ones"), mean(labels=y.argmax(1))
        return
    inside = y.clip(0, n - 1)
    yield (Kind.IGNORE_INDEX, "ignore_index is not heeded"), mean(labels=inside, ignore=None)
    if kept.any():
        shifted = (inside + 1) % n
        yield (Kind.LABEL_OFF_BY_ONE, "labels are off by one"), float(cross_entropy(x[kept], shifted[kept], smoothing).mean())
