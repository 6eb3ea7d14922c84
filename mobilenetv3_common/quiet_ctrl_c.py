"""Imported first by a command, before anything that takes long: Ctrl-C then ends it at once, until its ``main`` begins.

Nothing changes where another program imports the command.
"""

from __future__ import annotations

import os
import sys

from mobilenetv3_common.interrupts import end_at_ctrl_c

COMMANDS = ("tools", "alignment")  # folders

_program = os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")
if os.path.basename(os.path.dirname(_program)) in COMMANDS:
    end_at_ctrl_c()
