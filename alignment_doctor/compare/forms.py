"""Logs in text, a line for some updates, as training programs print them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from alignment_doctor.compare.counter import Known, counted
from alignment_doctor.compare.entries import MEAN, OWN, Entry, Result, RunLog, entry_of, evaluations_of
from mobilenetv3_common.errors import UserError

TRAIN = "tools/train.py"
COUNT = r"\d{1,18}"  # longer ones are no counts
NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"


@dataclass(frozen=True)
class Form:
    """How a program's log lines look.

    Attributes:
        name: of the program.
        train: a line of training; groups iter and loss, and any of epoch, total, lr, top1.
        averaged: what the loss is the mean of.
        base, first_epoch: the numbers of the first update and of the first epoch; base is None where that depends on the version.
        evaluated: a line that ends an evaluation; groups top1 and perhaps epoch, else it is of the epoch of the line before.
        percent: whether accuracies are in percent; None where their size tells.
        bar: whether lines are those of a progress bar, which shows an update again and again: the last one counts.
    """

    name: str
    train: str
    averaged: str
    base: int | None = 0
    first_epoch: int = 0
    evaluated: str | None = None
    percent: bool | None = False
    bar: bool = False


_EPOCH_OF = rf"(?P<epoch>{COUNT})"
_ITERATION = rf"(?P<iter>{COUNT})/(?P<total>{COUNT})"
_TOP1 = rf"\b(?:accuracy[_/]top-?1|acc/top1|top1_acc): (?P<top1>{NUMBER})"
FORMS = (
    Form(
        TRAIN,
        rf"^\[Epoch {_EPOCH_OF}, iter: (?P<iter>{COUNT})\](?: top1: (?P<top1>{NUMBER}),)?"
        rf"(?=.*?\blr: (?P<lr>{NUMBER}))(?=.*?\bloss: (?P<loss>{NUMBER}))",
        OWN,
        base=1,
        evaluated=rf"^\[Eval epoch {_EPOCH_OF}\] top1: (?P<top1>{NUMBER})(?!.*without average)",
    ),
    Form(
        TRAIN,  # on a terminal
        rf"^epoch {_EPOCH_OF}/\d+ {_ITERATION}  loss (?P<loss>{NUMBER})  top1 (?P<top1>{NUMBER}).*?\blr (?P<lr>{NUMBER})",
        OWN,
        base=1,
        first_epoch=1,
    ),
    Form(
        "PaddleClas",
        rf"\[Train\]\[Epoch {_EPOCH_OF}/\d+\]\[Iter: {_ITERATION}\]\s*lr(?:\([^)]*\))?: (?P<lr>{NUMBER})"
        rf"(?=.*?\bloss: (?P<loss>{NUMBER}))(?:.*?\btop1: (?P<top1>{NUMBER}))?",
        MEAN,
        first_epoch=1,
        evaluated=rf"\[Eval\]\[Epoch {_EPOCH_OF}\]\[Avg\].*?\btop1: (?P<top1>{NUMBER})",
    ),
    Form(
        "PaddleClas 2.1",  # and before
        rf"\bepoch:{_EPOCH_OF}\s*, train step:(?P<iter>{COUNT})\s*,(?=.*?\bloss: (?P<loss>{NUMBER}))(?=.*?\blr: (?P<lr>{NUMBER}))"
        rf"(?:.*?\btop1: (?P<top1>{NUMBER}))?",
        MEAN,
        evaluated=rf"\bEND epoch:{_EPOCH_OF}\s+valid.*?\btop1: (?P<top1>{NUMBER})",
    ),
    Form(
        "timm",
        rf"Train: {_EPOCH_OF} \[\s*{_ITERATION} .*?Loss:\s*(?P<loss>{NUMBER}).*?LR:\s*(?P<lr>{NUMBER})",
        OWN,
        evaluated=rf"Test: \[\s*(?P<at>{COUNT})/(?P=at)\].*?Acc@1:\s*{NUMBER}\s*\(\s*(?P<top1>{NUMBER})\)",
        percent=True,
    ),
    Form(
        "torchvision",
        rf"Epoch: \[{_EPOCH_OF}\]\s+\[\s*{_ITERATION}\].*?\blr: (?P<lr>{NUMBER})"
        rf".*?\bloss: {NUMBER} \((?P<loss>{NUMBER})\)(?:\s+acc1: {NUMBER} \((?P<top1>{NUMBER})\))?",
        MEAN,
        evaluated=rf"^(?:\[[^\]]*\]\s*)?(?:Test:\s+|\s*\* )Acc@1 (?P<top1>{NUMBER})",
        percent=True,
    ),
    Form(
        "PyTorch's example of ImageNet",
        rf"Epoch: \[{_EPOCH_OF}\]\[\s*{_ITERATION}\]\s.*?\bLoss\s+{NUMBER}\s*\(\s*(?P<loss>{NUMBER})\)"
        rf"(?:\s+(?:Acc|Prec)@1\s+{NUMBER}\s*\(\s*(?P<top1>{NUMBER})\))?",
        MEAN,
        base=None,
        evaluated=rf"^\s*\*\s+(?:Acc|Prec)@1\s+(?P<top1>{NUMBER})",
        percent=True,
    ),
    Form(
        "Lightning's bar",
        rf"\bEpoch {_EPOCH_OF}(?:/\d+)?:?\s.*?\b(?P<iter>[1-9]\d{{0,17}})/(?:(?P<total>{COUNT})|\?)\s"
        rf".*?\bv_num[=:].*?\b(?:train[_/])?loss(?:_step)?[=:]\s*(?P<loss>{NUMBER})",
        OWN,
        base=1,
        bar=True,
    ),
    Form("MindSpore", rf"epoch: {_EPOCH_OF} step: (?P<iter>{COUNT}), loss is (?P<loss>{NUMBER})", OWN, base=1, first_epoch=1),
    Form(
        "MMEngine",  # and MMCV
        rf"\bEpoch(?:\(train\))?\s+\[{_EPOCH_OF}\]\[\s*{_ITERATION}\].*?\blr: (?P<lr>{NUMBER}).*?\bloss: (?P<loss>{NUMBER})",
        OWN,
        base=1,
        first_epoch=1,
        evaluated=rf"\bEpoch\(val\)\s+\[{_EPOCH_OF}\]\[.*?{_TOP1}",
        percent=None,
    ),
    Form(
        "MMEngine by iterations",
        rf"\bIter(?:\(train\))?\s+\[\s*(?P<iter>{COUNT})/{COUNT}\].*?\blr: (?P<lr>{NUMBER}).*?\bloss: (?P<loss>{NUMBER})",
        OWN,
        base=1,
        evaluated=rf"\bIter\(val\)\s+\[.*?{_TOP1}",
        percent=None,
    ),
)


def with_form(file: Path, lines: list[str], form: Form) -> RunLog:
    """What a program's log says; it has no entries where it is none of that program."""
    train = re.compile(form.train)
    evaluated = re.compile(form.evaluated) if form.evaluated else None
    raw: list[Entry] = []
    totals: list[int | None] = []
    results: list[Result] = []
    scale = 0.01 if form.percent else 1.0
    for line in lines:
        if match := train.search(line):
            told = match.groupdict()
            epoch = int(told["epoch"]) if told.get("epoch") else None
            entry = entry_of(int(told["iter"]), epoch, told, scale)
            if form.bar and raw and (raw[-1].update, raw[-1].epoch) == (entry.update, entry.epoch):
                raw.pop()
                totals.pop()
            raw.append(entry)
            totals.append(int(told["total"]) if told.get("total") else None)
        elif evaluated is not None and (match := evaluated.search(line)):
            told = match.groupdict()
            done = int(told["epoch"]) - form.first_epoch + 1 if told.get("epoch") else None
            results.append(Result(len(raw), float(told["top1"]), done))
    made = counted(raw, Known(form.base, form.first_epoch, "epoch" in train.groupindex, totals))
    evaluations, notes = evaluations_of(results, made.lines, form.percent)
    return RunLog(file, form.name, form.averaged, made.entries, evaluations, notes=(*made.notes, *notes))


def with_pattern(file: Path, lines: list[str], pattern: str) -> RunLog:
    """A log whose lines a regular expression of the user's reads.

    Raises:
        UserError: it is none, or it lacks a group.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--pattern is not a regular expression: {error}") from error
    if not {"update", "loss"} <= set(compiled.groupindex):
        raise UserError("--pattern needs the named groups (?P<update>...) and (?P<loss>...)")
    raw, skipped = [], 0
    for match in filter(None, map(compiled.search, lines)):
        told = match.groupdict()
        try:
            epoch = int(told["epoch"]) if told.get("epoch") else None
            raw.append(entry_of(int(told["update"]), epoch, told, 1.0))
        except ValueError:
            skipped += 1
    made = counted(raw)
    return RunLog(file, "--pattern", OWN, made.entries, skipped=skipped, notes=made.notes)
