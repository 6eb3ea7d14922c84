"""What the engine asks of a framework. One file a framework implements it: ``torch.py``, ``paddle.py``, ...

Two forms of the same tensors occur. The *own* form is what the framework's state holds: its names and its layout. The
*canonical* form, in which everything is compared, has the names ``weight``, ``bias``, ``running_mean`` and ``running_var``
behind a module's path, matrices of linear layers as (outputs, inputs), and no counters. What separates the two is data
(``Layout``); the arrays that cross this interface are numpy's.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from alignment.frameworks._attention import Attended, Attention, AttentionForm
from alignment.frameworks._calls import Behind, CallChange, Instead, Operation, Trace
from alignment.frameworks._closures import follow
from alignment.frameworks._describe import STATISTICS, Description, Layer, Layout
from alignment.frameworks._dropout import Sharing, Uniform
from alignment.frameworks._exact import Replaced, exact_first, hold_to_original, holders
from alignment.frameworks._low import Low
from alignment.frameworks._passes import Call, Keywords, Module, Pass, Supplied, Tensor, Wanted, in_precision, leaves, mapped
from alignment.frameworks._paths import call_modules, paths_of
from alignment.frameworks._pieces import (
    Arranged,
    Columns,
    Piece,
    arranged,
    call_tensors,
    leave_out,
    left_out,
    pieces_of,
    turned_back,
)
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import State, canonical_state, own_state

__all__ = [
    "STATISTICS", "Arranged", "Attended", "Attention", "Behind", "Call", "CallChange", "Columns", "Description", "Framework",
    "Instead", "Keywords", "Layer", "Layout", "Low", "Module", "Operation", "Optimizer", "Pass", "Piece", "Supplied",
    "Tensor", "Trace", "Wanted", "arranged", "call_modules", "call_tensors", "in_precision", "leave_out", "leaves",
    "left_out", "mapped", "paths_of", "pieces_of", "turned_back",
]  # fmt: skip

Optimizer = Any  # a framework's own, as Tensor and Module are


class Handle(Protocol):
    """A registered hook."""

    def remove(self) -> None: ...


class Framework(Description):
    """One framework on one device.

    Args:
        layers: classes of a project's own -> the kind of stock layer that each computes; their kinks are then counted.
        exact_layers: classes of a project's own whose kernels hold float32 constants -> makes a layer that computes the same
            without them. (A class that calls the framework's functions needs none: those are exact by themselves.)

    Attributes:
        tensor_type, module_type: the framework's classes.
        suffixes: of weights files in its own form.
        scaler: ``"scale"``, ``"growth"``, ``"backoff"``, ``"interval"``, ``"count"`` -> their names in a loss scaler's state.
        computing: the method of a module that computes, which a module's author writes.
        repeating: kinds of recurrent cells that return their output beside their state, of which it is a part.
        rank_variable: the environment variable in which its launcher tells a process its number.
        device: ``"cpu"`` or ``"gpu"``.
        low: precision of ``call`` and ``vjp``; None for that of the tensors.
    """

    tensor_type: ClassVar[type]
    module_type: ClassVar[type]
    suffixes: ClassVar[tuple[str, ...]]
    scaler: ClassVar[Mapping[str, str]] = {}
    computing: ClassVar[str] = "forward"
    repeating: ClassVar[frozenset[str]] = frozenset()
    rank_variable: ClassVar[str] = ""
    device: str = "cpu"
    low: Low | None = None

    def __init__(
        self, layers: Mapping[type, str] | None = None, exact_layers: Mapping[type, Callable[[Module], Module]] | None = None
    ) -> None:
        super().__init__(layers)
        self.exact_layers = dict(exact_layers or {})
        self._holders: list[Replaced] = []

    # --- device, threads, randomness ---------------------------------------------------------------------------------------

    @abc.abstractmethod
    def use(self, device: str) -> None:
        """Compute on ``"cpu"`` or ``"gpu"`` from now on, in full float32 (no TF32).

        Raises:
            UserError: there is no such device; the message names the fix.
        """

    @abc.abstractmethod
    def seed(self, number: int) -> None:
        """Seed the framework's global generator, from which fresh weights are drawn."""

    @abc.abstractmethod
    def threads(self, count: int) -> contextlib.AbstractContextManager[None]:
        """Compute with so many CPU threads inside the block, where the framework lets them be changed while it runs."""

    def launch(self, processes: int, logs: Path) -> list[str]:
        """The beginning of a command that starts processes of a Python program on this machine's CPU; its file and its arguments
        follow. What they print goes to the folder ``logs``. Empty where the engine knows no launcher."""
        return []

    @abc.abstractmethod
    def default_dtype(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        """New parameters, buffers and optimizer state are of this type (``"float32"``, ``"float64"``) inside the block."""

    def building(self) -> contextlib.AbstractContextManager[None]:
        """A model is built inside the block as the first one of its process: names that it gives its parameters are free."""
        return contextlib.nullcontext()

    def unfilled(self) -> contextlib.AbstractContextManager[Any]:
        """A model is built inside the block without memory for its parameters, where the framework can: for names and shapes."""
        return contextlib.nullcontext()

    def loaded_next(self) -> contextlib.AbstractContextManager[None]:
        """A model is built inside the block whose every parameter is loaded next: initialisers need not draw what they hold.

        Parameters have finite values of about the distribution that their initialiser asks for.
        """
        return contextlib.nullcontext()

    def repaired(self, error: Exception) -> bool:
        """Whether an import that raised is worth another try: the framework has just mended what was wrong beside it."""
        return False

    def has_forward(self, module: Module) -> bool:
        inherited = getattr(self.module_type, self.computing, None)
        return self.computing in vars(module) or inherited is None or getattr(type(module), self.computing, None) is not inherited

    # --- arrays and tensors ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def tensor(self, array: np.ndarray) -> Tensor:
        """An array as a tensor of the same shape and type on the device, without gradient."""

    @abc.abstractmethod
    def times(self, tensor: Tensor, factors: np.ndarray) -> Tensor:
        """The tensor times constant factors of its shape, in the tensor's own type, part of the graph."""

    @abc.abstractmethod
    def assign(self, tensor: Tensor, array: np.ndarray) -> None:
        """Put values of its shape into a parameter or buffer in place, cast to its type."""

    # --- modules -----------------------------------------------------------------------------------------------------------

    def set_trainable(self, tensor: Tensor, on: bool) -> None:
        """Whether gradients reach a tensor from now on."""

    convention: ClassVar[AttentionForm] = AttentionForm({})

    def attended(self, module: Module, args: tuple, kwargs: Mapping[str, Any]) -> Attended | None:
        """A call of an attention or transformer layer in the form that the frameworks have in common, where it has one."""
        layer = self.attention(module)
        return None if layer is None else self.convention.common(layer, args, kwargs)

    def spoken(self, module: Module, call: Attended) -> tuple[tuple, dict[str, Any]] | None:
        """What a module is given for such a call; None where it is another layer."""
        layer = self.attention(module)
        return self.convention.own(layer, call) if layer is not None and layer.kind == call.kind else None

    def set_settings(self, module: Module, changes: Mapping[str, Any]) -> bool:
        """Give a stock layer other settings, under the names of ``Layer.settings``, in place.

        Returns:
            False where the framework does not know how to change one of them; the layer is then as it was.
        """
        return False

    @abc.abstractmethod
    def training(self, model: Module) -> bool:
        """Whether a module is in training mode."""

    @abc.abstractmethod
    def set_training(self, model: Module, on: bool) -> None:
        """Put a module and all below it into training or evaluation mode."""

    @abc.abstractmethod
    def place(self, model: Module) -> Module:
        """The model on the device."""

    @abc.abstractmethod
    def hook(
        self,
        module: Module,
        before: Callable[[Module, tuple], Any] | None = None,
        after: Callable[[Module, tuple, dict, Any], Any] | None = None,
    ) -> Handle:
        """Call a function at each call of a module.

        Args:
            module: the module.
            before: called with the module and its positional arguments.
            after: called with the module, its positional and named arguments, and its output; what it returns, if not None,
                takes the output's place. Either this or ``before`` is given.
        """

    def supply(self, module: Module, supplied: Supplied) -> bool:
        """From now on a module computes what functions of arrays say; its own forward and the hooks that it has are left out.

        Returns:
            Whether the framework can do so; the module is as it was where not.
        """
        return False

    def supplying(self, module: Module) -> contextlib.AbstractContextManager[None]:
        """What ``supply`` says of a module inside the block no longer holds behind it."""
        return contextlib.nullcontext()

    def share_masks(self, model: Module, layers: Sequence[Module], uniform: Uniform) -> Sharing:
        """From now on dropouts that a model calls as functions keep an element where ``uniform(shape)`` is at least their p.

        Args:
            model: the model.
            layers: its dropout layers, whose own masks are hooked.
            uniform: numbers in [0, 1) of a shape.

        Returns:
            What is told of such calls; nothing where the framework cannot share them.
        """
        return Sharing(uniform)

    def follow(self, model: Module) -> None:
        """Compute where a model's tensors lie."""

    def without_inplace(self, model: Module) -> None:
        """Turn off the layers' in-place computation: an output that the next layer overwrites cannot be compared."""

    def in_plain_form(self, model: Module) -> None:
        """Hold tensors from which a pass computes others as the framework's other versions, and other frameworks, hold them."""

    # --- state -------------------------------------------------------------------------------------------------------------

    def load(self, model: Module, state: Mapping[str, np.ndarray], source: str = "the weights") -> None:
        """Put a canonical state into a model, in place; arrays are cast to the model's own types.

        Raises:
            UserError: a key is missing or too many, or a shape differs; ``source`` names the weights in the message, and the
                model is then as it was.
        """
        described = self.described(model)
        arrays = own_state(state, [entry for entry, _ in described], source)
        for entry, tensor in described:
            self.assign(tensor, arrays[entry.own])

    def canonical(self, model: Module, state: Mapping[str, np.ndarray], source: str = "the weights") -> State:
        """A state in the framework's own form in canonical form; ``model`` tells which tensors lie how.

        Raises:
            UserError: as ``load``.
        """
        constants = {name for name, parts in pieces_of(model).items() if not parts}
        given = {name: array for name, array in state.items() if name not in constants}
        return canonical_state(given, self.entries(model), source, self.layout.counters)

    # --- gradients ---------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def call(
        self,
        module: Module,
        args: tuple,
        kwargs: Mapping[str, Any] | None = None,
        watched: Mapping[str, Module] | None = None,
    ) -> Pass:
        """Call a module on arrays without a graph.

        Args:
            module: a module, or any function of tensors.
            args, kwargs: arrays in nested tuples, lists, dicts, dataclasses and plain objects; other values are handed on as
                they are. Where the last of ``args`` is a ``Keywords``, it holds arguments by name.
            watched: modules whose calls are noted, by path.
        """

    def calls_of(self, model: Module, inputs: tuple) -> Mapping[str, Call | None]:
        before = self.training(model)
        self.set_training(model, False)
        calls: Mapping[str, Call | None] = {}
        with strangers("port"):  # the search says so
            calls = self.call(model, inputs, watched=self.modules(model)).calls
        self.set_training(model, before)
        return calls

    def traced(
        self,
        module: Module,
        args: tuple,
        kwargs: Mapping[str, Any] | None = None,
        watched: Mapping[str, Module] | None = None,
        changes: Mapping[int, CallChange] | None = None,
    ) -> Trace | None:
        """Call a module on arrays without a graph, and note which functions its own forward calls, and in which lines.

        Args:
            module, args, kwargs: as for ``call``.
            watched: modules inside, by path: the call of one is one operation.
            changes: number of an operation -> attributes to call it with instead, or arrays that it gives instead.

        Returns:
            The calls, until the module raised where it did; None where the engine cannot trace the framework.
        """
        return None

    @abc.abstractmethod
    def vjp(
        self,
        module: Module,
        args: tuple,
        cotangents: Sequence[np.ndarray | None] | None,
        wanted: Wanted,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Pass:
        """Call a module on arrays and pull gradients of its outputs back: a vector-Jacobian product.

        It leaves no gradient behind on any parameter.

        Args:
            module: a module, or any function of tensors.
            args, kwargs: as for ``call``.
            cotangents: the gradient of each tensor of the output, in order, None for no gradient; None alone for ones.
            wanted: which gradients.

        Returns:
            Gradients of the sum over the outputs of output * cotangent.
        """

    @abc.abstractmethod
    def gradients(self, model: Module) -> State:
        """The gradients that a backward pass of the model's own training code left, in canonical form; others are absent."""

    @abc.abstractmethod
    def add_gradients(self, model: Module, gradients: Mapping[str, np.ndarray]) -> None:
        """Add canonical gradients to those of the trainable parameters, as a further backward pass would."""

    @abc.abstractmethod
    def clear_gradients(self, model: Module) -> None:
        """Forget the gradients of every parameter."""

    def descent(self, model: Module, rate: float) -> Optimizer:
        """The framework's own plain gradient descent on a model's parameters: ``step()`` takes rate * gradient off each.

        Raises:
            UserError: the engine knows none.
        """
        raise UserError(f"--updates: the engine knows no optimizer of {self.title}")

    @abc.abstractmethod
    def learning_rate(self, optimizer: Optimizer) -> float:
        """The rate at which an optimizer's next update moves the weights."""

    # --- exact mode --------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def in_float64(self, model: Module) -> Module:
        """The model with all floating parameters and buffers in float64; integer buffers keep their type.

        Hyperparameters that other frameworks' kernels hold in float32 are rounded to it.
        """

    def chooses_initialiser(self, module: Module, tensor: str) -> bool:
        """Whether the initialiser of a layer's ``weight`` or ``bias`` was given to it; False where its class's default draws it."""
        return False

    @contextlib.contextmanager
    def noting_parameters(self) -> Iterator[Callable[[Tensor], bool]]:
        """A model is built inside; gives a function that says whether a parameter was filled again after its layer had drawn it."""
        yield lambda tensor: False

    def rounds_eps(self, module: Module) -> bool:
        """Whether ``round_eps`` can choose for a module of a model in exact mode."""
        return False

    def round_eps(self, module: Module, training: bool, rounded: bool) -> None:
        """Normalise with eps as some kernels hold it, rounded to float32 (as ``in_float64`` leaves it), or as it was given.

        Args:
            module: for which ``rounds_eps`` is true.
            training: the mode in which it is to hold.
            rounded: to float32.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def exact_functions(self) -> list[Replaced]:
        """The framework's functions whose kernels hold float32 constants, as (owner, name, exact version).

        An exact version has the original's parameters, and returns NotImplemented for what it does not compute otherwise:
        tensors that are not float64, and unusual arguments. It keeps the hyperparameters that it is given, so a port that
        gives wrong ones keeps its mistake.
        """

    def make_exact(self, model: Module) -> Module:
        """The model in float64, with the project's own exact layers in their places; changes it in place.

        Such a layer is held to the one that it replaces: where they differ by more than float32 rounds, the port's own is used.
        It is exact where it is called by ``call`` or ``vjp``, or inside ``precision("float64")``.
        """
        every = list(self.modules(model).values())
        self._holders += [held for held in holders(self._exact_versions, every) if held not in self._holders]
        for parent in every:
            for name, child in self.children(parent):
                if type(child) in self.exact_layers:
                    replacement = self.exact_layers[type(child)](child)
                    replacement.replaced_layer = self.layer(child)
                    setattr(parent, name, replacement)
                    hold_to_original(self, replacement, child)
        return self.in_float64(model)

    @contextlib.contextmanager
    def exact_calls(self) -> Iterator[None]:
        """Functions with float32 constants inside compute float64 tensors exactly inside the block."""
        before: list[tuple[Any, str, Any]] = []
        try:
            for owner, name, exact in [*self._exact_versions, *self._holders]:
                original = getattr(owner, name)
                if not hasattr(original, "exact_version_of"):  # the block is inside another one
                    before.append((owner, name, original))
                    setattr(owner, name, exact_first(original, exact))
            yield
        finally:
            for owner, name, original in reversed(before):
                setattr(owner, name, original)

    @functools.cached_property
    def _exact_versions(self) -> list[Replaced]:
        """Those of ``exact_functions``, made once."""
        return self.exact_functions()

    def in_full_precision(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block what a model makes or casts without a type, or in float32, is float64: exact mode has no other type."""
        return self.default_dtype("float64")

    @contextlib.contextmanager
    def precision(self, dtype: str) -> Iterator[None]:
        """New tensors are of this type inside the block, and float64 ones are computed exactly."""
        with self.default_dtype(dtype), self.exact_calls():
            yield

    # --- low precision -----------------------------------------------------------------------------------------------------

    def in_low_precision(self, low: Low) -> Framework:
        """The same framework, on the same device, whose passes are in low precision."""
        other = copy.copy(self)
        other.low = low
        return other

    def autocast(self, low: Low) -> contextlib.AbstractContextManager[None]:
        """Compute by the framework's own automatic mixed precision inside the block; UserError where the engine knows none."""
        raise UserError(f"{self.title} has no automatic mixed precision that the engine knows")

    def mixed_precision_here(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block a training code's mixed precision (autocast, loss scaling) for a GPU runs on the framework's device."""
        return contextlib.nullcontext()

    def copy(self, model: Module) -> Module:
        """A copy that shares no tensor with the model."""
        made = copy.deepcopy(model, {id(one): one for one in sys.modules.values()})  # Python copies no module that is kept
        follow(self.modules(made).values(), self.modules(model).values())
        return made
