"""report.html: one file that opens from disk, with the verdict, the place of a mistake, and pictures drawn as SVG.

Colours come from CSS variables, so the pictures follow light and dark; nothing is loaded from anywhere and no script runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.result import Curves, StepResult
from alignment.comparisons.rows import MODES, Words, in_words
from alignment.coverage import Coverage
from alignment.finding import Finding, LayerRow, Localization
from alignment.report import page_cards
from alignment.report.picture import failures, panels
from alignment.report.sections import Sections
from alignment.report.table import exact_difference, not_run, notes, passed
from mobilenetv3_common.counted import counted
from mobilenetv3_common.drawing import (
    DIFFERS,
    EXACT,
    MISTAKE,
    PORT,
    REFERENCE,
    SOUND,
    STYLE,
    Series,
    broken,
    chart,
    escape,
    number,
    table,
)

SHOWN = 300  # rows of a step; alignment.json has all
NOTE = "Zero apart from rounding in float64, so a relative difference has no meaning; their absolute size was compared"
GUIDE = (
    "<strong>Noise floor</strong>: the larger of the reference's own float32 error and its change when all its inputs and weights "
    "move by one unit in the last place. The float32 error of a correct port has about this size (compare the columns float32 and "
    f"noise floor; the bound is {tolerance.FLOOR_FACTOR:g} times).",
    "<strong>Exact mode</strong>: both sides compute in float64 with the same constants. A correct port differs by less than "
    f"{tolerance.EXACT_RTOL:.0e}, a wrong one by orders of magnitude more.",
    "<strong>Colours</strong> are the same in every picture: the port's own error is blue, the reference and its noise orange, the "
    "difference between the two in exact mode purple. <strong>Red is a mistake</strong>: the place whose result is wrong "
    "although its inputs are correct. Everything after it differs only because of it; such a value is marked with a black ring.",
    "Start with the first mistake: its place, the confirmed hypothesis, and the line to change. A step that was not run verifies "
    "nothing.",
)

EVIDENCE = {  # what shows that there was something to compare, in words
    "blocks": "blocks that were compared",
    "blocks_without_counterpart": "blocks that only one side has as a module: what is around them was compared",
    "blocks_called_another_number_of_times": "blocks that one side calls more often: what is around them was compared",
    "blocks_of_another_form": "blocks whose outputs the port arranges otherwise: what is around them was compared",
    "logits_std": "standard deviation of the outputs",
    "logits_std_between_pictures": "standard deviation of the outputs between samples",
    "gradient_norm": "norm of all gradients",
    "kink_flips": "activations whose side of a kink differs, and all",
}


def render(
    context: Context,
    verdict: str,
    about: dict[str, Any],
    results: Sequence[StepResult],
    localization: Localization,
    covered: Coverage,
    sections: Sections | None = None,
) -> str:
    """The page.

    Args:
        context: the two sides and the model.
        verdict: the run's, one sentence.
        about: what was run with what: flags, weights, device, versions.
        results: of the steps.
        localization: the place of the mistake, where there is one, and the table over all modules.
        covered: what the verdict rests on.
        sections: of an audit.
    """
    good = passed(results)
    before = "" if sections else "PASSED: " if good else "FAILED: "
    charts = _charts(context, results, localization)
    wrong = sections.mistakes if sections else _wrong(localization)
    lines, words = sections.cards if sections else (), in_words(context)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<title>{escape(verdict)}</title><link rel="icon" href="data:,"><style>{STYLE}{page_cards.STYLE}</style></head><body>',
        '<a class="skip" href="#steps">Skip to the steps</a><main>',
        f"<h1>Alignment of {escape(context.model)}</h1>",
        f'<p class="verdict {"good" if good else "bad"}" role="status">{before}{broken(verdict)}</p>',
        f"<h2>{'Your mistakes' if sections else 'Where it goes wrong first'}</h2>" if wrong else "",
        page_cards.cards(wrong, lines, _along(results, localization)),
        "".join(f'<p class="note">{broken(line)}</p>' for line in _said(sections, localization)),
        f'<h2 id="steps">Steps</h2>{_steps(results)}',
        _sections(sections) if sections else "",
        f'<details class="read"><summary>How to read this</summary>{"".join(f"<p>{line}</p>" for line in GUIDE)}</details>',
        _listed("Notes", [*not_run(results), *notes(context, sections is not None)]),
        "" if sections else _coverage(covered),
        _pictures(charts, good),
        "" if good else '<label class="only"><input type="checkbox" id="only" checked> Failures only in the tables below</label>',
        *[_details(result, words) for result in results if result.ran],
        _layers(localization),
        _about(about),
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _wrong(localization: Localization) -> list[Finding]:
    """Every mistake that was found, the first one first."""
    found = localization.every or ([localization.first] if localization.first else [])
    return [one for one in found if not one.accepted]


def _said(sections: Sections | None, localization: Localization) -> list[str]:
    """What is said below the cards: how far the search came, and how long it took."""
    if sections:
        return sections.further
    seconds = [f"Found in {localization.seconds:.1f} s."] if localization.first else []
    return [*localization.remarks, *seconds]


def _along(results: Sequence[StepResult], localization: Localization) -> page_cards.Rows:
    """Name and difference along the network, of the first that shows a failure: every module's output, blocks, statistics."""
    layers = [row for row in localization.layers if row.phase == "forward"]
    if any(_apart(row) for row in layers):
        return [(row.name or "(model)", row.difference) for row in layers]
    shown = next((rows for _, rows in panels(results) if any(not q.passed for _, q in rows)), [])
    far = [(name, math.inf if q.port_error is None and not q.passed else q.float64_diff) for name, q in shown]  # another shape
    return [(name.removesuffix(".running_mean").removesuffix(".running_var"), value) for name, value in far]


