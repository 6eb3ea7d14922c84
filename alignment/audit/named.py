"""Objects that a command line names: ``MODULE:NAME`` or ``FILE.py:NAME``."""

from __future__ import annotations

import difflib
import sys
import warnings
from pathlib import Path
from typing import Any

from alignment.frameworks import advice_on, import_module
from alignment.project import import_file
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError


def named_object(flag: str, text: str) -> Any:
    """What ``MODULE:NAME`` or ``FILE.py:NAME`` names; modules are looked for in the working folder, too.

    Raises:
        UserError: there is no such module or name, or importing the module raises.
    """
    module_name, _, name = text.rpartition(":")
    if not module_name or not name:
        raise UserError(f"{flag} {text}: expected MODULE:CALLABLE, e.g. torchvision.models:resnet50, or FILE.py:CALLABLE")
    warnings.filterwarnings("ignore", message=".*No ccache found.*")  # what importing Paddle says
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with strangers("module", alone=True) as raised:
        module = import_file(_file(flag, module_name)) if module_name.endswith(".py") else import_module(module_name)
    if (error := raised.error) is not None:
        if isinstance(error, UserError):
            raise error
        absent = isinstance(error, ModuleNotFoundError)
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise UserError(f"{flag} {text}: there is no module {error.name!r} here") from error
        why = f"{advice_on(error) or raised.words}{'' if absent else raised.there}"
        raise UserError(f"{flag} {text}: {module_name} cannot be imported: {why}") from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [one for one in dir(found) if not one.startswith("_")], 1)
            raise UserError(f"{flag} {text}: {module_name} has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        found = getattr(found, part)
    return found


def title(made: Any) -> str:
    """``MODULE:CALLABLE`` of a class or function; else of the class of what is given."""
    kind = made if hasattr(made, "__qualname__") else type(made)
    return f"{kind.__module__}:{kind.__qualname__}"


def _file(flag: str, path: str) -> Path:
    file = Path(path).resolve()
    if not file.is_file():
        raise UserError(f"{flag} {path}: there is no such file")
    return file
