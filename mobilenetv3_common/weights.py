"""Files of weights, read without running code, and the two frameworks' names and layouts of the same weights.

BatchNorm's statistics are ``running_mean``/``running_var`` in torch and ``_mean``/``_variance`` in Paddle; the matrices of
linear layers are transposed; torch counts ``num_batches_tracked``, which Paddle does not have.
"""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.checkpoint import is_checkpoint, read_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.safe_pickle import load_arrays

State = dict[str, np.ndarray]
FORMATS = (".pth", ".pt", ".pdparams", ".safetensors")
COUNTER = "num_batches_tracked"
TORCH_STATISTICS = ("running_mean", "running_var")
PADDLE_STATISTICS = ("_mean", "_variance")
CLASSIFIER = "classifier.3"  # the last layer
_RENAMED = dict(zip(TORCH_STATISTICS, PADDLE_STATISTICS, strict=True))


def is_statistic(name: str) -> bool:
    """Whether a name, in either framework's naming, is that of a running mean or variance of BatchNorm."""
    return name.rpartition(".")[2] in (*TORCH_STATISTICS, *PADDLE_STATISTICS)


def is_paddle_state(state: Mapping[str, Any]) -> bool:
    """Whether a state carries Paddle's names for BatchNorm statistics."""
    return any(name.rpartition(".")[2] in PADDLE_STATISTICS for name in state)


def as_torch(state: Mapping[str, np.ndarray]) -> State:
    """A MobileNetV3's weights under torch's names and in its layout, without counters, from either framework's."""
    if not is_paddle_state(state):
        return {name: array for name, array in state.items() if not name.endswith(COUNTER)}
    back = {new: old for old, new in _RENAMED.items()}
    return {_renamed(name, back): _turned(name, array) for name, array in state.items()}


def as_paddle(state: Mapping[str, np.ndarray]) -> State:
    """A MobileNetV3's weights under Paddle's names and in its layout, from either framework's."""
    if is_paddle_state(state):
        return dict(state)
    return {_renamed(name, _RENAMED): _turned(name, array) for name, array in as_torch(state).items()}


def _renamed(name: str, names: dict[str, str]) -> str:
    head, _, tail = name.rpartition(".")
    return f"{head}.{names[tail]}" if tail in names else name


def _turned(name: str, array: np.ndarray) -> np.ndarray:
    """The matrix of a linear layer transposed; in MobileNetV3 every matrix is one."""
    return np.ascontiguousarray(array.T) if array.ndim == 2 and name.endswith("weight") else array


def check_fit(shapes: Mapping[str, tuple], expected: Mapping[str, tuple], source: str, allowed: Collection[str] = ()) -> None:
    """Equal keys and equal shapes, or nothing.

    Args:
        shapes: what the weights have.
        expected: what the model has.
        source: names the weights in the message.
        allowed: keys that the weights may have beyond the model's.

    Raises:
        UserError: a key is missing or too many, or a shape differs.
    """
    missing = [k for k in expected if k not in shapes]
    extra = [k for k in shapes if k not in expected and k not in allowed]
    wrong = [k for k in expected if k in shapes and tuple(shapes[k]) != tuple(expected[k])]
    if not (missing or extra or wrong):
        return
    parts = []
    if missing:
        parts.append(f"{len(missing)} missing key(s), first {missing[0]}")
    if extra:
        parts.append(f"{len(extra)} unexpected key(s), first {extra[0]}")
    if wrong:
        first = wrong[0]
        parts.append(f"{len(wrong)} wrong shape(s), first {first}: {tuple(shapes[first])}, expected {tuple(expected[first])}")
    hint = "; are they another model's, or of another width or class count?" if len(missing) + len(wrong) > 4 else ""
    raise UserError(f"{source} do not fit the model: {'; '.join(parts)}{hint}")


def other_classifier(arrays: State, own: State, path: str, reset: bool) -> State:
    """The model's own last layer, where the weights to begin from have another number of classes; else nothing.

    Args:
        arrays: the weights to begin from.
        own: the model's, under the same framework's names.
        path: of the weights, for the message.
        reset: whether a fresh last layer is wanted.

    Raises:
        UserError: the number of classes differs and ``reset`` is false.
    """
    other = [n for n in own if n.startswith(f"{CLASSIFIER}.") and n in arrays and arrays[n].shape != own[n].shape]
    if other and not reset:
        raise UserError(
            f"{path} is for {arrays[f'{CLASSIFIER}.bias'].size} classes, the model has {own[f'{CLASSIFIER}.bias'].size}: "
            "give --reset-classifier to begin with a fresh last layer"
        )
    return {name: own[name] for name in other}


def read_state(path: str | os.PathLike) -> State:
    """Read a weights file; nothing in it is executed.

    ``.pth`` and ``.pt`` go through ``torch.load(weights_only=True)``, ``.safetensors`` through safetensors, and
    ``.pdparams`` through ``mobilenetv3_common.safe_pickle`` (``paddle.load`` would run code from a crafted file).
    Of a training checkpoint the weights are taken: the moving average where it has one.

    Returns:
        name -> array, in the file's own naming and layout.

    Raises:
        UserError: the file is missing, damaged, of another kind, or holds something other than named arrays.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise UserError(f"no such weights file: {path}")
    if path.suffix == ".pdparams":
        with open(path, "rb") as file:
            content = load_arrays(file, str(path))
        if isinstance(content, dict):
            content.pop("StructuredToParameterName@@", None)
    elif path.suffix == ".safetensors":
        content = read_checkpoint(path).weights() if is_checkpoint(path) else _read_safetensors(path)
    else:
        content = _read_torch(path)
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = content["model"]  # a training checkpoint of torchvision's reference script
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(k, str) and isinstance(v, np.ndarray) and v.dtype != object for k, v in content.items())
    ):
        raise UserError(f"{path} does not hold a dictionary of named arrays: give a file of weights alone")
    return dict(content)


def _read_safetensors(path: Path) -> State:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}") from error


def _read_torch(path: Path) -> Any:
    torch = _torch_for(path)

    def as_arrays(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.numpy()
        return {k: as_arrays(v) for k, v in value.items()} if isinstance(value, dict) else value

    try:
        return as_arrays(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} is not read: it is no weights file, or holds more than weights, which could run code") from error
    except Exception as error:  # torch raises RuntimeError, EOFError, KeyError ... for damaged archives
        reason = (str(error).splitlines() or ["it ends too early"])[0]
        raise UserError(f"{path} is damaged: {type(error).__name__}: {reason}") from error


def write_state(path: str | os.PathLike, state: State) -> None:
    """Write a weights file of the kind its suffix says, whole or not at all.

    Raises:
        UserError: an unknown suffix, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    if path.suffix == ".safetensors":
        from safetensors.numpy import save

        with atomic_open(path) as file:
            file.write(save({k: np.array(v, order="C") for k, v in state.items()}))
        return
    with atomic_open(path) as file:
        if path.suffix == ".pdparams":
            pickle.dump(state, file, protocol=4)
        else:
            torch = _torch_for(path)
            torch.save({k: torch.tensor(v) for k, v in state.items()}, file)


def _torch_for(path: Path) -> Any:
    """torch, which alone reads and writes its archives; nothing else here needs it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UserError(f"{path}: a .pth file needs torch: install it, or convert it once with tools/convert_weights.py") from error
