"""The table of a run, and what is said below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.context import CONVERSION, Context
from alignment.comparisons.result import StepResult, nothing_real, only_nothing_real
from alignment.finding import OF_LINES, Finding, Localization
from alignment.kinds import Kind
from mobilenetv3_common.counted import counted, numbered
from mobilenetv3_common.terminal import verdict as verdict_word

_HEADER = ("step", "compared", "mean abs diff", "guide", "float32 / floor", "exact mode", "seconds", "verdict")


def times(ratio: float) -> str:
    """How many times a floor, for a column."""
    return f"{ratio:.1f} x" if ratio < 1e4 else f"{ratio:.0e} x"


def worst(quantities: Sequence[Quantity], column: str) -> float | None:
    """The largest value of a column; None where no quantity has one."""
    return max((value for q in quantities if (value := getattr(q, column)) is not None), default=None)


def float32_ratio(quantities: Sequence[Quantity]) -> float | None:
    """The largest error of the port's float32 in units of its quantity's noise floor, kink flips and noise left out."""
    counted = [q for q in quantities if q.port_error is not None and q.reference_error and not q.flips and not q.noise]
    return max((q.port_error / q.reference_error for q in counted if q.port_error is not None and q.reference_error), default=None)


def exact_difference(result: StepResult) -> float | None:
    """The largest relative L2 difference in exact mode, quantities that are zero but for rounding left out."""
    return exact_of(result.quantities)


def exact_of(quantities: Sequence[Quantity]) -> float | None:
    """The same of some quantities."""
    return worst([q for q in quantities if not q.noise], "float64_diff")


def table(results: Sequence[StepResult], width: int = 80, reasons: bool = True) -> str:
    """One row a step; of a step that was not run, the row says so. Verdicts have a colour on a terminal.

    Args:
        results: of the steps.
        width: columns of the terminal; headings are broken, and gaps narrower, to fit it.
        reasons: say below it what was not run.
    """
    rows = [_HEADER]
    for result in results:
        name = f"{result.step} {result.name}"
        if not result.ran:
            rows.append((name, "-", "-", "-", "-", "-", "-", result.verdict))
            continue
        headline = _headline(result)
        threshold = tolerance.GUIDE_THRESHOLDS.get(result.name)
        rows.append(
            (
                name,
                str(len(result.quantities)),
                _number(headline),
                "-" if headline is None or threshold is None else _guide_verdict(result, headline, threshold),
                "-" if (ratio := float32_ratio(result.quantities)) is None else times(ratio),
                _number(exact_difference(result)),
                f"{result.seconds:.1f}",
                result.verdict,
            )
        )
    headings = [_two_lines(cell) for cell in rows.pop(0)]
    cells = [tuple(heading[line] for heading in headings) for line in (0, 1)] + rows
    gap = 2
    if _width(cells, gap) > width:
        cells = [tuple(cell.replace("<= ", "<=") for cell in row) for row in cells]
    if _width(cells, gap) > width:
        gap = 1
    widths = _widths(cells)

    def line(row: Sequence[str]) -> str:
        padded = [cell.ljust(wide) for cell, wide in zip(row[:-1], widths[:-1], strict=True)]
        return (" " * gap).join([*padded, verdict_word(row[-1])]).rstrip()

    lines = [line(row) for row in cells]
    lines.insert(2, (" " * gap).join("-" * wide for wide in widths))
    return "\n".join([*lines, *(not_run(results) if reasons else [])])


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]


def _width(cells: Sequence[Sequence[str]], gap: int) -> int:
    return sum(_widths(cells)) + gap * (len(cells[0]) - 1)


def _two_lines(heading: str) -> tuple[str, str]:
    """A heading of several words on two lines, as narrow as they can be."""
    words = heading.split()
    ways = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words) + 1)]
    return min(reversed(ways), key=lambda way: max(map(len, way)))


def not_run(results: Sequence[StepResult]) -> list[str]:
    """One line for each step that was not run, or only in part, every reason once; and for each that is older than the source."""
    said: dict[int, tuple[str, list[str]]] = {}
    for result in results:
        name, reasons = said.setdefault(result.step, (result.name, []))
        new = [reason for reason in filter(None, result.not_run.split("; ")) if reason not in reasons]
        if new and result.name != name and not new[0].startswith(result.name):
            new[0] = f"{result.name}: {new[0]}"
        reasons += new
    ran = {result.step for result in results if result.ran}
    return [
        f"step {step} {name}{', in part not run' if step in ran else ': not run'}: {'; '.join(reasons)}"
        for step, (name, reasons) in said.items()
        if reasons
    ] + [before for result in results if (before := older(result))]


def older(result: StepResult) -> str:
    """That a step of an earlier run is older than the source, and what to do; empty where it is not."""
    if not result.changed:
        return ""
    first, *more = result.changed
    files = f"{first} and {counted(len(more), 'other file')} were" if more else f"{first} was"
    return f"step {result.step} {result.name} was run before {files} changed: run it again (--steps {result.step})"


def _guide_verdict(result: StepResult, headline: float, threshold: float) -> str:
    if any(row.name.startswith("witness.") and not row.passed for row in result.quantities):
        return "-"  # both sides share the mistake: that they agree says nothing
    undecided = result.name == "train" and result.passed  # by the seeds: see judge_accuracies
    return f"<= {threshold:g} {'yes' if headline <= threshold else 'undecided' if undecided else 'no'}"


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


# --- the verdict -----------------------------------------------------------------------------------------------------------


def passed(results: Sequence[StepResult]) -> bool:
    """Whether every step that was run passed, and at least one was run."""
    return any(result.ran for result in results) and not any(result.failed for result in results)


def verdict(context: Context, results: Sequence[StepResult], every: Sequence[int]) -> str:
    """One sentence: what the run says of the port, and which steps that rests on.

    Args:
        context: the two sides.
        results: of the steps that were asked for.
        every: the numbers of all steps.
    """
    port, reference = context.titles()
    model = context.model
    if only_nothing_real(results):
        return f"Nothing real was compared: these weights cannot show whether the {port} {model} is the {reference} {model}."
    if not passed(results):
        return f"The {port} {model} is not the {reference} {model}."
    ran = list(dict.fromkeys(result.step for result in results if result.ran and result.step))
    recipe = f", trained by {context.recipe_name}" if context.recipe is not None else ""
    if ran == list(every) and not any(result.not_run or result.changed for result in results):
        return f"The {port} {model} is the {reference} {model}{recipe}."
    rest = "run the older ones again" if any(map(older, results)) else "the others were not run"
    return f"Passed{recipe}, as far as {steps_in_words(results)} can tell; {rest}."


def steps_in_words(results: Sequence[StepResult]) -> str:
    """The steps that a verdict rests on: ``steps 1, 5 (in part), 6 (older than the source)``."""
    parts: dict[int, str] = {}
    for result in results:
        if result.ran:
            part = " (older than the source)" if result.changed else " (in part)" if result.not_run else ""
            parts[result.step] = parts.get(result.step) or part
    return numbered("step", [f"{step}{part}" for step, part in parts.items()])


def notes(context: Context, audited: bool) -> list[str]:
    """The notes on what the verdict rests on; in an audit the conversion stands under what was not checked, with its command."""
    return [note for note in context.notes() if not (audited and note.startswith(CONVERSION))]


def also(places: Sequence[str], most: int = 3) -> str:
    """The further places of a mistake, for people."""
    more = len(places) - most
    return f", and also {', '.join(places[:most])}{f' and {more} more' if more > 0 else ''}" if places else ""


def mistakes(localization: Localization) -> list[str]:
    """All mistakes, where the search went on behind the first; and how far it came."""
    lines = []
    wrong = [one for one in localization.every if not one.accepted]
    if len(wrong) == 1:
        places = f"{also(wrong[0].also).removeprefix(', and ')}; " if wrong[0].also else ""
        lines.append(f"  {places}the only one found; {kind_and_source(wrong[0])}")
    elif wrong:
        lines.append(f"{len(wrong)} mistakes, each found with the earlier ones fixed in memory:")
        for number, one in enumerate(wrong, start=1):
            lines.append(f"  {number}. {with_kind(one)}")
    return lines + [f"  {remark}" for remark in localization.remarks]


def with_kind(finding: Finding) -> str:
    """A finding in one line, which says its line of the source once."""
    said = replace(finding, hint=words_beside_line(finding))
    return f"{said.line()}{also(finding.also)}; {kind_and_source(finding)}"


def kind_and_source(finding: Finding) -> str:
    """What a mistake is called, the port's own name of its place where that is another, and the line of the port, for people."""
    own = f", {finding.own} in the port" if finding.own else ""
    return f"kind: {finding.kind or 'unknown'}{own}" + (f", {led_by(finding)} {source_of(finding)}" if finding.source else "")


