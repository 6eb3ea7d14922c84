"""What came of the corrections of known mistakes: a row each, and the table of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Row:
    """What came of one mistake.

    Attributes:
        name, kind: of the mistake.
        source: of the mistake, ``"functional"``, ``"layers"`` or ``"edits"``.
        found: kinds of the mistakes that the audit found; none where it passes or cannot run.
        written, applies, verified: whether a patch was offered, ``git apply`` takes it, and the patched copy passes.
        restored: whether the source then says again what it said before the mistake; known of edits alone.
        by: what made the correction, e.g. ``"as_the_reference"``; ``"settings"`` where it was known at once.
        patch: the diff.
        problem: why there is no verified patch.
        seconds: wall time.
    """

    name: str
    kind: str
    source: str
    found: list[str] = field(default_factory=list)
    written: bool = False
    applies: bool = False
    verified: bool = False
    restored: bool = False
    by: str = ""
    patch: str = ""
    problem: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """One line for a person."""
        word = "verified" if self.verified else "applies" if self.applies else "written" if self.written else "NO PATCH"
        return f"{self.source}, {self.name} [{self.kind}]: {word}{f' ({self.by})' if self.by else ''} {self.problem}".rstrip()


def table(rows: Sequence[Row]) -> str:
    """Counts over the lists and over kinds of mistakes, and those without a verified patch."""
    head = f"{'':36} {'mistakes':>8} {'written':>8} {'applies':>8} {'verified':>8}"
    lines = [head]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[f"  {row.kind}"].append(row)
    for name in dict.fromkeys(row.source for row in rows):
        lines.append(_sums(name, [row for row in rows if row.source == name]))
    lines.append(_sums("all", rows))
    lines += ["", "by kind of mistake:", *(_sums(name, groups[name]) for name in sorted(groups))]
    lines += ["", "without a verified patch:", *(f"  {row.line()}" for row in rows if not row.verified)]
    return "\n".join(lines)


def _sums(name: str, rows: Sequence[Row]) -> str:
    counts = [sum(getattr(row, what) for row in rows) for what in ("written", "applies", "verified")]
    return (
        f"{name:36} {len(rows):8} " + " ".join(f"{count:8}" for count in counts) + f"  {100 * counts[2] / max(len(rows), 1):.0f} %"
    )
