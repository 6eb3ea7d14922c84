"""One page about an evaluation, and about the run that led to it: curves, classes, confusion, and the mistakes as pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.checkpoint import PAGE
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.drawing import STYLE, Series, chart, escape, table
from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.evaluation_record import Record, shown_figures
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.terminal import printable

WHOLE_MATRIX = 24  # classes: of more the matrix has no room on a page, and its largest entries are listed
PAIRS = 50
POINTS = 400  # of a curve
SIDE = 192  # pixels of a mistake's picture
_STYLE = """
.sheet{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:1rem}.sheet figure{margin:0}
.sheet img{width:100%;aspect-ratio:1;object-fit:contain;background:var(--card)}.sheet figcaption{overflow-wrap:anywhere}
.sheet b{color:var(--fg)}
.matrix table{width:auto}.matrix th,.matrix td{padding:.25rem .45rem;min-width:0;text-align:right;white-space:nowrap}
.matrix thead th{writing-mode:vertical-rl;transform:rotate(180deg);max-height:10rem;text-align:left;padding:.45rem .25rem}
.matrix thead th:first-child{writing-mode:horizontal-tb;transform:none}.matrix tbody th{text-align:right;font-weight:400}
.matrix th{overflow:hidden;text-overflow:ellipsis}.matrix tbody th{max-width:min(16rem,30vw)}.matrix thead th{max-width:none}
td.n{min-width:0}td.low{color:var(--bad);font-weight:600}
"""


@dataclass(frozen=True)
class Page:
    """What a page shows.

    Attributes:
        title: of the page.
        record: the evaluation.
        pictures: those that were evaluated, by whose numbers ``record.mistakes`` names them.
        facts: (name, value) rows of what was run.
        train, evaluations: entries of the run's log; none for an evaluation alone.
        doubts: what speaks against the run.
        next_command: what to do with the weights; empty for nothing.
        backend: decoder of the pictures.
    """

    title: str
    record: Record
    pictures: DatasetIndex
    facts: Sequence[tuple[str, Any]]
    train: Sequence[dict[str, Any]] = ()
    evaluations: Sequence[dict[str, Any]] = ()
    doubts: Sequence[str] = ()
    next_command: str = ""
    backend: str = "pil"


def write_page(folder: Path, page: Page) -> Path:
    """Write ``report.html``, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    with atomic_open(folder / PAGE, "w") as file:
        file.write(shown(page_text(page)))
    return folder / PAGE


def page_text(page: Page) -> str:
    """The page as HTML; it loads nothing from elsewhere and runs no script."""
    record = page.record
    verdict = " bad" if page.doubts else " good" if page.evaluations else ""  # an evaluation alone is neither
    told = "; ".join(
        [f"top-1 {record.figures['top1']:.2%} of {record.figures['samples']:g} pictures", *(["with doubts"] if page.doubts else [])]
    )
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<title>{escape(page.title)}</title><link rel="icon" href="data:,"><style>{STYLE}{_STYLE}</style></head><body>',
        f'<a class="skip" href="#classes">Skip to the classes</a><main><h1>{escape(page.title)}</h1>',
        f'<p class="verdict{verdict}" role="status">{escape(told)}</p>',
        *(f'<p class="place">{escape(line)}</p>' for line in page.doubts),
        f"<h2>Next</h2><pre>{escape(page.next_command)}</pre>" if page.next_command else "",
        _curves(page),
        f'<h2 id="classes">Classes</h2>{_classes(record)}',
        f"<h2>Confusion</h2>{_confusion(record)}",
        f"<h2>Most confident mistakes</h2>{_mistakes(page)}",
        f"<h2>What was run</h2>{_facts(page)}",
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _curves(page: Page) -> str:
    if not page.train and not page.evaluations:
        return ""
    places = sorted({int(entry["update"]) for entry in (*page.train, *page.evaluations)})
    if len(places) > POINTS:
        kept = {places[i] for i in np.linspace(0, len(places) - 1, POINTS).astype(int)}
        places = sorted(kept | {int(entry["update"]) for entry in page.evaluations[-POINTS:]})

    def values(entries: Sequence[dict[str, Any]], name: str) -> list[float | None]:
        held = {int(entry["update"]): float(entry[name]) for entry in entries}
        return [held.get(place) for place in places]

    names = [str(place) for place in places]
    drawn = []
    for title, name in (("Loss", "loss"), ("Top-1, 0 to 1", "top1")):
        given = (("training", page.train), ("validation", page.evaluations))
        series = [Series(what, values(entries, name), dashed=False) for what, entries in given]
        drawn.append(chart(title, names, series, logarithmic=None, across="update"))
    return f"<h2>Curves</h2>{''.join(drawn)}"