def led_by(finding: Finding) -> str:
    """What is to be done at a finding's line."""
    if finding.kind is Kind.LAYER_MISSING:
        return "add it near"
    return "line to change:" if finding.kind and finding.stage in OF_LINES else "see"


def words_beside_line(finding: Finding) -> str:
    """What a finding says, where its line stands beside it: without that line in front of a part of it."""
    return finding.hint.replace(f"{finding.source}: ", "", 1) if finding.source else finding.hint


def source_of(finding: Finding) -> str:
    """The line to change, and the helpers that hand the wrong value on."""
    return f"{finding.source} (via {finding.via})" if finding.via else finding.source


NEXT = "correct it there, and run this command again: a mistake behind this one shows only then"


def explanation(results: Sequence[StepResult], localization: Localization) -> list[str]:
    """What failed, one line each, the place of the first mistake first; empty where all passed."""
    lines = [line] if (line := nothing_real(results)) else []
    if localization.first is not None:
        lines.append(f"first divergence: {localization.first.line()}")
        if localization.first.source and not localization.every:
            lines += [f"  {kind_and_source(localization.first)}", f"  next: {NEXT}"]
    lines += mistakes(localization)
    for result in results:
        failed = [q for q in result.quantities if not q.passed]
        lines += [f"  {q.name}: {q.reason}" for q in failed[:5]]
        if len(failed) > 5:
            lines.append(f"  ... and {len(failed) - 5} more in step {result.name}")
        lines += [f"  {result.name}: {problem}" for problem in result.problems]
    return lines
