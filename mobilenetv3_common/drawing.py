"""What the pages of this project are drawn with: their style, a table, and a line chart as inline SVG.

Colours come from CSS variables, so the pictures follow light and dark; nothing is loaded from anywhere and no script runs.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 860, 260, 76, 34
_LETTER = 6.5  # width of a letter of an axis, about
_NARROW = 54  # letters that have room along an axis on a phone
_WORD = re.compile(r"\S{20,}")  # a word that is broken where a line ends
_JOINT = re.compile(r"(&\w+;)|([/_.:,=]+)(?=[^/_.:,=])")  # behind these a long word may be broken
_COLOURS = ("--a", "--b", "--c", "--d")
DWARFS = 50  # times the median: a value above it is drawn by powers of ten
STRIP_SOFT = ' opacity=".45"'
# One colour a meaning in every picture of an alignment; red is for mistakes alone.
PORT, REFERENCE, EXACT, MISTAKE, SOUND, DIFFERS = "--a", "--b", "--d", "--bad", "--soft", "--fg"

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d0d7de;--card:#f6f8fa;--good:#1a7f37;--bad:#b42318;
--a:#0969da;--b:#bc4c00;--c:#1a7f37;--d:#8250df}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9198a1;--line:#3d444d;--card:#161b22;--good:#3fb950;
--bad:#ff7b72;--a:#58a6ff;--b:#f0883e;--c:#3fb950;--d:#bc8cff}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:.5rem 0;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:2rem 0 .5rem}
.verdict{border-left:.4rem solid;padding:.6rem 1rem;background:var(--card);font-weight:600;overflow-wrap:anywhere}
.verdict.good{border-color:var(--good)}.verdict.bad{border-color:var(--bad)}
td.good,strong.good{color:var(--good)}td.bad,strong.bad{color:var(--bad);font-weight:600}
.place{background:var(--card);border:1px solid var(--line);padding:.2rem 1rem;overflow-wrap:anywhere}
.place dt{color:var(--soft)}.place dd{margin:0 0 .5rem;font-weight:600}.list dd{font-weight:400}.names p{overflow-wrap:anywhere}
.scroll{overflow-x:auto;background:linear-gradient(to right,var(--bg) 30%,transparent) 0 0/3rem 100% no-repeat local,
linear-gradient(to left,var(--bg) 30%,transparent) 100% 0/3rem 100% no-repeat local,linear-gradient(to right,var(--line),
transparent) 0 0/1rem 100% no-repeat scroll,linear-gradient(to left,var(--line),transparent) 100% 0/1rem 100% no-repeat scroll}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
tr.wrong td{background:color-mix(in srgb,var(--bad) 12%,transparent)}
svg .culprit{stroke-width:2}svg text.culprit{fill:var(--bad);stroke:var(--card);stroke-width:4;paint-order:stroke;font-weight:600}
pre{background:var(--card);border:1px solid var(--line);padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere}
.note{font-size:.875rem;color:var(--soft);overflow-wrap:anywhere}
.only{margin:.5rem 0;display:block}body:has(#only:checked) .fine{display:none}
td{overflow-wrap:anywhere;min-width:6rem}td.w{min-width:14rem}
td.n,td.good,td.bad{min-width:0}
th.n{text-align:right}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
figure{margin:1rem 0}figcaption{font-size:.875rem;color:var(--soft)}
svg{width:100%;height:auto;display:block;background:var(--card)}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}
svg .names{display:none}svg .names text{font-size:4px}
.zoom{float:right;font-size:.875rem;color:var(--soft);cursor:pointer}.zoom input{margin:0 .3rem 0 0;vertical-align:middle}
figure:has(.zoom input:checked) .drawing{max-height:80vh;overflow:auto}
@media (max-width:40rem){table{font-size:.75rem}th,td{padding:.3rem .2rem}td{min-width:4rem}
.drawing svg{overflow:visible}.drawing svg text{font-size:24px}svg .wide{display:none}
figure:has(.zoom input:checked) svg text{font-size:11px}figure:has(.zoom input:checked) svg .wide{display:inline}
figure:has(.zoom input:checked) svg .names text{font-size:4px}}
figure:has(.zoom input:checked) svg{width:170rem}figure:has(.zoom input:checked) .names{display:block}
.bars{display:grid;grid-template-columns:max-content minmax(3rem,1fr) max-content;gap:.15rem .6rem;font-size:.875rem;
align-items:center}
.bars .name{max-width:16rem;overflow-wrap:anywhere}.bars .bar{height:.8rem;background:var(--a)}.bars .n{text-align:right}
summary{cursor:pointer;padding:.3rem 0}
summary.h2{font-size:1.2rem;font-weight:600}
summary:focus-visible,a:focus-visible,.scroll:focus-visible,.zoom:focus-within{outline:3px solid var(--a);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:1rem;top:.5rem;background:var(--bg);padding:.3rem}
.key{display:inline-block;width:1.2em;height:.25em;margin:0 .3em .2em 1em;vertical-align:middle}
@media print{:root{--bg:#fff;--fg:#000;--soft:#333;--line:#999;--card:#fff;--good:#1a7f37;--bad:#b42318;--a:#0969da;--b:#bc4c00;
--c:#1a7f37;--d:#8250df}.skip,.zoom{display:none}figure,tr{break-inside:avoid}main{max-width:none;padding:0}
td,td.w{min-width:0}.only{display:none}.scroll{overflow:visible}table{font-size:.7rem}th,td{padding:.15rem .3rem}
h2,summary{break-after:avoid}
.verdict,td.good,td.bad,tr.wrong td,.key{print-color-adjust:exact}@page{size:A4;margin:12mm}}
"""


