"""What a program gives for a side of an audit or a dump: a model, what makes one, or a name."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from alignment.audit.named import title
from alignment.audit.pair import GivenMaker, ModelMaker
from alignment.flags import audit_parser
from mobilenetv3_common.errors import UserError

INPUTS = "inputs.npz"  # the file of arrays that are given
FLAG = re.compile(r"(?<![\w-])(?<!calls )(?<!what )--([a-z][a-z-]*[a-z])(?:([ =])('\{.*?\}'|\S+?)(?=[:;,)?]*(?:\s|$)))?")
VALUE = re.compile(r"\d[\dx.]*|'\{.*\}'|gpu|cpu|b?float16|\w\S*[:.@/]\S+")  # what is no word of a sentence


def as_arguments_of_audit(text: str) -> str:
    """A sentence of the command in which its flags are arguments of ``alignment.audit``: ``--updates 3`` becomes ``updates=3``.

    Other commands of the project stay as they are, and so does what is said of the command itself ("what --weights takes").
    """
    known = {name: action for action in audit_parser()._actions for name in action.option_strings}

    def one(found: re.Match[str]) -> str:
        action, value = known.get(f"--{found[1]}"), found[3]
        if action is None or "python -m alignment" in text[: found.start()]:
            return found[0]
        name = "inputs" if action.dest == "input" else action.dest
        if action.nargs == 0:
            return f"{name}={action.const is not False}{(found[2] or '') + (value or '')}"
        if value is None or not (VALUE.fullmatch(value) or (found.start() == 0 and text[found.end() :].startswith(":"))):
            return f"{name}{(found[2] or '') + (value or '')}"
        plain = value.strip("'") if value.startswith("'{") else value if value.isdigit() else f'"{value}"'
        return f"{name}={plain}"

    return FLAG.sub(one, text)


def maker_of(role: str, made: Any, arguments: Mapping[str, Any] | None = None) -> ModelMaker:
    """What makes a side's model, of whatever a program gives.

    Args:
        role: ``"port"``, ``"reference"`` or ``"dump"``.
        made: a model, what makes one, or its name.
        arguments: keyword arguments of what makes the model.

    Raises:
        UserError: it is none of these, or a model is given with arguments.
    """
    flag, keywords = "dump" if role == "dump" else f"--{role}", arguments or {}
    if isinstance(made, str):
        return ModelMaker(flag, made, keywords)
    maker = _maker(role, made)
    if keywords and not _makes(made):
        raise UserError(f"{role}_args: {role} is a model, which is built already; give the class or function that makes it")
    return GivenMaker(flag, title(made), keywords, maker, not _makes(made))


def _makes(made: Any) -> bool:
    """Whether it is a callable that makes a model, rather than a model."""
    return isinstance(made, type | functools.partial) or hasattr(made, "__qualname__")


def _maker(role: str, made: Any) -> Callable[[], Any]:
    """What makes the model: the callable that was given, or copies of a model."""
    if _makes(made):
        return made  # type: ignore[no-any-return]
    if any(hasattr(made, name) for name in ("state_dict", "parameters_dict")):
        return lambda: copy.deepcopy(made)  # a partial call would have the arguments of deepcopy for options of the model
    raise UserError(f"{role} is a {type(made).__name__}: give a model, what makes it, or 'MODULE:CALLABLE'")


def given_inputs(inputs: Any, folder: Path) -> Any:
    """What ``--input`` is given for ``inputs``: arrays are written into a folder; a function is one.

    Raises:
        UserError: it is none of what a program may give.
    """
    if inputs is None or isinstance(inputs, str | Path):
        return None if inputs is None else str(inputs)
    if inspect.isroutine(inputs) or isinstance(inputs, functools.partial):
        return inputs
    given = inputs if isinstance(inputs, dict) else dict(enumerate(inputs if isinstance(inputs, list | tuple) else [inputs]))
    arrays = {str(name): np.asarray(one.detach().cpu() if hasattr(one, "detach") else one) for name, one in given.items()}
    if not arrays or any(array.dtype.kind not in "biuf" or not array.ndim for array in arrays.values()):
        known = 'a shape such as "2x3x224x224", a file, an array, a tuple of arrays of numbers, a dictionary of them, or a function'
        raise UserError(f"inputs: expected {known}")
    folder.mkdir(parents=True, exist_ok=True)
    named: dict[str, Any] = {name if isinstance(inputs, dict) else f"arr_{name}": one for name, one in arrays.items()}
    np.savez(folder / INPUTS, **named)
    return str(folder / INPUTS)


class Nowhere:
    """A stream that keeps nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing is held."""

    def isatty(self) -> bool:
        return False
