"""Pickles of training checkpoints, read without a class of theirs: what is no array or tensor is kept as plain data.

A trainer stores more than weights: its arguments, its configuration, counters of its own classes. Each such object is read into a
``Left``, which holds what the file says of it; its class is neither imported nor called. A file that asks for something of Python's
own library other than a type of data (``os.system``, ``eval``) is refused: no trainer writes that.
"""

from __future__ import annotations

import _compat_pickle
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar

from mobilenetv3_common import safe_pickle
from mobilenetv3_common.safe_pickle import BoundedUnpickler

# Modules of Python's own library whose objects are data, and names of others; they are read as ``Left`` like everything else, but
# are no reason to refuse.
DATA_MODULES = {
    "argparse", "collections", "dataclasses", "datetime", "decimal", "enum", "fractions", "inspect", "logging", "numbers",
    "pathlib", "random", "re", "time", "typing", "uuid", "zoneinfo",
}  # fmt: skip
DATA = {
    "_codecs": {"encode"},
    "builtins": {
        "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "getattr", "int", "list", "object", "range", "set",
        "slice", "str", "tuple", "type",
    },
    "copyreg": {"__newobj__", "__newobj_ex__", "_reconstructor"},
    "functools": {"partial"},
    "operator": {"attrgetter", "itemgetter"},
    "types": {"MappingProxyType", "NoneType", "SimpleNamespace"},
}  # fmt: skip


MOST_CLASSES = 10_000  # that a file may name; a checkpoint of a trainer names some dozens


class Left:
    """An object of a class that is not read: what the file says of it.

    Attributes:
        title: module and name of its class, or of the function that the file wants to be called.
        given: what the class would have been called with.
        state: its attributes, where the file says them.
        items: its entries, of a dictionary's kind.
        listed: its elements, of a list's kind.
    """

    title: ClassVar[str] = ""
    dump_patches: ClassVar[bool] = False  # old archives hold the source of modules, which torch would compare with this class's

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given = given
        self.state: Any = named
        self.items: dict[Any, Any] = {}
        self.listed: list[Any] = []

    def __new__(cls, *given: Any, **named: Any) -> Left:
        made = super().__new__(cls)
        Left.__init__(made, *given, **named)  # pickle makes most objects without it
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def append(self, value: Any) -> None:
        self.listed.append(value)

    def extend(self, values: Any) -> None:
        self.listed.extend(values)

    add = append

    def attributes(self) -> Mapping[Any, Any]:
        """The attributes that the file says, without those of slots."""
        state = self.state[0] if isinstance(self.state, tuple) and self.state else self.state
        return state if isinstance(state, Mapping) else {}


def left_of(module: str, name: str) -> type[Left]:
    """The class in the place of a class or function that is not read.

    Raises:
        Refused: it belongs to Python's own library and is no type of data.
    """
    module, name = _compat_pickle.NAME_MAPPING.get((module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name))
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names and root not in DATA_MODULES and name not in DATA.get(module, ()):
        raise safe_pickle.Refused(f"it asks for {module}.{name}, which could run code")
    return type("Left", (Left,), {"title": f"{module}.{name}"})


def _once(made: dict[tuple[str, str], type[Left]], module: str, name: str) -> type[Left]:
    """``left_of``, each name once, and not more of them than a file of weights has."""
    if (module, name) not in made:
        if len(made) >= MOST_CLASSES:
            raise safe_pickle.Refused(f"it names more than {MOST_CLASSES} classes and functions")
        made[module, name] = left_of(module, name)
    return made[module, name]


def _ordered(items: Any = ()) -> OrderedDict:
    """An OrderedDict, whose keys are held to the same rules as a dictionary's."""
    return OrderedDict((BoundedUnpickler.key(None, key), value) for key, value in items)  # type: ignore[arg-type]


