"""tinynet behind the engine's interface: the one file of ``alignment/frameworks/`` that a framework costs."""

from __future__ import annotations

import contextlib

import numpy as np
import tinynet

from alignment.frameworks._taped import Taped
from alignment.frameworks.base import Layer, Layout
from mobilenetv3_common.errors import UserError

KINDS = {tinynet.Linear: "linear", tinynet.ReLU: "relu", tinynet.Identity: "identity"}


class TinyNet(Taped):
    name = "tinynet"
    title = "tinynet"
    tensor_type = tinynet.Tensor
    module_type = tinynet.Module
    suffixes = (".npz",)
    layout = Layout(renamed={"linear": {"kernel": "weight"}}, transposed=frozenset({"linear"}))

    def use(self, device):
        if device != "cpu":
            raise UserError(f"tinynet has no device {device}: use --device cpu")

    def seed(self, number):
        np.random.seed(number)

    def threads(self, count):
        return contextlib.nullcontext()

    default_dtype = threads

    def tensor(self, array):
        return tinynet.Tensor(np.array(array))

    def array(self, tensor):
        return np.array(tensor.data)

    def times(self, tensor, factors):
        return tensor * np.asarray(factors, tensor.data.dtype)

    def assign(self, tensor, array):
        tensor.data = np.array(array, tensor.data.dtype)

    def children(self, module):
        return [(name, value) for name, value in vars(module).items() if isinstance(value, tinynet.Module)]

    def own_tensors(self, module):
        return {name: value for name, value in vars(module).items() if isinstance(value, tinynet.Tensor)}

    def is_parameter(self, tensor):
        return tensor.wants_gradient

    trainable = is_parameter

    def _stock(self, module):
        kind = KINDS.get(type(module))
        return Layer(kind, {}, type(module).__name__) if kind else None

    def training(self, model):
        return model.training

    def set_training(self, model, on):
        for module in self.modules(model).values():
            module.training = on

    def place(self, model):
        return model

    def hook(self, module, before=None, after=None):
        entry = ("before", before) if before is not None else ("after", after)
        module.hooks.append(entry)
        return _Handle(module, entry)

    def _no_graph(self):
        return tinynet.no_tape()

    def _leaf(self, array):
        return tinynet.Tensor(np.array(array), True)

    def _pull(self, outputs, cotangents, wanted):
        return tinynet.gradients(outputs, cotangents, wanted)

    def gradients(self, model):
        return {}  # tinynet leaves none behind

    def add_gradients(self, model, gradients):
        raise NotImplementedError("tinynet has no optimizers")

    def clear_gradients(self, model):
        pass

    def learning_rate(self, optimizer):
        raise NotImplementedError("tinynet has no optimizers")

    def in_float64(self, model):
        for tensor in self.tensors(model).values():
            tensor.data = tensor.data.astype("float64")
        return model

    def exact_functions(self):
        return []


class _Handle:
    def __init__(self, module, entry):
        self.module, self.entry = module, entry

    def remove(self):
        self.module.hooks.remove(self.entry)


FRAMEWORK = TinyNet
