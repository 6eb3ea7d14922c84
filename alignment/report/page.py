"""report.html: one file that opens from disk, with the verdict, the place of a mistake, and pictures drawn as SVG.

Colours come from CSS variables, so the pictures follow light and dark; nothing is loaded from anywhere and no script runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alignment import tolerance
from alignment.coverage import Coverage
from alignment.localize.finding import LayerRow, Localization
from alignment.report.drawing import STYLE, Series, chart, escape, number, table
from alignment.report.picture import panels
from alignment.report.table import exact_difference, mistakes, not_run, notes, passed
from alignment.steps.context import Context
from alignment.steps.result import Curves, StepResult


def render(
    context: Context,
    verdict: str,
    about: dict[str, Any],
    results: Sequence[StepResult],
    localization: Localization,
    covered: Coverage,
) -> str:
    """The page.

    Args:
        context: the two sides and the model.
        verdict: the run's, one sentence.
        about: what was run with what: flags, weights, device, versions.
        results: of the steps.
        localization: the place of the mistake, where there is one, and the table over all modules.
        covered: what the verdict rests on.
    """
    good = passed(results)
    charts = _charts(context, results, localization)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<title>{escape(verdict)}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body>',
        '<a class="skip" href="#steps">Skip to the steps</a><main>',
        f"<h1>Alignment of {escape(context.model)}</h1>",
        f'<p class="verdict {"good" if good else "bad"}" role="status">{"PASSED" if good else "FAILED"}: {escape(verdict)}</p>',
        _place(localization),
        f'<h2 id="steps">Steps</h2>{_steps(results)}',
        *[f"<p>{escape(line)}</p>" for line in [*not_run(results), *notes(context)]],
        _coverage(covered),
        *(["<h2>Pictures</h2>", *charts] if charts else []),
        *[_details(result) for result in results if result.ran],
        _layers(localization.layers),
        _about(about),
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _place(localization: Localization) -> str:
    first = localization.first
    if first is None:
        return ""
    rows = [
        ("Stage", first.stage),
        ("Place", first.location),
        ("It looks like", first.hint or "no known mistake has this shape"),
        ("Measured", first.measured),
        ("Found in", f"{localization.seconds:.1f} s"),
    ]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    said = "".join(f"<p>{escape(line)}</p>" for line in mistakes(localization))
    return f'<h2>Where it goes wrong first</h2><dl class="place">{items}</dl>{said}'


def _coverage(covered: Coverage) -> str:
    """What the verdict rests on, and what nothing is known of."""
    lists = [
        ("Covered", covered.covered),
        ("Not covered", [*covered.not_covered, *covered.elsewhere, *covered.packages]),
        ("Public functions of the port that no step ran", covered.not_run),
    ]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(', '.join(words))}</dd>" for name, words in lists if words)
    return f'<h2>What the verdict rests on</h2><dl class="place">{items}</dl>' if items else ""


def _verdict(words: str) -> str:
    return f'<td class="{ {"passed": "good", "FAILED": "bad"}.get(words, "") }">{words}</td>'


def _steps(results: Sequence[StepResult]) -> str:
    rows = []
    for result in results:
        ran = result.ran
        rows.append(
            [
                f"<td>{result.step} {escape(result.name)}</td>",
                f'<td class="n">{len(result.quantities) if ran else "-"}</td>',
                f'<td class="n">{sum(not q.passed for q in result.quantities) if ran else "-"}</td>',
                f'<td class="n">{number(exact_difference(result))}</td>',
                f'<td class="n">{f"{result.seconds:.1f}" if ran else "-"}</td>',
                _verdict(result.verdict),
            ]
        )
    return table(("step", "compared", "failed", "exact mode", "seconds", "verdict"), rows, "Steps")


def _details(result: StepResult) -> str:
    evidence = [[f"<td>{escape(name)}</td>", f"<td>{escape(value)}</td>"] for name, value in result.evidence.items()]
    failed = [q for q in result.quantities if not q.passed]
    shown = failed[:40] or sorted(result.quantities, key=lambda q: -(q.float64_diff or q.max_abs_diff or 0.0))[:10]
    rows = [
        [
            f"<td>{escape(q.name)}</td>",
            f'<td class="n">{number(q.mean_abs_diff)}</td>',
            f'<td class="n">{number(q.port_error)}</td>',
            f'<td class="n">{number(q.reference_error)}</td>',
            f'<td class="n">{number(q.float64_diff)}</td>',
            _verdict("passed" if q.passed else "FAILED"),
            f"<td>{escape(q.reason)}</td>",
        ]
        for q in shown
    ]
    head = ("quantity", "mean abs diff", "float32", "noise floor", "exact mode", "verdict", "reason")
    what = f"{len(failed)} failed" if failed else "the largest differences"
    problems = "".join(f'<p><strong class="bad">{escape(problem)}</strong></p>' for problem in result.problems)
    return (
        f"<details{'' if result.passed else ' open'}>"
        f"<summary>Step {result.step}, {escape(result.name)}: evidence, and {what}</summary>"
        + problems
        + (table(("evidence", "value"), evidence, f"Evidence of step {result.step}") if evidence else "")
        + table(head, rows, f"Quantities of step {result.step}")
        + "</details>"
    )


def _layers(layers: Sequence[LayerRow]) -> str:
    if not layers:
        return ""
    rows = [
        [
            f"<td>{row.phase}</td><td>{escape(row.name or '(model)')}</td><td>{escape(row.kind)}</td>",
            *[f'<td class="n">{number(value)}</td>' for value in (row.difference,)],
            f'<td class="n">{row.cosine:.7f}</td>',
            *[f'<td class="n">{number(value)}</td>' for value in (row.max_abs, row.floor, row.own)],
        ]
        for row in layers
    ]
    head = ("phase", "module", "kind", "relative L2", "cosine", "maximum", "noise floor", "own mistake")
    summary = f"All {len(layers)} modules, in the order of computation, in float64"
    return f"<details><summary>{summary}</summary>{table(head, rows, 'All modules')}</details>"


def _about(about: dict[str, Any]) -> str:
    rows = [[f"<td>{escape(name)}</td>", f"<td>{escape(value)}</td>"] for name, value in about.items()]
    return f"<h2>What was run</h2>{table(('', ''), rows, 'Versions and flags')}"


# --- pictures --------------------------------------------------------------------------------------------------------------


def _charts(context: Context, results: Sequence[StepResult], localization: Localization) -> list[str]:
    port, reference = context.titles()
    charts = []
    for phase, title in (("forward", "Output of every module"), ("backward", "Gradient of every module's output")):
        rows = [row for row in localization.layers if row.phase == phase]
        if rows:
            series = [
                Series(f"{port} against {reference}", [row.difference for row in rows]),
                Series("noise floor (one ulp)", [row.floor for row in rows]),
                Series("own mistake, where it was looked for", [row.own for row in rows], dots=True),
            ]
            places = [row.name or "(model)" for row in rows]
            charts.append(chart(f"{title}, float64", places, series, mark=tolerance.EXACT_RTOL))
    for title, drawn in [] if charts else panels(results):
        series = [
            Series(f"{port} float32 against the truth", [q.port_error for _, q in drawn]),
            Series("noise floor of the reference", [q.reference_error for _, q in drawn]),
            Series(f"{port} against {reference}, exact mode", [q.float64_diff for _, q in drawn]),
        ]
        charts.append(chart(title, [name for name, _ in drawn], series, mark=tolerance.EXACT_RTOL))
    for result in results:
        if result.curves:
            charts += _curves(context, result.curves)
    return charts


def _curves(context: Context, curves: Curves) -> list[str]:
    port, reference = context.titles()
    ours, theirs, envelope = curves["port"], curves["reference"], curves["envelope"]
    places = [str(i) for i in range(len(theirs["float32"]))]
    losses = [Series(reference, theirs["float32"].tolist()), Series(port, ours["float32"].tolist())]
    diverged = []
    for bits, name in (("float32", "float32"), ("float64", "exact mode")):
        difference = abs(ours[bits] - theirs[bits]) / abs(theirs[bits])
        diverged.append(Series(f"{port} against {reference}, {name}", difference.tolist()))
        diverged.append(Series(f"{reference} against itself, one ulp apart, {name}", envelope[bits].tolist()))
    return [
        chart("Step 6: training loss on digits", places, losses, logarithmic=False, across="update"),
        chart("Step 6: relative difference of the loss", places, diverged, across="update"),
    ]
