"""Align MobileNetV3: python tools/align.py --help. The same as python -m alignment run projects/mobilenetv3/project.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from alignment import cli

ROOT = Path(__file__).resolve().parents[1]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the alignment steps of MobileNetV3; results go to the project's ``result/``."""
    argv = sys.argv[1:] if argv is None else argv
    return cli.run(argv, ROOT / "projects" / "mobilenetv3" / "project.py", ROOT / "result", "python tools/align.py")


if __name__ == "__main__":
    sys.exit(main())
