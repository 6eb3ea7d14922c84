"""PaDiff in a process of its own, since it wraps functions of both frameworks when it is imported (``bench.padiff``)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mobilenetv3_common.errors import UserError


def check_padiff(folder: Path) -> None:
    """Raise ``UserError`` where a folder has no PaDiff."""
    if not (folder / "padiff").is_dir():
        raise UserError(f"{folder} has no PaDiff: pip install --no-deps --target {folder} padiff==0.2.0 pyyaml")


def padiff_finds(names: list[str], folder: Path, file: Path) -> dict[str, str]:
    """Ask PaDiff for its verdict on each fault of a project's file, or of a file of pairs of layers ("pair: fault")."""
    root = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(folder.resolve()), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as work:
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "bench.padiff", str(file.resolve()), *names],
            cwd=work,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    return dict(line.split("\t", 1) for line in run.stdout.splitlines() if "\t" in line)