def _percent(value: float | None) -> str:
    return f'<td class="n">{"-" if value is None else f"{value:.1%}"}</td>'


def _classes(record: Record) -> str:
    """Every class; where they are many, those with the lowest recall first."""
    figures = record.of_classes()
    many = len(figures) > WHOLE_MATRIX
    if many:
        figures = sorted(figures, key=lambda one: (one.recall is None, one.recall))
    rows = [
        [f"<td>{escape(one.name)}</td>", _percent(one.precision), _percent(one.recall), f'<td class="n">{one.support}</td>']
        for one in figures
    ]
    drawn = table(("class", "precision", "recall", "pictures"), rows, "Precision, recall and support of each class")
    note = (
        '<p class="note">Precision: share of the answers with this class that are right. Recall: share of the pictures of this '
        "class that are recognised."
    )
    if many:
        head = table(("class", "precision", "recall", "pictures"), rows[:WHOLE_MATRIX], "The classes with the lowest recall")
        return f"{note} Lowest recall first.</p>{head}<details><summary>All {len(figures)} classes</summary>{drawn}</details>"
    return f"{note}</p>{drawn}"


def _confusion(record: Record) -> str:
    if len(record.classes) > WHOLE_MATRIX:
        pairs = record.confused(PAIRS)
        rows = [
            [f"<td>{escape(record.classes[a])}</td>", f"<td>{escape(record.classes[b])}</td>", f'<td class="n">{count}</td>']
            for a, b, count in pairs
        ]
        return table(("true class", "taken for", "pictures"), rows, "Most frequent mistakes") if rows else "<p>No mistake.</p>"
    shares = record.confusion / np.maximum(record.confusion.sum(1, keepdims=True), 1)
    names = [escape(name) for name in record.classes]  # long ones are cut by the style; their title has them whole
    heads = "".join(f'<th scope="col" title="{name}">{name}</th>' for name in names)
    lines = []
    for row, name in enumerate(names):
        cells = "".join(_cell(row, column, record, float(shares[row, column])) for column in range(len(record.classes)))
        lines.append(f'<tr><th scope="row" title="{name}">{name}</th>{cells}</tr>')
    return (
        '<p class="note">Rows are the true classes, columns the answers; green is right, red is wrong.</p>'
        '<div class="scroll matrix" tabindex="0" role="region" aria-label="Confusion matrix">'
        f'<table><thead><tr><th scope="col">true \\ answer</th>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def _cell(row: int, column: int, record: Record, share: float) -> str:
    count = int(record.confusion[row, column])
    if not count:
        return "<td></td>"
    colour = "--good" if row == column else "--bad"
    said = f"{escape(record.classes[row])} taken for {escape(record.classes[column])}: {share:.0%}"
    return f'<td title="{said}" style="background:color-mix(in srgb,var({colour}) {8 + 37 * share:.0f}%,transparent)">{count}</td>'


def _mistakes(page: Page) -> str:
    if not page.record.mistakes:
        return "<p>No picture was taken for another class.</p>"
    figures = []
    for one in page.record.mistakes:
        if one.sample >= len(page.pictures):
            continue
        true, taken = (page.record.classes[label] for label in (one.label, one.predicted))
        name = printable(page.pictures.names[one.sample])
        image = _thumbnail(page.pictures, one.sample, page.backend)
        said = f"{escape(true)}, taken for {escape(taken)}"
        drawn = f'<img alt="{said}" src="{image}">' if image else "<p>It cannot be read any more.</p>"
        told = f"<b>{escape(taken)}</b> {one.confidence:.0%}, but it is <b>{escape(true)}</b><br>{escape(name)}"
        figures.append(f"<figure>{drawn}<figcaption>{told}</figcaption></figure>")
    return f'<div class="sheet">{"".join(figures)}</div>'


def _thumbnail(pictures: DatasetIndex, sample: int, backend: str) -> str:
    """A picture as a data address; empty where it cannot be read."""
    try:
        picture = decode_image(pictures.path(sample), backend)
    except (UserError, OSError):
        return ""
    picture.thumbnail((SIDE, SIDE))
    held = io.BytesIO()
    picture.save(held, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(held.getvalue()).decode()}"


def _facts(page: Page) -> str:
    figures = shown_figures(page.record.figures, len(page.record.classes))
    named = {"skipped": "damaged pictures skipped in the evaluation"}
    rows = [*page.facts, *((named.get(name, name), f"{value:.6g}") for name, value in figures.items())]
    return table(("", ""), [[f"<td>{escape(name)}</td>", f"<td>{escape(value)}</td>"] for name, value in rows], "What was run")
