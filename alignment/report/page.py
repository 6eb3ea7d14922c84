"""report.html: one file that opens from disk, with the verdict, the place of a mistake, and pictures drawn as SVG.

Colours come from CSS variables, so the pictures follow light and dark; nothing is loaded from anywhere and no script runs.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.coverage import Coverage
from alignment.localize.finding import LayerRow, Localization
from alignment.report.picture import panels
from alignment.report.table import exact_difference, not_run, notes, passed
from alignment.steps.context import Context
from alignment.steps.result import Curves, StepResult

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 860, 260, 62, 34
_COLOURS = ("--a", "--b", "--c", "--d")

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d0d7de;--card:#f6f8fa;--good:#1a7f37;--bad:#b42318;
--a:#0969da;--b:#bc4c00;--c:#1a7f37;--d:#8250df}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9198a1;--line:#3d444d;--card:#161b22;--good:#3fb950;
--bad:#ff7b72;--a:#58a6ff;--b:#f0883e;--c:#3fb950;--d:#bc8cff}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}
.verdict{border-left:.4rem solid;padding:.6rem 1rem;background:var(--card);font-weight:600}
.good{border-color:var(--good)}.bad{border-color:var(--bad)}
td.good,strong.good{color:var(--good)}td.bad,strong.bad{color:var(--bad);font-weight:600}
.place{background:var(--card);border:1px solid var(--line);padding:.2rem 1rem;overflow-wrap:anywhere}
.place dt{color:var(--soft)}.place dd{margin:0 0 .5rem;font-weight:600}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
figure{margin:1rem 0}figcaption{font-size:.875rem;color:var(--soft)}
svg{width:100%;height:auto;display:block;background:var(--card)}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}
summary{cursor:pointer;padding:.3rem 0}
summary:focus-visible,a:focus-visible,.scroll:focus-visible{outline:3px solid var(--a);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:1rem;top:.5rem;background:var(--bg);padding:.3rem}
.key{display:inline-block;width:1.2em;height:.25em;margin:0 .3em .2em 1em;vertical-align:middle}
@media print{:root{--bg:#fff;--fg:#000;--soft:#333;--line:#999;--card:#fff;--good:#1a7f37;--bad:#b42318;--a:#0969da;--b:#bc4c00;
--c:#1a7f37;--d:#8250df}.skip{display:none}figure,tr{break-inside:avoid}main{max-width:none;padding:0}}
"""


@dataclass
class Series:
    """One line of a chart, or dots alone: its name and a value at each place (None leaves a gap)."""

    name: str
    values: list[float | None]
    dots: bool = False


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
        f'<title>{_e(verdict)}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body>',
        '<a class="skip" href="#steps">Skip to the steps</a><main>',
        f"<h1>Alignment of {_e(context.model)}</h1>",
        f'<p class="verdict {"good" if good else "bad"}" role="status">{"PASSED" if good else "FAILED"}: {_e(verdict)}</p>',
        _place(localization),
        f'<h2 id="steps">Steps</h2>{_steps(results)}',
        *[f"<p>{_e(line)}</p>" for line in [*not_run(results), *notes(context)]],
        _coverage(covered),
        *(["<h2>Pictures</h2>", *charts] if charts else []),
        *[_details(result) for result in results if result.ran],
        _layers(localization.layers),
        _about(about),
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _e(text: Any) -> str:
    return html.escape(str(text))


def _n(value: float | None) -> str:
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


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
    items = "".join(f"<dt>{_e(name)}</dt><dd>{_e(value)}</dd>" for name, value in rows)
    return f'<h2>Where it goes wrong first</h2><dl class="place">{items}</dl>'


