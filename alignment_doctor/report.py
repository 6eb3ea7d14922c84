"""What an examination leaves: a table, JSON, and one page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alignment.report.environment import machine, versions
from alignment_doctor.findings import SHOWN, Finding, Verdict
from mobilenetv3_common.called import as_called
from mobilenetv3_common.counted import counted
from mobilenetv3_common.drawing import STYLE, escape, table
from mobilenetv3_common.errors import shown
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.json_output import Outputs
from mobilenetv3_common.terminal import paint

ON_THE_PAGE = 50  # places of a finding
COLUMNS = 80  # of the table on a terminal
_COLOURS = {Verdict.FOUND.value: "red", Verdict.NONE.value: "green"}
_CLASSES = {Verdict.FOUND: "bad", Verdict.NONE: "good", Verdict.NOT_APPLICABLE: ""}
_GROUPS = {
    Verdict.FOUND: "found a problem",
    Verdict.NONE: "found none",
    Verdict.NOT_APPLICABLE: "not applicable, and why",
}
_KEPT_OPEN = 1  # sections below the problems that are not folded
_OWN_STYLE = """
.sheet{display:flex;flex-wrap:wrap;gap:.5rem}.sheet figure{margin:0;width:7rem}.sheet img{width:100%;image-rendering:pixelated}
.sheet figcaption{overflow-wrap:anywhere}
"""


@dataclass(frozen=True)
class Section:
    """A part of the page below the findings: a heading, and HTML that holds no text of strangers unescaped."""

    title: str
    html: str


@dataclass(frozen=True)
class Examination:
    """What one sub-command found.

    Attributes:
        command: its name.
        subject: what was examined, e.g. a folder.
        findings: of all checks.
        facts: what was counted besides, for the JSON file.
        sections: the rest of the page.
        notes: lines that are said below the table.
        top: parts of the page that come before the findings.
        brief: whether the table on a terminal counts the checks without a problem by their kind, and lists the others alone.
    """

    command: str
    subject: str
    findings: Sequence[Finding]
    facts: dict[str, Any] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    top: Sequence[Section] = ()
    brief: bool = False

    @property
    def problems(self) -> list[Finding]:
        return [one for one in self.findings if one.is_problem]

    @property
    def status(self) -> int:
        """The command's exit status: 1 where there is a problem, else 0."""
        return 1 if self.problems else 0

    def verdict(self) -> str:
        """One sentence."""
        ran = sum(one.outcome.verdict is not Verdict.NOT_APPLICABLE for one in self.findings)
        left = len(self.findings) - ran
        rest = f"; {left} not applicable" if left else ""
        unjudged = [f"{one.outcome.unjudged} ({one.outcome.measured})" for one in self.findings if one.outcome.unjudged]
        rest += f"; not judged: {', '.join(unjudged)}" if unjudged else ""
        if self.problems:
            return f"{counted(len(self.problems), 'problem')} found in {self.subject} by {counted(ran, 'check')}{rest}."
        return f"No problem found in {self.subject} by {counted(ran, 'check')}{rest}."


def text(examination: Examination) -> str:
    """The table, then each problem with its places, what to do and where it is explained; in colour on a terminal."""
    rows = _counted_rows(examination) if examination.brief else [_row(one) for one in examination.findings]
    first, second = (max(len(row[column]) for row in [*rows, ("check", "verdict", "")]) for column in (0, 1))
    left = first + second + 4
    lines = [f"{'check'.ljust(first)}  {'verdict'.ljust(second)}  measured", f"{'-' * first}  {'-' * second}  {'-' * 8}"]
    for name, verdict, measured in rows:
        folded = textwrap.wrap(measured, max(COLUMNS - left, 20), break_long_words=False, break_on_hyphens=False) or [""]
        said = paint(verdict.ljust(second), _COLOURS[verdict]) if verdict in _COLOURS else verdict.ljust(second)
        lines += [f"{name.ljust(first)}  {said}  {folded[0]}", *(f"{' ' * left}{more}" for more in folded[1:])]
    for one in examination.problems:
        head, *rest = problem(one)
        lines += ["", paint(head, "red"), *rest, f"  explained with an example: {where_explained(one.check.id)}"]
    if examination.problems:
        lines += ["", "These pages are in Chinese in the folder zh beside them."]
    notes = [f"note: {line}" for line in examination.notes]
    return "\n".join([*lines, "", *notes, paint(examination.verdict(), "red" if examination.problems else "green")])


def _row(one: Finding) -> tuple[str, str, str]:
    return one.check.id, one.outcome.verdict.value, one.outcome.measured


def _counted_rows(examination: Examination) -> list[tuple[str, str, str]]:
    """Of every kind of checks the problems, and a row that counts the others; all of the examination's own kind."""
    rows = []
    for kind in dict.fromkeys(one.check.id.partition(".")[0] for one in examination.findings):
        own = [one for one in examination.findings if one.check.id.startswith(f"{kind}.")]
        shown_whole = [one for one in own if one.is_problem or kind == examination.command]
        rows += [_row(one) for one in shown_whole]
        none = sum(one.outcome.verdict is Verdict.NONE for one in own if one not in shown_whole)
        left = len(own) - len(shown_whole) - none
        said = [*([counted(none, "check")] if none else []), *([f"{left} not applicable"] if left else [])]
        verdict = Verdict.NONE if none else Verdict.NOT_APPLICABLE
        rows += [(f"{kind}.*", verdict.value, "; ".join(said))] if said else []
    return rows


