"""Where a verdict was made: machine, Python, packages, and the commit of the folder in which the command ran."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "paddlepaddle",
    "paddlepaddle-gpu",
    "torch",
    "torchvision",
    "mindspore",
    "numpy",
    "pillow",
    "opencv-python-headless",
    "opencv-python",
)


def versions() -> dict[str, str]:
    """Versions of everything that can change a result, as far as it is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str]:
    """Python, operating system, and processor."""
    return {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}", "processor": _processor()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} threads)" if names else platform.processor() or "unknown"


def commit(folder: Path | None = None) -> str:
    """The Git commit of a folder, with ``+ changes`` where files that Git tracks differ from it; ``""`` where there is none."""
    try:
        said = [
            subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return ""
    return said[0] + (" + changes" if said[1] else "")
