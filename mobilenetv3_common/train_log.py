"""What a training run tells: the guide's log line, JSON lines, scalars for VisualDL and TensorBoard, a progress bar."""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mobilenetv3_common.files import atomic_open

JSON_LINES = "train_log.jsonl"
TEXT_LOG = "train.log"
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
        total_updates: updates in the whole run, for the time left.
        resumed_at: updates done before this start; later lines of an earlier start are dropped.
    """

    folder: Path | None
    total_updates: int
    resumed_at: int = 0
    _writers: list[Any] = field(default_factory=list)
    _bar: Any = None

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        lines = self.folder / JSON_LINES
        if lines.is_file():
            kept = [line for line in lines.read_text(encoding="utf-8").splitlines() if _update_of(line) <= self.resumed_at]
            with atomic_open(lines, "w") as file:
                file.write("".join(f"{line}\n" for line in (kept if self.resumed_at else [])))
        self._writers = _scalar_writers(self.folder)
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=self.total_updates, initial=self.resumed_at, unit="update", dynamic_ncols=True)

    def line(self, text: str) -> None:
        """A line for people, on standard output and in ``train.log``."""
        if self.folder is None:
            return
        if self._bar is not None:
            self._bar.clear()
        print(text, flush=True)
        with open(self.folder / TEXT_LOG, "a", encoding="utf-8") as file:
            file.write(text + "\n")

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
        self.line(
            f"[Epoch {epoch}, iter: {iteration}] top1: {figures['top1']:.5f}, top5: {figures['top5']:.5f}, "
            f"lr: {figures['lr']:.6f}, loss: {figures['loss']:.5f}, "
            f"avg_reader_cost: {figures['avg_reader_cost']:.5f} sec, avg_batch_cost: {figures['avg_batch_cost']:.5f} sec, "
            f"avg_samples: {figures['avg_samples']:g}, avg_ips: {figures['avg_ips']:.5f} images/sec, "
            f"eta: {_clock(eta)}, memory: {figures['memory_mib']:.0f} MiB"
        )
        self._record("train", epoch, iteration, update, figures)

    def evaluation(self, epoch: int, update: int, figures: dict[str, float], best: float) -> None:
        """The result of an evaluation: ``top1``, ``top5``, ``loss`` and ``samples``."""
        if self.folder is None:
            return
        self.line(
            f"[Eval epoch {epoch}] top1: {figures['top1']:.5f}, top5: {figures['top5']:.5f}, loss: {figures['loss']:.5f}, "
            f"samples: {figures['samples']:g}, best top1: {best:.5f}"
        )
        self._record("eval", epoch, 0, update, figures)

    def _record(self, kind: str, epoch: int, iteration: int, update: int, figures: dict[str, float]) -> None:
        assert self.folder is not None
        entry = {"kind": kind, "epoch": epoch, "iter": iteration, "update": update, **figures}
        with open(self.folder / JSON_LINES, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        for writer in self._writers:
            for name, value in figures.items():
                writer.add_scalar(f"{kind}/{name}", value, update)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        if self._bar is not None:
            self._bar.close()


def read_json_lines(folder: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The entries of one kind (``train`` or ``eval``) of a run's log, in order."""
    entries = [json.loads(line) for line in (Path(folder) / JSON_LINES).read_text(encoding="utf-8").splitlines()]
    return [entry for entry in entries if entry["kind"] == kind]


def peak_memory_mib() -> float:
    """Largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)


def _update_of(line: str) -> float:
    try:
        return json.loads(line)["update"]
    except (ValueError, KeyError):  # the half of a line that a killed run left
        return float("inf")


def _clock(seconds: float) -> str:
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{whole:02d}"


def _scalar_writers(folder: Path) -> list[Any]:
    """Writers of those two packages that are installed (the extra ``log`` installs both)."""
    writers = []
    for name, (package, writer) in SCALARS.items():
        try:
            module = importlib.import_module(package)
        except ImportError:
            continue
        writers.append(getattr(module, writer)(logdir=str(folder / name)))
    return writers
