"""A run's weights, optimizer and averages as named arrays, and back, to the last bit."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

from mobilenetv3_common.pretrained import read_for
from mobilenetv3_common.weights import CLASSIFIER, as_paddle, as_torch, check_fit, other_classifier
from mobilenetv3_paddle.models import foreign
from mobilenetv3_paddle.train.precision import Precision

Arrays = dict[str, np.ndarray]


def array_of(tensor: paddle.Tensor) -> np.ndarray:
    """A tensor on the CPU as an array, half precision as float32 (which holds it exactly)."""
    return (tensor.astype("float32") if tensor.dtype in (paddle.float16, paddle.bfloat16) else tensor).numpy()


def model_arrays(model: nn.Layer) -> Arrays:
    """Every weight and statistic under Paddle's name."""
    return {name: array_of(tensor) for name, tensor in model.state_dict().items()}


def load_model_arrays(model: nn.Layer, arrays: Arrays, source: str) -> None:
    """The reverse.

    Raises:
        UserError: keys or shapes differ from the model's; the model is then untouched.
    """
    state = model.state_dict()
    check_fit({k: v.shape for k, v in arrays.items()}, {k: tuple(v.shape) for k, v in state.items()}, source)
    for name, tensor in state.items():
        tensor.set_value(paddle.to_tensor(arrays[name]).astype(tensor.dtype))


def load_pretrained(model: nn.Layer, path: str, reset_classifier: bool = False, take: str = "auto") -> None:
    """Begin from a file of weights of either framework, or from a checkpoint's.

    Args:
        model: takes the weights.
        path: .pdparams, .pth, .safetensors or another trainer's checkpoint.
        reset_classifier: keep the model's own last layer where the file's has another number of classes.
        take: which weights of a training checkpoint, one of ``mobilenetv3_common.weights_file.TAKE``.

    Raises:
        UserError: the file cannot be read or does not fit.
    """
    own = as_torch(model_arrays(model))
    state = read_for(path, own, take)
    if any(
        name not in own or (array.shape != own[name].shape and not name.startswith(CLASSIFIER)) for name, array in state.items()
    ):
        foreign.adapt(model, foreign.fitting({name: array.shape for name, array in state.items()}), path)
    arrays = as_paddle(state)
    load_model_arrays(model, arrays | other_classifier(arrays, model_arrays(model), path, reset_classifier), path)


def optimizer_arrays(model: nn.Layer, optimizer: paddle.optimizer.Optimizer, precision: Precision) -> Arrays:
    """The optimizer's state as ``accumulator/parameter`` and ``master/parameter``; the optimizer itself holds the masters."""
    names = _names(model, optimizer)
    found = {
        f"{kind}/{names[own]}": array_of(tensor)
        for kind, tensors in optimizer._accumulators.items()
        for own, tensor in tensors.items()
    }
    return found | {f"master/{names[own]}": array_of(tensor) for own, tensor in optimizer._master_weights.items()}


def load_optimizer_arrays(model: nn.Layer, optimizer: paddle.optimizer.Optimizer, precision: Precision, arrays: Arrays) -> None:
    """The reverse; the optimizer's accumulators are made first, as its first step would make them.

    Raises:
        UserError: the arrays are another optimizer's, or some are missing.
    """
    if not arrays and precision.scales:  # the scaler may have skipped every update so far
        return
    block = paddle.static.default_main_program().global_block()
    for group in optimizer._param_groups:
        optimizer._create_accumulators(block, group["params"])
    names = _names(model, optimizer)
    expected = {f"{kind}/{names[own]}": t for kind, ts in optimizer._accumulators.items() for own, t in ts.items()}
    expected |= {f"master/{names[own]}": tensor for own, tensor in optimizer._master_weights.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    check_fit({k: v.shape for k, v in arrays.items()}, shapes, "the checkpoint's optimizer state")
    for name, tensor in expected.items():
        tensor.set_value(arrays[name])


def _names(model: nn.Layer, optimizer: paddle.optimizer.Optimizer) -> dict[str, str]:
    """Paddle's own name of a parameter, or of its master -> the name in the model."""
    names = {parameter.name: name for name, parameter in model.named_parameters()}
    return names | {master.name: names[own] for own, master in optimizer._master_weights.items()}
