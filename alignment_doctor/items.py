"""The items of the checklists (documents 000 to 004), the checks that decide each of them, and what became of it in an examination.

This is the one list of items: docs/doctor_items.md shows it, and the tests hold it to this module.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alignment_doctor.findings import Check, Finding, Verdict, checks_of
from mobilenetv3_common.drawing import escape, table

FAMILIES = (
    "alignment_doctor.run.checks", "alignment_doctor.data.checks", "alignment_doctor.check.checks", "alignment_doctor.watch.checks",
    "alignment_doctor.compare.checks", "alignment_doctor.compare.continued_checks",
    "alignment_doctor.weights.checks", "alignment_doctor.profile.checks", "alignment_doctor.equal.checks",
)  # fmt: skip
ELSEWHERE, NOWHERE = "decided by another sub-command", "not decided by a program"


@dataclass(frozen=True)
class Item:
    """One item of a checklist.

    Attributes:
        id: document and item, e.g. ``002 ds.01``.
        group: heading under which docs/doctor_items.md lists it.
        what: the mistake, or what is asked.
        note: why a program cannot decide it, or what else tells of it; empty where the checks say everything.
    """

    id: str
    group: str
    what: str
    note: str = ""


def _of(group: str, rows: Sequence[tuple[str, str, str]]) -> list[Item]:
    return [Item(id, group, what, note) for id, what, note in rows]


ITEMS = (
    *_of("Document 002: data", [
        ("002 ds.01", "pictures that are missing, damaged or without content", ""),
        ("002 ds.02", "wrong labels", ""),
        ("002 ds.03", "unbalanced classes, or classes with too few pictures", ""),
        ("002 ds.04", "data that is not the standard data set", ""),
        ("002 dp.01", "no normalisation or standardisation", ""),
        ("002 dp.02", "evaluation pictures that are prepared differently", ""),
        ("002 dp.03", "data that is not shuffled", ""),
        ("002 dp.04", "wrong padding or sizes", ""),
        ("002 dp.05", "wrong shards of the data in parallel training",
         "a run on several ranks does not begin if their lists of pictures differ"),
    ]),
    *_of("Document 002: settings, interfaces, network, precision", [
        ("002 hp.01", "a learning rate that is too large or too small", ""),
        ("002 hp.02", "too many or too few epochs", "this needs whole runs: `compare` compares two of them"),
        ("002 hp.03", "a batch that is too large", ""),
        ("002 api.01", "APIs that differ between the frameworks", "the report of `check` lists the defaults that differ"),
        ("002 api.02", "the wrong mode, training or evaluation", ""),
        ("002 cg.01", "weights that are shared by mistake, or not shared",
         "only a reference defines the intended graph: align with it"),
        ("002 cg.02", "weights that are frozen by mistake, or not frozen", ""),
        ("002 cg.03", "layers that are connected wrongly", "only a reference defines the intended graph: align with it"),
        ("002 cg.04", "a wrong loss", ""),
        ("002 wi.01", "weights that are initialised with zeros", ""),
        ("002 wi.02", "pretrained weights that are not loaded", ""),
        ("002 mp.01", "overflow in training", ""),
        ("002 mp.02", "a wrong loss scale", ""),
        ("002 mp.03", "loss scale and clipping in the wrong order", ""),
        ("002 mp.04", "a gradient penalty on scaled gradients",
         "only the loop knows which gradients it penalises: compute the penalty at two loss scales (docs/porting_questions.md)"),
        ("002 phenomenon", "two runs that behave differently", ""),
    ]),
    *_of("Document 001: pitfalls of training", [
        ("001 data 1", "OpenCV gives BGR, Pillow gives RGB", ""),
        ("001 data 2", "pretrained weights that expect the other order of channels", ""),
        ("001 data 3", "mean and standard deviation in another unit than the pictures", ""),
        ("001 data 4", "augmentation of values in a range that it does not expect", ""),
        ("001 data 5", "a single picture that stops the training", ""),
        ("001 data 6", "workers that run out of file descriptors",
         "a run whose workers have no descriptors left ends with one line, which names `ulimit -n`: no examination is needed"),
        ("001 data 7", "OpenCV's own threads within workers",
         "the loaders switch these threads off (`quiet_opencv`), so no run has them"),
        ("001 data 8", "workers that read changed code in a later epoch",
         "one loader serves all epochs of a run, so its workers start once"),
        ("001 module 1", "BatchNorm and dropout in the wrong mode", ""),
        ("001 module 2", "statistics of BatchNorm that differ between ranks", ""),
        ("001 module 3", "a synchronised BatchNorm that computes something else",
         "this needs a reference: `tools/align.py --ranks 2` compares it with one process that has twice the batch"),
        ("001 module 4", "ranks that wait for the slowest one",
         "`profile` under the launcher prints the time of each rank before they meet, and which one the others wait for"),
        ("001 module 5", "accumulation over ranks that synchronises wrongly", ""),
        ("001 module 6", "sums that depend on their order",
         "this is not a mistake: `compare` and the alignment measure the effect of rounding and allow for it"),
        ("001 training 1", "a resumed run without the state of the loss scale",
         "checkpoints of `tools/train.py` contain it, and a resumed run loads it"),
        ("001 training 2", "launchers that disagree about ranks and hang",
         "a run that hangs computes nothing that could be examined; docs/distributed.md describes the timeout and its message"),
        ("001 training 3", "NaN from an optimizer's epsilon in low precision", ""),
        ("001 training 4", "parameters that move without a gradient", ""),
    ]),
    *_of("Document 004: questions to ask yourself", [
        ("004 data", "format, channels, size, type and range of the data, and labels that belong to it", ""),
        ("004 tokenizer, boxes", "the same tokenizer; boxes as corners or as centre and size",
         "only a reference defines them: compare both (docs/porting_questions.md); `audit` names another form of boxes"),
        ("004 model", "layers, modes, weights that are loaded, frozen or trained", ""),
        ("004 loss", "the inputs of the loss, and where it is computed", ""),
        ("004 logger and seeds", "logs, stored settings and seeds", "every run writes its log and its effective config"),
        ("004 optimizer", "its parameters, its state, and clearing the gradients", ""),
        ("004 lr", "the schedule of the learning rate", ""),
        ("004 training", "whether a run learns at all", ""),
        ("004 batch size", "batch size and learning rate together", ""),
    ]),
    *_of("Documents 000 and 003: the guides to reproduction and migration", [
        ("000 step 2", "the data of both sides is the same", ""),
        ("000 step 6", "learning rate, decay and averages over the whole run", ""),
        ("000 step 7", "regularisation settings", ""),
        ("000 step 10", "training as a whole: checkpoints, accuracy, curves", ""),
        ("000 steps 1, 3, 4, 5", "forward pass, metric, loss and backward pass against a reference",
         "these need a reference: steps 1 and 3 to 5 of the alignment"),
        ("003 compare", "the curves of two runs", ""),
        ("003 ranks", "training on several devices", ""),
        ("003 profiling", "where time and memory go", ""),
    ]),
)  # fmt: skip


@dataclass(frozen=True)
class ItemState:
    """What became of an item in one examination.

    Attributes:
        item: which.
        verdict: that of the checks which were run, the worst first; ``ELSEWHERE`` or ``NOWHERE`` where none of them decides it.
        checks: id of each check that was run -> its verdict.
        elsewhere: other sub-command -> ids of its checks that decide the item.
    """

    item: Item
    verdict: str
    checks: dict[str, str]
    elsewhere: dict[str, list[str]]


@functools.cache
def every_check() -> tuple[Check, ...]:
    """The checks of all sub-commands."""
    return tuple(check for family in FAMILIES for check in checks_of(importlib.import_module(family)))


def items_of(check: Check) -> list[str]:
    """Ids of the items that a check decides; ``001 data 1-3`` stands for three of them."""
    found = []
    for item in check.items:
        many = re.fullmatch(r"(.* )(\d)-(\d)", item)
        found += [f"{many[1]}{n}" for n in range(int(many[2]), int(many[3]) + 1)] if many else [item]
    return found


def checks_of_items() -> dict[str, list[str]]:
    """Id of each item that some check decides -> ids of its checks."""
    found: dict[str, list[str]] = {}
    for check in every_check():
        for item in items_of(check):
            found.setdefault(item, []).append(check.id)
    return found


def states(findings: Sequence[Finding]) -> list[ItemState]:
    """What became of every item.

    Args:
        findings: of the checks that were run.
    """
    said = {one.check.id: one.outcome.verdict for one in findings}
    decided, made = checks_of_items(), []
    for item in ITEMS:
        ids = decided.get(item.id, [])
        here = {id: said[id].value for id in ids if id in said}
        elsewhere: dict[str, list[str]] = {}
        for id in ids:
            if id not in said:
                elsewhere.setdefault(id.partition(".")[0], []).append(id)
        worst = next((verdict.value for verdict in Verdict if verdict.value in here.values()), "")
        made.append(ItemState(item, worst or (ELSEWHERE if elsewhere else NOWHERE), here, elsewhere))
    return made


def as_json(found: Sequence[ItemState]) -> list[dict[str, Any]]:
    """As JSON values."""
    return [
        {
            "item": one.item.id,
            "what": one.item.what,
            "verdict": one.verdict,
            "checks": one.checks,
            "elsewhere": one.elsewhere,
            "note": one.item.note,
        }
        for one in found
    ]


def as_table(found: Sequence[ItemState]) -> str:
    """As an HTML table."""
    rows = [[f"<td>{escape(text)}</td>" for text in _cells(one)] for one in found]
    return table(("item", "what", "verdict", "checks, and why no program decides it"), rows, "Items of the checklists")


def _cells(one: ItemState) -> tuple[str, str, str, str]:
    parts = [f"{id}: {verdict}" for id, verdict in one.checks.items()]
    parts += [f"by doctor.py {command}: {', '.join(ids)}" for command, ids in one.elsewhere.items()]
    return one.item.id, one.item.what, one.verdict, "; ".join([*parts, one.item.note] if one.item.note else parts)
