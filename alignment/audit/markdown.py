"""An audit as a Markdown block, for a pull request: what was compared, on what, and what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alignment import tolerance
from alignment.aligned import Aligned
from alignment.comparisons.context import Context
from alignment.comparisons.rows import failed_rows
from alignment.finding import Finding
from alignment.report import table
from alignment.report.environment import versions
from alignment.report.sections import is_sentence

SHOWN = 10  # lines of what failed


def block(context: Context, aligned: Aligned, every: Sequence[int], command: str, about: Mapping[str, str]) -> str:
    """The text.

    Args:
        context: the two sides.
        aligned: what came of them.
        every: the numbers of all steps.
        command: that made it.
        about: further rows of the environment: machine, commit, digests.
    """
    sections = aligned.sections
    lines = [f"### {sections.verdict if sections else table.verdict(context, aligned.results, every)}", "", *_found(aligned)]
    lines += ["| step | compared | float32 / floor | exact mode | verdict |", "|---|---|---|---|---|"]
    for result in aligned.results:
        ratio, exact = table.float32_ratio(result.quantities), table.exact_difference(result)
        numbers = "-" if ratio is None else table.times(ratio), "-" if exact is None else f"{exact:.1e}"
        lines.append(
            f"| {result.step} {result.name} | {len(result.quantities) or '-'} | {' | '.join(numbers)} | {result.verdict} |"
        )
    bounds = f"{tolerance.FLOOR_FACTOR:g} x the reference's own float32 noise; {tolerance.EXACT_RTOL:.0e} in float64"
    lines += ["", f"(Bounds: {bounds}.)", *_failed(context, aligned)]
    unchecked = [one.line() for one in sections.unchecked] if sections else table.not_run(aligned.results)
    lines += _listed("Not checked", unchecked) + _listed("Notes", table.notes(context, sections is not None))
    lines += ["", "<details><summary>Environment</summary>", "", f"`{command}`", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_plain(value)} |" for name, value in {**about, **versions()}.items() if value]
    return "\n".join([*lines, "", "</details>", ""])


def _found(aligned: Aligned) -> list[str]:
    """The mistakes, and the known differences of the frameworks."""
    sections, first, lines = aligned.sections, aligned.localization.first, []
    if first is not None:  # with --strict a known difference may be the first
        lines += [f"**First {'difference' if sections and not sections.mistakes else 'mistake'}:** {_plain(first.line())}", ""]
    wrong = sections.mistakes if sections else []
    if len(wrong) > 1:
        lines += [*_rows(wrong), ""]
    for number, one in enumerate(wrong):
        if sections and (card := sections.card(number)):
            own = f" (`{one.own}` in the port)" if one.own else ""
            place = f"{number + 1}. `{one.location}`{own}"
            changed = any(line[:1] in "+-" for line in card if line)  # else the lines are shown as they are, and no diff
            fenced = ["", f"```{'diff' if changed else 'text'}", *card, "```", ""]
            lines += [f"{place}: {_plain(card[0])}.", ""] if is_sentence(card) else [place if changed else f"{place}:", *fenced]
    remarks = [*sections.patch, *sections.remarks] if sections else aligned.localization.remarks
    lines += [*(f"- {_plain(remark)}" for remark in remarks), ""] if remarks else []
    if sections and sections.next:
        lines += [f"**Next:** {_plain(sections.next)}.", ""]
    if sections and sections.known_lines:
        lines += [f"**{sections.known_title()}**", "", *(f"- {_plain(line)}" for line in sections.known_lines), ""]
    return lines


def _rows(wrong: Sequence[Finding]) -> list[str]:
    """The table of mistakes; those that say the same, of one line, are one row."""
    together: dict[tuple[str, ...], list[tuple[int, Finding]]] = {}
    for number, one in enumerate(wrong, start=1):
        said = str(one.kind) or "-", table.words_beside_line(one) or "no known mistake", table.source_of(one) or "-"
        together.setdefault(said if one.hint and one.source else (*said, str(number)), []).append((number, one))
    lines = ["| | place | kind | what | line |", "|---|---|---|---|---|"]
    for told, alike in together.items():
        place, *others = [place for _, one in alike for place in one.places]
        cells = f"{place}{table.also(others)}", *told[:3]
        lines.append(f"| {', '.join(str(number) for number, _ in alike)} | {' | '.join(_plain(cell) for cell in cells)} |")
    return lines


def _failed(context: Context, aligned: Aligned) -> list[str]:
    failed = [_plain(line) for result in aligned.results for line in failed_rows(context, result.quantities)]
    failed += [f"{result.name}: {_plain(problem)}" for result in aligned.results for problem in result.problems]
    more = [f"- and {len(failed) - SHOWN} more"] if len(failed) > SHOWN else []
    return ["", "What failed:", "", *(f"- {line}" for line in failed[:SHOWN]), *more] if failed else []


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", "", *(f"- {_plain(line)}" for line in lines)] if lines else []


def _plain(text: str) -> str:
    """Text that no Markdown table or list takes apart."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
