"""alignment.png: error, noise floor and exact-mode difference of every block and gradient, and the training curves."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alignment import tolerance
from alignment.compare import Quantity
from alignment.steps.context import Context
from alignment.steps.result import Curves, StepResult
from mobilenetv3_common.files import atomic_open

TITLES = {"forward": "Step 1: output of every block", "backward": "Step 5: gradient of every parameter"}


def panels(results: Sequence[StepResult]) -> list[tuple[str, list[tuple[str, Quantity]]]]:
    """Title and (name, quantity) of the rows that are drawn: the largest case of step 1, the first gradients of step 5."""
    found = []
    for result in results:
        for prefix in {
            "forward": ("eval.photos.b16.", "eval.fake.b8."),
            "backward": ("sgd.eval.iter0.gradients.", "eval.iter0.gradients."),
        }.get(result.name, ()):
            rows = [(q.name.removeprefix(prefix), q) for q in result.quantities if q.name.startswith(prefix)]
            rows = [(name, q) for name, q in rows if q.port_error is not None]
            if rows:
                found.append((TITLES[result.name], rows))
                break
    return found


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
        places = range(len(rows))
        axis.semilogy(places, [q.port_error for _, q in rows], "o-", ms=3, lw=1, label=f"{port} float32 against the truth")
        axis.semilogy(places, [q.reference_error for _, q in rows], "s--", ms=3, lw=1, label="noise floor of the reference")
        exact = [max(q.float64_diff, 1e-17) if q.float64_diff is not None else float("nan") for _, q in rows]
        axis.semilogy(places, exact, "^-", ms=3, lw=1, label=f"{port} against {reference}, exact mode")
        axis.axhline(tolerance.EXACT_RTOL, color="grey", lw=0.8, ls=":")
        largest = max(
            (e for _, q in rows for e in (q.port_error, q.float64_diff) if e is not None and math.isfinite(e)), default=0.0
        )
        top = max(1e-3, 3 * largest)
        axis.set(title=f"{title}, {context.model}", ylabel="relative L2 difference", ylim=(1e-17, top))
        shown = [i for i in places if len(rows) <= 40 or i % 10 == 0]
        axis.set_xticks(shown, [rows[i][0] for i in shown], rotation=40, ha="right", fontsize=7)
        axis.grid(alpha=0.3)
    if drawn:
        axes[0, 0].legend(fontsize=8)
    with atomic_open(path) as file:
        figure.savefig(file, format="png", dpi=110)
    plt.close(figure)
    return True


def _draw_curves(losses: Any, differences: Any, curves: Curves, context: Context) -> None:
    """Both sides' losses, and how far they diverge beside how far the reference diverges from itself."""
    port, reference = context.titles()
    losses.plot(curves["reference"]["float32"], color="C1", lw=3, alpha=0.5, label=reference)
    losses.plot(curves["port"]["float32"], color="C0", lw=1, label=port)
    losses.set(title=f"Step 6: training loss on digits, {context.model}", ylabel="loss, float32")
    for bits, colour in (("float32", "C0"), ("float64", "C2")):
        theirs = curves["reference"][bits]
        difference = abs(curves["port"][bits] - theirs) / abs(theirs)
        name = "float32" if bits == "float32" else "exact mode"
        differences.semilogy(difference.clip(1e-17), color=colour, lw=1, label=f"{port} against {reference}, {name}")
        floor = curves["envelope"][bits].clip(1e-17)
        label = f"{reference} against itself, one ulp apart, {name}"
        differences.semilogy(floor, color=colour, ls="--", lw=1, label=label)
    differences.set(xlabel="update", ylabel="relative difference of the loss")
    for axis in (losses, differences):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
