"""The project that is aligned, and weights where the user gives none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def mobilenetv3() -> Any:
    """MobileNetV3's alignment project."""
    from alignment.project import load_project

    return load_project(ROOT / "projects" / "mobilenetv3" / "project.py")


def calibrated(folder: Path, model: str) -> str:
    """A file of random weights with calibrated statistics."""
    from alignment.models.calibration import calibrated_state
    from mobilenetv3_common.weights import write_state

    path = str(folder / "calibrated.safetensors")
    write_state(path, calibrated_state(mobilenetv3(), model))
    return path
