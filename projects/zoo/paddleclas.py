"""PaddleClas' backbones without the rest of it: the package imports data pipelines that need pinned, older versions of numpy."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from mobilenetv3_common.errors import UserError
from projects.zoo import shells

VERSION = "2.6.0"
GET = f"pip install --no-deps paddleclas=={VERSION}, or --paddleclas DIR, a clone of github.com/PaddlePaddle/PaddleClas"
BACKBONES = Path("ppcls", "arch", "backbone")
# Packages whose own __init__ imports all the rest.
SHELLS = ("ppcls", "ppcls.arch", "ppcls.arch.backbone", "ppcls.utils")


def find(given: Path | None) -> Path:
    """The folder that has ``ppcls``: a clone, or what pip installed.

    Args:
        given: ``--paddleclas``; None to look for the installed package.

    Raises:
        UserError: there is none.
    """
    if given is not None:
        if not (given / BACKBONES).is_dir():
            raise UserError(f"--paddleclas {given}: it has no folder {BACKBONES.as_posix()}; give a clone of PaddleClas")
        return given.resolve()
    spec = importlib.util.find_spec("paddleclas")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    if folder is None or not (folder / BACKBONES).is_dir():
        raise UserError(f"PaddleClas is not installed: {GET}")
    return folder


def check_timm() -> None:
    """See that the references are here; ``UserError`` where not."""
    if importlib.util.find_spec("timm") is None:
        raise UserError("timm is not installed: pip install -c constraints.txt -e '.[zoo]'")


def make_importable(folder: Path) -> None:
    """Let the files of ``ppcls.arch.backbone`` be imported one by one, without the ``__init__`` of the packages above them.

    Args:
        folder: that has ``ppcls``.
    """
    shells.make_importable(folder, SHELLS)
    importlib.import_module("ppcls.utils.logger").init_logger()