def _listed(title: str, lines: Sequence[str]) -> str:
    """A folded list; nothing where it is empty."""
    items = "".join(f"<li>{broken(line)}</li>" for line in lines)
    return f"<details><summary>{escape(title)} ({len(lines)})</summary><ul>{items}</ul></details>" if items else ""


def _sections(sections: Sections) -> str:
    """The second and the third section of an audit, and what was accepted."""
    return (
        _listed(sections.known_title().rstrip(":"), sections.known_lines)
        + _listed("Accepted differences", [one.line() for one in sections.accepted])
        + _listed("Not checked, and the flag that would check it", [one.line() for one in sections.unchecked])
    )


def _pictures(charts: Sequence[str], good: bool) -> str:
    """The charts; where something failed, the first is seen and the others are folded."""
    if not charts:
        return ""
    seen, folded = (charts, []) if good else (charts[:1], charts[1:])
    more = f"<details><summary>{counted(len(folded), 'more chart')}</summary>{''.join(folded)}</details>" if folded else ""
    return f"<h2>Charts</h2>{''.join(seen)}{more}"


def _coverage(covered: Coverage) -> str:
    """What the verdict rests on, and what nothing is known of; a long list of functions is folded, a line for each file."""
    lists = [("Covered", covered.covered), ("Not covered", [*covered.not_covered, *covered.elsewhere, *covered.packages])]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{broken(', '.join(words))}</dd>" for name, words in lists if words)
    total = len(covered.run) + len(covered.not_run)
    folded = f"{len(covered.not_run)} of {total} public functions of the port were run by no step"
    lines = [f"<p><strong>{escape(module)}</strong>: {escape(names)}</p>" for module, names in _by_module(covered.not_run)]
    functions = f'<details class="names"><summary>{folded}</summary>{"".join(lines)}</details>' if lines else ""
    what = f'<dl class="place list">{items}</dl>{functions}' if items or functions else ""
    return (
        f"<details><summary>What the verdict rests on ({counted(len(covered.covered), 'thing')})</summary>{what}</details>"
        if what
        else ""
    )


def _by_module(functions: Sequence[str]) -> list[tuple[str, str]]:
    """Names of functions by the module in which they are, which are all in lower case; the rest of a name is a class's."""
    found: dict[str, list[str]] = {}
    for function in functions:
        parts = function.split(".")
        end = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
        found.setdefault(".".join(parts[:end]), []).append(".".join(parts[end:]))
    return [(module, ", ".join(names)) for module, names in found.items()]


def _verdict(words: str) -> str:
    return f'<td class="{ {"passed": "good", "FAILED": "bad"}.get(words, "") }">{words}</td>'


