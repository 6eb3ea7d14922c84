"""Imported first by a command, before anything that takes long: Ctrl-C then ends it at once, until its ``main`` begins.

Nothing changes where another program imports the command.
"""

from __future__ import annotations

import os
import sys

from mobilenetv3_common.interrupts import end_at_ctrl_c

COMMANDS = ("tools", "mnv3", "alignment", "alignment_doctor", "doctor")  # folders, and installed commands

_program = os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")
if {os.path.basename(os.path.dirname(_program)), os.path.basename(_program)} & set(COMMANDS):
    end_at_ctrl_c()
