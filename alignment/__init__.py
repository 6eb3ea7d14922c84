"""Proof that a ported model is its reference: frameworks, projects, steps, localisation, reports. It knows no model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alignment import audit

if TYPE_CHECKING:
    from alignment.api import Place, Result, assert_aligned

__all__ = ["Place", "Result", "assert_aligned", "audit"]


def __getattr__(name: str) -> Any:
    """The functions for a program, loaded when they are asked for, so that ``import alignment`` stays light."""
    if name in ("Place", "Result", "assert_aligned"):
        return getattr(importlib.import_module("alignment.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
