"""What is taken from a model while it computes: through hooks on it, and from its tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment.frameworks.base import Framework, leaves, mapped
from alignment_doctor.frameworks.base import SAMPLED, Probe
from alignment_doctor.watch import losses
from alignment_doctor.watch.kept import Marks
from alignment_doctor.watch.look import Evaluation, Look, Samples

OTHERWISE = ("batch_norm", "dropout")  # kinds of layers that compute otherwise in evaluation
DYING = ("relu", "relu6", "hardswish")
COARSE = {"bfloat16": 2.0**-7, "float16": 2.0**-10}  # relative distance of neighbouring numbers
PICTURES = 8  # of a batch whose activations are looked at
WEIGHTED = ("linear", "conv")  # kinds of layers whose first axis is their units
FOREIGN = 200  # parameters
NARROW = 8  # channels; half of them count where each is one number a picture, since those have one sign more often
ALIKE = 1e-4  # of the largest gradient; equal units have equal gradients but for the order of sums


@dataclass(frozen=True)
class _Call:
    """One output of one forward pass.

    Attributes:
        modes, left_in_evaluation: of the layers, as in a ``Look``.
        forwards: the backward pass that it belongs to.
        output: its number.
    """

    modes: dict[str, bool]
    left_in_evaluation: set[str]
    forwards: int
    output: int


class Eyes:
    """A model's hooks. The present look takes what they see.

    Args:
        model: as the loop calls it, or what is inside of a wrapper.
        engine, probe: its framework.

    Attributes:
        look: what is being filled; None between looks.
        evaluation: the same during an evaluation.
        data: numbers of the first pictures of the look.
    """

    def __init__(self, model: Any, engine: Framework, probe: Probe) -> None:
        self.model, self.engine, self.probe = model, engine, probe
        self.look: Look | None = None
        self.evaluation: Evaluation | None = None
        self.data = [float("nan")] * 2
        self.graphs = Marks()
        self.backwards = 0
        self.passes = 1
        self._forwards = 0  # begun backward passes: forward passes since the last one belong to the next
        self._outputs = 0
        self._foreign: list[tuple[str, Any]] | None = None
        self._stop: Callable[[], None] = _nothing
        self._standing: dict[str, float] = {}
        kinds = {path: engine.layer(module).kind for path, module in engine.modules(model).items()}
        self._modal = [p for p, kind in kinds.items() if kind.startswith(OTHERWISE)]
        self._dying = [p for p, kind in kinds.items() if kind in DYING]
        self._repeating = False
        self._args: tuple[tuple, dict] = (), {}
        self._handles = [engine.hook(model, before=self._begins), engine.hook(model, after=self._ends)]
        self._own: list[Any] = []
        self.refresh()

    def refresh(self) -> None:
        """Take the model's tensors anew: a layer may have been replaced."""
        described, seen = [], set()
        for entry, tensor in self.engine.described(self.model):
            if id(tensor) not in seen and np.prod(entry.shape) > 0:
                seen.add(id(tensor))
                described.append((entry, tensor))
        self.tensors = {entry.canonical: tensor for entry, tensor in described}
        self.parameters = {entry.canonical: tensor for entry, tensor in described if entry.role == "parameter"}
        last = self.engine.statistics_names() | {"running_mean", "running_var"}
        self.statistics = {name for name in self.tensors if name.rpartition(".")[2] in last}
        self.tensors = {n: t for n, t in self.tensors.items() if n in self.parameters or n in self.statistics}
        self._canonical = {entry.canonical: entry.to_canonical for entry, _ in described}

    def samples(self) -> Samples:
        """Some elements of every parameter and statistic."""
        return dict(zip(self.tensors, self.probe.samples(list(self.tensors.values())), strict=True))

    def gradients(self) -> dict[str, float]:
        """The norm of every gradient that is there."""
        found = {n: t.grad for n, t in self.parameters.items() if self.engine.trainable(t) and t.grad is not None}
        return dict(zip(found, self.probe.norms(list(found.values())).tolist(), strict=True))

    def stale(self) -> set[str]:
        """Parameters that are not to be trained and have a gradient nevertheless."""
        return {n for n, t in self.parameters.items() if not self.engine.trainable(t) and t.grad is not None}

    def pulls(self, names: Iterable[str]) -> Samples:
        """Some elements of the gradients of these parameters, where there are gradients."""
        found = {name: self.parameters[name].grad for name in names if name in self.parameters}
        found = {name: gradient for name, gradient in found.items() if gradient is not None}
        return dict(zip(found, self.probe.samples(list(found.values())), strict=True))

    def equal_units(self) -> list[str]:
        """Weights of linear and convolution layers that hold one value."""
        modules = self.engine.modules(self.model)
        found = []
        for name, sample in self.samples().items():
            layer = name.rpartition(".")[0]
            if name not in self.parameters or len(np.unique(sample)) > 1:
                continue
            if layer in modules and self.engine.layer(modules[layer]).kind.startswith(WEIGHTED):
                found += [name] if _alike(self._units(name, self.parameters[name]), 0.0) else []
        return found

    def alike(self, names: Iterable[str]) -> list[str]:
        """Those of these weights whose units all have the same gradient, which is not zero."""
        found = {n: self.parameters[n].grad for n in names if n in self.parameters and self.parameters[n].grad is not None}
        return [name for name, gradient in found.items() if _alike(self._units(name, gradient), ALIKE)]

    def _units(self, name: str, tensor: Any) -> np.ndarray:
        return np.asarray(self._canonical[name](self.engine.array(tensor)), dtype=np.float64)

    def open(self, look: Look, anew: bool) -> None:
        """Fill this look from now on; ``anew`` takes the model's tensors anew first."""
        if anew:
            self.refresh()
        self.look, self.backwards, self.data = look, 0, [float("nan")] * 2
        look.statistics = set(self.statistics)
        look.sizes = {name: int(np.prod(tensor.shape)) for name, tensor in self.parameters.items()}
        look.kernels = {name: _common_norm(tensor.shape) for name, tensor in self.parameters.items() if len(tensor.shape) > 1}
        modules = self.engine.modules(self.model)
        self._own = [self.engine.hook(modules[p], after=self._activated(p)) for p in self._dying if p in modules]
        owners = {name.rpartition(".")[0] for name in self.parameters}
        self._own += [self.engine.hook(modules[p], after=self._called(p)) for p in owners if p in modules]
        self._standing = self.gradients()
        look.coarse = {name: COARSE[kind] for name, t in self.parameters.items() if (kind := _kind(t)) in COARSE}

    def close(self) -> None:
        """No look is filled any more."""
        self._end_activations()
        self.look = None

    def leave(self) -> None:
        """Take the hooks off the model."""
        self.close()
        self._stop()
        for handle in self._handles:
            handle.remove()

    # --- hooks -------------------------------------------------------------------------------------------------------------

    def _modes(self) -> dict[str, bool]:
        modules = self.engine.modules(self.model)
        return {path: self.engine.training(modules[path]) for path in ("", *self._modal) if path in modules}

    def _begins(self, _module: Any, args: tuple) -> None:
        if self.probe.compiling():
            return  # a compiled forward pass stays as it is: what needs the model's call is not looked at
        look = self.look
        if self._repeating or self.evaluation is not None or look is None or self.backwards:
            return
        if self._foreign is None:
            self._foreign, known = [], {id(module) for module in self.engine.modules(self.model).values()}
            self._stop = self.probe.noting_layers(lambda layer: self._met(layer, known))
        if not look.before or self.engine.training(self.model):  # the latter: an evaluation may have come between
            look.before = self.samples()
        tensors = leaves(args, self.engine.tensor_type)
        if tensors:
            first = tensors[0]
            self.data = (
                [float(self.probe.norms([first])[0]), float(self.probe.samples([first])[0].sum())] if _real(first) else self.data
            )

    def _met(self, layer: Any, known: set[int]) -> None:
        """A layer computes within the model's forward pass; those that are no part of the model are kept."""
        if self.probe.compiling() or id(layer) in known or self._foreign is None or len(self._foreign) >= FOREIGN:
            return
        own = {id(tensor) for tensor in self.parameters.values()}
        for name, tensor in self.probe.own_parameters(layer):
            if id(tensor) not in own and self.engine.trainable(tensor):
                self._foreign.append((f"{type(layer).__name__}.{name}", tensor))

    def foreign(self) -> dict[str, Any]:
        """Parameters with a gradient of the layers that computed in the forward pass and are no part of the model."""
        met = {id(tensor): (name, tensor) for name, tensor in self._foreign or () if tensor.grad is not None}
        return {f"{name}, layer {number}": tensor for number, (name, tensor) in enumerate(met.values(), 1)}

    def _ends(self, _module: Any, args: tuple, kwargs: dict, output: Any) -> None:
        if self.probe.compiling() or self._repeating:
            return
        self._stop()
        self._stop = _nothing
        if self.evaluation is not None:
            self._evaluated(args, kwargs, output)
            return
        learning = (tensor for tensor in leaves(output, self.engine.tensor_type) if self.engine.trainable(tensor))
        if self.look is None:  # within a look Paddle would keep the graph, since its maker is asked for
            for tensor in itertools.islice(learning, 1):
                self.graphs.put(tensor)
            return
        modes, forwards = self._modes(), self._forwards
        left = {path for path, on in modes.items() if path and not on and self._left_in_evaluation(path)}
        for tensor in learning:
            self._outputs += 1
            self.look.idle.add(self._outputs)
            call = _Call(modes, left, forwards, self._outputs)
            back = self._returning(call, tensor.detach(), _made_by(tensor))  # the tensor itself would keep its graph
            tensor.register_hook(back)

    def _left_in_evaluation(self, path: str) -> bool:
        """Whether somebody chose that a layer computes as in evaluation: it alone, or within a part that trains nothing."""
        parent = path.rpartition(".")[0]
        modules, start = self.engine.modules(self.model), f"{parent}." if parent else ""
        while parent and parent not in modules:
            parent = parent.rpartition(".")[0]
        if self.engine.training(modules[parent] if parent else self.model):
            return True
        return bool(parent) and not any(self.engine.trainable(t) for n, t in self.parameters.items() if n.startswith(start))

    def _returning(self, call: _Call, output: Any, how: str) -> Callable[[Any], None]:
        def back(gradient: Any) -> None:
            self._goes_back(call, gradient)
            if self.look is not None and 1 <= len(output.shape) <= 2 and _real(output):
                values, pull = (self.engine.array(one).astype(np.float64) for one in (output, gradient))
                losses.take(self.look, values, pull, how)

        return back

    def _goes_back(self, call: _Call, gradient: Any) -> None:
        """A gradient has reached an output of the model. At the first of a backward pass, no parameter has its part of it yet."""
        look = self.look
        if look is None:
            return
        look.pulled = look.pulled or bool(self.probe.norms([gradient])[0])
        look.idle.discard(call.output)
        if call.forwards != self._forwards:
            return  # another output, or another call of the model, in the same backward pass
        self._forwards += 1
        self.backwards += 1
        if self.backwards == 1 or (
            self.passes == 1 and not any(self.gradients().values())
        ):  # cleared since: the update begins here
            now = self.gradients()
            look.modes, look.left_in_evaluation = call.modes, call.left_in_evaluation
            look.left_over = {name: norm for name, norm in self._standing.items() if norm == now.get(name)}
        elif self.backwards == self.passes:
            look.lost = not any(self.gradients().values())
        self._end_activations()

    def _called(self, path: str) -> Any:
        def seen(_module: Any, _args: tuple, _kwargs: dict, _output: Any) -> None:
            if not self.probe.compiling() and self.look is not None and self.evaluation is None:
                self.look.called.add(path)

        return seen

    def _activated(self, path: str) -> Any:
        def seen(_module: Any, _args: tuple, _kwargs: dict, output: Any) -> None:
            if self.probe.compiling():
                return
            if self.look is not None and self.evaluation is None and self.engine.training(self.model):
                values = self.engine.array(output[:PICTURES])
                if values.ndim > 1:
                    alive = np.any(np.moveaxis(values, 1, 0).reshape(values.shape[1], -1) != 0, axis=1)
                    self.look.dead[path] = 1.0 - float(alive.mean())
                    if len(alive) * (1 if values[0, 0].size > 1 else 0.5) < NARROW:
                        self.look.narrow.add(path)

        return seen

    def _end_activations(self) -> None:
        for handle in self._own:
            handle.remove()
        self._own = []

    def _evaluated(self, args: tuple, kwargs: dict, output: Any) -> None:
        """The first forward pass of an evaluation: its modes, and whether a second pass gives the same."""
        evaluation = self.evaluation
        assert evaluation is not None
        if evaluation.seen:
            return
        evaluation.seen = True
        evaluation.training = [path for path, on in self._modes().items() if on and path]
        if evaluation.training:
            return  # a second pass would move statistics
        engine, tensor = self.engine, self.engine.tensor_type
        given = [mapped_arrays(engine, part) for part in (args, kwargs)]
        self._repeating = True
        try:
            with self.probe.noting_dropout() as dropped:
                again = engine.call(self.model, *given).outputs
        finally:
            self._repeating = False
        evaluation.drops = bool(dropped)
        shown = [engine.array(one) for one in leaves(output, tensor)]
        if shown and again and shown[0].shape == again[0].shape and shown[0].dtype.kind == "f":
            a, b = shown[0].astype(np.float64), again[0].astype(np.float64)
            if np.isfinite(a).all():
                evaluation.apart = float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(a)), 1e-30)


