"""python -m alignment"""

import sys

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from alignment.cli import main

if __name__ == "__main__":
    sys.exit(main())