class Unpickler(BoundedUnpickler):
    """Reads plain data, what ``known`` resolves, and the rest as ``Left``.

    Attributes:
        known: (module, name) -> what stands for it; nothing that can run code, whatever it is called with.
        never_called: of these, what a file may only name.
    """

    stack: list[Any]
    append: Callable[[Any], None]
    never_called: ClassVar[tuple[Any, ...]] = ()
    known: ClassVar[Mapping[tuple[str, str], Any]] = {("collections", "OrderedDict"): _ordered}
    dispatch: ClassVar[dict[int, Any]] = dict(BoundedUnpickler.dispatch)

    def __init__(self, file: IO[bytes], **given: Any) -> None:
        super().__init__(file, **given)
        self.left: dict[tuple[str, str], type[Left]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.known:
            return self.known[module, name]
        return _once(self.left, module, name)

    def load_build(self) -> None:
        """Attributes are given to ``Left`` alone; torch's versions of modules beside a dictionary's keys are not needed."""
        state, made = self.stack.pop(), self.stack[-1]
        if isinstance(made, Left):
            made.__setstate__(state)
        elif isinstance(made, type) or not isinstance(made, OrderedDict):
            raise pickle.UnpicklingError(f"it gives attributes to a {type(made).__name__}")

    def load_reduce(self) -> None:
        """Call what a name stands for."""
        given, called = self.stack.pop(), self.stack[-1]
        self.stack[-1] = self._instance(called, given)

    def load_newobj(self) -> None:
        """Make an object of a class; with named arguments in ``load_newobj_ex``."""
        given = self.stack.pop()
        self.stack[-1] = self._instance(self.stack[-1], given)

    def load_newobj_ex(self) -> None:
        named, given = self.stack.pop(), self.stack.pop()
        self.stack[-1] = self._instance(self.stack[-1], given, named)

    def _instantiate(self, klass: Any, args: Any) -> None:  # of the operations OBJ and INST
        self.append(self._instance(klass, args))

    def _instance(self, called: Any, given: Any, named: Any = None) -> Any:
        stands = any(called is value for value in self.known.values()) or (isinstance(called, type) and issubclass(called, Left))
        if not stands or called in self.never_called:
            raise pickle.UnpicklingError(f"it calls a {type(called).__name__}")
        return called(*given, **(named or {}))

    dispatch |= {
        pickle.BUILD[0]: load_build,
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
    }


def _tuple(values: Any = ()) -> tuple:
    """A tuple of a tuple: so Paddle writes the name and the array of a tensor within a nested dictionary."""
    if not isinstance(values, tuple):
        raise pickle.UnpicklingError("it makes a tuple of something else")
    return values


class ArrayUnpickler(safe_pickle.Unpickler):
    """``safe_pickle.Unpickler`` for checkpoints of Paddle: reads what it does not know as ``Left``."""

    dispatch: ClassVar[dict[int, Any]] = dict(safe_pickle.Unpickler.dispatch)

    def __init__(self, file: IO[bytes], encoding: str = "ASCII") -> None:
        super().__init__(file, encoding)
        self.left: dict[tuple[str, str], type[Left]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in safe_pickle.ALLOWED:
            return safe_pickle.ALLOWED[module, name]
        return _tuple if name == "tuple" and module in ("builtins", "__builtin__") else _once(self.left, module, name)

    def items(self, values: list) -> None:
        """Set keys of the dictionary on top of the stack, or of what takes the place of another kind."""
        if isinstance(self.stack[-1], Left):
            self.stack[-1].items.update((self.key(key), value) for key, value in zip(values[::2], values[1::2], strict=True))
        else:
            super().items(values)

    def build(self) -> None:
        """Give the value below the top of the stack its state."""
        if isinstance(self.stack[-2], Left):
            state = self.stack.pop()
            self.stack[-1].__setstate__(state)
        else:
            super().build()

    def load_newobj(self) -> None:
        """Make an object of a class that is not read."""
        given, made = self.stack.pop(), self.stack[-1]
        if not (isinstance(made, type) and issubclass(made, Left)):
            raise safe_pickle.Refused("it makes an object of a type that weights do not need")
        self.stack[-1] = made(*given)

    dispatch |= {pickle.NEWOBJ[0]: load_newobj, pickle.BUILD[0]: lambda self: self.build()}
