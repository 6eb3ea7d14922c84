"""Counters of logs: from 0 or 1, over the whole run or anew in each epoch, and started again where a run was resumed.

Programs count their updates in different ways. Here every log gets one numbering: updates of the whole run, from 1. What was
recognised, and every line that gives way to another one, is said in a note.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from alignment_doctor.compare.entries import Entry
from mobilenetv3_common.counted import agreed

FULL = 0.9  # of the longest epoch: where a counter goes back to its start before that, the run was started again


@dataclass(frozen=True)
class Known:
    """What is known of a log's counters; None where the numbers must tell.

    Attributes:
        base: number of the first update, 0 or 1.
        first_epoch: number of the first epoch, 0 or 1.
        per_epoch: whether the counter begins again in each epoch.
        totals: updates of an epoch, as each line says them.
    """

    base: int | None = None
    first_epoch: int | None = None
    per_epoch: bool | None = None
    totals: Sequence[int | None] = ()


@dataclass(frozen=True)
class Counted:
    """Lines with one numbering.

    Attributes:
        lines: all of them, in the log's order.
        entries: each update once, in order: that of the last start of the run.
        notes: how the counters were read, and how many lines gave way.
    """

    lines: Sequence[Entry]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


def counted(raw: Sequence[Entry], known: Known | None = None) -> Counted:
    """Number a log's lines by the updates of the whole run, from 1, and its epochs from 0.

    Args:
        raw: the lines in the log's order, with ``update`` and ``epoch`` as the log counts them.
        known: what is known of the program that wrote it.
    """
    if not raw:
        return Counted((), (), ())
    known, notes = known or Known(), []
    lines = _whole_epochs_or_none(raw)
    totals = list(known.totals) or [None] * len(lines)
    if _descends(lines):
        lines, totals = lines[::-1], totals[::-1]
        notes.append("its lines begin with the last update: they were turned around")
    if lines[0].epoch is not None:
        first = epoch_base(line.epoch for line in lines) if known.first_epoch is None else known.first_epoch
        lines = [replace(line, epoch=(line.epoch or 0) - first) for line in lines]
    base = _base(lines) if known.base is None else known.base
    if known.base is None and base != 1:
        notes.append(f"its updates are counted from {base}: number {base} is update 1 here")
    if begins_again(lines) if known.per_epoch is None else known.per_epoch:
        if lines[0].epoch is None:
            lines = _with_epochs(lines)
        lines = _laid_out(lines, base, totals)
        if known.per_epoch is None:
            epochs = len({line.epoch for line in lines})
            notes.append(f"its counter begins again in each of {epochs} epochs: the updates were counted on")
    else:
        lines = [replace(line, update=line.update - base + 1) for line in lines]
    entries, said = _last_start(lines)
    return Counted(lines, entries, (*notes, *said))


def epoch_base(epochs: Iterable[float | None]) -> int:
    """The number of a log's first epoch: 1 where its smallest is 1, else 0."""
    return int(min((epoch for epoch in epochs if epoch is not None), default=0) == 1)


def begins_again(lines: Sequence[Entry]) -> bool:
    """Whether a counter begins again in each epoch; a run that was resumed goes back, too, but not at an epoch's end."""
    lines = _main(lines)
    pairs = list(itertools.pairwise(lines))
    if lines[0].epoch is not None:
        ends = [(a, b) for a, b in pairs if (b.epoch or 0) > (a.epoch or 0)]
        return 2 * sum(b.update <= a.update for a, b in ends) > len(ends)
    starts = [0, *(number + 1 for number, (a, b) in enumerate(pairs) if b.update < a.update)]
    if len(starts) == 1:
        return False
    firsts = {lines[start].update for start in starts}
    lasts = [lines[start - 1].update for start in starts[1:]]
    return (
        firsts == {lines[0].update}
        and lines[0].update <= max(1, _spacing(lines))
        and min(lasts) >= min(FULL * max(lasts), max(lasts) - 1)
        and lines[-1].update <= max(lasts)
    )


def _whole_epochs_or_none(raw: Sequence[Entry]) -> list[Entry]:
    """The lines with an epoch each, where those with a loss have one; else without epochs.

    A line about the learning rate alone, as Lightning's monitor writes it, is of the epoch of the next line with its number.
    """
    main = _main(raw)
    if any(line.epoch is None for line in main):
        return [replace(line, epoch=None) for line in raw]
    places = {id(line): place for place, line in enumerate(main)}
    made, ahead = [], 0
    for line in raw:
        ahead = places.get(id(line), ahead - 1) + 1
        if line.epoch is None:
            coming = main[min(ahead, len(main) - 1)]
            line = replace(line, epoch=(coming if coming.update == line.update else main[max(ahead - 1, 0)]).epoch)
        made.append(line)
    return made


