"""python -m mnv3"""

import sys

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mnv3.cli import main

if __name__ == "__main__":
    sys.exit(main())
