"""The sub-commands of ``mnv3``; each is also a file of ``tools/``."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common import __version__
from mobilenetv3_common.errors import UserError, exit_on_user_error

# Name -> the module that has its main(), imported when it is asked for, and what it does.
COMMANDS = {
    "train": ("mnv3.train", "train on ImageNet folders or list files"),
    "eval": ("mnv3.eval", "evaluate weights on validation pictures"),
    "predict": ("mnv3.predict", "name what is on pictures"),
    "export": ("mnv3.export", "export weights for Paddle Inference and ONNX Runtime"),
    "infer": ("mnv3.infer", "run an exported model on pictures"),
    "serve": ("mnv3.serve", "serve an exported model over HTTP"),
    "convert": ("mnv3.convert", "convert weights between torch and Paddle"),
    "lr-find": ("mnv3.lr_find", "find a learning rate"),
    "doctor": ("alignment_doctor.cli", "examine a training run and its data"),
    "audit": ("mnv3.audit", "find the mistakes of any port, beside its reference"),
    "align": ("mnv3.align", "compare this MobileNetV3 with the PyTorch reference, step by step"),
}


@exit_on_user_error
def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the sub-commands; returns its exit status."""
    name, *rest = (sys.argv[1:] if argv is None else list(argv)) or [""]
    if name in ("", "-h", "--help"):
        lines = [f"  {command:8} {words}" for command, (_, words) in COMMANDS.items()]
        print("\n".join(["usage: mnv3 COMMAND ...", "", *lines, "", "mnv3 COMMAND --help lists the flags; mnv3 --version"]))
        return 0 if name else 2
    if name == "--version":
        print(f"mnv3 {__version__}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        raise UserError(f"unknown command {name!r}: {f'did you mean {near[0]}? ' if near else ''}use one of {', '.join(COMMANDS)}")
    sys.argv = [f"mnv3 {name}", *rest]  # help and messages name the command as it was called
    return int(importlib.import_module(COMMANDS[name][0]).main(rest))
