"""The loss: the first case whose value or gradient is wrong, and which other loss it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from alignment.compare import distance, norm, relative
from alignment.localize.finding import Finding
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
            ours = value_and_gradient(context.paddle, given)
        except Exception as error:
            return Finding("loss", LOCATION, "raises", f"raises {type(error).__name__}", f"case {case.name}: {error}")
        theirs = value_and_gradient(context.ref, given)
        for what, a, b in zip(("value", "gradient"), ours, theirs, strict=True):
            if a.shape != b.shape or not distance(a, b) <= RTOL * max(norm(b), 1e-30):
                wrong.append((given, what, a, b))
    if not wrong:
        return None
    case, what, a, b = wrong[0]
    if a.shape != b.shape:
        return Finding("loss", LOCATION, "shape", f"shape {a.shape}, expected {b.shape}", f"case {case.name}, {what}")
    known = [dict(_others(c)) for c, w, _, _ in wrong if w == "value"]
    given_values = [float(x) for _, w, x, _ in wrong if w == "value"]
    kind = words = ""
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
        if not distance(a, ratio * b) > 1e-6 * norm(a):
            kind, words = "gradient_scaled", f"the gradient is {ratio:.6g} times the reference's"
    shown = (
        f"{float(a):.6g}, expected {float(b):.6g}" if what == "value" else f"relative L2 {relative(distance(a, b), norm(b)):.1e}"
    )
    return Finding("loss", LOCATION, kind, words, f"case {case.name}, {what} {shown}; {len(wrong)} differ")


def _others(case: Case) -> Iterator[tuple[tuple[str, str], float]]:
    """Other losses of the same case, by what mistake they are."""
    x = torch.from_numpy(case.logits)
    y = torch.from_numpy(case.labels)
    soft = y.is_floating_point()
    ignored: dict[str, Any] = {} if soft else {"ignore_index": case.ignore_index}

    def loss(labels: torch.Tensor = y, smoothing: float = case.smoothing, reduction: str = "mean", **more: Any) -> float:
        return float(F.cross_entropy(x, labels, label_smoothing=smoothing, reduction=reduction, **(ignored | more)))

    yield ("sum_for_mean", "reduced by sum instead of mean"), loss(reduction="sum")
    yield ("smoothing_missing", "label smoothing is left out"), loss(smoothing=0.0)
    for other in (0.05, 0.1, 0.2):
        yield ("smoothing", f"label smoothing {other:g}"), loss(smoothing=other)
    n = x.shape[1]
    yield (
        ("smoothing_over_others", "label smoothing spreads over the other classes only (n - 1 of n)"),
        loss(smoothing=min(1.0, case.smoothing * n / (n - 1))),
    )
    per = F.cross_entropy(x, y, label_smoothing=case.smoothing, reduction="none", **ignored)
    yield ("saturated", "the loss saturates at 64, as Paddle's own CPU kernel does"), float(_mean(per.clamp(max=64.0), case))
    yield ("mean_over_ignored", "the mean is taken over ignored samples too"), float(per.mean())
    probabilities = F.softmax(x, 1)
    yield (
        ("softmax_twice", "softmax is applied twice"),
        float(F.cross_entropy(probabilities, y, label_smoothing=case.smoothing, **ignored)),
    )
    if soft:
        yield ("soft_as_hard", "soft labels are taken as hard ones"), loss(labels=y.argmax(1))
    else:
        kept = y != case.ignore_index
        inside = y.clamp(0, n - 1)
        yield (
            ("ignore_index", "ignore_index is not heeded"),
            float(F.cross_entropy(x, inside, label_smoothing=case.smoothing, ignore_index=-1)),
        )
        if kept.any():
            shifted = (inside + 1) % n
            yield (
                ("label_off_by_one", "labels are off by one"),
                float(F.cross_entropy(x[kept], shifted[kept], label_smoothing=case.smoothing)),
            )


def _mean(values: torch.Tensor, case: Case) -> torch.Tensor:
    if case.labels.dtype.kind == "f":
        return values.mean()
    kept = torch.from_numpy(case.labels) != case.ignore_index
    return values[kept].mean()
