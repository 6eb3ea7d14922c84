"""Align MobileNetV3: python tools/align.py --help. The same as python -m alignment run projects/mobilenetv3/project.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from alignment import cli
from mobilenetv3_common.called import as_called, in_checkout

CHECKOUT = Path(__file__).resolve().parents[1]
INSTALLED = Path(__file__).parent / "mobilenetv3"  # where the wheel puts projects/mobilenetv3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the alignment steps of MobileNetV3; results go to ``result/``, of the checkout where there is one."""
    argv = sys.argv[1:] if argv is None else argv
    folder, result = (CHECKOUT / "projects" / "mobilenetv3", CHECKOUT / "result") if in_checkout() else (INSTALLED, Path("result"))
    return cli.run(argv, folder / "project.py", result, as_called("python tools/align.py"))


if __name__ == "__main__":
    sys.exit(main())
