"""What a copy of a model does as the model did: functions kept as attributes call its own modules, random numbers are shared.

Such a function is ``self.run = lambda x: m.proj(m.fc(x))``.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any

from alignment.frameworks._dropout import passed_on


def follow(copies: Iterable[Any], originals: Iterable[Any]) -> None:
    """Let the functions of copied modules use the copies of what they used, as ``copy.deepcopy`` shares functions; and the
    modules draw the numbers that the originals draw."""
    copies, originals = list(copies), list(originals)
    passed_on(copies, originals)
    twins = {id(original): made for original, made in zip(originals, copies, strict=False)}
    for module in copies:
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                object.__setattr__(module, name, _over(value, twins))


def _over(function: types.FunctionType, twins: Mapping[int, Any]) -> types.FunctionType:
    """A function with other modules in the place of those that it holds, in its closure and as defaults."""
    cells, defaults = function.__closure__ or (), function.__defaults__ or ()
    held = [_content(cell) for cell in cells]
    if not any(id(one) in twins for one in (*held, *defaults)):
        return function
    closure = tuple(types.CellType(twins[id(one)]) if id(one) in twins else cell for one, cell in zip(held, cells, strict=True))
    given = tuple(twins.get(id(one), one) for one in defaults) if defaults else None
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, given, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None
