"""A model's modules as functions of arrays: what each got and gave in a pass, and what it gives for given input."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from alignment.frameworks._dropout import Sharing
from alignment.frameworks._passes import Stops
from alignment.frameworks.base import (
    Call,
    CallChange,
    Framework,
    Module,
    Piece,
    Tensor,
    Trace,
    Wanted,
    in_precision,
    leaves,
    mapped,
)  # fmt: skip
from alignment.models.carried import alone, stock_of
from alignment.models.derived import pulled
from alignment.models.forms import Adapters, CallAdapter, told
from alignment.models.observe import MaskDraws
from alignment.models.unsaved import constants_in, known_tensors
from alignment.models.weights import renamed
from alignment.project import Side
from alignment.strangers import Refused, strangers
from mobilenetv3_common.weights import Entry, State

Cotangents = Sequence["np.ndarray | None"]
Limits = Mapping[str, int]  # by module: how many numbers its output may hold
Stopped = tuple[Container[str], Stops]  # modules whose calls are one each, and the numbers of calls
NOT_HELD = "a dump does not hold this"


class Oversized(Exception):
    """A module gave far more numbers than the reference's: what follows would take as many times longer."""


class Unfit(Exception):
    """The reference's module, in the place of the port's, cannot take what the port gives it."""


@dataclass
class Answer:
    """What one module gives for given input.

    Attributes:
        outputs: arrays, in the order in which they lie in the returned structure.
        buffers: the module's floating buffers (statistics) after the call, by name within it.
        input_gradients: for the floating inputs; None where no gradient reached one.
        gradients: of the module's parameters by name within it, canonical; None where no gradient reached one.
        error: the exception, where the call raised one.
        place: where it was raised: file, line and function.
        oversized: whether the call was ended where a module inside gave more than its limit.
        unfit: whether a module of the reference's, in the place of one of the port's, could not take what it was given.
        refused: whether the framework has no derivative for some input, so that none of it is known.
        floors: of a reference's dump, by name as they are compared: how far (L2) one-ulp changes of the input move the values.
    """

    outputs: list[np.ndarray] = field(default_factory=list)
    buffers: State = field(default_factory=dict)
    input_gradients: list[np.ndarray | None] = field(default_factory=list)
    gradients: dict[str, np.ndarray | None] = field(default_factory=dict)
    error: str = ""
    place: str = ""
    oversized: bool = False
    unfit: bool = False
    refused: bool = False
    floors: dict[str, float] | None = None

    @property
    def held(self) -> bool:
        """Whether it is known."""
        return self.error != NOT_HELD


@dataclass(frozen=True)
class Stored:
    """What a dump holds of one side's modules in one mode. Every other question has an unknown answer, and confirms no hypothesis.

    Attributes:
        calls: of the reference, by key, which both sides were given.
        answers: by key and phase.
        order: paths of the modules in the order of use.
    """

    calls: dict[str, Call]
    answers: Mapping[tuple[str, str], Answer]
    order: Sequence[str]

    def answer(self, path: str, call: Call, phase: str) -> Answer:
        """What a module answered to a call of the reference's."""
        key = next((key for key, known in self.calls.items() if known is call and key.partition("#")[0] == path), None)
        unknown = Answer(error=NOT_HELD)
        return unknown if key is None else self.answers.get((key, phase), unknown)


def is_mask(array: np.ndarray) -> bool:
    """Whether floating numbers are a mask of zeros and ones, which are exact: ``(1 - mask) * -3.4e38`` makes all of a moved one."""
    return bool(((array == 0) | (array == 1)).all())


