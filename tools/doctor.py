"""Examine a training run and its data: python tools/doctor.py --help."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not tools/, where this very file is called as the package is

import mobilenetv3_common.quiet_ctrl_c  # noqa: E402, F401
from doctor.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
