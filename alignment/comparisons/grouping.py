"""Findings of one mistake, which several places of a model show, as one."""

from __future__ import annotations

import re

from alignment.finding import Finding
from alignment.kinds import Kind

VALUE = re.compile(r"(?<![\w.])([\d.e-]+)[^,;]*, expected ([\d.e-]+)")  # one value of one setting
SETTING = re.compile(r"(?<![\d.e-])(\d+)(?:, \d+)*\)?, expected \(?(\d+)(?![\d.e])")  # whole numbers
NUMBERS = str.maketrans("", "", "0123456789.")
VAGUE = "or in another order"  # words of calls on other values, which may follow from a mistake in the same line of another block


def grouped(found: list[Finding]) -> list[Finding]:
    """Findings of the same stage and kind as one with several places.

    Where a mistake is confirmed, its words have to be the same but for numbers, or what they say of the line of the source: blocks
    of two kinds may be made with it. Else the line has to be the same.
    """
    together: dict[tuple, Finding] = {}
    for finding in found:
        key = alike_of(finding)
        if key in together:
            _join(together[key], finding)
        else:
            together[key] = finding
    return _of_one_value(_without_vague(list(together.values())))


def _join(first: Finding, other: Finding) -> None:
    """In place: the places of another finding are places of the first."""
    first.also += other.places
    if first.arguments != other.arguments:
        first.arguments = []


def _without_vague(found: list[Finding]) -> list[Finding]:
    """The findings without those that name no cause, where another one of the same line names it."""
    named = [one for one in found if one.kind is not Kind.UNKNOWN and VAGUE not in one.hint and one.source]
    kept = []
    for one in found:
        vague = one.kind is Kind.UNKNOWN or VAGUE in one.hint
        same = [other for other in named if other.stage == one.stage and one.source in lines_of(other)] if vague else []
        if not same:
            kept.append(one)
        else:
            _join(same[0], one)
    return kept


def alike_of(finding: Finding) -> tuple:
    """What findings of the same mistake have in common."""
    of_line = max((finding.hint.find(f"{line}: ") for line in lines_of(finding)), default=-1)
    words = finding.hint[max(of_line, 0) :]
    if of_line >= 0:  # what is inside the module has its name, in each block another one
        words = words.replace(f"{finding.location}.", "")
    words = words.translate(NUMBERS)
    sure = finding.confirmed or finding.stage == "initialisation"
    alike = words if sure else next(reversed(lines_of(finding)), finding.location)
    return finding.stage, finding.kind, finding.known, alike, _too_large(finding.hint)


def _of_one_value(found: list[Finding]) -> list[Finding]:
    """The findings, those of one kind about the same value of a line as one, whatever the words."""
    kept: dict[tuple, Finding] = {}
    for number, one in enumerate(found):
        value = VALUE.search(one.hint) if one.via else None
        key = (one.stage, one.kind, one.source, value.groups()) if value else (number,)
        if key in kept:
            _join(kept[key], one)
        else:
            kept[key] = one
    return list(kept.values())


def _too_large(words: str) -> bool | None:
    """Whether a whole number is too large: a stride of 1 for 2, and one of 2 for 1, are two mistakes; None without a number."""
    found = SETTING.search(words)
    return int(found[1]) > int(found[2]) if found else None


def lines_of(finding: Finding) -> list[str]:
    """The line to change, and those on the way to it."""
    return [line for line in (finding.source, *finding.via.split(", ")) if line]
