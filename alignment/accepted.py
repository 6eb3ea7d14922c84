"""Differences that somebody knows and accepts: ``--accept KIND[@PLACE]``."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common.errors import UserError

UNNAMED = "unknown"  # of a difference that no hypothesis explains
KINDS = (*(kind.value for kind in Kind if kind), UNNAMED)


@dataclass(frozen=True)
class Accept:
    """One difference, or all of one kind.

    Attributes:
        text: as it was given.
        kind: value of a ``Kind``, or ``"unknown"``.
        place: of the finding, or above it; everywhere where empty.
    """

    text: str
    kind: str
    place: str = ""

    def covers(self, finding: Finding, place: str) -> bool:
        """Whether a mistake in one of its places is meant."""
        kind = UNNAMED if finding.kind is Kind.UNKNOWN else finding.kind.value
        return kind == self.kind and (not self.place or f"{place}.".startswith(f"{self.place}."))


def parse(texts: Sequence[str]) -> list[Accept]:
    """``KIND`` or ``KIND@PLACE`` each.

    Raises:
        UserError: there is no such kind, or ``unknown`` stands without a place.
    """
    found = []
    for text in texts:
        kind, at, place = text.partition("@")
        if kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise UserError(
                f"--accept {text}: no such kind; {meant}{'T' if near else 't'}he report names the kind of each difference"
            )
        if at and not place:
            raise UserError(f"--accept {text}: no place behind the @; give e.g. {kind}@features.0.1, or {kind} for every place")
        if kind == UNNAMED and not place:
            raise UserError(
                f"--accept {text}: give its place too, e.g. {UNNAMED}@features.3: what is not understood is not waved through"
            )
        found.append(Accept(text, kind, place))
    return found


def marked(accepts: Sequence[Accept], findings: Sequence[Finding], strict: bool = True) -> tuple[list[Finding], list[str]]:
    """The findings, those in accepted places marked so; one of which a part is accepted becomes two.

    Args:
        accepts: what was known beforehand.
        findings: what was found.
        strict: differences of the frameworks themselves are accepted only where ``accepts`` has them.

    Returns:
        The findings, and the texts of ``--accept`` that fit none.
    """
    used: set[str] = set()
    found: list[Finding] = []
    for finding in findings:
        parts: dict[bool, list[str]] = {True: [], False: []}
        for place in finding.places:
            fitting = [one for one in accepts if one.covers(finding, place)]
            used |= {one.text for one in fitting}
            parts[bool(fitting) or (finding.known and not strict)].append(place)
        for accepted, places in sorted(parts.items()):
            if places:
                found.append(replace(finding, location=places[0], also=places[1:], accepted=accepted))
    return found, [one.text for one in accepts if one.text not in used]
