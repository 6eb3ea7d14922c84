"""Logs of training runs, this project's and other people's, read into one form."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_log import JSON_LINES
from mobilenetv3_common.yaml_file import read_yaml, value_of

OWN, MEAN, WHOLE = "own", "mean of the epoch so far", "mean of a whole epoch"


@dataclass(frozen=True)
class Entry:
    """One log line of training.

    Attributes:
        update: updates done in the whole run, from 1.
        epoch: from 0; None where the log does not say.
        loss, lr, top1: None where the line does not say; ``top1`` is 0..1.
        rounding: half a unit of the last digit in which the loss is written; 0 for full precision.
        lr_rounding: the same of the learning rate.
        samples: pictures an update; None where the log does not say.
    """

    update: int
    epoch: int | None = None
    loss: float | None = None
    lr: float | None = None
    top1: float | None = None
    rounding: float = 0.0
    lr_rounding: float = 0.0
    samples: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: ``top1`` 0..1 after ``epoch`` epochs (from 1), over ``samples`` pictures where the log says so."""

    epoch: int
    top1: float
    samples: int | None = None


@dataclass(frozen=True)
class RunLog:
    """A run.

    Attributes:
        path: of the log.
        form: whose log it is.
        averaged: what a line's loss is: of the updates since the last line (``OWN``), ``MEAN``, or ``WHOLE``, where an
            update is an epoch.
        entries: in the order of updates, each update once.
        evaluations: in the order of epochs.
        settings: of the run's config; empty where it is not there.
        skipped: lines that are damaged, such as the last one of a run in progress.
    """

    path: Path
    form: str
    averaged: str
    entries: tuple[Entry, ...]
    evaluations: tuple[Evaluation, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    skipped: int = 0


@dataclass(frozen=True)
class _Form:
    """How a program's log lines look; groups: epoch, iter, total, loss, lr, top1."""

    name: str
    train: str
    averaged: str
    first_epoch: int = 0
    evaluated: str | None = None
    percent: bool = False


COUNT = r"\d{1,18}"  # longer ones are no counts
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
FORMS = (
    _Form(
        "PaddleClas",
        rf"\[Train\]\[Epoch (?P<epoch>{COUNT})/\d+\]\[Iter: (?P<iter>{COUNT})/(?P<total>{COUNT})\]\s*"
        rf"lr(?:\([^)]*\))?: (?P<lr>{NUMBER})"
        rf"(?:.*?\btop1: (?P<top1>{NUMBER}))?.*?\bloss: (?P<loss>{NUMBER})",
        MEAN,
        first_epoch=1,
        evaluated=rf"\[Eval\]\[Epoch (?P<epoch>{COUNT})\]\[Avg\].*?\btop1: (?P<top1>{NUMBER})",
    ),
    _Form(
        "timm",
        rf"Train: (?P<epoch>{COUNT}) \[\s*(?P<iter>{COUNT})/(?P<total>{COUNT}) "
        rf".*?Loss:\s*(?P<loss>{NUMBER}).*?LR:\s*(?P<lr>{NUMBER})",
        OWN,
    ),
    _Form(
        "torchvision",
        rf"Epoch: \[(?P<epoch>{COUNT})\]\s+\[\s*(?P<iter>{COUNT})/(?P<total>{COUNT})\].*?\blr: (?P<lr>{NUMBER})"
        rf".*?\bloss: {NUMBER} \((?P<loss>{NUMBER})\)(?:\s+acc1: {NUMBER} \((?P<top1>{NUMBER})\))?",
        MEAN,
        evaluated=rf"^Test:\s+Acc@1 (?P<top1>{NUMBER})",
        percent=True,
    ),
    _Form("MindSpore", rf"epoch: (?P<epoch>{COUNT}) step: (?P<iter>{COUNT}), loss is (?P<loss>{NUMBER})", OWN, first_epoch=1),
)
COLUMNS = {  # without regard to case and signs; "value" is what TensorBoard exports
    "update": ("update", "step", "iteration", "iter", "global_step"),
    "epoch": ("epoch", "epochs"),
    "loss": ("loss", "train_loss", "training_loss", "loss_train", "train_loss_step", "value"),
    "lr": ("lr", "learning_rate", "train_lr"),
    "top1": ("top1", "acc", "accuracy", "acc1", "train_acc", "train_accuracy"),
    "evaluated": ("eval_top1", "val_top1", "test_acc1", "val_acc", "eval_acc", "val_accuracy", "eval_accuracy", "test_acc"),
}


def read_run(path: str | Path, pattern: str | None = None, growing: bool = False) -> RunLog:
    """Read a run's folder or a log file.

    Args:
        path: a folder of ``tools/train.py``, or with one log file; or a log of PaddleClas, timm, torchvision or MindSpore, a
            CSV file with a header, or JSON lines.
        pattern: a regular expression with the named groups ``update`` and ``loss``, and any of ``epoch``, ``lr``, ``top1``, for
            logs of another form.
        growing: whether somebody writes it: a last line without its end is left out.

    Raises:
        UserError: it cannot be read, or no line is one of a log.
    """
    file = _file_of(Path(path))
    try:
        text = _text(file.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read log {file}: {error.strerror}") from error
    lines = (text[: text.rfind("\n") + 1] if growing else text).splitlines()
    if pattern is not None:
        run = _with_pattern(file, lines, pattern)
    elif file.suffix == ".jsonl":
        run = _json_lines(file, lines)
    elif file.suffix == ".csv":
        run = _table(file, lines)
    else:
        runs = [_with_form(file, lines, form) for form in FORMS]
        run = max(runs, key=lambda one: len(one.entries))
    if not run.entries and not run.evaluations:
        raise UserError(
            f"{file} has no line of a log of tools/train.py, PaddleClas, timm, torchvision or MindSpore: give --pattern, a regular "
            "expression with groups such as (?P<update>\\d+) and (?P<loss>\\S+)"
        )
    return run


def _text(data: bytes) -> str:
    """A log's text; PowerShell writes UTF-16, and spreadsheets begin a table with a mark of the order of bytes."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return COLOURS.sub("", data.decode("utf-16" if wide else "utf-8-sig", errors="replace"))


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise UserError(f"no such run or log: {path}")
        return path
    if (path / JSON_LINES).is_file():
        return path / JSON_LINES
    logs = sorted([*path.glob("*.log"), *path.glob("*.csv")])
    if len(logs) == 1:
        return logs[0]
    held = f"{len(logs)} logs: give one of them" if logs else f"no {JSON_LINES} and no other log"
    raise UserError(f"{path} holds {held}")


def _json_lines(file: Path, lines: list[str]) -> RunLog:
    entries, evaluations, skipped = [], [], 0
    for line in lines:
        try:
            told = json.loads(line)
            kind = told.get("kind", "train")
            if kind == "eval":
                evaluations.append(Evaluation(int(told["epoch"]) + 1, float(told["top1"]), int(told["samples"])))
            elif not str(kind).startswith("eval"):  # eval_raw is an evaluation, too, of weights that are not the run's result
                numbers = {name: float(told[name]) for name in ("loss", "lr", "top1") if told.get(name) is not None}
                epoch, pictures = told.get("epoch"), told.get("avg_samples")
                entries.append(
                    Entry(
                        int(told["update"]),
                        None if epoch is None else int(epoch),
                        **numbers,
                        samples=None if pictures is None else float(pictures),
                    )
                )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            skipped += 1
    return RunLog(file, "tools/train.py", OWN, _once(entries), tuple(evaluations), _settings(file.parent), skipped)


def _settings(folder: Path) -> dict[str, Any]:
    """The effective config beside a log; empty where there is none that can be read."""
    try:
        told = value_of(read_yaml(folder / "config.yaml", "the config"), "the config")
    except UserError:
        return {}
    return told if isinstance(told, dict) else {}


def _with_form(file: Path, lines: list[str], form: _Form) -> RunLog:
    train = re.compile(form.train)
    evaluated = re.compile(form.evaluated) if form.evaluated else None
    entries: list[Entry] = []
    evaluations: list[Evaluation] = []
    longest = max((int(m["iter"]) for m in map(train.search, lines) if m and "total" not in m.groupdict()), default=0)
    scale = 0.01 if form.percent else 1.0
    for line in lines:
        if match := train.search(line):
            told = match.groupdict()
            epoch = int(told["epoch"]) - form.first_epoch
            done = int(told["iter"]) + (0 if form.name == "MindSpore" else 1)
            update = epoch * int(told.get("total") or longest) + done
            while entries and entries[-1].update >= update:
                entries.pop()  # of an earlier start, which went further than the one that goes on here
            entries.append(_entry(update, epoch, told, scale))
        elif evaluated is not None and (match := evaluated.search(line)):
            told = match.groupdict()
            number = int(told["epoch"]) if told.get("epoch") else len(evaluations) + 1
            evaluations.append(Evaluation(number, float(told["top1"]) * scale))
    return RunLog(file, form.name, form.averaged, _once(entries), tuple(evaluations))


def _with_pattern(file: Path, lines: list[str], pattern: str) -> RunLog:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--pattern is not a regular expression: {error}") from error
    if not {"update", "loss"} <= set(compiled.groupindex):
        raise UserError("--pattern needs the named groups (?P<update>...) and (?P<loss>...)")
    entries, skipped = [], 0
    for match in filter(None, map(compiled.search, lines)):
        told = match.groupdict()
        try:
            epoch = int(told["epoch"]) if told.get("epoch") else None
            entries.append(_entry(int(told["update"]), epoch, told, 1.0))
        except ValueError:
            skipped += 1
    return RunLog(file, "--pattern", OWN, _once(entries), skipped=skipped)


def _table(file: Path, lines: list[str]) -> RunLog:
    head = lines[0] if lines else ""
    reader = csv.DictReader(lines, delimiter=max(",;\t", key=head.count))
    names = {_plain(name): name for name in reversed(reader.fieldnames or ())}
    chosen = {key: names[alias] for key, aliases in COLUMNS.items() for alias in aliases[::-1] if alias in names}
    held = ", ".join(str(name) for name in reader.fieldnames or ()) or "no header"
    if "update" not in chosen and "epoch" not in chosen:
        raise UserError(f"{file} needs a column update (or step, iteration) or epoch; it has {held}")
    if not {"loss", "lr", "evaluated"} & set(chosen):
        raise UserError(f"{file} needs a column loss (or train_loss) or val_acc; it has {held}: rename the one that is meant")
    comma = reader.reader.dialect.delimiter != ","
    entries: list[Entry] = []
    evaluations: list[Evaluation] = []
    skipped = 0
    for row in _rows(reader, file):
        told = {key: _number(row.get(name), comma) for key, name in chosen.items()}
        try:
            epoch = int(float(told["epoch"])) if told.get("epoch") else None
            update = int(float(told["update"])) if told.get("update") else (epoch or 0) + 1
            entries.append(_entry(update, epoch, told, 1.0))
            if told.get("evaluated"):
                value = float(told["evaluated"])
                evaluations.append(Evaluation((epoch or 0) + 1, value / 100 if value > 1 else value))
        except (ValueError, OverflowError):
            skipped += 1
    if "update" in chosen:
        return RunLog(file, "CSV", OWN, _once(entries), tuple(evaluations), skipped=skipped)
    if entries and min(entry.update for entry in entries) == 2:  # epochs that are counted from 1
        entries = [replace(entry, update=entry.update - 1, epoch=entry.update - 2) for entry in entries]
        evaluations = [replace(one, epoch=one.epoch - 1) for one in evaluations]
    return RunLog(file, "CSV", WHOLE, _once(entries), tuple(evaluations), skipped=skipped)


def _plain(name: str | None) -> str:
    """A column's name in small letters and underscores; of ``run - loss``, as wandb exports it, the last part."""
    return re.sub(r"[^a-z0-9]+", "_", (name or "").rpartition(" - ")[2].lower()).strip("_")


def _number(text: Any, comma: bool) -> str:
    """A cell as Python reads numbers; ``comma``: a comma may stand before its digits. It may have a percent sign."""
    number = text.strip() if isinstance(text, str) else ""
    if comma and number.count(",") == 1 and "." not in number:
        number = number.replace(",", ".")
    return f"{float(number[:-1]) / 100!r}" if re.fullmatch(rf"{NUMBER}\s*%", number) else number


def _rows(reader: csv.DictReader, file: Path) -> Iterator[dict[str, Any]]:
    try:
        yield from reader
    except csv.Error as error:
        raise UserError(f"{file} is no table of a run's losses ({error}): give its log") from error


def _entry(update: int, epoch: int | None, told: Mapping[str, str | None], scale: float) -> Entry:
    def value(name: str) -> float | None:
        text = told.get(name)
        return float(text) if text else None

    top1 = value("top1")
    return Entry(
        update=update,
        epoch=epoch,
        loss=value("loss"),
        lr=value("lr"),
        top1=None if top1 is None else top1 * scale,
        rounding=_half_digit(told.get("loss")),
        lr_rounding=_half_digit(told.get("lr")),
    )


def _half_digit(text: str | None) -> float:
    """Half a unit of the last digit that a number is written with."""
    if not text or not (match := re.fullmatch(r"[-+]?\d+(?:\.(\d*))?(?:[eE]([-+]?\d+))?", text)):
        return 0.0
    return 0.5 * 10.0 ** (int(match[2] or 0) - len(match[1] or ""))


def _once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Each update once, that of the last start of the run, in order; what its line does not say is of the line before."""
    found: dict[int, Entry] = {}
    for entry in entries:
        if (before := found.get(entry.update)) is not None:
            said = {field.name: getattr(entry, field.name) for field in fields(entry) if getattr(entry, field.name) is not None}
            if entry.loss is None:
                said["rounding"] = before.rounding
            if entry.lr is None:
                said["lr_rounding"] = before.lr_rounding
            entry = replace(before, **said)
        found[entry.update] = entry
    return tuple(found[update] for update in sorted(found))


def whole_epochs(entries: Iterable[Entry], averaged: str) -> list[Entry]:
    """The mean of each epoch that ended, as an entry of the epoch's number, from 1; nothing where the log has no epochs."""
    last: dict[int, Entry] = {}
    for entry in epoch_means(entries) if averaged == OWN else entries:
        if entry.epoch is not None and entry.loss is not None:
            last[entry.epoch] = entry
    lengths = {epoch: entry.update - last[epoch - 1].update for epoch, entry in last.items() if epoch - 1 in last}
    going_on = max(last, default=None)
    if going_on is not None and lengths.get(going_on, 0) < max(lengths.values(), default=1):
        del last[going_on]
    return [replace(entry, update=epoch + 1) for epoch, entry in last.items()]


def epoch_means(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Lines whose loss is of the updates since the line before, as lines whose loss is the mean of the epoch so far."""
    epoch: int | None = None
    start = last = 0
    total = 0.0
    for entry in entries:
        if entry.epoch != epoch:
            epoch, start, total = entry.epoch, last, 0.0
        if entry.loss is not None:
            total += entry.loss * (entry.update - last)
            yield replace(entry, loss=total / (entry.update - start))
        last = entry.update
