"""What a run leaves behind: the table, alignment.json, the records, the logs in reprod_log's look, and a picture."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from alignment import report_html, tolerance
from alignment.compare import ZERO_BUT_FOR_ROUNDING, Quantity
from alignment.localize.finding import Localization
from alignment.record import save_record
from alignment.steps.context import Context, StepResult
from mobilenetv3_common.files import atomic_open

RECORD_NAMES = {"backward": "losses"}  # the guide calls step 5's record by its content


def versions() -> dict[str, str]:
    """Versions of everything that can change a result."""
    names = (
        "paddlepaddle",
        "paddlepaddle-gpu",
        "torch",
        "torchvision",
        "numpy",
        "pillow",
        "opencv-python-headless",
        "opencv-python",
    )
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def first_divergence(localization: Localization) -> dict[str, str] | None:
    """Stage, place and hint of the first mistake; None where all passed."""
    first = localization.first
    if first is None:
        return None
    return {"stage": first.stage, "location": first.location, "hint": f"{first.hint or 'no known mistake'} ({first.measured})"}


def summary(context: Context, results: list[StepResult], localization: Localization) -> dict[str, Any]:
    """The content of alignment.json."""
    return {
        "passed": all(result.passed for result in results),
        "model": context.model,
        "weights": context.weights_name,
        "device": context.device,
        "versions": versions(),
        "steps": [
            {
                "step": result.step,
                "name": result.name,
                "passed": result.passed,
                "seconds": round(result.seconds, 2),
                "evidence": result.evidence,
                "problems": result.problems,
                "quantities": [vars(quantity) for quantity in result.quantities],
            }
            for result in results
        ],
        "first_divergence": first_divergence(localization),
        "localization": localization.as_json(),
    }


def write_results(
    directory: Path, context: Context, results: list[StepResult], localization: Localization, flags: Sequence[str] = ()
) -> None:
    """Write alignment.json, report.html, both records and the log of every step; each file whole or not at all."""
    (directory / "log").mkdir(parents=True, exist_ok=True)
    for result in results:
        name = RECORD_NAMES.get(result.name, result.name)
        save_record(directory / f"{name}_paddle.npy", result.paddle)
        save_record(directory / f"{name}_ref.npy", result.ref)
        with atomic_open(directory / "log" / f"{result.name}_diff.log", "w") as file:
            file.write(diff_log(result))
    with atomic_open(directory / "alignment.json", "w") as file:
        json.dump(summary(context, results, localization), file, indent=1, allow_nan=True)
        file.write("\n")
    about = {"flags": " ".join(flags) or "(none)", "weights": context.weights_name, "device": context.device, "seed": context.seed}
    with atomic_open(directory / "report.html", "w") as file:
        file.write(report_html.render(context.model, about | versions(), results, localization))


def diff_log(result: StepResult) -> str:
    """A step's log as reprod_log's ``report`` writes it; the verdict of each line is this project's."""
    stamp = f"[{datetime.now():%Y/%m/%d %H:%M:%S}] root INFO: "
    lines = []
    for quantity in result.quantities:
        value = "not comparable" if quantity.mean_abs_diff is None else quantity.mean_abs_diff
        lines.append(f"{stamp}{quantity.name}: ")
        lines.append(f"{stamp}\tmean diff: check passed: {quantity.passed}, value: {value}")
        if not quantity.passed:
            lines.append(f"{stamp}\t{quantity.reason}")
    lines += [f"{stamp}{problem}" for problem in result.problems]
    lines.append(f"{stamp}diff check {'passed' if result.passed else 'failed'}")
    return "\n".join(lines) + "\n"


# --- the table -----------------------------------------------------------------------------------------------------------

_HEADER = ("step", "compared", "mean abs diff", "guide", "float32 / floor", "exact mode", "seconds", "verdict")


def worst(quantities: list[Quantity], column: str) -> float | None:
    return max((value for q in quantities if (value := getattr(q, column)) is not None), default=None)


def float32_ratio(quantities: list[Quantity]) -> float | None:
    """The largest error of Paddle's float32 in units of its quantity's noise floor, kink flips left out."""
    ratios = [q.paddle_error / q.ref_error for q in quantities if q.paddle_error is not None and q.ref_error and not q.reason]
    return max(ratios, default=None)


