"""An audit of two models that somebody can name: ``python -m alignment audit``, and ``from alignment import audit``."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from typing import Any

TITLE = __doc__ or ""


class _Callable(types.ModuleType):
    def __call__(self, port: Any, reference: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        return _function()(port, reference, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """As ``inspect`` and editors show it."""
        return inspect.signature(_function())

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{TITLE}\n\naudit{self.__signature__}\n\n{inspect.getdoc(_function())}"


def _function() -> Any:
    """The package and the function share a name, and whoever imports the name may call it: see ``alignment.api.audit``."""
    return importlib.import_module("alignment.api").audit


sys.modules[__name__].__class__ = _Callable
