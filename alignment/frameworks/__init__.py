"""The frameworks that the engine knows: a file each, found by name. Importing this package imports none of them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from alignment.frameworks.base import Framework
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError

EXTRAS = {"torch": "ref", "onnx": "deploy"}  # frameworks whose extra in pyproject.toml has another name than they
# Their shared libraries cannot be loaded after those of another framework: what the loader says then.
LOADED_FIRST = {"mindspore": "dnnl_threadpool_interop"}


def names() -> list[str]:
    """Every framework that has a file here, installed or not."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base" and not m.name.startswith("_"))


def framework(name: str) -> Framework:
    """A framework on its default device, without a project's own layers.

    Raises:
        UserError: there is no such framework, or it is not installed.
    """
    if name not in names():
        raise UserError(f"unknown framework {name!r}: use one of {', '.join(names())}")
    try:
        return importlib.import_module(f"{__name__}.{name}").FRAMEWORK()
    except ImportError as error:
        if advice := advice_on(error):
            raise UserError(f"the framework {name} cannot be used: {advice}") from error
        raise


def advice_on(error: BaseException) -> str:
    """What to do about an import that raised, where a framework is missing or cannot be loaded any more; ``""`` elsewhere."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and name in names():
        return f"{name} is not installed: pip install -c constraints.txt -e '.[{EXTRAS.get(name, name)}]'"
    late = next((one for one, words in LOADED_FIRST.items() if words in str(error)), "")
    return f"{late} cannot be loaded after the other framework: import {late} first, at the top of the file" if late else ""


def load_first(texts: Iterable[str]) -> None:
    """Import the frameworks that must be loaded before the others, where one of several modules or files imports such a one.

    Args:
        texts: ``MODULE:NAME`` or ``FILE.py:NAME``; nothing of them is imported.
    """
    for text in texts:
        source = _source(text.rpartition(":")[0])
        for name in LOADED_FIRST:
            imported = re.search(rf"^\s*(from|import) ({name}\b|alignment\.frameworks\.{name}\b)", source, re.M)
            if imported and importlib.util.find_spec(name) is not None:
                framework(name)


def _source(module: str) -> str:
    """The text of a module's file, found without importing what it is in; ``""`` where there is none."""
    if module.endswith(".py") or not module:
        file = Path(module)
    else:
        parts = Path(*module.split("."))
        found = [Path(folder or ".") / parts for folder in ("", *sys.path)]
        tried = [file for path in found for file in (path.with_suffix(".py"), path / "__init__.py")]
        file = next((file for file in tried if file.is_file()), Path())
    try:
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    except OSError:
        return ""


@contextlib.contextmanager
def building() -> Iterator[None]:
    """A model is built inside the block as the first one of its process, whichever of the loaded frameworks it is of."""
    with contextlib.ExitStack() as stack:
        for name in names():
            if sys.modules.get(name) is not None:
                stack.enter_context(framework(name).building())
        yield


def framework_of(model: Any) -> Framework:
    """The framework whose module a model is, on the device where it lies.

    Raises:
        UserError: it is no module of any of them.
    """
    roots = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    for name in names():
        if name in roots and isinstance(model, (found := framework(name)).module_type):
            found.follow(model)
            return found
    raise UserError(f"{type(model).__name__} is not a module of {', '.join(names())}: give a model, not its output or its class")


def import_module(name: str) -> ModuleType:
    """Import somebody's module; where that raises for what a framework knows to mend, mend it and try again.

    Raises:
        Exception: whatever the module raises.
    """
    with strangers("module", alone=True) as raised:
        return importlib.import_module(name)
    assert raised.error is not None
    known = [framework(name) for name in names() if sys.modules.get(name) is not None]
    if not any(one.repaired(raised.error) for one in known):
        raise raised.error
    return importlib.import_module(name)
