"""How the person who reads a text calls the commands: ``python tools/train.py`` in a checkout, ``mnv3 train`` once installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
OTHERWISE = {"export_model": "export", "convert_weights": "convert", "lr_find": "lr-find"}  # file of tools/ -> sub-command
SAME = ("train", "eval", "predict", "infer", "serve", "doctor", "align")


def in_checkout() -> bool:
    """Whether this code runs in a checkout of the project, and not as an installed package."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "tools" / "train.py").is_file()


def as_called(text: str) -> str:
    """A text with ``python tools/NAME.py`` written as ``mnv3 NAME`` for a reader who called ``mnv3``, or has no ``tools/`` here."""
    if in_checkout() and Path.cwd() == CHECKOUT and not sys.argv[0].startswith("mnv3 "):
        return text
    return re.sub(r"(?:python )?tools/(\w+)\.py", _sub_command, text)


def _sub_command(found: re.Match[str]) -> str:
    name = OTHERWISE.get(found[1], found[1] if found[1] in SAME else "")
    return f"mnv3 {name}" if name else found[0]
