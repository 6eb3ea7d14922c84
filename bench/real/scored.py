"""What counts as detected, located and named, and the table of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from bench.real.audited import FILE, Audit
from bench.real.cases import Case

FIRST = 5  # findings that a reader looks at
NEAR = 1  # lines beside a marked one


@dataclass(frozen=True)
class Outcome:
    """What an audit, and the plain comparison, made of a case.

    Attributes:
        id, held_out: of the case.
        detected: the broken version fails with exit status 1.
        located, named: number of the first finding that points to the true place, or says the cause; None where none does.
        line: number of the first finding whose line is a wrong one.
        silent: the fixed version passes.
        plain: whether the plain comparison sees the broken version.
        verdicts: of the broken and the fixed version.
        first: the first finding as a line.
        alarm: the first finding on the fixed version as a line.
        seconds: of both audits.
    """

    id: str
    held_out: bool
    detected: bool
    located: int | None
    line: int | None
    named: int | None
    silent: bool
    plain: bool
    verdicts: tuple[str, str]
    first: str
    alarm: str
    seconds: float


def outcome(case: Case, wrong: Sequence[int], broken: Audit, fixed: Audit, plain: bool) -> Outcome:
    """The score of a case; ``wrong`` are the numbers of its wrong lines."""
    detected = broken.status == 1
    findings = broken.mistakes[:FIRST] if detected else ()
    lines = [_line(finding, wrong) for finding in findings]
    places = [_place(finding, case) or line for finding, line in zip(findings, lines, strict=True)]
    causes = [_cause(finding, case) for finding in findings]
    return Outcome(
        case.id,
        case.held_out,
        detected,
        _first(places),
        _first(lines),
        _first(causes),
        fixed.status == 0,
        plain,
        (broken.verdict, fixed.verdict),
        said(findings[0]) if findings else "",
        "" if fixed.status == 0 else said(fixed.mistakes[0]) if fixed.mistakes else fixed.verdict,
        round(broken.seconds + fixed.seconds, 2),
    )


def said(finding: dict[str, Any]) -> str:
    """A finding as a line, without the name of the file."""
    text = f"{finding['stage']}: {finding['location']}: {finding['hint'] or 'no known mistake, ' + finding['measured']}"
    return text.replace(FILE + ":", "line ") + (f"; kind {finding['kind']}" if finding["kind"] else "")


def _first(found: Sequence[bool]) -> int | None:
    return found.index(True) + 1 if True in found else None


def _line(finding: dict[str, Any], wrong: Sequence[int]) -> bool:
    """Whether the line to change is a wrong one, or beside one."""
    match = re.fullmatch(re.escape(FILE) + r":(\d+)(?:-(\d+))?", finding.get("source") or "")
    if not match:
        return False
    start = int(match[1])
    end = int(match[2] or start)
    return any(start - NEAR <= line <= end + NEAR for line in wrong)


def _place(finding: dict[str, Any], case: Case) -> bool:
    """Whether a finding points to a true module; the whole model is no place: there the line counts."""
    locations = [finding["location"], *finding.get("also", [])]
    return any(fnmatchcase(location, place) for location in locations for place in case.place if place)


def _cause(finding: dict[str, Any], case: Case) -> bool:
    """Whether a finding's kind or hint has one of the words; names of files and modules do not count."""
    text = f"{finding['kind']} {finding['hint']}".replace(finding["location"], "").replace(FILE, "").lower()
    return any(word in text for word in case.words)


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "0 of 0"


def totals(found: Sequence[Outcome]) -> list[tuple[str, str]]:
    """What is measured, and the figure."""
    n = len(found)
    count = lambda test: sum(bool(test(o)) for o in found)  # noqa: E731
    return [
        ("detected", share(count(lambda o: o.detected), n)),
        ("located by the first finding", share(count(lambda o: o.located == 1), n)),
        (f"located by the first {FIRST}", share(count(lambda o: o.located), n)),
        ("wrong line in the first finding", share(count(lambda o: o.line == 1), n)),
        ("named by the first finding", share(count(lambda o: o.named == 1), n)),
        (f"named by the first {FIRST}", share(count(lambda o: o.named), n)),
        ("located and named by the first finding", share(count(lambda o: o.located == 1 and o.named == 1), n)),
        ("silent on the fixed version", share(count(lambda o: o.silent), n)),
        ("told apart: detected, and silent on the fixed version", share(count(lambda o: o.detected and o.silent), n)),
        ("plain comparison of outputs (allclose, 1e-5)", share(count(lambda o: o.plain), n)),
    ]


def _rank(o: Outcome) -> tuple[int, int, int, str]:
    """Misses first: undetected, then alarms on the fixed version, then not located, then not named."""
    score = 0 if not o.detected else 1 if not o.silent else 2 if not o.located else 3 if not o.named else 4
    return score, o.located or 9, o.named or 9, o.id


def table(cases: Sequence[Case], found: Sequence[Outcome]) -> str:
    """A Markdown table of the cases, misses first."""
    known = {case.id: case for case in cases}
    head = "| case | date | kind | detected | located | named | fixed version | plain | first finding |\n" + "|---" * 9 + "|\n"
    rows = []
    for o in sorted(found, key=_rank):
        case = known[o.id]
        first = (o.first or o.verdicts[0]).replace("|", "\\|")
        cells = [
            f"[{o.id}]({case.link})",
            case.date,
            case.kind,
            "yes" if o.detected else "**no**",
            str(o.located or "**no**"),
            str(o.named or "**no**"),
            "silent" if o.silent else "**alarm**",
            "yes" if o.plain else "no",
            first[:160],
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return head + "\n".join(rows)


def summary(found: Sequence[Outcome]) -> str:
    """The figures of both halves beside each other, as a Markdown table."""
    halves = [[o for o in found if not o.held_out], [o for o in found if o.held_out], list(found)]
    columns = [totals(half) for half in halves]
    rows = [f"| {name} | {columns[0][i][1]} | {columns[1][i][1]} | {figure} |" for i, (name, figure) in enumerate(columns[2])]
    return "| | open half | held-out half | all |\n|---|---|---|---|\n" + "\n".join(rows)