@dataclass
class Series:
    """One line of a chart, or dots alone: its name and a value at each place (None leaves a gap).

    Attributes:
        colour: of ``PORT``, ``REFERENCE``, ``EXACT`` and ``MISTAKE``; by its position where empty.
        dashed: whether its line is; None for every other one.
    """

    name: str
    values: list[float | None]
    dots: bool = False
    colour: str = ""
    dashed: bool | None = None


def escape(text: Any) -> str:
    """Text as HTML shows it."""
    return html.escape(str(text))


def broken(text: Any) -> str:
    """Text as HTML shows it, whose long words (paths, names of modules) are broken behind / _ . and the like, not anywhere."""

    def word(found: re.Match[str]) -> str:
        return _JOINT.sub(lambda joint: joint[0] if joint[1] else f"{joint[0]}<wbr>", found[0])

    return _WORD.sub(word, escape(text))


def number(value: float | None) -> str:
    """A figure with two digits; ``-`` where there is none."""
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], label: str, classes: Sequence[str] = ()) -> str:
    """A table whose cells are ``td`` elements already; one that is too wide scrolls, with the keyboard too.

    Args:
        head: the headings.
        rows: the cells of each row.
        label: what a screen reader says of it.
        classes: of each row; ``wrong`` is marked in red, ``fine`` is left out where failures alone are wanted.
    """
    numbers = {i for i, cell in enumerate(rows[0] if rows else ()) if cell.startswith('<td class="n">')}
    heads = "".join(f'<th scope="col"{" class=n" * (i in numbers)}>{escape(cell)}</th>' for i, cell in enumerate(head))
    kinds = [f' class="{kind}"' if kind else "" for kind in classes] or [""] * len(rows)
    body = "".join(f"<tr{kind}>{''.join(row)}</tr>" for kind, row in zip(kinds, rows, strict=True))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _colour(series: Series, position: int) -> str:
    return series.colour or _COLOURS[position % len(_COLOURS)]