def _steps(results: Sequence[StepResult]) -> str:
    rows = []
    for result in results:
        ran = result.ran
        rows.append(
            [
                f"<td>{result.step} {escape(result.name)}{escape(f' (run {result.kept})' if result.kept else '')}</td>",
                _verdict(result.verdict),
                f'<td class="n">{len(result.quantities) if ran else "-"}</td>',
                f'<td class="n">{sum(not q.passed for q in result.quantities) if ran else "-"}</td>',
                f'<td class="n">{number(exact_difference(result))}</td>',
                f'<td class="n">{f"{result.seconds:.1f}" if ran else "-"}</td>',
            ]
        )
    classes = ["" if result.failed else "fine" for result in results]
    return table(("step", "verdict", "compared", "failed", "exact mode", "seconds"), rows, "Steps", classes)


def _evidence_of(name: str) -> str:
    """What a piece of evidence is, in words."""
    mode, _, figure = name.partition(".")
    known = EVIDENCE.get(figure if mode in MODES else name)
    return f"{known}, {MODES[mode]}" if known and mode in MODES else known or name.replace("_", " ")


def _details(result: StepResult, words: Callable[[str], Words]) -> str:
    evidence = [[f"<td>{broken(_evidence_of(name))}</td>", f"<td>{broken(value)}</td>"] for name, value in result.evidence.items()]
    failed = [q for q in result.quantities if not q.passed]
    noise = list(dict.fromkeys(_named(q, words) for q in result.quantities if q.noise and q.passed))
    sound = [q for q in result.quantities if q.passed and not q.noise]
    sound.sort(key=lambda q: -(q.float64_diff or q.max_abs_diff or 0.0))
    shown = [*failed, *sound][:SHOWN]
    head = ("quantity", "verdict", "mean abs diff", "float32", "noise floor", "exact mode", "reason")
    classes = ["fine" if q.passed else "wrong" for q in shown]
    what = f"{len(failed)} failed" if failed else "the largest differences"
    problems = "".join(f'<p><strong class="bad">{escape(problem)}</strong></p>' for problem in result.problems)
    more = len(failed) + len(sound) - len(shown)
    return (
        ('<details class="fine">' if result.passed else "<details>")
        + f"<summary>Step {result.step}, {escape(result.name)}: evidence, and {what}</summary>"
        + problems
        + (table(("evidence", "value"), evidence, f"Evidence of step {result.step}") if evidence else "")
        + table(head, [_quantity(q, words) for q in shown], f"Quantities of step {result.step}", classes)
        + (f'<p class="note">and {more} more with smaller differences, in alignment.json</p>' if more else "")
        + (f'<p class="note">{NOTE}: {escape("; ".join(noise))}</p>' if noise else "")
        + "</details>"
    )


def _named(q: Quantity, words: Callable[[str], Words]) -> str:
    """What was compared, and in which pass."""
    return ", ".join(filter(None, words(q.name)))


def _quantity(q: Quantity, words: Callable[[str], Words]) -> list[str]:
    figures = (q.mean_abs_diff, q.port_error, q.reference_error, q.float64_diff)
    return [
        f"<td>{broken(_named(q, words))}</td>",
        _verdict("passed" if q.passed else "FAILED"),
        *[f'<td class="n">{number(value)}</td>' for value in figures],
        f'<td class="w">{broken(q.reason)}</td>',
    ]


def _culprits(localization: Localization) -> set[str]:
    """Every place of every mistake that was found and not accepted."""
    return {place for one in _wrong(localization) for place in one.places}


_SOUND = "right, given the reference's own input"


def _own(row: LayerRow) -> bool:
    """Whether a module computes wrongly from the reference's own input."""
    return row.own is not None and not row.own <= max(tolerance.EXACT_RTOL, tolerance.FLOOR_FACTOR * row.floor)


def _layers(localization: Localization) -> str:
    layers = localization.layers
    if not layers:
        return ""
    wrong = _culprits(localization)
    rows = [
        [
            *[f"<td>{broken(words)}</td>" for words in (row.phase, row.name or "(model)", row.kind)],
            f'<td class="n">{number(row.difference)}</td>',
            f'<td class="n">{row.cosine:.7f}</td>',
            *[f'<td class="n">{number(value)}</td>' for value in (row.max_abs, row.floor, row.own)],
        ]
        for row in layers
    ]
    head = ("phase", "module", "kind", "relative L2", "cosine", "maximum", "noise floor", "own mistake")
    summary = f"All {len(layers)} modules, in the order of computation, in float64"
    classes = ["wrong" if row.name in wrong else "" if _apart(row) else "fine" for row in layers]
    return f"<details><summary>{summary}</summary>{table(head, rows, 'All modules', classes)}</details>"


