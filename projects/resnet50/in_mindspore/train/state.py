"""A run's weights, optimizer and averages as named arrays, and back, to the last bit."""

from __future__ import annotations

import numpy as np
from mindspore import Parameter, Tensor, nn

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import MINDSPORE_STATISTICS, as_torch, check_fit, read_state
from projects.resnet50.in_mindspore.train.optimizer import Optimizer, accumulators, parameter_names
from projects.resnet50.in_mindspore.train.precision import Precision

Arrays = dict[str, np.ndarray]


def model_arrays(model: nn.Cell) -> Arrays:
    """Every weight and statistic under MindSpore's name."""
    return {name: parameter.asnumpy().copy() for name, parameter in model.parameters_and_names()}


def load_model_arrays(model: nn.Cell, arrays: Arrays, source: str) -> None:
    """The reverse.

    Raises:
        UserError: keys or shapes differ from the model's; the model is then untouched.
    """
    state = dict(model.parameters_and_names())
    check_fit({k: v.shape for k, v in arrays.items()}, {k: tuple(v.shape) for k, v in state.items()}, source)
    for name, parameter in state.items():
        assign(parameter, arrays[name])


def load_pretrained(model: nn.Cell, path: str) -> None:
    """Begin from a file of weights of MindSpore, torch or Paddle, or from a checkpoint's.

    Args:
        model: takes the weights.
        path: .ckpt, .pth, .pdparams or .safetensors.

    Raises:
        UserError: the file cannot be read or does not fit.
    """
    arrays, renamed = read_state(path), torch_names(model)
    if arrays.keys() != renamed.keys():
        arrays = as_torch(arrays)
        known = {name: own for own, name in renamed.items()}
        arrays = {known.get(name, name): array for name, array in arrays.items()}
    load_model_arrays(model, arrays, path)


def torch_names(model: nn.Cell) -> dict[str, str]:
    """MindSpore's name of every weight and statistic -> torch's."""
    ids, found = parameter_names(model), {}
    for name, parameter in model.parameters_and_names():
        parent, _, last = name.rpartition(".")
        found[name] = ids.get(id(parameter), f"{parent}.{MINDSPORE_STATISTICS.get(last, last)}")
    return found


def optimizer_arrays(model: nn.Cell, optimizer: Optimizer, precision: Precision) -> Arrays:
    """The optimizer's state as ``accumulator/parameter``, and the number of updates, in float64, as ``count``."""
    own = {id(parameter): name for name, parameter in model.parameters_and_names()}
    found = {f"{kind}/{own[key]}": one.asnumpy().copy() for key, state in optimizer.state.items() for kind, one in state.items()}
    return found | {"count": np.array([optimizer.count], dtype=np.float64)}


def load_optimizer_arrays(model: nn.Cell, optimizer: Optimizer, precision: Precision, arrays: Arrays) -> None:
    """The reverse.

    Raises:
        UserError: the arrays are another optimizer's, or some are missing.
    """
    own, source = {id(p): (name, p) for name, p in model.parameters_and_names()}, "the checkpoint's optimizer state"
    if "count" not in arrays:
        raise UserError(f"{source} lacks the number of updates: it is another optimizer's")
    optimizer.count = int(arrays["count"][0])
    kinds = accumulators(optimizer.config) if optimizer.count else ()
    trained = [own[id(parameter)] for group in optimizer.groups for parameter in group.params]
    expected = {f"{kind}/{name}": tuple(parameter.shape) for kind in kinds for name, parameter in trained}
    check_fit({k: v.shape for k, v in arrays.items()}, {**expected, "count": (1,)}, source)
    optimizer.state = {id(p): {kind: Tensor(np.array(arrays[f"{kind}/{name}"])) for kind in kinds} for name, p in trained}


def assign(parameter: Parameter, array: np.ndarray) -> None:
    parameter.assign_value(Tensor(np.array(array)).astype(parameter.dtype))
