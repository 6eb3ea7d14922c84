"""The order in which a model returns what has names: the port's dictionaries are read in the order of the reference's.

Everything that a module returns is compared tensor by tensor, in order. For a tuple that order is what the caller sees; the
entries of a dictionary are found by their names, whatever order the port puts them in.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alignment.frameworks.base import Call, Framework, Module, leaves

Order = Any  # the names of an output that has some, and below each the order of what it holds; None where nothing has names


def order_of(output: Any) -> Order:
    """The names in an output: nested dictionaries for dictionaries, named tuples and dataclasses, lists for tuples and lists."""
    if isinstance(output, tuple | list) and not hasattr(output, "_fields"):
        parts = [order_of(part) for part in output]
        return parts if any(parts) else None
    named = _named(output)
    return None if named is None else {name: order_of(part) for name, part in named.items()}


def orders_of(calls: Mapping[str, Call]) -> dict[str, Order]:
    """By path, of the modules that return something with names.

    Args:
        calls: of one pass through the reference.
    """
    found = {key.partition("#")[0]: order_of(call.output) for key, call in calls.items()}
    return {path: order for path, order in found.items() if order is not None}


def names_of(output: Any) -> list[str]:
    """What each array of an output is called, in order, e.g. ``"dense.depth"`` or ``"[1][0]"``; ``""`` where it has no name.

    Args:
        output: arrays in nested tuples, lists, dictionaries, named tuples and dataclasses.
    """
    found: list[str] = []

    def walk(value: Any, above: str) -> None:
        named = _named(value)
        if isinstance(value, np.ndarray):
            found.append(above)
        elif named is not None:
            for name, part in named.items():
                walk(part, f"{above}.{name}" if above else str(name))
        elif isinstance(value, tuple | list):
            for number, part in enumerate(value):
                walk(part, f"{above}[{number}]")
        else:
            found.extend(above for _ in leaves(value, np.ndarray))

    walk(output, "")
    return found


def in_order(output: Any, order: Order, whole: bool = True) -> Any:
    """An output with the entries of its dictionaries in a given order; as it is where the names are others.

    Args:
        output: of a module.
        order: of the reference's.
        whole: whether it is the model's own, which the model does not use itself: named tuples, dataclasses and other kinds of
            dictionaries with another order may then become plain dictionaries.
    """
    if isinstance(order, list) and isinstance(output, tuple | list) and len(output) == len(order):
        parts = [in_order(part, one, whole) for part, one in zip(output, order, strict=True)]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    named = _named(output)
    if not isinstance(order, dict) or named is None or named.keys() != order.keys():
        return output
    parts_of = {name: in_order(named[name], one, whole) for name, one in order.items()}
    if list(named) == list(order) and all(parts_of[name] is named[name] for name in named):
        return output
    if type(output) in (dict, OrderedDict):
        return type(output)(parts_of)
    return parts_of if whole else output


def put_in_order(framework: Framework, modules: Mapping[str, Module], orders: Mapping[str, Order]) -> None:
    """From now on modules return their dictionaries in the order of the reference's.

    Args:
        framework: of the modules.
        modules: by the reference's path.
        orders: by the reference's path.
    """

    def ordering(order: Order, whole: bool) -> Callable:
        return lambda _module, _args, _kwargs, output: in_order(output, order, whole)

    for path, order in orders.items():
        if path in modules:
            framework.hook(modules[path], after=ordering(order, path == ""))


def output_title(number: int, output: Any = None) -> str:
    """The array of a number, from 0 on, in words: ``output``, ``output 2``, and ``output 2 (aux)`` where the model names it."""
    names = names_of(output)
    name = names[number] if number < len(names) else ""
    title = "output" if number == 0 else f"output {number + 1}"
    return title if name in ("", f"[{number}]") else f"{title} ({name})"


def _named(output: Any) -> dict[str, Any] | None:
    """The parts of an output by name; None where they have none."""
    if isinstance(output, dict):
        return output
    if hasattr(output, "_fields"):
        return dict(zip(output._fields, output, strict=True))
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return {field.name: getattr(output, field.name, None) for field in dataclasses.fields(output)}
    return None