def _labels(names: Sequence[str], x: Callable[[int], float]) -> list[tuple[int, str]]:
    """Which of the places are named along an axis, and how each name is anchored: five at most, none of which touches another."""
    last = len(names) - 1
    wanted = {last: "end"} | {0: "start"}
    for part in (2, 1, 3):
        wanted.setdefault(len(names) * part // 4, "middle")
    taken: list[tuple[float, float]] = []
    found = []
    for i, anchor in wanted.items():
        wide = _LETTER * len(names[i])
        left = x(i) - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        if all(left > end + _LETTER or left + wide < start - _LETTER for start, end in taken):
            taken.append((left, left + wide))
            found.append((i, anchor))
    return found


def _dwarfed(values: Sequence[float]) -> bool:
    """Whether the largest value leaves the usual ones no height: then they are drawn by powers of ten."""
    positive = [value for value in values if value > 0]
    return bool(positive) and min(values) >= 0 and max(positive) > DWARFS * float(np.median(positive))


def bars(title: str, values: Sequence[tuple[str, float]], most: int = 30) -> str:
    """Named bars, the longest first; of many the longest and the shortest are shown, and the others folded.

    Args:
        title: above them.
        values: name and value, 0 or more, of each; in powers of ten where one dwarfs the others.
        most: bars that are not folded.
    """
    ordered = sorted(values, key=lambda one: -one[1])
    top = max((value for _, value in ordered), default=0.0) or 1.0
    logarithmic = _dwarfed([value for _, value in ordered])

    def wide(value: float) -> float:
        return math.log10(1 + value) / math.log10(1 + top) if logarithmic else value / top

    def drawn(some: Sequence[tuple[str, float]]) -> str:
        rows = (
            f'<span class="name">{escape(name)}</span><span class="bar" style="width:{100 * wide(value):.1f}%"></span>'
            f'<span class="n">{value:g}</span>'
            for name, value in some
        )
        return f'<div class="bars">{"".join(rows)}</div>'

    first, last = (ordered, []) if len(ordered) <= most else (ordered[: most // 2], ordered[-(most // 2) :])
    middle = ordered[len(first) : len(ordered) - len(last)]
    said = f"<strong>{escape(title)}</strong>" + (" (lengths by powers of ten)" if logarithmic else "")
    folded = f"<details><summary>{len(middle)} more between these</summary>{drawn(middle)}</details>" if middle else ""
    return f"<figure><figcaption>{said}</figcaption>{drawn(first)}{folded}{drawn(last) if last else ''}</figure>"


def strip(values: Sequence[float | None], places: Sequence[str], culprits: Collection[int], title: str) -> str:
    """A low chart for a card: one bar a place, by powers of ten, the wrong ones in red.

    Args:
        values: of each place; None leaves a gap.
        places: their names, shown at a bar that is pointed at.
        culprits: positions of the wrong ones.
        title: below it, and for screen readers.
    """
    known = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    low, high = (math.log10(limit) for limit in (max(min(known, default=1e-17), 1e-17), max(known, default=1.0)))
    wide, lines = _WIDTH / max(len(values), 1), []
    for i, value in enumerate(values):
        if value is None or not value > 0:
            continue
        share = (math.log10(value) - low) / (high - low) if high > low and math.isfinite(value) else 1.0
        tall = 4 + 44 * min(max(share, 0.0), 1.0)
        colour = MISTAKE if i in culprits else SOUND
        lines.append(
            f'<rect x="{i * wide:.1f}" y="{48 - tall:.1f}" width="{max(wide - 1, 0.6):.1f}" height="{tall:.1f}" '
            f'fill="var({colour})"{"" if i in culprits else STRIP_SOFT}><title>{escape(places[i])}: {number(value)}</title></rect>'
        )
    return (
        f'<figure class="strip"><svg viewBox="0 0 {_WIDTH} 48" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f"{''.join(lines)}</svg><figcaption>{escape(title)}</figcaption></figure>"
    )


def _filled(one: Series, colour: str) -> str:
    """A dot; a ring, which hides nothing, around a value that differs and is shown by another series, too."""
    return f'fill="none" stroke="{colour}" stroke-width="1.2"' if one.colour == DIFFERS else f'fill="{colour}"'


def chart(
    title: str,
    places: Sequence[str],
    series: Sequence[Series],
    logarithmic: bool | None = True,
    across: str = "",
    mark: float | None = None,
    culprits: Collection[int] = (),
) -> str:
    """A line chart as inline SVG; values of zero lie on the lower edge, infinite ones on the upper.

    Args:
        title: above the keys.
        places: names along the axis.
        series: at least one; None in one leaves a gap.
        logarithmic: whether values go by powers of ten; None: where one of them dwarfs the others, and none is below zero.
        across: what the places count, e.g. ``update``; single values are then not marked.
        mark: a value at which a dashed line is drawn.
        culprits: positions of the places that are wrong: each is marked in red over the whole height, the first with its name.
    """
    if logarithmic is None:
        logarithmic = _dwarfed([v for s in series for v in s.values if v is not None and math.isfinite(v)])
    finite = [v for s in series for v in s.values if v is not None and math.isfinite(v) and (v > 0 or not logarithmic)]
    if logarithmic:
        low: float = math.floor(math.log10(max(min(finite, default=1e-17), 1e-17)))
        high: float = math.ceil(math.log10(max(max(finite, default=1.0), 10.0 ** (low + 1))))
    else:
        low, high = min(finite, default=0.0), max(finite, default=1.0)
        low = min(low, 0.0)
        high = high if high > low else low + 1

    top = 26.0 if culprits else 8.0  # the name of the first culprit stands above all points

    def y(value: float) -> float:
        if math.isnan(value) or value == math.inf:
            return top
        if value == -math.inf:
            return float(_HEIGHT - _BOTTOM)
        scaled = (math.log10(max(value, 10.0**low)) if logarithmic else value) - low
        return top + (_HEIGHT - top - _BOTTOM) * (1 - scaled / (high - low))

    def x(place: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * (place / max(len(places) - 1, 1))

    lines = []
    step = max(1, math.ceil((high - low) / 6))
    ticks = [low + step * i for i in range(int((high - low) / step) + 1)] if logarithmic else list(np.linspace(low, high, 5))
    for tick in ticks:
        at = y(10.0**tick if logarithmic else tick)
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>')
        label = f"1e{tick:+03d}" if logarithmic else f"{tick:.3g}" if 100 <= abs(tick) < 1000 else f"{tick:.2g}"
        lines.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    if mark is not None and low <= (math.log10(mark) if logarithmic else mark) <= high:
        at = y(mark)
        lines.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--soft)" stroke-dasharray="4 4"/>'
        )
    names = [f"{across} {place}" if across else place for place in places]
    ends = len(names[0]) + len(names[-1]) < _NARROW if names else False
    for i, anchor in _labels(names, x):
        wide = "" if i == 0 or (i == len(names) - 1 and ends) else ' class="wide"'
        lines.append(f'<text{wide} x="{x(i):.1f}" y="{_HEIGHT - 12}" text-anchor="{anchor}">{escape(names[i])}</text>')
    if len(names) <= 300 and not across:
        upright = "".join(
            f'<text transform="translate({x(i) + 1.5:.1f} {_HEIGHT - _BOTTOM - 2}) rotate(-90)">{escape(name)}</text>'
            for i, name in enumerate(names)
        )
        lines.append(f'<g class="names" aria-hidden="true">{upright}</g>')
    for position, one in enumerate(series):
        known = [(x(i), y(v), places[i], v) for i, v in enumerate(one.values) if v is not None]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b, _, _ in known)
        colour = f"var({_colour(one, position)})"
        dashed = position % 2 if one.dashed is None else one.dashed
        dash = ' stroke-dasharray="6 3"' if dashed else ""
        if not one.dots:
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        if len(known) <= 300 and not across:
            radius = 4 if one.dots else 2.4
            lines += [
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" {_filled(one, colour)}>'
                f"<title>{escape(name)}: {number(value)}</title></circle>"
                for a, b, name, value in known
            ]
    for i in sorted(culprits):
        at, side = x(i), "end" if x(i) > _WIDTH / 2 else "start"
        lines.append(f'<line class="culprit" x1="{at:.1f}" x2="{at:.1f}" y1="8" y2="{_HEIGHT - _BOTTOM}" stroke="var(--bad)"/>')
        if i == min(culprits):
            shift = -6 if side == "end" else 6
            lines.append(
                f'<text class="culprit" x="{at + shift:.1f}" y="18" text-anchor="{side}">wrong: {escape(places[i])}</text>'
            )
    keys = "".join(
        f'<span class="key" style="background:var({_colour(s, i)})"></span>{escape(s.name)}' for i, s in enumerate(series)
    )
    return (
        f'<figure><label class="zoom"><input type="checkbox">Zoom</label><div class="drawing" tabindex="0">'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{''.join(lines)}</svg></div>"
        f"<figcaption><strong>{escape(title)}</strong>{keys}</figcaption></figure>"
    )