def where_explained(id: str) -> str:
    """The page of a check, as a path from the working folder where it is below it; it is a part of the package, too."""
    page = explanation(id)
    return str(page.relative_to(Path.cwd())) if page.is_relative_to(Path.cwd()) else str(page)


def explanation(id: str) -> Path:
    """The file in which a check is explained: of the checkout, or of the installed package."""
    inside = Path(__file__).parent / "pages"
    return (inside if inside.is_dir() else Path(__file__).parents[1] / "docs" / "checks") / f"{id}.md"


def problem(finding: Finding) -> list[str]:
    """A problem as the terminal shows it: what was measured, its places, and what to do."""
    places, rest = finding.outcome.where[:SHOWN], len(finding.outcome.where) - SHOWN
    more = [f"  ... and {rest} more"] if rest > 0 else []
    return [
        f"{finding.check.id}: {finding.outcome.measured}",
        *(f"  {place}" for place in places),
        *more,
        f"  what to do: {finding.fix}",
    ]


def as_json(examination: Examination) -> dict[str, Any]:
    """Everything, as JSON values."""
    return {
        "command": examination.command,
        "subject": examination.subject,
        "problems": len(examination.problems),
        "verdict": examination.verdict(),
        "checks": [
            {
                "id": one.check.id,
                "items": list(one.check.items),
                "measures": one.check.measures,
                "verdict": one.outcome.verdict.value,
                "measured": one.outcome.measured,
                "where": list(one.outcome.where),
                "fix": one.fix,
            }
            for one in examination.findings
        ],
        "facts": examination.facts,
        "notes": list(examination.notes),
        "versions": versions(),
    }


def page(examination: Examination) -> str:
    """One HTML file that opens from disk."""
    good = not examination.problems
    title = f"Doctor: {examination.command} of {examination.subject}"
    about = {"examined": examination.subject, **machine(), **versions()}
    about_rows = [[f"<td>{escape(name)}</td>", f"<td>{escape(value)}</td>"] for name, value in about.items()]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{STYLE}{_OWN_STYLE}</style></head><body>',
        f'<a class="skip" href="#checks">Skip to the checks</a><main><h1>{escape(title)}</h1>',
        f'<p class="verdict {"good" if good else "bad"}" role="status">{escape(examination.verdict())}</p>',
        *[f"<h2>{escape(section.title)}</h2>{section.html}" for section in examination.top],
        *[_problem(one) for one in examination.problems],
        *[f"<p>{escape(line)}</p>" for line in examination.notes],
        *[_folded(section, number <= _KEPT_OPEN) for number, section in enumerate(examination.sections, start=1)],
        f'<h2 id="checks">Checks</h2>{_checks(examination.findings)}',
        f"<details><summary>What was run, and on what</summary>{table(('', ''), about_rows, 'Versions')}</details>",
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _folded(section: Section, seen: bool) -> str:
    title = escape(section.title)
    if seen:
        return f"<h2>{title}</h2>{section.html}"
    return f'<details><summary class="h2">{title}</summary>{section.html}</details>'


def _problem(one: Finding) -> str:
    places = one.outcome.where[:ON_THE_PAGE]
    more = len(one.outcome.where) - len(places)
    lines = [*map(escape, places), *([f"... and {more} more"] if more else [])]
    where = "<br>".join(lines[:SHOWN])
    if lines[SHOWN:]:
        where += f"<details><summary>{len(lines) - SHOWN} more lines</summary>{'<br>'.join(lines[SHOWN:])}</details>"
    rows = [("Measured", escape(one.outcome.measured)), ("Where", where), ("What to do", escape(one.fix))]
    items = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value)
    return f'<h2>{escape(one.check.id)}</h2><dl class="place">{items}</dl>{_explained(one.check.id)}'


def _explained(id: str) -> str:
    """The whole page of a check, folded: this page is read where no documents are."""
    page = explanation(id)
    if not page.is_file():
        return ""
    title = "What this check means, an example, and how to fix it"
    said = escape(as_called(page.read_text(encoding="utf-8").strip()))
    return f"<details><summary>{title}</summary><pre>{said}</pre></details>"


def _checks(findings: Sequence[Finding]) -> str:
    """The checks that found a problem; below, folded, those that found none and those that do not apply."""
    parts = []
    for verdict, words in _GROUPS.items():
        some = [one for one in findings if one.outcome.verdict is verdict]
        if not some:
            continue
        rows = [
            [
                f"<td>{escape(one.check.id)}</td>",
                f'<td class="{_CLASSES[verdict]}">{escape(verdict.value)}</td>',
                f"<td>{escape(one.outcome.measured)}</td>",
                f'<td class="w">{escape(one.check.measures)}</td>',
                f"<td>{escape(', '.join(one.check.items))}</td>",
            ]
            for one in some
        ]
        drawn = table(("check", "verdict", "measured", "what it looks at", "item"), rows, f"Checks: {words}")
        seen = verdict is Verdict.FOUND
        parts.append(drawn if seen else f"<details><summary>{len(some)} {words}</summary>{drawn}</details>")
    return "".join(parts)


def write(examination: Examination, page_path: Path | None, outputs: Outputs) -> None:
    """Write the page and JSON where asked for, each file whole or not at all.

    Raises:
        UserError: a file cannot be written.
    """
    if page_path is not None:
        with atomic_open(page_path, "w") as file:
            file.write(shown(page(examination)))
    outputs.write(as_json(examination))
