"""Single mistakes, and right rewrites, as edits of the source: what ``bench --source-faults`` and ``bench --rewrites`` run.

The first ninety or so are the mistakes of ``projects/mobilenetv3/faults``, made in the text that a porter writes. Every file of
this folder is imported, so a new fault is one call in one file. The old text occurs exactly once in its file, and a test holds
that: where the source changes, its edits show at once.
"""

import importlib
import pkgutil

from .base import EDITS

for _found in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_found.name)

__all__ = ["EDITS"]
