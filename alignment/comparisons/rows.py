"""The rows of a step for people: the layer with its class and the port's own name, and the passes in which it differs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from alignment.compare import Quantity
from alignment.comparisons.context import Context
from alignment.comparisons.lines import fresh_port
from alignment.comparisons.model.known import GROUPED
from alignment.strangers import strangers
from mobilenetv3_common.counted import counted

ROW = re.compile(r"(?:sgd\.)?(eval|train)\.(?:(?:fake|photos)\.b(\d+)|given|iter(\d+)(\.gradients))\.(.+)")
MODES = {"eval": "evaluation mode", "train": "training mode"}
STATISTICS = {"running_mean": "running mean", "running_var": "running variance"}
OUTPUT = "the model's output"
WHOLE = {"logits": OUTPUT, "together": "all gradients together"}
OTHERS = (  # rows that are of no pass of the cases: what they are of, and what they say of it
    (re.compile(r"dropout\.(.+)\.share"), r"the share of values that dropout layer \1 drops", ""),
    (re.compile(r"dropout\.(.+)"), r"dropout layer \1", ""),
    (re.compile(r"size\.(\d+x\d+)\.logits"), OUTPUT, r"inputs of \1 pixels"),
    (re.compile(r"large\.logits"), OUTPUT, "inputs with large values"),
    (re.compile(r"initialisation\.(.+)"), r"fresh weights of \1", ""),
)
NUMBERS = re.compile(r"\d[\d.e+-]*")
NAMED = 3  # places that a line names

Words = tuple[str, str]  # of a row: its place, and the pass


def place_of(row: str) -> str:
    """The module or tensor of a row by the reference's path; the row itself where it is of none."""
    read = ROW.fullmatch(row)
    return row if read is None else WHOLE.get(read[5], read[5])


def in_words(context: Context) -> Callable[[str], Words]:
    """A function of a row's name."""
    modules = {}
    with strangers("port"):
        if not context.not_held and (port := fresh_port(context)) is not None:
            modules = context.port.framework.modules(port, every_path=True)

    def words(row: str) -> Words:
        read = ROW.fullmatch(row)
        if read is None:
            other = ((found.expand(what), found.expand(case)) for one, what, case in OTHERS if (found := one.fullmatch(row)))
            return next(other, (row, ""))
        mode, batch, update, gradient, place = read.groups()
        later = f" at update {int(update) + 1}" if int(update or 0) else ""
        case = f"{MODES[mode]}{later}{f', batch of {batch}' if batch else ''}"
        module, _, tensor = place.rpartition(".")
        statistic = STATISTICS.get(tensor, "")
        module = module if statistic or gradient else place
        own = context.paired.own_path(module)
        if place in WHOLE:
            return WHOLE[place], case
        of = place if gradient else module
        name = (context.paired.own_name(of) if own in modules else "") or of
        what = f"gradient of {name}" if gradient else f"{statistic} of {name}" if statistic else name
        return f"{what} ({type(modules[own]).__name__})" if own in modules else what, case

    return words


def failed_rows(context: Context, rows: Sequence[Quantity]) -> list[str]:
    """The rows that fail, a line for those that fail alike: its first place, the passes, the figures, and how many more places."""
    wrong = [row for row in rows if not row.passed]
    wrong = [row for row in wrong if not GROUPED.match(row.reason)] or wrong
    words, alike = in_words(context) if wrong else None, dict[str, list[tuple[Words, Quantity]]]()
    for row in wrong:
        assert words is not None
        alike.setdefault(NUMBERS.sub("#", row.reason), []).append((words(row.name), row))
    lines = []
    for held in alike.values():
        (first, _), row = held[0]
        cases = [case for (place, case), _ in held if place == first and case]
        others = [place for place in dict.fromkeys(place for (place, _), _ in held) if place != first]
        left = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        more = f"; the same at {counted(len(others), 'more place')}: {', '.join(others[:NAMED])}{left}" if others else ""
        lines.append(f"{first}{f', {_joined(cases)}' if cases else ''}: {row.reason}{more}")
    return lines


def _joined(cases: Sequence[str]) -> str:
    """Passes, each mode once: ``evaluation mode, batch of 1, 2, 8; training mode, batch of 4``."""
    modes: dict[str, list[str]] = {}
    for mode, _, batch in (case.partition(", ") for case in dict.fromkeys(cases)):
        modes.setdefault(mode, []).extend([batch.removeprefix("batch of ")] if batch else [])
    return "; ".join(
        f"{mode}, batch of {', '.join(sorted(batches, key=int))}" if batches else mode for mode, batches in modes.items()
    )
