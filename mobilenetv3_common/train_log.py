"""What a training run tells: the guide's log line, JSON lines, scalars for VisualDL and TensorBoard, a progress bar."""

from __future__ import annotations

import contextlib
import csv
import errno
import functools
import importlib
import json
import math
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.evaluation_record import TOP5_FROM
from mobilenetv3_common.files import atomic_open, regular_file
from mobilenetv3_common.terminal import for_terminal
from mobilenetv3_common.tracking import Tracker, failing, open_trackers

JSON_LINES = "train_log.jsonl"
FROM_ZERO = "[Epoch 0] is the first epoch, which sentences and results call epoch 1"  # the guide's format counts so
TEXT_LOG = "train.log"
EVENTS = "watch.jsonl"  # of an observer
TABLES = ("train.csv", "eval.csv", "eval_raw.csv")
SCALARS = {"tensorboardx": ("tensorboardX", "SummaryWriter"), "visualdl": ("visualdl", "LogWriter")}  # folder: package, writer


@dataclass
class Stopwatch:
    """True times of the loop: waiting for data, and the whole update; neither holds logging, evaluation or saving.

    ``start`` before asking the loader, ``data_ready`` when it has delivered, ``done`` when the update's result is known.
    The loop waits for the device once an update, after the backward pass and so never in the reader's time.
    """

    reader: float = 0.0
    batch: float = 0.0
    updates: int = 0
    _begun: float = 0.0

    def start(self) -> None:
        self._begun = time.perf_counter()

    def data_ready(self) -> None:
        self.reader += time.perf_counter() - self._begun

    def done(self) -> None:
        self.batch += time.perf_counter() - self._begun
        self.updates += 1

    def averages(self) -> tuple[float, float]:
        """Seconds an update: waiting for data, and in all."""
        return self.reader / max(self.updates, 1), self.batch / max(self.updates, 1)

    def reset(self) -> None:
        """Start again from zero, as the loop does after each log line."""
        self.reader = self.batch = 0.0
        self.updates = 0


