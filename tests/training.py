"""What the training tests share: a run's command, its curve, and weights from which a short run moves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.train_log import read_json_lines
from mobilenetv3_common.weights import write_state
from tests.conftest import ROOT, run_command

# 16 photographs of 64 pixels, a model of half the width: an update takes a tenth of a second.
QUICK = (
    "--data-path", "lite_data", "--crop-size", "64", "--resize-size", "64", "--width-mult", "0.5", "--workers", "0",
    "--batch-size", "4", "--epochs", "2", "--print-every", "1", "--lr", "0.001",
)  # fmt: skip


def train(output_dir: Path, *flags: str, launcher: tuple[str, ...] = (), timeout: float = 200) -> subprocess.CompletedProcess:
    """Run ``tools/train.py`` on the quick settings, alone or under a launcher module."""
    return run_command(*launcher, "tools/train.py", *QUICK, "--output-dir", output_dir, *flags, timeout=timeout, PYTHONPATH=".")


def start(output_dir: Path, *flags: str, **options) -> subprocess.Popen:
    """The same, not waited for."""
    command = [sys.executable, "tools/train.py", *QUICK, "--output-dir", str(output_dir), *flags]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def curve(output_dir: Path, figure: str = "loss") -> np.ndarray:
    """One figure of every log line."""
    return np.array([entry[figure] for entry in read_json_lines(output_dir)])


def weights(output_dir: Path) -> dict[str, np.ndarray]:
    return read_checkpoint(output_dir / LATEST).part("model")


def write_start(folder: Path, state: dict[str, np.ndarray], name: str = "start.pth") -> Path:
    """Calibrated weights cut to the eight classes of lite_data."""
    cut = {k: v[:8] * 0.2 if k == "classifier.3.weight" else v[:8] if k == "classifier.3.bias" else v for k, v in state.items()}
    write_state(folder / name, cut)
    return folder / name
