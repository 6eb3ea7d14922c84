"""A framework small enough to read in a minute: tensors with a tape, linear layers, ReLU. Weights lie as (inputs, outputs)."""

from __future__ import annotations

import contextlib

import numpy as np

RECORDING = [True]


@contextlib.contextmanager
def no_tape():
    RECORDING.append(False)
    try:
        yield
    finally:
        RECORDING.pop()


class Tensor:
    """Values, and how to hand a gradient on to what they were computed from."""

    def __init__(self, data, wants_gradient=False, sources=()):
        self.data = np.asarray(data)
        self.sources = sources if RECORDING[-1] else ()
        self.wants_gradient = wants_gradient or any(source.wants_gradient for source, _ in self.sources)

    @property
    def shape(self):
        return self.data.shape

    def __add__(self, other):
        if not isinstance(other, Tensor):
            return Tensor(self.data + other, sources=[(self, lambda g: g)])
        rows = tuple(range(self.data.ndim - other.data.ndim))  # a bias is added to every row
        return Tensor(self.data + other.data, sources=[(self, lambda g: g), (other, lambda g: g.sum(rows))])

    def __mul__(self, factors):
        return Tensor(self.data * factors, sources=[(self, lambda g: g * factors)])

    def __matmul__(self, other):
        return Tensor(self.data @ other.data, sources=[(self, lambda g: g @ other.data.T), (other, lambda g: self.data.T @ g)])

    def positive(self):
        kept = self.data > 0
        return Tensor(np.where(kept, self.data, 0).astype(self.data.dtype), sources=[(self, lambda g: g * kept)])


def gradients(outputs, cotangents, wanted):
    """The gradients of tensors; None where none reaches one."""
    found = {}
    for output, cotangent in zip(outputs, cotangents, strict=True):
        found[id(output)] = found.get(id(output), 0) + np.asarray(cotangent, output.data.dtype)
    for tensor in reversed(_in_order(outputs)):
        for source, hand_on in tensor.sources:
            if source.wants_gradient and id(tensor) in found:
                found[id(source)] = found.get(id(source), 0) + hand_on(found[id(tensor)])
    return [found.get(id(tensor)) for tensor in wanted]


def _in_order(outputs):
    order, seen = [], set()

    def walk(tensor):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            for source, _ in tensor.sources:
                walk(source)
            order.append(tensor)

    for output in outputs:
        walk(output)
    return order


class Module:
    """Layers with hooks; its tensors and modules are its attributes."""

    training = True

    def __init__(self):
        self.hooks = []

    def __call__(self, *args, **kwargs):
        for when, hook in list(self.hooks):
            if when == "before":
                hook(self, args)
        output = self.forward(*args, **kwargs)
        for when, hook in list(self.hooks):
            if when == "after" and (changed := hook(self, args, kwargs, output)) is not None:
                output = changed
        return output


class Linear(Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.kernel = Tensor(np.random.randn(inputs, outputs).astype("float32") / inputs**0.5, True)
        self.bias = Tensor(np.zeros(outputs, "float32"), True)

    def forward(self, x):
        return x @ self.kernel + self.bias


class ReLU(Module):
    def forward(self, x):
        return x.positive()


class Identity(Module):
    def forward(self, x):
        return x