@dataclass(frozen=True)
class Start:
    """How a side begins in one precision, and what it makes of inputs.

    Attributes:
        name: a field of ``alignment.compare.Lanes``, e.g. ``"port64"``; ``"ulp64#1"`` is another draw of ``"ulp64"``.
        side: of the project.
        state: the weights, canonical.
        load: puts a state into the model.
        moved: of a reference with one-ulp changes, moves arrays likewise.
        draws: the numbers of its dropout masks.
        dropouts: how many dropout layers share their masks.
        functions: what is told of dropouts that are called as functions, which share theirs, too.
    """

    name: str
    side: Side
    state: State
    load: Callable[[State], None]
    moved: Callable[[State], State] | None
    draws: MaskDraws
    dropouts: int
    functions: Sharing


class Network:
    """One side in one precision; everything in it goes by the reference's paths and canonical names.

    Its layers compute in place, as they do for a user, until its modules are first looked at. Every call of one then begins from
    the statistics that the model held at that moment.

    Args:
        framework: the model's.
        model: holds its weights.
        paths: reference path -> the model's own path of the modules that both sides have; None for the reference.
        stored: what is known of a side that was dumped, which computes nothing.
        begin: of a side that a context has built: how it begins.

    Attributes:
        role: ``"port"`` or ``"reference"``.
        dtype: of weights and inputs, ``"float32"`` or ``"float64"``; the latter is exact mode.
        adapters: of the port's modules; a reference's own modules are called as they are.
        constants: names of buffers that are no statistics: the other side has them as parameters (``held_otherwise``).
    """

    def __init__(
        self, framework: Framework, model: Module, paths: Mapping[str, str] | None = None, stored: Stored | None = None,
        begin: Start | None = None,
    ) -> None:  # fmt: skip
        self.framework, self.model, self.paths, self.stored = framework, model, paths, stored
        self.adapters, self.role = Adapters(), "reference" if paths is None else "port"
        self.constants: frozenset[str] = frozenset()
        self.exact = begin is None or begin.name.partition("#")[0].endswith("64")
        self.dtype = "float64" if self.exact else "float32"
        if begin is not None:
            self._begin, self.name, self.side, self.state = begin, begin.name, begin.side, begin.state
            self.draws, self.dropouts, self.functions = begin.draws, begin.dropouts, begin.functions

    def inputs(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Inputs in this precision, moved by one ulp where the weights are."""
        if self._begin.moved is None:
            return in_precision(given, self.dtype)
        arrays = {str(number): array for number, array in enumerate(leaves(in_precision(given, self.dtype), np.ndarray))}
        own = {str(number): array for number, array in enumerate(leaves(given, np.ndarray))}
        arrays |= self._begin.moved({name: array for name, array in own.items() if not is_mask(array)})
        changed = iter(arrays.values())
        return mapped(given, np.ndarray, lambda _: next(changed))

    def outputs(self, given: tuple[Any, ...]) -> list[np.ndarray]:
        """What the network gives for inputs, without a graph."""
        return self.framework.call(self.model, self.inputs(given)).outputs

    def drops_by_function(self, given: tuple[Any, ...]) -> bool:
        """Whether the model calls a dropout as a function in training mode, where such calls can be seen."""
        self.train_mode(True)
        with contextlib.suppress(Exception):  # whatever a pass raises, the comparisons say
            self.outputs(given)
        self.reset()
        return bool(self.functions.called)

    def train_mode(self, on: bool) -> None:
        """Training or evaluation mode."""
        self.framework.set_training(self.model, on)

    def reset(self) -> None:
        """Put the weights and statistics back to where the side begins."""
        self._begin.load(self.state)

    @functools.cached_property
    def modules(self) -> dict[str, Module]:
        """By the reference's path, each once."""
        if self.stored is None:
            self.framework.without_inplace(self.model)
        if self.paths is None:
            return self.framework.modules(self.model)
        own = self.framework.modules(self.model, every_path=True)
        return {theirs: own[ours] for theirs, ours in self.paths.items() if ours in own}

    @property
    def _names(self) -> dict[str, str]:
        """Own path of each module -> the reference's."""
        return {path: path for path in self.modules} if self.paths is None else {own: path for path, own in self.paths.items()}

    @property
    def roles(self) -> dict[str, str]:
        """By name, canonical, whether a tensor is a parameter or a buffer."""
        return {name: entry.role for name, entry in self.entries.items()}

    @property
    def entries(self) -> dict[str, Entry]:
        """What is known of each tensor, by name, canonical."""
        names = self._names
        return {renamed(entry, names): entry for entry in self.framework.entries(self.model)}

    @functools.cached_property
    def _named(self) -> dict[str, tuple[Entry, Tensor]]:
        """Parameters and floating buffers by name, canonical; a buffer of a module that has several paths under the first alone."""
        names, seen = self._names, set[int]()
        parameters: dict[str, tuple[Entry, Tensor]] = {}
        buffers: dict[str, tuple[Entry, Tensor]] = {}
        for entry, tensor in self.framework.described(self.model):
            name = renamed(entry, names)
            if entry.role == "parameter":
                parameters.setdefault(name, (entry, tensor))  # of two that are added up, the first holds all
            elif self.framework.array(tensor).dtype.kind == "f" and (isinstance(entry, Piece) or id(tensor) not in seen):
                seen.add(id(tensor))
                buffers[name] = entry, tensor
        return {**parameters, **buffers}

    @functools.cached_property
    def start(self) -> State:
        """The floating buffers as the modules' calls begin, by name."""
        return {name: self.framework.array(self._named[name][1]) for name in self._named if self._named[name][0].role == "buffer"}

    def children(self, path: str, called: Container[str]) -> list[str]:
        """Paths of the modules directly inside one; a container that is never called (a list of modules) gives way to its own.

        Args:
            path: of a module.
            called: paths of the modules that a pass called.
        """
        found: list[str] = []

        def walk(above: str, module: Module) -> None:
            for name, child in self.framework.children(module):
                here = f"{above}.{name}" if above else name
                if here not in called and self.framework.children(child):
                    walk(here, child)
                else:
                    found.append(here)

        walk(path, self.modules[path])
        return found

    def carried(self, path: str) -> dict[str, Module]:
        """By name: the layers without tensors that a module with tensors holds, where it holds no others (an activation)."""
        children, framework = dict(self.framework.children(self.modules[path])), self.framework
        mere = all(not framework.children(child) and not framework.own_tensors(child) for child in children.values())
        return children if mere and framework.own_tensors(self.modules[path]) else {}

    def carries(self, path: str) -> bool:
        """Whether a module carries layers or functions."""
        return bool(self.carried(path)) or self.stock(path) is not None

    def stock(self, path: str) -> type | None:
        """``stock_of`` a normalisation; None where the model was dumped: a dump tells nothing of classes."""
        module = self.modules[path]
        is_norm = self.stored is None and self.framework.layer(module).kind == "batch_norm"
        return stock_of(self.framework, module) if is_norm else None

    @contextlib.contextmanager
    def _alone(self, path: str) -> Iterator[None]:
        """Inside the block a bare module computes without what it carries."""
        handles = alone(self.framework, self.modules[path], self.carried(path).values()) if self.adapters[path].bare else []
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def below(self, path: str) -> dict[str, str]:
        """Names of the floating buffers below a module: name within it -> name."""
        prefix = f"{path}." if path else ""
        return {name[len(prefix) :]: name for name in self.start if name.startswith(prefix)}

    def held(self, path: str) -> dict[str, tuple[Entry, Tensor]]:
        """The parameters and floating buffers of a module by name within it."""
        prefix = f"{path}." if path else ""
        return {name[len(prefix) :]: pair for name, pair in self._named.items() if name.startswith(prefix)}

    def put_back(self, path: str = "") -> None:
        """Give the buffers below a module the values that they began with."""
        for name in self.below(path).values():
            self.framework.assign(self._named[name][1], self.start[name])

    def state_of(self, path: str) -> State:
        """The parameters and floating buffers of a module by name within it, canonical; buffers as every call begins."""
        held = self._parameters(path).items()
        parameters = {name: entry.to_canonical(self.framework.array(tensor)) for name, (entry, tensor) in held}
        return parameters | {within: self.began(path, within) for within in self.below(path)}

    def began(self, path: str, within: str) -> np.ndarray:
        """A floating buffer of a module as every call begins, canonical."""
        name = self.below(path)[within]
        return self._named[name][0].to_canonical(self.start[name])

    def _parameters(self, path: str) -> dict[str, tuple[Entry, Tensor]]:
        """Of a module, by name within it."""
        return {name: pair for name, pair in self.held(path).items() if pair[0].role == "parameter"}

    def trace(self, args: tuple, cotangents: Cotangents | None = None) -> dict[str, Call]:
        """One pass through the whole model: each module's calls in the order in which they ended, with their gradients.

        A module's second call is ``name#2``, and so on. The gradients are those of the sum of output * cotangent.
        """
        if self.stored is not None:
            return self.stored.calls
        self.put_back()
        try:
            if cotangents is None:
                calls = self.framework.call(self.model, args, watched=self.modules).calls
            else:
                wanted = Wanted(modules=self.modules)
                calls = pulled(self.framework, self.model, args, cotangents, wanted, again=self.put_back)[0].calls
        finally:
            self.put_back()
        for key, call in calls.items():
            call.attended = self.framework.attended(self.modules[key.partition("#")[0]], call.args, call.kwargs)
        return calls

    def needed(self, args: tuple) -> dict[str, list[bool]]:
        """Of each call in a pass: whether the gradient of each of its floating arguments reaches something that is trained.

        These are the parameters; of a model without any, a loss, what it is given first.
        """
        floating = sum(array.dtype.kind == "f" for array in leaves(args, np.ndarray))
        calls: dict[str, Call] = {}
        if self.stored is not None:
            trained = any(one is not None for one in self.stored.answer("", self.stored.calls[""], "backward").gradients.values())
        else:
            trained = any(self.framework.trainable(tensor) for _, tensor in self._parameters("").values())
            self.put_back()
            with strangers("reference"):
                wanted = Wanted(modules=self.modules, constants=frozenset(range(0 if trained else 1, floating)))
                calls = self.framework.vjp(self.model, args, [], wanted).calls
            self.put_back()
        return {"": [not trained and place == 0 for place in range(floating)]} | {k: c.needed for k, c in calls.items() if k}

    def tables(self, path: str) -> dict[str, Tensor]:
        """The constants that a module and those inside it hold, which are no weights, by the reference's path and own name.

        A dump holds none.
        """
        if self.stored is not None:
            return {}
        known = known_tensors(self.framework, self.model)
        inside = {one: module for one, module in self.modules.items() if one == path or one.startswith(f"{path}." if path else "")}
        tables = {one: constants_in(self.framework, module, known).items() for one, module in inside.items()}
        return {f"{one}.{name}" if one else name: tensor for one, held in tables.items() for name, tensor in held}

    def adapter(self, path: str, call: Call) -> CallAdapter:
        """What a call of a module is in the reference's terms."""
        return told((self.framework, self.modules[path]), call) or (self.adapters[path] if self.role == "port" else CallAdapter())

    def given(self, path: str, call: Call) -> tuple[tuple, dict]:
        """What a module is given for a call of the reference's."""
        return self.adapter(path, call).given(call.args, call.kwargs)

    def takes(self, path: str, call: Call) -> bool:
        """Whether a module can be called as the reference's was: a mere container (LayerList, ModuleList) cannot, nor one whose
        forward has other arguments."""
        if self.stored is not None:
            return self.stored.answer(path, call, "forward").held
        module = self.modules[path]
        if not self.framework.has_forward(module):
            return False
        try:
            args, kwargs = self.given(path, call)
            inspect.signature(getattr(module, self.framework.computing)).bind(*args, **kwargs)
        except (Refused, TypeError):
            return False
        except ValueError:  # one that cannot be inspected
            pass
        return True

    def called(self, path: str, call: Call, among: Iterable[str]) -> list[str]:
        """Which of some modules a call of one calls, in the order in which the calls end."""
        if self.stored is not None:
            return [name for name in self.stored.order if name in among] if path == "" else []
        return [key.partition("#")[0] for key in self.given_inside(path, call, among)]

    def given_inside(self, path: str, call: Call, among: Iterable[str]) -> dict[str, Call]:
        """What some modules inside one got and gave in a call of that one, by module and number; nothing where it raises.

        Nothing either where the one is not known: of a file parts of a graph are compared alone.
        """
        if self.stored is not None or path not in self.modules:
            return {}
        watched = {name: self.modules[name] for name in among if name in self.modules}
        self.put_back(path)
        calls: dict[str, Call] = {}
        with strangers("port"):  # what it called before is lost
            calls = self.framework.call(self.modules[path], *self.given(path, call), watched).calls
        self.put_back(path)
        return calls

    def calls_until(self, args: tuple, limits: Limits) -> tuple[dict[str, Call], bool]:
        """One pass without gradients, which ends early where a module gives more than its limit.

        Returns:
            The calls until then, and whether the pass came to its end.
        """
        calls: dict[str, Call] = {}
        framework = self.framework

        def keep(path: str, output: object) -> None:
            arrays = [framework.array(tensor) for tensor in leaves(output, framework.tensor_type)]
            number = sum(key.partition("#")[0] == path for key in calls) + 1
            calls[path if number == 1 else f"{path}#{number}"] = Call((), {}, arrays)

        with strangers("port") as raised, self._limited(self.modules, limits, keep):
            framework.call(self.model, args)
        self.put_back()
        return calls, raised.error is None

    @contextlib.contextmanager
    def _limited(
        self, paths: Iterable[str], limits: Limits, keep: Callable[[str, object], None] = lambda path, output: None
    ) -> Iterator[None]:
        """Inside the block a call of a module raises ``Oversized`` where its output holds more numbers than its limit."""

        def watched(path: str) -> Callable:
            def check(_module: Module, _args: tuple, _kwargs: dict, output: object) -> None:
                keep(path, output)
                sizes = (math.prod(tensor.shape) for tensor in leaves(output, self.framework.tensor_type))
                if sum(sizes) > limits.get(path, math.inf):
                    raise Oversized(path)

            return check

        handles = [self.framework.hook(self.modules[path], after=watched(path)) for path in paths]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def answer(
        self, path: str, call: Call, cotangents: Cotangents | None = None, limits: Limits | None = None,
        stopped: Stopped | None = None,
    ) -> Answer:  # fmt: skip
        """What a module gives for the input of a call, and its gradients where cotangents are given.

        Args:
            path: of the module.
            call: whose input it is given.
            cotangents: gradients of its outputs.
            limits: of the modules inside it; the call ends where one is passed.
            stopped: calls of functions through which no gradient is to flow back; one that detaches is to let it through.
        """
        if self.stored is not None:
            return self.stored.answer(path, call, "forward" if cotangents is None else "backward")
        module, framework = self.modules[path], self.framework
        self.put_back(path)
        prefix = f"{path}." if path else ""
        trained = {name: pair for name, pair in self._parameters(path).items() if framework.trainable(pair[1])}
        inside = [name for name in limits or () if name in self.modules and name.startswith(prefix) and name != path]
        refused = False
        with strangers("port") as raised:
            adapter = self.adapter(path, call)
            args, kwargs = adapter.given(call.args, call.kwargs)
            if cotangents is None:
                with self._alone(path), self._limited(inside, limits or {}):
                    made = framework.call(module, args, kwargs)
            else:
                wanted = Wanted(parameters={name: tensor for name, (_, tensor) in trained.items()})
                if stopped is not None:
                    wanted = replace(wanted, stopped=stopped[1], watched=self._inside(path, stopped[0]))
                with self._alone(path):
                    again = functools.partial(self.put_back, path)
                    made, refused = pulled(framework, module, args, adapter.cotangents(cotangents), wanted, kwargs, again)
            inputs = adapter.inputs(made.inputs, (call.args, call.kwargs)) if made.inputs else []
            held = {name: self._named[full] for name, full in self.below(path).items() if full not in self.constants}
            kept = {name: entry.to_canonical(framework.array(tensor)) for name, (entry, tensor) in held.items()}
            answer = Answer(adapter.outputs(made.outputs), kept, inputs, refused=refused)
            for name, gradient in made.parameters.items():
                answer.gradients[name] = None if gradient is None else trained[name][0].to_canonical(gradient)
        self.put_back(path)
        if isinstance(raised.error, Oversized):
            return Answer(oversized=True)
        if isinstance(raised.error, Unfit):
            return Answer(unfit=True)
        return answer if raised.error is None else Answer(error=raised.words, place=raised.place)

    def traced(self, path: str, call: Call, among: Container[str], changes: Mapping[int, CallChange] | None = None) -> Trace | None:
        """The functions that a module's own forward calls, for the input of a call.

        Args:
            path: of the module.
            call: whose input it is given.
            among: paths of the modules whose calls are one operation each.
            changes: number of an operation -> what is changed in it.
        """
        if self.stored is not None:
            return None
        self.put_back(path)
        try:
            args, kwargs = self.given(path, call)
            with self._alone(path):
                return self.framework.traced(self.modules[path], args, kwargs, self._inside(path, among), changes)
        finally:
            self.put_back(path)

    def _inside(self, path: str, among: Container[str]) -> dict[str, Module]:
        """The modules below one that are among some, by path."""
        prefix = f"{path}." if path else ""
        return {name: module for name, module in self.modules.items() if name.startswith(prefix) and name != path and name in among}

    def drawn(self, path: str, call: Call) -> list[float | None]:
        """The share of values that each draw of random numbers drops in a call of a module; None where that is not known.

        Draws that the engine cannot see are not among them, nor any of a side that was dumped.
        """
        if self.stored is not None or not hasattr(self, "functions"):
            return []
        before = len(self.functions.drawn)
        self.answer(path, call)
        return self.functions.drawn[before:]

    def answer_with(self, path: str, call: Call, change: Callable[[np.ndarray], np.ndarray]) -> Answer:
        """What a module gives for the input of a call, in float64, with other parameters and statistics than its own."""
        if self.stored is not None:
            return Answer(error=NOT_HELD)
        wide = call.changed(lambda array: array.astype(np.float64) if array.dtype.kind == "f" else array)
        with self.holding(path, change):
            return self.answer(path, wide)

    @contextlib.contextmanager
    def holding(self, path: str, change: Callable[[np.ndarray], np.ndarray]) -> Iterator[None]:
        """A module has other parameters and statistics inside the block."""
        framework, prefix, start = self.framework, f"{path}." if path else "", self.start
        own = [(tensor, framework.array(tensor)) for _, tensor in self._parameters(path).values()]
        self.start = {name: change(values) if name.startswith(prefix) else values for name, values in start.items()}
        try:
            for tensor, values in own:
                framework.assign(tensor, change(values))
            yield
        finally:
            self.start = start
            self.put_back(path)
            for tensor, values in own:
                framework.assign(tensor, values)

    def answer_set(self, path: str, call: Call, changes: Mapping[str, object], own: bool = False) -> Answer:
        """What a layer gives for the input of a call, without gradients, with other settings than its own; nothing where it cannot
        have them.

        Args:
            path: of the layer.
            call: of it.
            changes: the settings, by the names of ``Layer.settings``.
            own: it is a class of somebody's own, and these are its attributes.
        """
        if self.stored is not None:
            return Answer(error=NOT_HELD)
        framework = self.framework
        module = None
        with strangers("port"), self._alone(path):  # a copy keeps what its layers are hooked to; a lock or a file has none
            module = framework.copy(self.modules[path])
        if module is None or not (own or framework.set_settings(module, changes)):
            return Answer()
        for name, value in changes.items() if own else ():
            setattr(module, name, value)
        with strangers("port") as raised:  # such a layer does not take this input
            adapter = self.adapter(path, call)
            return Answer(adapter.outputs(framework.call(module, *adapter.given(call.args, call.kwargs)).outputs))
        return Answer(error=raised.words)

    def answer_without(self, path: str, call: Call, skipped: str) -> Answer:
        """What a module gives for the input of a call where a module inside it, by the model's own path, gives its input back."""
        inside = self.framework.modules(self.model)[skipped]
        return self._answer_hooked(path, call, inside, lambda module, args, kwargs, output: args[0] if args else None)

    def answer_changed(self, path: str, call: Call, inside: str, change: Callable[[np.ndarray], np.ndarray]) -> Answer:
        """What a module gives for the input of a call where the output of a module inside it is changed."""
        framework = self.framework

        def changed(_module: Module, _args: tuple, _kwargs: dict, output: Tensor) -> Tensor:
            return mapped(output, framework.tensor_type, lambda t: framework.tensor(change(framework.array(t))))

        return self._answer_hooked(path, call, self.modules[inside], changed)

    def _answer_hooked(self, path: str, call: Call, inside: Module, after: Callable) -> Answer:
        if self.stored is not None:
            return Answer(error=NOT_HELD)
        handle = self.framework.hook(inside, after=after)
        try:
            return self.answer(path, call)
        finally:
            handle.remove()


def carrying(port: Network, reference: Network, path: str) -> Network | None:
    """The side whose module carries layers or functions where the other's is a single one: an activation in a normalisation.

    None for neither.

    Args:
        port, reference: the two sides.
        path: of a module that both have.
    """
    if path not in port.modules or path not in reference.modules:
        return None
    for one, other in ((reference, port), (port, reference)):
        layers = [] if other.framework.children(other.modules[path]) else one.carried(path).values()
        if any(one.framework.layer(layer).kind != "identity" for layer in layers) or _adds(one, other, path):
            return one
    return None


def _adds(one: Network, other: Network, path: str) -> bool:
    """Whether one side's class adds functions to a stock layer, which is what the other side's is."""
    kinds = [side.framework.layer(side.modules[path]).kind for side in (one, other)]
    return kinds[0] == kinds[1] and not other.carries(path) and one.stock(path) is not None


def apart(port: Network, reference: Network, path: str) -> Network | None:
    """``carrying``, where what is carried is a layer of its own on the other side, so that the two are compared one by one."""
    side = carrying(port, reference, path)
    if side is None:
        return None
    known = {id(side.modules[name]) for name in side.modules if name in port.modules and name in reference.modules}
    layers = [layer for layer in side.carried(path).values() if side.framework.layer(layer).kind != "identity"]
    return side if any(id(layer) in known for layer in layers) else None


@contextlib.contextmanager
def training_mode(networks: Sequence[Network], training: bool) -> Iterator[None]:
    """All models in one mode inside the block, and in their own again after it."""
    networks = [network for network in networks if network.stored is None]
    for network in networks:
        _ = network.start  # as the models are before the calls inside the block
    before = [network.framework.training(network.model) for network in networks]
    try:
        for network in networks:
            network.framework.set_training(network.model, training)
        yield
    finally:
        for network, was in zip(networks, before, strict=True):
            network.framework.set_training(network.model, was)


def held_otherwise(port: Network, reference: Network) -> frozenset[str]:
    """Names of tensors that are a buffer on one side and a parameter on the other: constants, and no statistics of a batch."""
    ours, theirs = port.roles, reference.roles
    return frozenset(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