@dataclass
class TrainLog:
    """The log of one run; only rank 0 has one that writes.

    Args:
        folder: of the run; None for a rank that writes nothing.
        epochs: of the run.
        updates_per_epoch: of the run.
        resumed_at: updates done before this start; later lines of an earlier start are dropped.
        to_evaluate: whether the evaluation at ``resumed_at`` is to be repeated; its lines are dropped too.
        trackers: of ``tracking.TRACKERS``, that get the figures too.
        settings: of the run, for them.
        classes: of the run; below six top-5 is not shown.

    Raises:
        UserError: what has the name of a log is no file.
    """

    folder: Path | None
    epochs: int
    updates_per_epoch: int
    resumed_at: int = 0
    to_evaluate: bool = False
    trackers: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    classes: int = 1000
    _trackers: list[Tracker] = field(default_factory=list)
    _writers: list[Any] = field(default_factory=list)
    _bar: Any = None

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        self._drop_later(self.folder / JSON_LINES, self._place_of_entry)
        self._drop_later(self.folder / TEXT_LOG, self._place_of_line)
        for name in TABLES:
            self._drop_later(self.folder / name, functools.partial(self._place_of_row, name))
        self._writers = _scalar_writers(self.folder, self.resumed_at)
        self._trackers = open_trackers(self.trackers, self.folder, self.settings)
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=self.total_updates, initial=self.resumed_at, unit="update", dynamic_ncols=True)

    @property
    def total_updates(self) -> int:
        """Updates in the whole run, for the time left."""
        return self.epochs * self.updates_per_epoch

    def _drop_later(self, path: Path, place: Callable[[str], tuple[float, bool]]) -> None:
        """Keep the lines of a log up to the place from which the run goes on."""
        if not regular_file(path):
            return
        kept = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            update, evaluated = place(line)
            if update < self.resumed_at or (update == self.resumed_at and not (evaluated and self.to_evaluate)):
                kept.append(line)
        with atomic_open(path, "w") as file:
            file.write("".join(f"{line}\n" for line in kept))

    def _place_of_entry(self, line: str) -> tuple[float, bool]:
        """Updates done before an entry of the JSON log, and whether it is of an evaluation."""
        try:
            entry = json.loads(line)
            return float(entry["update"]), entry["kind"] != "train"
        except (ValueError, KeyError, TypeError):  # the half of a line that a killed run left
            return float("inf"), False

    def _place_of_row(self, name: str, line: str) -> tuple[float, bool]:
        """The same for a row of a table, whose first column counts the updates; the heading is kept."""
        first = line.partition(",")[0]
        return (float(first) if first.isdecimal() else -1.0 if first == "update" else math.inf), name != TABLES[0]

    def _place_of_line(self, line: str) -> tuple[float, bool]:
        """The same for a line of the text log; lines without a place are kept."""
        if found := re.match(r"\[Epoch (\d+), iter: (\d+)\]", line):
            return int(found[1]) * self.updates_per_epoch + int(found[2]), False
        if found := re.match(r"\[Eval epoch (\d+)\]", line):
            return (int(found[1]) + 1) * self.updates_per_epoch, True
        return (float("inf") if line.startswith("[E") else 0), False

    def line(self, text: str, short: str | None = None) -> None:
        """A line for people, on standard output and in ``train.log``.

        On a terminal it is ``short`` where that is given, and is broken at 100 columns; the file has the whole ``text``.

        A terminal that was closed, or a reader of the output (``tee``) that has ended, costs no run: it goes on without.

        Raises:
            UserError: one of them cannot be written, e.g. the disk is full.
        """
        if self.folder is None:
            return
        if self._bar is not None:
            self._bar.clear()
        text = shown(text)
        with _writing("standard output"):
            try:
                print(for_terminal(shown(short or text)) if sys.stdout.isatty() else text, flush=True)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):
                    raise
                _go_on_without_output()
                self._append(TEXT_LOG, "nobody reads the standard output any more: the run goes on, its lines are here")
        self._append(TEXT_LOG, text)

    def _append(self, name: str, text: str) -> None:
        assert self.folder is not None
        with _writing(str(self.folder / name)), open(self.folder / name, "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def _append_row(self, name: str, row: dict[str, float]) -> None:
        assert self.folder is not None
        path = self.folder / name
        with _writing(str(path)), open(path, "a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)

    def tick(self) -> None:
        """One update is done."""
        if self._bar is not None:
            self._bar.update()

    def train(self, epoch: int, iteration: int, update: int, figures: dict[str, float]) -> None:
        """The log line of the guide, and the same figures as JSON and scalars.

        Args:
            epoch: from 0.
            iteration: updates done in this epoch.
            update: updates done in the whole run.
            figures: ``top1``, ``top5`` (0..1), ``lr``, ``loss``, ``avg_reader_cost``, ``avg_batch_cost`` (seconds),
                ``avg_samples``, ``avg_ips``.
        """
        if self.folder is None:
            return
        eta = figures["avg_batch_cost"] * (self.total_updates - update)
        figures = {**figures, "eta": eta, "memory_mib": peak_memory_mib()}
        top5 = [f", top5: {figures['top5']:.5f}", f"  top5 {figures['top5']:.3f}"] if self.classes >= TOP5_FROM else ["", ""]
        self.line(
            f"[Epoch {epoch}, iter: {iteration}] top1: {figures['top1']:.5f}{top5[0]}, "
            f"lr: {figures['lr']:.6f}, loss: {figures['loss']:.5f}, "
            f"avg_reader_cost: {figures['avg_reader_cost']:.5f} sec, avg_batch_cost: {figures['avg_batch_cost']:.5f} sec, "
            f"avg_samples: {figures['avg_samples']:g}, avg_ips: {figures['avg_ips']:.5f} images/sec, "
            f"eta: {_clock(eta)}, memory: {figures['memory_mib']:.0f} MiB",
            f"epoch {epoch + 1}/{self.epochs} {iteration}/{self.updates_per_epoch}  loss {figures['loss']:.4f}  "
            f"top1 {figures['top1']:.3f}{top5[1]}  lr {figures['lr']:.3g}  {figures['avg_ips']:.0f} img/s  eta {_clock(eta)}",
        )
        self._record("train", epoch, iteration, update, figures)

    def evaluation(self, epoch: int, update: int, figures: dict[str, float], best: float | None) -> None:
        """The result of an evaluation: ``top1``, ``top5``, ``loss`` and ``samples``.

        Args:
            epoch: from 0.
            update: updates done in the whole run.
            figures: of the evaluation.
            best: the best top-1 so far; None for weights that are evaluated beside their moving average.
        """
        if self.folder is None:
            return
        ending = "of the weights without average" if best is None else f"best top1: {best:.5f}"
        top5 = [f", top5: {figures['top5']:.5f}", f"  top5 {figures['top5']:.3f}"] if self.classes >= TOP5_FROM else ["", ""]
        self.line(
            f"[Eval epoch {epoch}] top1: {figures['top1']:.5f}{top5[0]}, loss: {figures['loss']:.5f}, "
            f"samples: {figures['samples']:g}, {ending}",
            f"epoch {epoch + 1}/{self.epochs} validation  loss {figures['loss']:.4f}  top1 {figures['top1']:.4f}{top5[1]}  "
            f"{figures['samples']:g} pictures  {ending}",
        )
        self._record("eval_raw" if best is None else "eval", epoch, 0, update, figures)

    def _record(self, kind: str, epoch: int, iteration: int, update: int, figures: dict[str, float]) -> None:
        entry = {"kind": kind, "epoch": epoch, "iter": iteration, "update": update, **figures}
        self._append(JSON_LINES, json.dumps(entry))
        self._append_row(f"{kind}.csv", {"update": update, "epoch": epoch, "iter": iteration, **figures})
        self.scalars(kind, update, figures)

    def scalars(self, kind: str, update: int, figures: dict[str, float]) -> None:
        """Points for VisualDL, TensorBoard and the trackers, under ``kind/name``. A tracker that fails is given up."""
        with _writing(f"{self.folder}/{{{','.join(SCALARS)}}}"):
            for writer in self._writers:
                for name, value in figures.items():
                    writer.add_scalar(f"{kind}/{name}", value, update)

        for tracker in list(self._trackers):
            try:
                tracker.log({f"{kind}/{name}": value for name, value in figures.items()}, update)
            except Exception as error:  # noqa: BLE001 - its server is gone, its disk full: the run matters more
                self._trackers.remove(tracker)
                self.line(f"{tracker.name} failed ({' '.join(str(error).split())[:200]}): the run goes on without it")

    def close(self) -> None:
        for tracker in self._trackers:
            try:
                tracker.close(failing())
            except Exception as error:  # noqa: BLE001 - what it has is kept, and so is the run
                self.line(f"{tracker.name} failed at its end ({' '.join(str(error).split())[:200]})")
        ending = failing()
        for writer in self._writers:
            try:
                writer.close()
            except OSError as error:  # what it could not write is in the tables too
                if not ending:  # else the error that ends the run says it
                    where = f"{self.folder}/{{{','.join(SCALARS)}}}"
                    print(f"warning: {where} lacks the last points: {error.strerror or error}", file=sys.stderr, flush=True)
        if self._bar is not None:
            self._bar.close()


def read_json_lines(folder: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The entries of one kind (``train`` or ``eval``) of a run's log, in order."""
    entries = [json.loads(line) for line in (Path(folder) / JSON_LINES).read_text(encoding="utf-8").splitlines()]
    return [entry for entry in entries if entry["kind"] == kind]


def peak_memory_mib() -> float:
    """Largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)


@contextlib.contextmanager
def _writing(what: str) -> Iterator[None]:
    """Inside the block a full disk, or whatever else the system refuses, is one line that names ``what``."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {what}: {error.strerror or error}; the last checkpoint is kept, go on from it with --resume auto"
        ) from error


def _go_on_without_output() -> None:
    """Let what is written to a standard output that nobody reads, and to a standard error that is the same, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):  # no standard error at all
        if os.path.sameopenfile(1, 2):
            os.dup2(nowhere, 2)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _clock(seconds: float) -> str:
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{whole:02d}"


def _scalar_writers(folder: Path, resumed_at: int) -> list[Any]:
    """Writers of those two packages that are installed (the extra ``log`` installs both).

    TensorBoard leaves out what a killed run wrote beyond ``resumed_at``; VisualDL cannot, and shows such points twice.
    """
    writers = []
    for name, (package, writer) in SCALARS.items():
        try:
            module = importlib.import_module(package)
        except ImportError:
            continue
        again = {"purge_step": resumed_at + 1} if resumed_at and name == "tensorboardx" else {}
        writers.append(getattr(module, writer)(logdir=str(folder / name), **again))
    return writers