def _apart(row: LayerRow) -> bool:
    """Whether a module's output is further off than rounding in float64."""
    return not row.difference <= max(tolerance.EXACT_RTOL, tolerance.FLOOR_FACTOR * row.floor)


def _about(about: dict[str, Any]) -> str:
    command = about.pop("command", "")
    copied = f"<p>To run it again:</p><pre>{escape(command)}</pre>" if command else ""
    rows = [[f"<td>{escape(name)}</td>", f"<td>{broken(value)}</td>"] for name, value in about.items()]
    return f"<details><summary>What was run, and on what</summary>{copied}{table(('', ''), rows, 'Versions and flags')}</details>"


# --- pictures --------------------------------------------------------------------------------------------------------------


def _charts(context: Context, results: Sequence[StepResult], localization: Localization) -> list[str]:
    """All charts, those in which something failed first."""
    port, reference = context.titles()
    wrong = _culprits(localization)
    charts: list[tuple[bool, str]] = []
    for phase, title in (("forward", "Output of every module"), ("backward", "Gradient of every module's output")):
        rows = [row for row in localization.layers if row.phase == phase]
        if rows:
            series = [
                Series(f"{port} against {reference}", [row.difference for row in rows], colour=EXACT, dashed=False),
                Series("noise floor (one ulp)", [row.floor for row in rows], colour=REFERENCE, dashed=True),
            ]
            for name, wanted, colour in ((_SOUND, False, SOUND), ("own mistake", True, MISTAKE)):
                own = [row.own if row.own is not None and _own(row) == wanted else None for row in rows]
                if any(value is not None for value in own):
                    series.append(Series(name, own, dots=True, colour=colour))
            places = [row.name or "(model)" for row in rows]
            at = [i for i, row in enumerate(rows) if row.name in wrong]
            drawing = chart(f"{title}, float64", places, series, mark=tolerance.EXACT_RTOL, culprits=at)
            charts.append((any(_apart(row) for row in rows), drawing))
    for title, drawn in panels(results):
        series = [
            Series(f"{port} float32 against the truth", [q.port_error for _, q in drawn], colour=PORT, dashed=False),
            Series("noise floor of the reference", [q.reference_error for _, q in drawn], colour=REFERENCE, dashed=True),
            Series(f"{port} against {reference}, exact mode", [q.float64_diff for _, q in drawn], colour=EXACT, dashed=False),
        ]
        if any(not q.passed for _, q in drawn):
            series.append(Series("differs by more than the bound", failures(drawn), dots=True, colour=DIFFERS))
        at = [i for i, (name, q) in enumerate(drawn) if not q.passed and page_cards.around(name, wrong)]
        drawing = chart(title, [name for name, _ in drawn], series, mark=tolerance.EXACT_RTOL, culprits=at)
        charts.append((any(not q.passed for _, q in drawn), drawing))
    for result in results:
        if result.curves:
            charts += [(result.failed, drawing) for drawing in _curves(context, result.curves)]
    return [drawing for _, drawing in sorted(charts, key=lambda one: not one[0])]


def _curves(context: Context, curves: Curves) -> list[str]:
    port, reference = context.titles()
    ours, theirs, envelope = curves["port"], curves["reference"], curves["envelope"]
    places = [str(i) for i in range(len(theirs["float32"]))]
    losses = [
        Series(reference, theirs["float32"].tolist(), colour=REFERENCE, dashed=False),
        Series(port, ours["float32"].tolist(), colour=PORT, dashed=True),
    ]
    diverged = []
    for bits, name, colour in (("float32", "float32", PORT), ("float64", "exact mode", EXACT)):
        difference = abs(ours[bits] - theirs[bits]) / abs(theirs[bits])
        diverged.append(Series(f"{port} against {reference}, {name}", difference.tolist(), colour=colour, dashed=False))
        itself = f"{reference} against itself, one ulp apart, {name}"
        diverged.append(Series(itself, envelope[bits].tolist(), colour=REFERENCE, dashed=True))
    return [
        chart("Step 6: training loss on digits", places, losses, logarithmic=False, across="update"),
        chart("Step 6: relative difference of the loss", places, diverged, across="update"),
    ]
