"""The same command as ``mnv3 align``: python tools/align.py --help."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the code of this folder, wherever another is installed

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mnv3.align import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
