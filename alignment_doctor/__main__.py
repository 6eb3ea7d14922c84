"""python -m alignment_doctor: the same as mnv3 doctor."""

import sys

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from alignment_doctor.cli import main

if __name__ == "__main__":
    sys.exit(main())