def _coverage(covered: Coverage) -> str:
    """What the verdict rests on, and what nothing is known of."""
    lists = [
        ("Covered", covered.covered),
        ("Not covered", [*covered.not_covered, *covered.elsewhere, *covered.packages]),
        ("Public functions of the port that no step ran", covered.not_run),
    ]
    items = "".join(f"<dt>{_e(name)}</dt><dd>{_e(', '.join(words))}</dd>" for name, words in lists if words)
    return f'<h2>What the verdict rests on</h2><dl class="place">{items}</dl>' if items else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> str:
    heads = "".join(f'<th scope="col">{_e(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_e(label)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _verdict(words: str) -> str:
    return f'<td class="{ {"passed": "good", "FAILED": "bad"}.get(words, "") }">{words}</td>'


def _steps(results: Sequence[StepResult]) -> str:
    rows = []
    for result in results:
        ran = result.ran
        rows.append(
            [
                f"<td>{result.step} {_e(result.name)}</td>",
                f'<td class="n">{len(result.quantities) if ran else "-"}</td>',
                f'<td class="n">{sum(not q.passed for q in result.quantities) if ran else "-"}</td>',
                f'<td class="n">{_n(exact_difference(result))}</td>',
                f'<td class="n">{f"{result.seconds:.1f}" if ran else "-"}</td>',
                _verdict(result.verdict),
            ]
        )
    return _table(("step", "compared", "failed", "exact mode", "seconds", "verdict"), rows, "Steps")


def _details(result: StepResult) -> str:
    evidence = [[f"<td>{_e(name)}</td>", f"<td>{_e(value)}</td>"] for name, value in result.evidence.items()]
    failed = [q for q in result.quantities if not q.passed]
    shown = failed[:40] or sorted(result.quantities, key=lambda q: -(q.float64_diff or q.max_abs_diff or 0.0))[:10]
    rows = [
        [
            f"<td>{_e(q.name)}</td>",
            f'<td class="n">{_n(q.mean_abs_diff)}</td>',
            f'<td class="n">{_n(q.port_error)}</td>',
            f'<td class="n">{_n(q.reference_error)}</td>',
            f'<td class="n">{_n(q.float64_diff)}</td>',
            _verdict("passed" if q.passed else "FAILED"),
            f"<td>{_e(q.reason)}</td>",
        ]
        for q in shown
    ]
    head = ("quantity", "mean abs diff", "float32", "noise floor", "exact mode", "verdict", "reason")
    what = f"{len(failed)} failed" if failed else "the largest differences"
    problems = "".join(f'<p><strong class="bad">{_e(problem)}</strong></p>' for problem in result.problems)
    return (
        f"<details{'' if result.passed else ' open'}><summary>Step {result.step}, {_e(result.name)}: evidence, and {what}</summary>"
        + problems
        + (_table(("evidence", "value"), evidence, f"Evidence of step {result.step}") if evidence else "")
        + _table(head, rows, f"Quantities of step {result.step}")
        + "</details>"
    )


def _layers(layers: Sequence[LayerRow]) -> str:
    if not layers:
        return ""
    rows = [
        [
            f"<td>{row.phase}</td><td>{_e(row.name or '(model)')}</td><td>{_e(row.kind)}</td>",
            *[f'<td class="n">{_n(value)}</td>' for value in (row.difference,)],
            f'<td class="n">{row.cosine:.7f}</td>',
            *[f'<td class="n">{_n(value)}</td>' for value in (row.max_abs, row.floor, row.own)],
        ]
        for row in layers
    ]
    head = ("phase", "module", "kind", "relative L2", "cosine", "maximum", "noise floor", "own mistake")
    table = _table(head, rows, "All modules")
    return f"<details><summary>All {len(layers)} modules, in the order of computation, in float64</summary>{table}</details>"


def _about(about: dict[str, Any]) -> str:
    rows = [[f"<td>{_e(name)}</td>", f"<td>{_e(value)}</td>"] for name, value in about.items()]
    return f"<h2>What was run</h2>{_table(('', ''), rows, 'Versions and flags')}"


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
            charts.append(chart(f"{title}, float64", [row.name or "(model)" for row in rows], series))
    for title, drawn in [] if charts else panels(results):
        series = [
            Series(f"{port} float32 against the truth", [q.port_error for _, q in drawn]),
            Series("noise floor of the reference", [q.reference_error for _, q in drawn]),
            Series(f"{port} against {reference}, exact mode", [q.float64_diff for _, q in drawn]),
        ]
        charts.append(chart(title, [name for name, _ in drawn], series))
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


def chart(title: str, places: Sequence[str], series: Sequence[Series], logarithmic: bool = True, across: str = "") -> str:
    """A line chart as inline SVG; values of zero lie on the lower edge, infinite ones on the upper."""
    finite = [v for s in series for v in s.values if v is not None and math.isfinite(v) and (v > 0 or not logarithmic)]
    if logarithmic:
        low: float = math.floor(math.log10(max(min(finite, default=1e-17), 1e-17)))
        high: float = math.ceil(math.log10(max(max(finite, default=1.0), 10.0 ** (low + 1))))
    else:
        low, high = min(0.0, *finite), max(finite, default=1.0)
        high = high if high > low else low + 1

    def y(value: float) -> float:
        if math.isnan(value) or value == math.inf:
            return 8.0
        scaled = (math.log10(max(value, 10.0**low)) if logarithmic else value) - low
        return 8 + (_HEIGHT - 8 - _BOTTOM) * (1 - scaled / (high - low))

    def x(place: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * (place / max(len(places) - 1, 1))

    lines = []
    step = max(1, math.ceil((high - low) / 6))
    ticks = [low + step * i for i in range(int((high - low) / step) + 1)] if logarithmic else list(np.linspace(low, high, 5))
    for tick in ticks:
        at = y(10.0**tick if logarithmic else tick)
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>')
        label = f"1e{tick:+03d}" if logarithmic else f"{tick:.2g}"
        lines.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    if logarithmic and low <= math.log10(tolerance.EXACT_RTOL) <= high and not across:
        at = y(tolerance.EXACT_RTOL)
        lines.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--soft)" stroke-dasharray="4 4"/>'
        )
    for i in sorted({0, len(places) // 4, len(places) // 2, 3 * len(places) // 4, len(places) - 1}):
        anchor = "start" if i == 0 else "end" if i == len(places) - 1 else "middle"
        place = _e(f"{across} {places[i]}" if across else places[i])
        lines.append(f'<text x="{x(i):.1f}" y="{_HEIGHT - 12}" text-anchor="{anchor}">{place}</text>')
    for number, one in enumerate(series):
        known = [(x(i), y(v), places[i], v) for i, v in enumerate(one.values) if v is not None]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b, _, _ in known)
        colour = f"var({_COLOURS[number % len(_COLOURS)]})"
        dash = ' stroke-dasharray="6 3"' if number % 2 else ""
        if not one.dots:
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        if len(known) <= 300 and not across:
            radius = 4 if one.dots else 2.4
            lines += [
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" fill="{colour}"><title>{_e(name)}: {_n(value)}</title></circle>'
                for a, b, name, value in known
            ]
    keys = "".join(
        f'<span class="key" style="background:var({_COLOURS[i % len(_COLOURS)]})"></span>{_e(s.name)}' for i, s in enumerate(series)
    )
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_e(title)}"><title>{_e(title)}</title>'
        f"{''.join(lines)}</svg>"
        f"<figcaption><strong>{_e(title)}</strong>{keys}</figcaption></figure>"
    )
