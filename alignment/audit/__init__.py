"""An audit of two models that somebody can name: ``python -m alignment audit``, and ``from alignment import audit``."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from alignment import api


class _Callable(types.ModuleType):
    """The package and the function share a name, and whoever imports the name may call it: see ``alignment.api.audit``."""

    def __call__(self, port: Any, reference: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        return api.audit(port, reference, **options)


sys.modules[__name__].__class__ = _Callable
__signature__ = inspect.signature(api.audit)  # as help() and editors show it
__doc__ = f"{__doc__}\n\naudit{__signature__}\n\n{inspect.getdoc(api.audit)}"
