"""What a program gives for a side of an audit or a dump: a model, what makes one, or a name."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

from alignment.audit.pair import GivenMaker, ModelMaker
from mobilenetv3_common.errors import UserError


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
    return GivenMaker(flag, _title(made), keywords, maker, not _makes(made))


def _title(made: Any) -> str:
    kind = made if hasattr(made, "__qualname__") else type(made)
    return f"{kind.__module__}:{kind.__qualname__}"


def _makes(made: Any) -> bool:
    """Whether it is a callable that makes a model, rather than a model."""
    return isinstance(made, type | functools.partial) or hasattr(made, "__qualname__")


def _maker(role: str, made: Any) -> Callable[[], Any]:
    """What makes the model: the callable that was given, or copies of a model."""
    if _makes(made):
        return made  # type: ignore[no-any-return]
    if any(hasattr(made, name) for name in ("state_dict", "parameters_dict")):
        return functools.partial(copy.deepcopy, made)
    raise UserError(f"{role} is a {type(made).__name__}: give a model, what makes it, or 'MODULE:CALLABLE'")


class Nowhere:
    """A stream that keeps nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing is held."""

    def isatty(self) -> bool:
        return False