def table(results: list[StepResult]) -> str:
    """One row a step."""
    rows = [_HEADER]
    for result in results:
        headline = _headline(result)
        threshold = tolerance.GUIDE_THRESHOLDS[result.name]
        proven = [q for q in result.quantities if q.reason != ZERO_BUT_FOR_ROUNDING]
        rows.append(
            (
                f"{result.step} {result.name}",
                str(len(result.quantities)),
                _number(headline),
                f"<= {threshold:g} {_guide_verdict(result, headline, threshold)}",
                "-" if (ratio := float32_ratio(result.quantities)) is None else f"{ratio:.1f} x",
                _number(worst(proven, "float64_diff")),
                f"{result.seconds:.1f}",
                "passed" if result.passed else "FAILED",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _guide_verdict(result: StepResult, headline: float | None, threshold: float) -> str:
    if headline is not None and headline <= threshold:
        return "yes"
    return "in spread" if result.name == "train" and result.passed else "no"  # of the seeds themselves


def _headline(result: StepResult) -> float | None:
    """The quantity that the guide's own check looks at."""
    wanted = {
        "forward": lambda q: q.name.startswith("eval.") and q.name.endswith("logits"),
        "metric": lambda q: q.name.startswith("acc_"),
        "loss": lambda q: q.name == "model.loss",
        "backward": lambda q: q.name.startswith("sgd.eval.") and q.name.endswith(".loss"),
        "train": lambda q: q.name == "final_top1",
    }.get(result.name, lambda q: True)
    return worst([q for q in result.quantities if wanted(q)], "mean_abs_diff")


def _number(value: float | None) -> str:
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def explanation(results: list[StepResult], localization: Localization) -> list[str]:
    """What failed, one line each, the place of the first mistake first; empty where all passed."""
    lines = []
    if localization.first is not None:
        lines.append(f"first divergence: {localization.first.line()}")
    for result in results:
        failed = [q for q in result.quantities if not q.passed]
        lines += [f"  {q.name}: {q.reason}" for q in failed[:5]]
        if len(failed) > 5:
            lines.append(f"  ... and {len(failed) - 5} more in step {result.name}")
        lines += [f"  {result.name}: {problem}" for problem in result.problems]
    return lines


# --- the picture ---------------------------------------------------------------------------------------------------------


def plot(path: Path, model: str, results: list[StepResult]) -> bool:
    """Draw error, noise floor and exact-mode difference of every block (step 1) and gradient (step 5), and step 6's curves.

    Returns:
        Whether there was anything to draw.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels = []
    for result in results:
        prefix = {"forward": "eval.photos.b16.", "backward": "sgd.eval.iter0.gradients."}.get(result.name)
        chosen = [q for q in result.quantities if prefix and q.name.startswith(prefix) and q.paddle_error is not None]
        if chosen and prefix:
            title = "Step 1: output of every block" if result.name == "forward" else "Step 5: gradient of every parameter"
            panels.append((title, [(q.name.removeprefix(prefix), q) for q in chosen]))
    curves = next((result.curves for result in results if result.curves), None)
    count = len(panels) + (2 if curves else 0)
    if not count:
        return False
    figure, axes = plt.subplots(count, 1, figsize=(9, 3.6 * count), squeeze=False, layout="constrained")
    if curves:
        _draw_curves(axes[-2, 0], axes[-1, 0], curves, model)
    for axis, (title, rows) in zip(axes[: len(panels), 0], panels, strict=True):
        places = range(len(rows))
        axis.semilogy(places, [q.paddle_error for _, q in rows], "o-", ms=3, lw=1, label="Paddle float32 against the truth")
        axis.semilogy(places, [q.ref_error for _, q in rows], "s--", ms=3, lw=1, label="noise floor of the reference")
        exact = [max(q.float64_diff, 1e-17) if q.float64_diff is not None else float("nan") for _, q in rows]
        axis.semilogy(places, exact, "^-", ms=3, lw=1, label="Paddle against torch, exact mode")
        axis.axhline(tolerance.EXACT_RTOL, color="grey", lw=0.8, ls=":")
        axis.set(title=f"{title}, {model}", ylabel="relative L2 difference", ylim=(1e-17, 1e-3))
        shown = [i for i in places if len(rows) <= 40 or i % 10 == 0]
        axis.set_xticks(shown, [rows[i][0] for i in shown], rotation=40, ha="right", fontsize=7)
        axis.grid(alpha=0.3)
    if panels:
        axes[0, 0].legend(fontsize=8)
    with atomic_open(path) as file:
        figure.savefig(file, format="png", dpi=110)
    plt.close(figure)
    return True


def _draw_curves(losses: Any, differences: Any, curves: dict[str, dict[str, Any]], model: str) -> None:
    """Both frameworks' losses, and how far they part beside how far the reference parts from itself."""
    losses.plot(curves["ref"]["float32"], color="C1", lw=3, alpha=0.5, label="torch")
    losses.plot(curves["paddle"]["float32"], color="C0", lw=1, label="Paddle")
    losses.set(title=f"Step 6: training loss on digits, {model}", ylabel="loss, float32")
    for bits, colour in (("float32", "C0"), ("float64", "C2")):
        theirs = curves["ref"][bits]
        parted = abs(curves["paddle"][bits] - theirs) / abs(theirs)
        name = "float32" if bits == "float32" else "exact mode"
        differences.semilogy(parted.clip(1e-17), color=colour, lw=1, label=f"Paddle against torch, {name}")
        floor = curves["envelope"][bits].clip(1e-17)
        differences.semilogy(floor, color=colour, ls="--", lw=1, label=f"torch against itself, one ulp apart, {name}")
    differences.set(xlabel="update", ylabel="relative difference of the loss")
    for axis in (losses, differences):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
