"""Whether the mistakes that an audit found are those that are known, and the table of all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from projects.zoo.public.pair import Difference, PublicPair

NEAR = 3  # lines: a statement may begin above the text that is looked for
TITLES = ("pair", "reference", "input", "what the audit said", "what is known", "agreement", "seconds")


def disagreements(mistakes: Sequence[Mapping[str, Any]], known: Sequence[Difference], folder: Path) -> list[str]:
    """What the audit found and is not known, and what it did not find; nothing where it found exactly what is known.

    Args:
        mistakes: of the audit's ``alignment.json``.
        known: the differences of the pair.
        folder: that has the port's packages.
    """
    said, unseen = [], dict.fromkeys((difference, place) for difference in known if difference.kinds for place in difference.places)
    for mistake in mistakes:
        of_kind = [difference for difference in known if mistake["kind"] in difference.kinds]
        explaining: list[Difference] = []
        for location in (mistake["location"], *mistake["also"]):
            fitting = [(one, place) for one in of_kind for place in one.places if fnmatchcase(location, place)]
            if not fitting:
                said.append(f"not known: {_kind(mistake)} at {location}")
            explaining += [one for one, _ in fitting]
            for pair in fitting:
                unseen.pop(pair, None)
        if explaining and mistake["source"] and not any(_at(mistake["source"], one, folder) for one in explaining):
            said.append(f"another line: {mistake['source']} for {_kind(mistake)} at {mistake['location']}")
    return [*said, *(f"not found: {one.kinds[0].value} at {place}" for one, place in unseen)]


def _kind(mistake: Mapping[str, Any]) -> str:
    return mistake["kind"] or "unknown"


def _at(source: str, difference: Difference, folder: Path) -> bool:
    """Whether a line that the audit names is the one that is known, or of the same statement."""
    file, _, line = source.rpartition(":")
    return f"/{difference.file}".endswith(f"/{file}") and abs(int(line) - difference.line(folder)) <= NEAR


def row(pair: PublicPair, record: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A row of the table.

    Args:
        pair: of the list.
        record: ``mistakes`` and ``verdict`` of its audit, ``seconds``, and ``failed``, why it gave none.
        folder: that has the port's packages.
    """
    wrong = ["no verdict"] if record["failed"] else disagreements(record["mistakes"], pair.known, folder)
    return {
        "pair": pair.name,
        "reference": pair.model,
        "input": pair.shapes(),
        "what the audit said": record["failed"] or "; ".join(map(words, record["mistakes"])) or "passed",
        "what is known": "; ".join(known_words(one, folder) for one in pair.known) or "equal",
        "agreement": f"no: {'; '.join(wrong)}" if wrong else "yes",
        "seconds": f"{record['seconds']:.0f}",
    }


def words(mistake: Mapping[str, Any]) -> str:
    """A mistake in a cell of the table."""
    more = f" and {len(mistake['also'])} more" if mistake["also"] else ""
    line = f" ({mistake['source']})" if mistake["source"] and mistake["source"] not in mistake["hint"] else ""
    return f"{_kind(mistake)} at {mistake['location']}{more}{line}: {mistake['hint']}"


def known_words(difference: Difference, folder: Path) -> str:
    """A known difference in a cell of the table."""
    unseen = "" if difference.kinds else " (this pair does not show it)"
    return f"{difference.what} ({difference.file.rpartition('/')[2]}:{difference.line(folder)}){unseen}"


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """The rows as Markdown."""
    lines = [f"| {' | '.join(TITLES)} |", f"|{'---|' * len(TITLES)}"]
    lines += [f"| {' | '.join(one[title].replace('|', '/') for title in TITLES)} |" for one in rows]
    return "\n".join([*lines, ""])
