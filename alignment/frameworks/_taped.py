"""Passes for frameworks that record what they compute: the same code for each."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from alignment.frameworks._calls import CallChange, Recorder, Trace
from alignment.frameworks._dropout import Sharing, Uniform, share
from alignment.frameworks._passes import Call, Pass, Supplied, Wanted, arguments_of, leaves, mapped
from alignment.frameworks._paths import noted
from alignment.frameworks.base import Framework, Module, Tensor
from alignment.strangers import Refused, strangers

OWN_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_forward_post_hooks")  # of torch's and Paddle's modules


class CallKeeper:
    """Notes the calls of modules during one pass; each framework's ``call`` and ``vjp`` use it.

    Args:
        framework: whose modules they are.
        modules: by path.

    Attributes:
        calls: arrays of each call, in the order in which the calls ended.
        outputs: the tensors of each call's output, for the frameworks that can ask for their gradients.
    """

    def __init__(self, framework: Framework, modules: Mapping[str, Module]) -> None:
        self.framework, self.modules = framework, modules
        self.calls: dict[str, Call] = {}
        self.outputs: dict[str, list[Tensor]] = {}
        self._counts: dict[str, int] = {}

    def __enter__(self) -> CallKeeper:
        self._handles = [self.framework.hook(module, after=self._keeper(name)) for name, module in self.modules.items()]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _keeper(self, name: str) -> Callable:
        framework = self.framework

        def keep(_module: Module, args: tuple, kwargs: dict, output: Any) -> None:
            self._counts[name] = number = self._counts.get(name, 0) + 1
            key = name if number == 1 else f"{name}#{number}"
            arrays = lambda value: mapped(value, framework.tensor_type, framework.array)  # noqa: E731
            self.calls[key] = call = Call(arrays(args), arrays(kwargs), arrays(output))
            given = zip(leaves((args, kwargs), framework.tensor_type), leaves((call.args, call.kwargs), np.ndarray), strict=False)
            call.needed = [framework.trainable(tensor) for tensor, array in given if array.dtype.kind == "f"]
            self.outputs[key] = leaves(output, framework.tensor_type)

        return keep


class Taped(Framework):
    """A framework that records operations as they are computed, and can then pull gradients of any tensor on the way."""

    @abc.abstractmethod
    def _no_graph(self) -> contextlib.AbstractContextManager:
        """Nothing is recorded inside the block."""

    @abc.abstractmethod
    def _leaf(self, array: np.ndarray) -> Tensor:
        """A floating array as a tensor whose gradient can be asked for."""

    @abc.abstractmethod
    def _pull(self, outputs: list[Tensor], cotangents: list[np.ndarray], wanted: list[Tensor]) -> list[np.ndarray | None]:
        """Gradients of trainable tensors; None where none reached one.

        Args:
            outputs: tensors that depend on trainable ones, at least one.
            cotangents: the gradient of each.
            wanted: different tensors, at least one.
        """

    def _recording(
        self, model: Module, watched: Mapping[str, Module], changes: Mapping[int, CallChange]
    ) -> contextlib.AbstractContextManager[Recorder] | None:
        """The framework's functions hand their calls to a recorder inside the block; None where nothing watches them."""
        return None

    def _outside(
        self, outputs: list[np.ndarray], inputs: list[Tensor], pull: Callable[[list[np.ndarray]], list[np.ndarray | None]]
    ) -> list[Tensor]:
        """Floating arrays that were computed elsewhere as tensors of the graph.

        Args:
            outputs: the arrays.
            inputs: the floating tensors on which they depend.
            pull: gradients of the outputs -> gradients of the inputs, of their shapes.
        """
        raise NotImplementedError

    def supply(self, module: Module, supplied: Supplied) -> bool:
        if type(self)._outside is Taped._outside:
            return False  # the framework has no operation of its own making

        def computed(*args: Any, **kwargs: Any) -> Any:
            floating: list[Tensor] = []

            def taken(tensor: Tensor) -> np.ndarray:
                array = self.array(tensor)
                if array.dtype.kind == "f":
                    floating.append(tensor)
                return array

            arrays: tuple[tuple, dict] = mapped((args, dict(kwargs)), self.tensor_type, taken)
            output = supplied.forward(*arrays)
            wide = [array for array in leaves(output, np.ndarray) if array.dtype.kind == "f"]
            pull = lambda cotangents: supplied.backward(arrays[0], arrays[1], cotangents)  # noqa: E731
            made = iter(self._outside(wide, [*floating, *supplied.tensors], pull) if wide else [])
            return mapped(output, np.ndarray, lambda array: next(made) if array.dtype.kind == "f" else self.tensor(array))

        for name in OWN_HOOKS:
            noted(module, name, {}).clear()
        object.__setattr__(module, self.computing, computed)  # a class's own __setattr__ may wrap what it is given
        return True

    @contextlib.contextmanager
    def supplying(self, module: Module) -> Iterator[None]:
        hooks = {name: dict(vars(module)[name]) for name in OWN_HOOKS if name in vars(module)}
        own, kind = vars(module).get(self.computing), type(module)
        try:
            yield
        finally:
            module.__class__ = kind
            for name, kept in hooks.items():
                vars(module)[name].clear()
                vars(module)[name].update(kept)
            if own is not None:
                object.__setattr__(module, self.computing, own)
            elif self.computing in vars(module):
                object.__delattr__(module, self.computing)

    def share_masks(self, model: Module, layers: Sequence[Module], uniform: Uniform) -> Sharing:
        return share(self.modules(model).values(), layers, uniform)

    def _computing(self, module: Module, given: tuple) -> contextlib.AbstractContextManager:
        """The precision of a pass: a low one, or float64 where the module is given it, or has it and is given integers alone."""
        if self.low is not None:
            return self.autocast(self.low)
        kinds = {array.dtype for array in leaves(given, np.ndarray) if array.dtype.kind == "f"}
        if not kinds and isinstance(module, self.module_type):
            held = (self.array(tensor).dtype for tensor in self._held(module))
            kinds = {next((dtype for dtype in held if dtype.kind == "f"), None)}
        return self.in_full_precision() if np.dtype(np.float64) in kinds else contextlib.nullcontext()

    def _pulled_too(self, module: Module) -> Sequence[Tensor]:
        """Parameters of a module whose gradients must be asked for, or the framework cannot give those of others."""
        return ()

    def _held(self, module: Module) -> Iterator[Tensor]:
        for one in self.modules(module).values():
            yield from self.own_tensors(one).values()

    def _run(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a module with tensors."""
        return module(*args, **kwargs)

    def call(
        self,
        module: Module,
        args: tuple,
        kwargs: Mapping[str, Any] | None = None,
        watched: Mapping[str, Module] | None = None,
    ) -> Pass:
        arrays = arguments_of(args, kwargs)
        computing = self._computing(module, arrays)
        with self._no_graph(), self.exact_calls(), computing, CallKeeper(self, watched or {}) as kept:
            given = mapped(arrays, np.ndarray, self.tensor)
            outputs = leaves(self._run(module, *given), self.tensor_type)
        return Pass([self.array(t) for t in outputs], calls=kept.calls)

    def traced(
        self,
        module: Module,
        args: tuple,
        kwargs: Mapping[str, Any] | None = None,
        watched: Mapping[str, Module] | None = None,
        changes: Mapping[int, CallChange] | None = None,
    ) -> Trace | None:
        recorder = self._recorded(module, args, kwargs, watched, changes)
        return None if recorder is None else recorder.trace

    def first_uses(self, model: Module, inputs: tuple, called: Mapping[str, Module], tensors: Mapping[int, str]) -> list[str]:
        before = self.training(model)
        self.set_training(model, False)
        recorder = None
        with strangers("port"):  # its arrays are too many to be kept
            recorder = self._recorded(model, inputs, None, called, None)
        self.set_training(model, before)
        return [] if recorder is None else recorder.first_uses(called, tensors)

    def _recorded(
        self,
        module: Module,
        args: tuple,
        kwargs: Mapping[str, Any] | None,
        watched: Mapping[str, Module] | None,
        changes: Mapping[int, CallChange] | None,
    ) -> Recorder | None:
        recording = self._recording(module, watched or {}, changes or {})
        if recording is None:
            return None
        arrays = arguments_of(args, kwargs)
        given = mapped(arrays, np.ndarray, self.tensor)
        with self._no_graph(), self.exact_calls(), self._computing(module, arrays):
            with recording as recorder, recorder.hooked():
                recorder.give(given)
                with strangers("port") as raised:  # the port may raise anything; what it called before is known
                    recorder.finish(self._run(module, *given))
                if raised.error is not None:
                    recorder.trace.error = raised.words
        return recorder

    @contextlib.contextmanager
    def _stopping(self, module: Module, wanted: Wanted, given: tuple) -> Iterator[None]:
        """No gradient flows back through some calls inside the block."""
        recording = self._recording(module, wanted.watched, {}) if wanted.stopped else None
        if recording is None:
            yield
            return
        with recording as recorder, recorder.hooked():
            recorder.stopped = wanted.stopped
            recorder.give(given)
            yield

    def vjp(
        self,
        module: Module,
        args: tuple,
        cotangents: Sequence[np.ndarray | None] | None,
        wanted: Wanted,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Pass:
        made: list[Tensor | None] = []

        def give(array: np.ndarray) -> Tensor:
            if array.dtype.kind != "f":
                return self.tensor(array)
            leaf = self._leaf(array) if wanted.derives(len(made)) else None
            made.append(leaf)
            return self.tensor(array) if leaf is None else leaf + 0  # the module may overwrite what it is given, but no leaf

        arrays = arguments_of(args, kwargs)
        with self.exact_calls(), self._computing(module, arrays), CallKeeper(self, wanted.modules) as kept:
            given = mapped(arrays, np.ndarray, give)
            with self._stopping(module, wanted, given):
                outputs = leaves(self._run(module, *given), self.tensor_type)
        inner = [tensor for tensors in kept.outputs.values() for tensor in tensors]
        given_leaves = [leaf for leaf in made if leaf is not None]
        tensors = [*given_leaves, *wanted.parameters.values(), *inner, *self._pulled_too(module)]
        asked = {id(t): t for t in tensors if self.trainable(t)}
        starts = cotangents if cotangents is not None else [np.ones(tuple(o.shape)) for o in outputs]
        both = [(output, cotangent) for output, cotangent in zip(outputs, starts, strict=False) if cotangent is not None]
        for output, cotangent in both:  # Paddle reads beyond the end of a smaller one
            if tuple(output.shape) != cotangent.shape:
                raise Refused(f"an output of shape {tuple(output.shape)} has no gradient of shape {cotangent.shape}")
        pairs = [(output, cotangent) for output, cotangent in both if self.trainable(output)]
        found: dict[int, np.ndarray | None] = {}
        if pairs and asked:
            pulled = self._pull([o for o, _ in pairs], [c for _, c in pairs], [*asked.values()])
            found = dict(zip(asked, pulled, strict=True))
        for key, tensors in kept.outputs.items():
            kept.calls[key].gradients = [found.get(id(t)) for t in tensors]
        return Pass(
            [self.array(t) for t in outputs],
            [None if t is None else found.get(id(t)) for t in made] if wanted.inputs else [],
            {name: found.get(id(t)) for name, t in wanted.parameters.items()},
            kept.calls,
        )
