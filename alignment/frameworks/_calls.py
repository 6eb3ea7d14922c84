"""The functions that a module's own forward calls, in order: what each got and gave, and the line that called it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CellType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from alignment.frameworks._call_names import Named, bound_names, is_arithmetic, named
from alignment.frameworks._passes import Module, Stops, Tensor, leaves, mapped
from alignment.strangers import Refused, strangers

LIMIT = 1 << 30  # bytes of all arrays of one trace: what is called later is not noted
OWN_FOLDER = str(Path(__file__).parent)
METHODS = (type(str.join), type(object.__eq__))  # methods that are written in C
DETACH = "detach"  # of torch and Paddle
FUNCTIONS = (FunctionType, BuiltinFunctionType, *METHODS)

Arrays = list[np.ndarray]
Called = tuple[str, int, str, int]  # file, line, function and instruction


@dataclass(frozen=True)
class Instead:
    """What a call gives instead, made of what it got.

    Attributes:
        function: makes it.
        others: numbers of earlier calls of the same pass, and which of their outputs: these are handed on behind what the call got.
    """

    function: Callable[[Arrays], Arrays]
    others: tuple[tuple[int, int], ...] = ()


class Behind(Instead):
    """What is done with the outputs of a call besides, likewise."""


# Other attributes of a call, or what it gives instead, or a function of what it got that makes that, or of what it gave.
CallChange = Mapping[str, Any] | Sequence[np.ndarray] | Callable[[Arrays], Arrays] | Instead


class TooLarge(Exception):
    """The arrays of a trace take more than ``LIMIT``."""


@dataclass
class Operation:
    """One call of a framework's function, or of a module inside, that a module's forward made itself.

    Attributes:
        number: of the call; the same in each pass over the same input.
        name: what it computes, in words that belong to no framework: ``"softmax"``, ``"concat"``, ``"call PATH"``.
        title: its own name.
        inputs, outputs: indices into ``Trace.values``; of tensors without axes only those that the pass is given or computes from
            others are inputs, since the rest are constants of the source; no outputs where it raised.
        attributes: arguments that are no tensors, under names of no framework, in a form that can be compared.
        spelled: the same as the source gives them.
        file, line, function: where the model's source calls it; ``""`` where no frame is in one.
        site: number of the instruction there, which tells two calls in one line from one call in a loop.
        callers: where the function in which that is was called, and so on, up to the forward of a module.
        outer: where that forward was called, and so on, up to the forward of the module that is traced.
        call: the same under names of no framework, without its tensors; None for a call of a module.
        layer: the framework's own layer that calls the function; None where the model's source does.
    """

    number: int
    name: str
    title: str
    inputs: list[int]
    outputs: list[int]
    attributes: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    line: int = 0
    function: str = ""
    site: int = 0
    callers: tuple[Called, ...] = ()
    outer: tuple[Called, ...] = ()
    call: Named | None = None
    layer: Any = field(default=None, compare=False, repr=False)


@dataclass
class Trace:
    """One pass through a module, as the calls that its own forward made.

    Attributes:
        values: every array that a call got or gave, each once.
        operations: the calls, in order.
        given, results: of the module's input and output, indices into ``values``; no results where it raised.
        error: the exception in words, where it raised one.
    """

    values: list[np.ndarray] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    error: str = ""


SIZES = ("size", "shape")  # arguments that may be given as tensors, and are no numbers that the pass computes with


class Recorder:
    """Notes the calls of one pass; the frameworks hand it each call of one of their functions.

    Args:
        framework: whose functions they are.
        watched: modules inside, by path: a call of one is noted as one operation, and nothing inside it.
        changes: number of a call -> what is changed in it.
        root: folder of the framework's package, whose files are no model's source.
        models: folders inside it whose files are.
    """

    def __init__(
        self,
        framework: Any,
        watched: Mapping[str, Module],
        changes: Mapping[int, CallChange],
        root: str,
        models: Sequence[str] = (),
    ) -> None:
        self.framework, self.watched, self.changes = framework, watched, changes
        self._root, self._models = root, tuple(models)
        self.trace = Trace()
        self.stopped: Stops = (
            frozenset()
        )  # calls through which no gradient flows back, or which do not detach; or what one is given
        self._count = self._depth = self._bytes = 0
        self._known: dict[tuple[int, int], int] = {}
        self._made: set[int] = set()  # values that the pass is given or computes from these or from arrays
        self._numbers: dict[int, list[int]] = {}  # by number of a call: ``id`` of the tensors that are numbers there
        self._kept: list[Any] = []  # so that no tensor takes the place of another one in memory
        self._inside: list[tuple[int, list[int], Called]] = []

    @property
    def outside(self) -> bool:
        """Whether nothing runs that is noted as one call."""
        return not self._depth

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Calls of the watched modules are noted inside the block."""
        handles = []
        for path, module in self.watched.items():
            handles.append(self.framework.hook(module, before=self._entered))
            handles.append(self.framework.hook(module, after=self._left(path)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def give(self, args: Any) -> None:
        """What the module is given, in the framework's tensors."""
        self.trace.given = self._quietly_noted(args)
        self._made.update(self.trace.given)

    def finish(self, output: Any) -> None:
        """What it gave."""
        self.trace.results = self._quietly_noted(output)

    def first_uses(self, paths: Container[str], tensors: Mapping[int, str]) -> list[str]:
        """In the order of the pass: watched modules as they were called, and what tensors belong to as a function was given one.

        Args:
            paths: of the watched modules.
            tensors: ``id`` of a tensor -> what it belongs to.
        """
        held = {number: tensors[one] for (one, _), number in self._known.items() if one in tensors}
        found: list[str] = []
        for operation in self.trace.operations:
            path = operation.name.removeprefix("call ")
            numbers = [tensors[one] for one in self._numbers.get(operation.number, ()) if one in tensors]
            found += [path] if path in paths else [*(held[value] for value in operation.inputs if value in held), *numbers]
        return list(dict.fromkeys(found))

    def run(self, function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function of the framework for the model, and note it."""
        if self._depth:
            return function(*args, **kwargs)
        self._depth += 1
        try:
            return self._noted(function, name, args, kwargs)
        finally:
            self._depth -= 1

    def _noted(self, function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        kind, number = self.framework.tensor_type, self._count
        self._count += 1
        names, defaults = bound_names(function, name)
        bound = [*zip(names, args, strict=False), *kwargs.items()]
        sizes = {id(tensor) for own, value in bound if own in SIZES for tensor in leaves(value, kind)}
        given = [tensor for tensor in leaves((args, kwargs), kind) if id(tensor) not in sizes]
        inputs = [tensor for tensor in given if not self._is_number(tensor, name)]
        self._numbers[number] = [id(tensor) for tensor in given if self._is_number(tensor, name)]
        operation = Operation(number, "", name, [self._note(tensor) for tensor in inputs], [])
        (innermost, *callers), operation.layer = self._called()
        operation.file, operation.line, operation.function, operation.site = innermost
        inside = next((n for n, one in enumerate([innermost, *callers]) if one[2] == self.framework.computing), len(callers))
        operation.callers, operation.outer = tuple(callers[:inside]), tuple(callers[inside:])
        change = self._change(number, operation.inputs)
        if isinstance(change, Mapping):
            call = named(name, names, defaults, args, kwargs, partial(self._plain, name))
            call.shape = self.trace.values[operation.inputs[0]].shape if operation.inputs else ()
            args, kwargs = call.changed(change, args, kwargs)
        if places := {one[1] for one in self.stopped if isinstance(one, tuple) and one[0] == number}:
            held = {id(tensor) for place, tensor in enumerate(inputs) if place in places}
            args, kwargs = mapped((args, kwargs), kind, lambda tensor: self._constant(tensor) if id(tensor) in held else tensor)
        with strangers("framework", alone=True) as raised:
            result = function(*args, **kwargs)
        if raised.error is not None:
            if given:
                self._describe(operation, named(name, names, defaults, args, kwargs, partial(self._plain, name)), [])
            if change is None or isinstance(change, Mapping | Behind):
                raise raised.error
            made = [self.framework.tensor(array) for array in change]
            result = made[0] if len(made) == 1 else made
        elif change is not None and not isinstance(change, Mapping):
            result = self._replaced(result, change)
        if number in self.stopped:
            result = args[0] if name == DETACH else self._constant(result)
        made = [args[0]] if name == "__setitem__" else leaves(result, kind)
        if made and not (raised.error is not None and given):  # else it is described above, with nothing that it gave
            operation.outputs = [self._note(tensor) for tensor in made]
            of_numbers = all(value not in self._made and self.trace.values[value].size == 1 for value in operation.inputs)
            self._made.update(() if of_numbers else operation.outputs)
            if operation.outputs != operation.inputs:
                call = named(name, names, defaults, args, kwargs, partial(self._plain, name))
                made = [self.trace.values[i] for i in operation.outputs]
                call.dtype = "float" if made[0].dtype.kind == "f" else str(made[0].dtype)
                self._describe(operation, call, [array.shape for array in made])
        return result

    def _change(self, number: int, inputs: list[int]) -> Mapping[str, Any] | Sequence[np.ndarray] | Behind | None:
        change = self.changes.get(number)
        if isinstance(change, Instead):
            made = {one.number: one.outputs for one in self.trace.operations} if change.others else {}
            if any(one not in made for one, _ in change.others):
                raise Refused("a value that is made later cannot be given")
            others = [self.trace.values[made[one][part]] for one, part in change.others]
            if isinstance(change, Behind):
                return Behind(lambda arrays: change.function([*arrays, *others]))
            return change.function([*(self.trace.values[value] for value in inputs), *others])
        return change([self.trace.values[value] for value in inputs]) if callable(change) else change

    def _describe(self, operation: Operation, call: Named, shapes: list[tuple[int, ...]]) -> None:
        given = [self.trace.values[i].shape for i in operation.inputs]
        operation.name = call.name
        with contextlib.suppress(Exception):  # arguments of a kind that is not known: they are not compared
            operation.attributes, operation.spelled = call.attributes(given, shapes)
        operation.call = call.without_tensors()
        self.trace.operations.append(operation)

    def _replaced(self, result: Any, change: Sequence[np.ndarray] | Behind) -> Any:
        """The same structure with other values; a tensor beyond the arrays that are given stays."""
        made = [self.framework.array(tensor) for tensor in leaves(result, self.framework.tensor_type)]
        left = iter(change.function(made) if isinstance(change, Behind) else change)

        def other(tensor: Tensor) -> Tensor:
            array = next(left, None)
            return tensor if array is None else self.framework.tensor(array)

        return mapped(result, self.framework.tensor_type, other)

    def _constant(self, result: Any) -> Any:
        """The same values outside of the graph."""
        return mapped(result, self.framework.tensor_type, lambda tensor: self.framework.tensor(self.framework.array(tensor)))

    def _quietly_noted(self, value: Any) -> list[int]:
        self._depth += 1  # what the engine calls itself is no call of the model
        try:
            return [self._note(tensor) for tensor in leaves(value, self.framework.tensor_type)]
        finally:
            self._depth -= 1

    def _plain(self, name: str, value: Any) -> Any:
        """A tensor that is one number for the function of this name as this number."""
        if isinstance(value, self.framework.tensor_type) and self._is_number(value, name):
            return self.framework.array(value).item()
        return value

    def _is_number(self, tensor: Tensor, name: str) -> bool:
        """Whether an argument of a function is one number that does not depend on the module's input, and no input of the call.

        In arithmetic its axes do not matter: a learned factor of shape (1,) and one of shape () are the same.
        """
        shape = tuple(tensor.shape)
        return set(shape) <= ({1} if is_arithmetic(name) else set()) and self._known.get(_key(tensor)) not in self._made

    def _note(self, tensor: Tensor) -> int:
        key = _key(tensor)
        if key not in self._known:
            array = self.framework.array(tensor)
            self._bytes += array.nbytes
            if self._bytes > LIMIT:
                raise TooLarge(f"more than {LIMIT >> 20} MiB of arrays")
            self._known[key] = len(self.trace.values)
            self._kept.append(tensor)
            self.trace.values.append(array)
        return self._known[key]

    # --- modules inside ----------------------------------------------------------------------------------------------------

    def _entered(self, _module: Module, args: tuple) -> None:
        self._depth += 1
        if self._depth == 1:
            given = leaves(args, self.framework.tensor_type)
            self._inside.append((self._count, [self._note(tensor) for tensor in given], self._called()[0][0]))
            self._count += 1

    def _left(self, path: str) -> Callable:
        def left(_module: Module, args: tuple, kwargs: dict, output: Any) -> Any:
            try:
                return self._noted_module(path, kwargs, output) if self._depth == 1 else None
            finally:
                self._depth -= 1

        return left

    def _noted_module(self, path: str, kwargs: dict, output: Any) -> Any:
        number, inputs, place = self._inside.pop()
        inputs += [self._note(tensor) for tensor in leaves(kwargs, self.framework.tensor_type)]
        change = self._change(number, inputs)
        replaced = change is not None and not isinstance(change, Mapping)
        if replaced:
            output = self._replaced(output, change)  # type: ignore[arg-type]
        if number in self.stopped:
            output, replaced = self._constant(output), True
        outputs = [self._note(tensor) for tensor in leaves(output, self.framework.tensor_type)]
        self._made.update(outputs)
        self.trace.operations.append(Operation(number, f"call {path}", path, inputs, outputs, {}, {}, *place))
        return output if replaced else None

    def _called(self) -> tuple[list[Called], Module | None]:
        """The innermost frame in a model's source, none beyond the call that began the trace; and the framework's layer inside.

        Behind it stand the frames that called it. Where there is none, the class of a model's source whose forward is the
        framework's.
        """
        frame, layer, derived = sys._getframe(1), None, None
        while frame is not None:
            file = frame.f_code.co_filename
            if frame.f_code.co_name == "traced" and file.startswith(OWN_FOLDER):
                break
            inside = self._of_framework(file)
            if not inside and not file.startswith((OWN_FOLDER, "<")):
                return list(self._outwards(frame)), layer
            if inside and layer is None and frame.f_code.co_name == self.framework.computing:
                owner = frame.f_locals.get("self")
                layer = owner if isinstance(owner, self.framework.module_type) else None
            derived = derived or (self._derived(frame) if inside else None)
            frame = frame.f_back  # type: ignore[assignment]
        return ([derived], layer) if derived else ([("", 0, "", 0)], None)

    def _outwards(self, frame: FrameType | None) -> Iterator[Called]:
        """A frame in a model's source and those that called it."""
        while frame is not None:
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            if name == "traced" and file.startswith(OWN_FOLDER):
                return
            if not self._of_framework(file) and not file.startswith((OWN_FOLDER, "<")):
                yield file, frame.f_lineno, name, frame.f_lasti
            frame = frame.f_back

    def _of_framework(self, file: str) -> bool:
        return file.startswith(self._root) and not file.startswith(self._models)

    def _derived(self, frame: FrameType) -> Called | None:
        """The class in a model's source whose forward is the framework's, a block derived from ``Sequential``, where one runs."""
        owner = frame.f_locals.get("self") if frame.f_code.co_name == self.framework.computing else None
        place = _defined(owner.__class__) if isinstance(owner, self.framework.module_type) else None
        outside = place is not None and (not place[0].startswith(self._root) or place[0].startswith(self._models))
        return place if outside else None


@functools.cache
def _defined(kind: Hashable) -> Called | None:
    """Where a class is defined."""
    with contextlib.suppress(OSError, TypeError):
        return inspect.getsourcefile(kind) or "", inspect.getsourcelines(kind)[1], kind.__name__, 0  # type: ignore[arg-type, attr-defined]
    return None


def _key(tensor: Tensor) -> tuple[int, int]:
    """What tells a tensor from others, and from itself before it was changed in place."""
    version = getattr(tensor, "_version", None)
    return id(tensor), int(getattr(tensor, "inplace_version", 0) if version is None else version)


# --- functions that are reached by their names alone -----------------------------------------------------------------------


@contextlib.contextmanager
def by_name(recorder: Recorder, names: Sequence[tuple[Any, str]], model: Module, root: str) -> Iterator[None]:
    """A framework's functions are noted inside the block: under their own names, and where a model's files or modules hold them.

    Args:
        recorder: notes them.
        names: (owner, name) of each function or method; a property of a class is noted like a method.
        model: whose modules may hold functions as attributes.
        root: folder of the framework's package, whose own files need not be looked through.
    """
    before: list[tuple[Any, str, Any]] = []
    versions: dict[int, Callable] = {}

    def put(owner: Any, name: str, value: Any, new: Any) -> None:
        before.append((owner, name, value))
        setattr(owner, name, new)

    try:
        for owner, name in names:
            value = vars(owner).get(name)
            if isinstance(value, property):
                put(owner, name, value, property(recorded(recorder, value.fget, name)))  # type: ignore[arg-type]
            elif isinstance(value, FUNCTIONS):
                new = recorded(recorder, value, name)
                versions[_own_id(value)] = new
                put(owner, name, value, new)
        owners = {id(owner) for owner, _ in names}
        for module, name in _holding(root, versions):
            if id(module) not in owners and (own := _own_id(value := getattr(module, name, None))) in versions:
                put(module, name, value, versions[own])
        modules = recorder.framework.modules(model).values() if isinstance(model, recorder.framework.module_type) else ()
        for owner in modules:
            for name, value in list(vars(owner).items()):
                if type(value) in FUNCTIONS and _own_id(value) in versions:
                    put(owner, name, value, versions[_own_id(value)])
                elif type(value) is partial and _own_id(value.func) in versions:
                    put(owner, name, value, partial(versions[_own_id(value.func)], *value.args, **value.keywords))
            for cell in _cells(getattr(type(owner), recorder.framework.computing, None)):
                if _own_id(value := cell.cell_contents) in versions:
                    put(cell, "cell_contents", value, versions[_own_id(value)])
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def _cells(function: Any) -> list[CellType]:
    """What a function of a class that is made inside another function holds of that one's names: ``relu = F.relu`` before it."""
    cells = getattr(function, "__closure__", None) or ()
    return [cell for cell in cells if cell != CellType() and type(cell.cell_contents) in FUNCTIONS]


def recorded(recorder: Recorder, function: Callable, name: str) -> Callable:
    """The function, whose calls are noted."""
    return lambda *args, **kwargs: recorder.run(function, name, args, kwargs)


def _own_id(function: Any) -> int:
    """``id`` of a function, or of the one that an exact version stands for."""
    return id(vars(function).get("exact_version_of", function) if type(function) is FunctionType else function)


_looked_at: dict[str, weakref.WeakSet] = {}
_held: dict[str, list[tuple[weakref.ref, str]]] = {}


def _holding(root: str, versions: Mapping[int, Any]) -> Iterator[tuple[Any, str]]:
    """Loaded files that may be a model's source, and the names under which they hold functions; each file is read once."""
    seen, held = _looked_at.setdefault(root, weakref.WeakSet()), _held.setdefault(root, [])
    for module in list(sys.modules.values()):
        if type(module) is not ModuleType or module in seen:
            continue
        seen.add(module)
        file = getattr(module, "__file__", None) or ""
        if file.endswith(".py") and not file.startswith((root, OWN_FOLDER)):
            own = [name for name, value in list(vars(module).items()) if _own_id(value) in versions]
            held += [(weakref.ref(module), name) for name in own]
    return ((found, name) for reference, name in held if (found := reference()) is not None)
