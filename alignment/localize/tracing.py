"""A model's modules as functions of arrays: what each got and gave in a pass, and what it gives for given input."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from alignment.frameworks.base import Call, Framework, Module, Tensor, Wanted
from alignment.weights import renamed
from mobilenetv3_common.weights import Entry, State

Cotangents = Sequence["np.ndarray | None"]


@dataclass
class Answer:
    """What one module gives for given input.

    Attributes:
        outputs: arrays, in the order in which they lie in the returned structure.
        buffers: the module's floating buffers (statistics) after the call, by name within it.
        input_gradients: for the floating inputs; None where no gradient reached one.
        gradients: of the module's parameters by name within it, canonical; None where no gradient reached one.
        error: the exception, where the call raised one.
    """

    outputs: list[np.ndarray] = field(default_factory=list)
    buffers: State = field(default_factory=dict)
    input_gradients: list[np.ndarray | None] = field(default_factory=list)
    gradients: dict[str, np.ndarray | None] = field(default_factory=dict)
    error: str = ""


class Network:
    """One side's model; everything in it goes by the reference's paths and canonical names.

    Args:
        framework: the model's.
        model: holds its weights; every call begins from the statistics that it holds now.
        paths: reference path -> the model's own path of the modules that both sides have; None for the reference.

    Attributes:
        modules: by the reference's path, each once.
        start: the floating buffers as they are now, by name.
    """

    def __init__(self, framework: Framework, model: Module, paths: Mapping[str, str] | None = None) -> None:
        self.framework, self.model = framework, model
        framework.without_inplace(model)
        if paths is None:
            self.modules = framework.modules(model)
            names = {path: path for path in self.modules}
        else:
            own = framework.modules(model, every_path=True)
            self.modules = {theirs: own[ours] for theirs, ours in paths.items() if ours in own}
            names = {ours: theirs for theirs, ours in paths.items()}
        self._parameters: dict[str, tuple[Entry, Tensor]] = {}
        self.buffers: dict[str, Tensor] = {}
        self.start: State = {}
        for entry, tensor in framework.described(model):
            name = renamed(entry, names)
            if entry.role == "parameter":
                self._parameters[name] = (entry, tensor)
                continue
            values = framework.array(tensor)
            if values.dtype.kind == "f":
                self.buffers[name], self.start[name] = tensor, values

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

    def below(self, path: str) -> dict[str, str]:
        """Names of the floating buffers below a module: name within it -> name."""
        prefix = f"{path}." if path else ""
        return {name[len(prefix) :]: name for name in self.buffers if name.startswith(prefix)}

    def put_back(self, path: str = "") -> None:
        """Give the buffers below a module the values that they began with."""
        for name in self.below(path).values():
            self.framework.assign(self.buffers[name], self.start[name])

    def state_of(self, path: str) -> State:
        """The parameters and floating buffers of a module by name within it, canonical; buffers as every call begins."""
        prefix = f"{path}." if path else ""
        parameters = {
            name[len(prefix) :]: entry.to_canonical(self.framework.array(tensor))
            for name, (entry, tensor) in self._parameters.items()
            if name.startswith(prefix)
        }
        return parameters | {within: self.start[name] for within, name in self.below(path).items()}

    def trace(self, args: tuple, cotangents: Cotangents | None = None) -> dict[str, Call]:
        """One pass through the whole model: each module's calls in the order in which they ended, with their gradients.

        A module's second call is ``name#2``, and so on. The gradients are those of the sum of output * cotangent.
        """
        try:
            if cotangents is None:
                return self.framework.call(self.model, args, watched=self.modules).calls
            return self.framework.vjp(self.model, args, cotangents, Wanted(modules=self.modules)).calls
        finally:
            self.put_back()

    def called(self, path: str, call: Call, among: Iterable[str]) -> list[str]:
        """Which of some modules a call of one calls, in the order in which the calls end."""
        watched = {name: self.modules[name] for name in among if name in self.modules}
        try:
            calls = self.framework.call(self.modules[path], call.args, call.kwargs, watched).calls
        except Exception:  # a port may raise anything; what it called before is lost
            return []
        finally:
            self.put_back(path)
        return [key.partition("#")[0] for key in calls]

    def answer(self, path: str, call: Call, cotangents: Cotangents | None = None) -> Answer:
        """What a module gives for the input of a call, and its gradients where cotangents are given."""
        module, framework = self.modules[path], self.framework
        self.put_back(path)
        prefix = f"{path}." if path else ""
        own = {n[len(prefix) :]: pair for n, pair in self._parameters.items() if n.startswith(prefix)}
        trained = {name: (entry, tensor) for name, (entry, tensor) in own.items() if framework.trainable(tensor)}
        try:
            if cotangents is None:
                made = framework.call(module, call.args, call.kwargs)
            else:
                wanted = Wanted(parameters={name: tensor for name, (_, tensor) in trained.items()})
                made = framework.vjp(module, call.args, cotangents, wanted, call.kwargs)
            answer = Answer(made.outputs, {n: framework.array(self.buffers[f]) for n, f in self.below(path).items()}, made.inputs)
            for name, gradient in made.parameters.items():
                answer.gradients[name] = None if gradient is None else trained[name][0].to_canonical(gradient)
            return answer
        except Exception as error:  # the port may raise anything; that is a finding, not a crash
            return Answer(error=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")
        finally:
            self.put_back(path)

    def answer_without(self, path: str, call: Call, skipped: str) -> Answer:
        """What a module gives for the input of a call where a module inside it, by the model's own path, gives its input back."""
        inside = self.framework.modules(self.model)[skipped]
        handle = self.framework.hook(inside, after=lambda module, args, kwargs, output: args[0] if args else None)
        try:
            return self.answer(path, call)
        finally:
            handle.remove()


@contextlib.contextmanager
def training_mode(networks: Sequence[Network], training: bool) -> Iterator[None]:
    """All models in one mode inside the block, and in their own again after it."""
    before = [network.framework.training(network.model) for network in networks]
    try:
        for network in networks:
            network.framework.set_training(network.model, training)
        yield
    finally:
        for network, was in zip(networks, before, strict=True):
            network.framework.set_training(network.model, was)
