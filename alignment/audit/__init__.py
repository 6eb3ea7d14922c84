"""An audit of two models that somebody can name: ``python -m alignment audit``, and ``from alignment import audit``."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any


class _Callable(types.ModuleType):
    """The package and the function share a name, and whoever imports the name may call it: see ``alignment.api.audit``."""

    def __call__(self, port: Any, reference: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        return importlib.import_module("alignment.api").audit(port, reference, **options)


sys.modules[__name__].__class__ = _Callable
