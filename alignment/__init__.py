"""Proof that a ported model is its reference: frameworks, projects, steps, localisation, reports. It knows no model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alignment import audit

if TYPE_CHECKING:
    from alignment.api import Place, Result, assert_aligned
    from alignment.dumps.api import Dump, dump, load

__all__ = ["Dump", "Place", "Result", "assert_aligned", "audit", "dump", "load"]


def __getattr__(name: str) -> Any:
    """The functions for a program, loaded when they are asked for, so that ``import alignment`` stays light."""
    if name in ("Place", "Result", "assert_aligned"):
        return getattr(importlib.import_module("alignment.api"), name)
    if name in ("Dump", "dump", "load"):
        return getattr(importlib.import_module("alignment.dumps.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
