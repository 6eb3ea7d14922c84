"""A run's weights, optimizer and averages as named arrays, and back, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from mobilenetv3_common.pretrained import read_for
from mobilenetv3_common.weights import CLASSIFIER, check_fit, other_classifier
from mobilenetv3_ref.models import foreign
from mobilenetv3_ref.train.precision import Precision

Arrays = dict[str, np.ndarray]


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A tensor on the CPU as an array, half precision as float32 (which holds it exactly)."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor).numpy().copy()


def model_arrays(model: nn.Module) -> Arrays:
    """Every weight and statistic under torch's name, without BatchNorm's counters."""
    return {name: array_of(tensor) for name, tensor in model.state_dict().items() if tensor.is_floating_point()}


def load_model_arrays(model: nn.Module, arrays: Arrays, source: str) -> None:
    """The reverse.

    Raises:
        UserError: keys or shapes differ from the model's; the model is then untouched.
    """
    state = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    check_fit({k: v.shape for k, v in arrays.items()}, {k: tuple(v.shape) for k, v in state.items()}, source)
    for name, tensor in state.items():
        tensor.copy_(torch.from_numpy(np.array(arrays[name])))


def load_pretrained(model: nn.Module, path: str, reset_classifier: bool = False, take: str = "auto") -> None:
    """Begin from a file of weights of either framework, or from a checkpoint's.

    Args:
        model: takes the weights.
        path: .pdparams, .pth, .safetensors or another trainer's checkpoint.
        reset_classifier: keep the model's own last layer where the file's has another number of classes.
        take: which weights of a training checkpoint, one of ``mobilenetv3_common.weights_file.TAKE``.

    Raises:
        UserError: the file cannot be read or does not fit.
    """
    own = model_arrays(model)
    arrays = read_for(path, own, take)
    if any(
        name not in own or (array.shape != own[name].shape and not name.startswith(CLASSIFIER)) for name, array in arrays.items()
    ):
        foreign.adapt(model, foreign.fitting({name: array.shape for name, array in arrays.items()}), path)
    load_model_arrays(model, arrays | other_classifier(arrays, model_arrays(model), path, reset_classifier), path)


def optimizer_arrays(model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision) -> Arrays:
    """The optimizer's state as ``accumulator/parameter`` and ``master/parameter``."""
    names = _names(model, precision)
    found = {
        f"{kind}/{names[parameter]}": array_of(value)
        for parameter, state in optimizer.state.items()
        for kind, value in state.items()
        if isinstance(value, torch.Tensor)
    }
    return found | {f"master/{names[master]}": array_of(master) for _, master in precision.masters}


def load_optimizer_arrays(model: nn.Module, optimizer: torch.optim.Optimizer, precision: Precision, arrays: Arrays) -> None:
    """The reverse.

    Raises:
        UserError: the arrays are another optimizer's, or some are missing.
    """
    if not arrays and precision.scales:  # the scaler may have skipped every update so far
        return
    names = _names(model, precision)
    parameters = {name: parameter for parameter, name in names.items()}
    expected = {f"{kind}/{names[parameter]}": shape for parameter, kind, shape in _first_state(optimizer)}
    expected |= {f"master/{names[master]}": tuple(master.shape) for _, master in precision.masters}
    check_fit({k: v.shape for k, v in arrays.items()}, expected, "the checkpoint's optimizer state")
    for key, array in arrays.items():
        kind, _, name = key.partition("/")
        parameter, value = parameters[name], torch.from_numpy(np.array(array))
        if kind == "master":
            with torch.no_grad():
                parameter.copy_(value)
        else:
            own = value if kind == "step" else torch.empty_like(parameter, requires_grad=False).copy_(value)  # its memory format
            optimizer.state[parameter][kind] = own


def _first_state(optimizer: torch.optim.Optimizer) -> Iterator[tuple[nn.Parameter, str, tuple[int, ...]]]:
    """What an optimizer's first step makes: (parameter, accumulator, shape), seen on twins of the parameters."""
    for group in optimizer.param_groups:
        twins = [nn.Parameter(torch.zeros_like(parameter)) for parameter in group["params"]]
        for twin in twins:
            twin.grad = torch.zeros_like(twin)
        twin_optimizer = type(optimizer)([{**group, "params": twins}])
        twin_optimizer.step()
        for parameter, twin in zip(group["params"], twins, strict=True):
            for kind, value in twin_optimizer.state[twin].items():
                if isinstance(value, torch.Tensor):
                    yield parameter, kind, tuple(value.shape)


def _names(model: nn.Module, precision: Precision) -> dict[nn.Parameter, str]:
    """Parameter, or its master where it has one -> name."""
    masters = dict(precision.masters)
    return {masters.get(parameter, parameter): name for name, parameter in model.named_parameters()}
