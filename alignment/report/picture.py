"""alignment.png: error, noise floor and exact-mode difference of every block and gradient, and the training curves."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.result import Curves, StepResult
from mobilenetv3_common.files import atomic_open

# Step, title, the beginnings of names of which the first that is there is drawn, and the ends that a name must have.
PANELS = (
    ("forward", "Step 1: the exported graph along the network, node by node", ("nodes.",), ("",)),
    ("forward", "Step 1: output of every block", ("eval.photos.b16.", "eval.fake.b8."), ("",)),
    ("forward", "Step 1: running means after a pass", ("train.photos.b8.", "train.fake.b8."), ("running_mean",)),
    ("forward", "Step 1: running variances after a pass", ("train.photos.b8.", "train.fake.b8."), ("running_var",)),
    ("backward", "Step 5: gradient of every parameter", ("sgd.eval.iter0.gradients.", "eval.iter0.gradients."), ("",)),
)
# One colour a meaning, as in mobilenetv3_common.drawing: the port, the reference, their difference in exact mode, what
# differs by more than its bound: that need be no mistake of its place, so it is not red.
PORT, REFERENCE, EXACT, DIFFERS = "#0969da", "#bc4c00", "#8250df", "#1b1f24"


def panels(results: Sequence[StepResult]) -> list[tuple[str, list[tuple[str, Quantity]]]]:
    """Title and (name, quantity) of the rows that are drawn; those that are zero but for rounding are left out.

    A row that failed is drawn even where it has no error, as one of another shape: every block of the network has its place.
    """
    found = []
    for step, title, prefixes, ends in PANELS:
        for prefix, result in ((prefix, result) for prefix in prefixes for result in results if result.name == step):
            rows = [(q.name.removeprefix(prefix), q) for q in result.quantities if q.name.startswith(prefix)]
            rows = [(name, q) for name, q in rows if not q.noise and name.endswith(ends)]
            rows = [(name, q) for name, q in rows if q.port_error is not None or (not q.passed and q.float64_diff is None)]
            if rows:
                found.append((title, rows))
                break
    return found


def failures(rows: Sequence[tuple[str, Quantity]]) -> list[float | None]:
    """At each row that failed its largest difference, to be marked; None elsewhere."""
    return [None if q.passed else max(filter(None, (q.port_error, q.float64_diff)), default=1.0) for _, q in rows]


def plot(path: Path, context: Context, results: Sequence[StepResult]) -> bool:
    """Draw the picture.

    Returns:
        Whether there was anything to draw.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    port, reference = context.titles()
    drawn = panels(results)
    curves = next((result.curves for result in results if result.curves), None)
    count = len(drawn) + (2 if curves else 0)
    if not count:
        return False
    figure, axes = plt.subplots(count, 1, figsize=(9, 3.6 * count), squeeze=False, layout="constrained")
    if curves:
        _draw_curves(axes[-2, 0], axes[-1, 0], curves, context)
    for axis, (title, rows) in zip(axes[: len(drawn), 0], drawn, strict=True):
        places, thin = range(len(rows)), {"ms": 3, "lw": 1}
        ours, floor = ([_drawn(getattr(q, name)) for _, q in rows] for name in ("port_error", "reference_error"))
        axis.semilogy(places, ours, "o-", color=PORT, ms=3, lw=1, label=f"{port} float32 against the truth")
        axis.semilogy(places, floor, "s--", color=REFERENCE, **thin, label="noise floor of the reference")
        exact = [max(q.float64_diff, 1e-17) if q.float64_diff is not None else float("nan") for _, q in rows]
        axis.semilogy(places, exact, "^-", color=EXACT, **thin, label=f"{port} against {reference}, exact mode")
        wrong = [value if value is None else min(value, 1e300) for value in failures(rows)]
        if any(value is not None for value in wrong):
            marked = [float("nan") if value is None else value for value in wrong]
            axis.semilogy(places, marked, "o", color=DIFFERS, mfc="none", ms=8, mew=1.2, label="differs by more than the bound")
        axis.axhline(tolerance.EXACT_RTOL, color="grey", lw=0.8, ls=":")
        largest = max(
            (e for _, q in rows for e in (q.port_error, q.float64_diff) if e is not None and math.isfinite(e)), default=0.0
        )
        top = max(1e-3, 3 * largest)
        axis.set_title(f"{title}, {context.model}", pad=24)
        axis.set(ylabel="relative L2 difference", ylim=(1e-17, top))
        shown = [i for i in places if len(rows) <= 40 or i % 10 == 0]
        axis.set_xticks(shown, [rows[i][0] for i in shown], rotation=40, ha="right", fontsize=7)
        axis.grid(alpha=0.3)
    for axis in axes[: len(drawn), 0]:  # above the axes: inside it hides points
        axis.legend(fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    with atomic_open(path) as file:
        figure.savefig(file, format="png", dpi=110)
    plt.close(figure)
    return True


def _drawn(value: float | None) -> float:
    return float("nan") if value is None else value


def _draw_curves(losses: Any, differences: Any, curves: Curves, context: Context) -> None:
    """Both sides' losses, and how far they diverge beside how far the reference diverges from itself."""
    port, reference = context.titles()
    losses.plot(curves["reference"]["float32"], color=REFERENCE, lw=3, alpha=0.5, label=reference)
    losses.plot(curves["port"]["float32"], color=PORT, lw=1, label=port)
    losses.set(title=f"Step 6: training loss on digits, {context.model}", ylabel="loss, float32")
    for bits, colour in (("float32", PORT), ("float64", EXACT)):
        theirs = curves["reference"][bits]
        difference = abs(curves["port"][bits] - theirs) / abs(theirs)
        name = "float32" if bits == "float32" else "exact mode"
        differences.semilogy(difference.clip(1e-17), color=colour, lw=1, label=f"{port} against {reference}, {name}")
        floor = curves["envelope"][bits].clip(1e-17)
        label = f"{reference} against itself, one ulp apart, {name}"
        differences.semilogy(floor, color=REFERENCE, ls="--" if bits == "float32" else ":", lw=1, label=label)
    differences.set(xlabel="update", ylabel="relative difference of the loss")
    for axis in (losses, differences):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
