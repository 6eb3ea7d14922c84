"""The package of a framework, imported when a command needs it."""

from __future__ import annotations

import importlib
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.interrupts import importing


def training_package(framework: str) -> Any:
    """``mobilenetv3_paddle.train`` or ``mobilenetv3_ref.train``.

    Raises:
        UserError: the package is not part of this repository, as the reference of one that tools/clean.py wrote.
    """
    name = f"mobilenetv3_{framework}"
    try:
        with importing():
            return importlib.import_module(f"{name}.train")
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UserError(f"--framework {framework}: this repository has no {name}: leave the flag out") from error
