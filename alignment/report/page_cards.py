"""The cards of mistakes as the page has them: place, line, words, figure, correction, and where along the network it shows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from alignment.finding import Finding
from alignment.report.sections import is_sentence
from alignment.report.table import led_by, source_of, words_beside_line
from mobilenetv3_common.counted import counted
from mobilenetv3_common.drawing import broken, escape, strip

OPEN = 3  # cards that are not folded
STYLE = """
.card{border:1px solid var(--line);border-left:.4rem solid var(--bad);background:var(--card);padding:.3rem 1rem .4rem;
margin:.6rem 0}
.card h3{font-size:1rem;margin:.2rem 0;overflow-wrap:anywhere}.card p{margin:.2rem 0;overflow-wrap:anywhere}
.card pre{border:0;padding:.3rem 0;margin:.3rem 0;font-size:.8125rem;line-height:1.35;background:none;max-height:20rem;
overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere}
@media (max-width:40rem){.card{padding:.3rem .6rem .4rem}.card~.card .strip figcaption{display:none}
.card pre{max-height:none;font-size:.75rem}}
.card .out{color:var(--bad)}.card .in{color:var(--good)}.card .strip{margin:.3rem 0 0}.card .strip svg{height:2.2rem}
.card summary{font-size:.875rem}
"""

Rows = Sequence[tuple[str, float | None]]


def around(name: str, places: set[str]) -> bool:
    """Whether a block or a tensor holds one of the places, or lies in it."""
    return any(f"{place}.".startswith(f"{name}.") or f"{name}.".startswith(f"{place}.") for place in places)


def cards(mistakes: Sequence[Finding], lines: Sequence[Sequence[str]], rows: Rows) -> str:
    """A card for each mistake; the first three are open.

    Args:
        mistakes: in the order in which they were found.
        lines: the port's own lines of each, with the correction as a diff where one is known; may be shorter.
        rows: name and difference of what was compared along the network, for the small chart. It is of the port as it is, with
            all its mistakes.
    """
    made = [
        _card(number, one, lines[number - 1] if number <= len(lines) else (), rows) for number, one in enumerate(mistakes, start=1)
    ]
    folded = made[OPEN:]
    more = f"<details><summary>{counted(len(folded), 'further mistake')}</summary>{''.join(folded)}</details>" if folded else ""
    return "".join(made[:OPEN]) + more


def _card(number: int, one: Finding, lines: Sequence[str], rows: Rows) -> str:
    own = f" ({one.own} in the port)" if one.own else ""
    name = f"{number}. {one.kind.words} at {one.location or '(the whole model)'}{own}"
    others = f"<p>The same at {broken(', '.join(one.also))}.</p>" if 0 < len(one.also) <= 3 else ""
    if len(one.also) > 3:
        others = f"<details><summary>The same at {len(one.also)} more places</summary>{broken(', '.join(one.also))}</details>"
    lead = led_by(one)
    where = f" <strong>{lead[0].upper()}{lead[1:]} {broken(source_of(one))}.</strong>" if one.source else ""
    what = broken(words_beside_line(one) or "no known mistake matches")
    drawn = _strip(one, rows, number == 1)
    return (
        f'<article class="card"><h3>{broken(name)}</h3><p>{what}.{where}</p>{_source(lines)}'
        f'<p class="note">Measured in step {escape(one.stage)}: {broken(one.measured)}.</p>{others}{drawn}</article>'
    )


def _source(lines: Sequence[str]) -> str:
    """The lines of a card, those taken out in red and those put in in green."""
    if is_sentence(lines):
        return f"<p>{broken(' '.join(lines))}.</p>"
    kinds = {"-": "out", "+": "in", ">": "out"}
    if any(line[:1] in "+-" for line in lines if line):  # a diff without the indent that all its lines have: a phone is narrow
        bare = textwrap.dedent("\n".join(line[1:] for line in lines)).split("\n")
        lines = [f"{line[:1]} {text}".rstrip() for line, text in zip(lines, bare, strict=True)]
    drawn = [f'<span class="{kinds[line[0]]}">{escape(line)}</span>' if line[:1] in kinds else escape(line) for line in lines]
    while drawn and not drawn[-1].strip():
        drawn.pop()
    return f'<pre tabindex="0">{chr(10).join(drawn)}</pre>' if drawn else ""


def _strip(one: Finding, rows: Rows, first: bool) -> str:
    names = [name for name, _ in rows]
    exactly = {place for place in one.places if place in names}
    rest = set(one.places) - exactly
    wrong = {i for i, name in enumerate(names) if name in exactly or (rest and around(name, rest))}
    if len(rows) < 2:
        return ""
    if not wrong:
        return '<p class="note">No chart: this place is not among those that are compared along the network.</p>'
    title = "Difference of the whole port in exact mode, in powers of ten; red: where this one is"
    title = title if first else "The same chart; red: where this one is"
    return strip([value for _, value in rows], names, wrong, title)
