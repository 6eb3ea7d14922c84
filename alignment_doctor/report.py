"""What an examination leaves: a table, JSON, and one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alignment.report.environment import machine, versions
from alignment_doctor.findings import SHOWN, Finding, Verdict
from mobilenetv3_common.drawing import STYLE, escape, table
from mobilenetv3_common.errors import shown
from mobilenetv3_common.files import atomic_open

ON_THE_PAGE = 50  # places of a finding
_CLASSES = {Verdict.FOUND: "bad", Verdict.NONE: "good", Verdict.NOT_APPLICABLE: ""}
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
    """

    command: str
    subject: str
    findings: Sequence[Finding]
    facts: dict[str, Any] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    top: Sequence[Section] = ()

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
        if self.problems:
            return f"{len(self.problems)} problem(s) found in {self.subject} by {ran} checks{rest}."
        return f"No problem found in {self.subject} by {ran} checks{rest}."


def text(examination: Examination) -> str:
    """The table, then each problem with its places and what to do."""
    rows = [("check", "item", "verdict", "measured")]
    rows += [
        (one.check.id, ", ".join(one.check.items), one.outcome.verdict.value, one.outcome.measured) for one in examination.findings
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in [*widths, 8]))
    for one in examination.problems:
        lines += ["", *problem(one)]
    if examination.problems:
        lines += ["", "what a check means, an example and how to fix it: docs/checks/NAME.md, in Chinese docs/checks/zh/NAME.md"]
    notes = [f"note: {line}" for line in examination.notes]
    return "\n".join([*lines, "", *notes, examination.verdict()])


def problem(finding: Finding) -> list[str]:
    """A problem as the terminal shows it: what was measured, its places, and what to do."""
    places, rest = finding.outcome.where[:SHOWN], len(finding.outcome.where) - SHOWN
    more = [f"  ... and {rest} more"] if rest > 0 else []
    return [
        f"{finding.check.id}: {finding.outcome.measured}",
        *(f"  {place}" for place in places),
        *more,
        f"  what to do: {finding.check.fix}",
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
                "fix": one.check.fix,
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
        f'<h2 id="checks">Checks</h2>{_checks(examination.findings)}',
        *[f"<p>{escape(line)}</p>" for line in examination.notes],
        *[f"<h2>{escape(section.title)}</h2>{section.html}" for section in examination.sections],
        f"<h2>What was run</h2>{table(('', ''), about_rows, 'Versions')}",
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _problem(one: Finding) -> str:
    places = one.outcome.where[:ON_THE_PAGE]
    more = len(one.outcome.where) - len(places)
    where = "<br>".join(escape(place) for place in places) + (f"<br>... and {more} more" if more else "")
    rows = [("Measured", escape(one.outcome.measured)), ("Where", where), ("What to do", escape(one.check.fix))]
    items = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value)
    return f'<h2>{escape(one.check.id)}</h2><dl class="place">{items}</dl>'


def _checks(findings: Sequence[Finding]) -> str:
    rows = [
        [
            f"<td>{escape(one.check.id)}</td>",
            f"<td>{escape(', '.join(one.check.items))}</td>",
            f"<td>{escape(one.check.measures)}</td>",
            f'<td class="{_CLASSES[one.outcome.verdict]}">{escape(one.outcome.verdict.value)}</td>',
            f"<td>{escape(one.outcome.measured)}</td>",
        ]
        for one in findings
    ]
    return table(("check", "item", "what it looks at", "verdict", "measured"), rows, "Checks")


def write(examination: Examination, page_path: Path | None, json_path: Path | None) -> None:
    """Write the page and the JSON file where asked for, each whole or not at all.

    Raises:
        UserError: a file cannot be written.
    """
    if page_path is not None:
        with atomic_open(page_path, "w") as file:
            file.write(shown(page(examination)))
    if json_path is not None:
        with atomic_open(json_path, "w") as file:
            json.dump(as_json(examination), file, indent=1)
            file.write("\n")