def _main(lines: Sequence[Entry]) -> list[Entry]:
    """The lines that have a loss; all of them where none has."""
    return [line for line in lines if line.loss is not None] or list(lines)


def _descends(lines: Sequence[Entry]) -> bool:
    places = [(line.epoch or 0, line.update) for line in lines]
    return len(set(places)) > 2 and all(a >= b for a, b in itertools.pairwise(places))


def _spacing(lines: Sequence[Entry]) -> int:
    """Updates from one line to the next, as most lines have it; 1 where there is one line."""
    steps = Tally(b.update - a.update for a, b in itertools.pairwise(_main(lines)) if b.update > a.update)
    return steps.most_common(1)[0][0] if steps else 1


def _base(lines: Sequence[Entry]) -> int:
    """The number of the first update. A log with every 50th line from 49 on counts from 0, one from 50 on counts from 1."""
    smallest = min(line.update for line in lines)
    if smallest <= 0:
        return smallest
    main, every = _main(lines), _spacing(lines)
    if len(main) < 2 or every == 1 or (every == 2 and main[0].epoch is None):
        return 1
    ends = sum(line.update % every == every - 1 for line in main)
    return 0 if main[0].update % every == every - 1 and 2 * ends > len(main) else 1


def _with_epochs(lines: Sequence[Entry]) -> list[Entry]:
    """Epochs by the places where the counter begins again."""
    judged = {id(line) for line in _main(lines)}
    epoch, last, made = 0, lines[0].update, []
    for line in lines:
        if id(line) in judged:
            epoch, last = epoch + (line.update < last), line.update
        made.append(replace(line, epoch=epoch))
    return made


def _laid_out(lines: Sequence[Entry], base: int, totals: Sequence[int | None]) -> list[Entry]:
    """Counters within epochs as one counter. An epoch is as long as it says, else as its last line tells."""
    lengths: dict[int, int] = {}
    for line, total in zip(lines, totals, strict=True):
        epoch = line.epoch or 0
        lengths[epoch] = max(lengths.get(epoch, 1), total or 0, line.update - base + 1)
    longest = max(lengths.values())
    if not any(totals):  # the updates after an epoch's last line are not logged
        longest = -(-longest // _spacing(lines)) * _spacing(lines)
    if _spacing(lines) > 1 or any(totals):  # the last line is not an epoch's last update
        lengths = {}
    shorter, missing = {}, 0
    for epoch in sorted({line.epoch or 0 for line in lines}):
        shorter[epoch] = missing
        missing += longest - lengths.get(epoch, longest)
    return [replace(line, update=(line.epoch or 0) * longest - shorter[line.epoch or 0] + line.update - base + 1) for line in lines]


def _last_start(lines: Sequence[Entry]) -> tuple[tuple[Entry, ...], list[str]]:
    """Each update once, in order. What a line does not say is of the line before with its number."""
    judged = {id(line) for line in _main(lines)}
    found: dict[int, Entry] = {}
    order: list[int] = []
    top: int | None = None
    starts, replaced, twice = [], 0, 0
    for line in lines:
        at, before = line.update, found.get(line.update)
        again = before is not None and id(line) in judged and (before.loss is not None or line.loss is None)
        if again and top is not None and at < top:
            while order and order[-1] >= at:
                del found[order.pop()]
                replaced += 1
            starts.append(at)
            before, top = None, at
        else:
            twice += again
            top = at if top is None else max(top, at)
        if before is None:
            bisect.insort(order, at)
        found[at] = line if before is None else _merged(before, line)
    notes = []
    if starts:
        at_most = ", ".join(map(str, starts[:5])) + (" ..." if len(starts) > 5 else "")
        notes.append(agreed(f"the run went on from before update {at_most}: {replaced} lines are left out, of the start before"))
    if twice:
        notes.append(agreed(f"{twice} lines have the number of the line before: the last one counts"))
    return tuple(found[update] for update in order), notes


def _merged(before: Entry, entry: Entry) -> Entry:
    said = {field.name: getattr(entry, field.name) for field in fields(entry) if getattr(entry, field.name) is not None}
    if entry.loss is None:
        said["rounding"] = before.rounding
    if entry.lr is None:
        said["lr_rounding"] = before.lr_rounding
    return replace(before, **said)