def _alike(units: np.ndarray, share: float) -> bool:
    """Whether all rows of (N, ...) are equal but for ``share`` of the largest number; not where there is one row or one column."""
    if units.ndim < 2 or len(units) < 2 or units[0].size < 2 or not np.isfinite(units).all():
        return False
    return bool((share == 0 or units.any()) and np.abs(units - units[:1]).max() <= share * np.abs(units).max())


def mapped_arrays(engine: Framework, value: Any) -> Any:
    """The same nested tuples, lists and dicts with arrays for tensors."""
    return mapped(value, engine.tensor_type, engine.array)


def _nothing() -> None:
    pass


def _common_norm(shape: Sequence[int]) -> float:
    """The norm of the elements looked at of a weight whose deviation is 1 / sqrt(inputs)."""
    size = int(np.prod(shape))
    inputs = max(shape) if len(shape) == 2 else size // max(shape[0], 1)
    return (min(size, SAMPLED) / max(inputs, 1)) ** 0.5


def _kind(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _real(tensor: Any) -> bool:
    return "float" in str(tensor.dtype)


def _made_by(tensor: Any) -> str:
    """``"sigmoid"`` or ``"relu"`` where that made the tensor, but for its shape."""
    node = getattr(tensor, "grad_fn", None)
    for _ in range(4):
        if node is None:
            return ""
        name = node.name().lower()
        if not any(shape in name for shape in ("squeeze", "view", "reshape", "flatten")):
            return "sigmoid" if "sigmoid" in name and "log" not in name else "relu" if name.startswith("relu") else ""
        parents = [one[0] if isinstance(one, tuple) else one for one in node.next_functions]
        node = parents[0] if parents else None
    return ""
