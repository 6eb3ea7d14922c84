"""mutants.html: every source file that has mutants, each line with what became of its own; one file that opens from disk."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from bench.mutants import KINDS, Mutant, Score, scores
from mobilenetv3_common.drawing import STYLE

_OWN_STYLE = """
pre{margin:0;font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
.source{border:1px solid var(--line);margin:.5rem 0 1rem}
.row{display:grid;grid-template-columns:3.5rem 1fr;border-left:.3rem solid transparent}
.row>span{color:var(--soft);text-align:right;padding-right:.8rem;user-select:none}
.row.bad{border-color:var(--bad);background:color-mix(in srgb,var(--bad) 12%,transparent)}
.row.good{border-color:var(--good);background:color-mix(in srgb,var(--good) 8%,transparent)}
.row.other{border-color:var(--soft)}
.mutant{padding-left:3.8rem;font-size:.8125rem}
.mutant.bad{color:var(--bad);font-weight:600}.mutant.good{color:var(--good)}.mutant.other{color:var(--soft)}
"""
_CLASS = {"killed": "good", "killed by the suite": "good", "timed out": "good", "survived": "bad"}


def render(mutants: Sequence[Mutant], sources: Mapping[str, str], about: str) -> str:
    """The page.

    Args:
        mutants: of a run.
        sources: text of each of their files.
        about: what was run, in one line.
    """
    counts = scores(mutants)
    files = [file for file in sources if any(m.mutation.file == file for m in mutants)]
    body = "".join(_file(file, sources[file], [m for m in mutants if m.mutation.file == file]) for file in files)
    survived = counts[-1].counts["survived"]
    title = f"{survived} of {len(mutants)} mutants survived"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{title}</title><link rel="icon" href="data:,"><style>{STYLE}{_OWN_STYLE}</style></head><body>'
        '<a class="skip" href="#files">Skip to the files</a><main><h1>Mutants</h1>'
        f'<p class="verdict {"bad" if survived else "good"}" role="status">{title}</p><p>{_e(about)}</p>'
        f"{_scores(counts)}<h2 id='files'>Files</h2>{body}</main></body></html>\n"
    )


def _e(text: object) -> str:
    return html.escape(str(text))


def _scores(counts: Sequence[Score]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("package", *KINDS, "score", "noticed"))
    rows = []
    for score in counts:
        shares = ["-" if share is None else f"{100 * share:.0f} %" for share in (score.steps, score.noticed)]
        cells = "".join(f'<td class="n">{value}</td>' for value in [*score.counts.values(), *shares])
        rows.append(f"<tr><td>{_e(score.name)}</td>{cells}</tr>")
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _file(file: str, source: str, mutants: Sequence[Mutant]) -> str:
    by_line: dict[int, list[Mutant]] = {}
    for mutant in mutants:
        by_line.setdefault(mutant.mutation.line, []).append(mutant)
    rows = []
    for number, line in enumerate(source.splitlines(), start=1):
        here = by_line.get(number, [])
        colours = {_CLASS.get(m.outcome, "other") for m in here}
        colour = next((c for c in ("bad", "other", "good") if c in colours), "")
        rows.append(f'<div class="row {colour}"><span>{number}</span><pre>{_e(line) or " "}</pre></div>')
        rows += [f'<div class="mutant {_CLASS.get(m.outcome, "other")}">{_e(_told(m))}</div>' for m in here]
    survived = sum(m.outcome == "survived" for m in mutants)
    tally = f"{len(mutants)} mutants, {survived} survived"
    return (
        f"<details{' open' if survived else ''}><summary><strong>{_e(file)}</strong>: {tally}</summary>"
        f'<div class="source">{"".join(rows)}</div></details>'
    )


def _told(mutant: Mutant) -> str:
    place = f", {mutant.finding['location']}" if mutant.finding else ""
    by = f" by step {mutant.step}{place}" if mutant.step else f": {mutant.reason or mutant.problem}"
    detail = "" if mutant.outcome in ("survived", "killed by the suite") else by
    return f"{mutant.outcome}{detail} · {mutant.mutation.operator} · {mutant.mutation.change}"
