"""torch's archives (.pth, .pt, .bin, Lightning's .ckpt), read by torch with an unpickler that runs nothing of the file.

``torch.load(weights_only=True)`` refuses a checkpoint for the ``argparse.Namespace`` that lies beside its weights. Here torch reads
the storages, and ``inert_pickle`` everything else. What tensors are made of is checked: torch itself enlarges a storage that is
smaller than the tensor that a file claims to lie in it.
"""

from __future__ import annotations

import importlib
import pickle
import tarfile
import types
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common import inert_pickle
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.growth import refuse_growth, refuse_long_table

LEGACY_VERSION = 1001  # of the format that torch wrote before 1.6
LONGEST_PATH = 1000  # characters of the name of a module within others

EXACT_IN_FLOAT32 = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


def read_torch(path: Path) -> Any:
    """What a file of ``torch.save`` holds: dicts and lists, tensors as they are, and ``inert_pickle.Left``.

    Raises:
        UserError: it is damaged, a TorchScript program, asks for what could run code, or torch is not installed.
    """
    torch = torch_for(path)
    _check_archive(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes and their source, which are not read
            return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_pickle_module(torch))
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} is not read: {error}") from error
    except Exception as error:  # torch raises RuntimeError, EOFError, KeyError ... for damaged archives
        reason = (str(error).splitlines() or ["it ends too early"])[0]
        raise UserError(f"{path} is damaged: {type(error).__name__}: {reason}") from error


def is_tensor(value: Any) -> bool:
    """Whether something that was read is a tensor or an array."""
    return isinstance(value, np.ndarray) or (type(value).__module__.startswith("torch") and hasattr(value, "untyped_storage"))


def as_array(tensor: Any, name: str, path: Path) -> np.ndarray:
    """A tensor as an array of its own memory; the types of 8 and 16 bits that numpy has not as float32, which holds them exactly.

    Raises:
        UserError: it is of a type or kind that an array cannot hold; the message names it.
    """
    if isinstance(tensor, np.ndarray):
        return tensor
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind in EXACT_IN_FLOAT32:
        tensor = tensor.float()
    try:
        return tensor.numpy().copy()
    except (TypeError, RuntimeError) as error:
        raise UserError(f"{path}: {name} is of type {kind}, which is not read: save it as float32") from error


def torch_for(path: Path) -> Any:
    """torch, which alone reads and writes its archives; nothing else here needs it.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UserError(f"{path}: a .pth file needs torch: install it, or convert it once with tools/convert_weights.py") from error


def _check_archive(path: Path) -> None:
    try:
        if not zipfile.is_zipfile(path):  # written before torch 1.6: one pickle after another, and the storages
            with open(path, "rb") as file:
                old = file.read(512)[257:262] == b"ustar"
            if old or tarfile.is_tarfile(path):
                raise UserError(f"{path} is a tar archive of a torch before 0.2, which is not read: load and save it with torch")
            return
        with open(path, "rb") as file:
            refuse_long_table(file)
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if any(info.filename.endswith("/constants.pkl") for info in infos):
        raise UserError(f"{path} is a TorchScript program, which is not run: load it with torch.jit and save its state_dict()")
    if not any(info.filename.endswith("/data.pkl") for info in infos):
        held = f"it holds {infos[0].filename}" if infos else "it is empty"
        raise UserError(
            f"{path} is an archive that torch.save has not written ({held}): load it with the program that wrote it, and save "
            "the model's state_dict()"
        )
    refuse_growth(path, sum(info.file_size for info in infos))


def _pickle_module(torch: Any) -> types.ModuleType:
    """What ``torch.load`` asks of a module like ``pickle``."""

    def rebuild(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Any:
        reach = offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        sound = min((offset, *size, *stride)) >= 0 and (0 in size or reach <= storage._size())
        if not sound:
            raise pickle.UnpicklingError(f"a tensor of shape {tuple(size)} reaches beyond its data")
        if torch.Size(size).numel() > max(16 * storage._size(), 1 << 24):
            raise pickle.UnpicklingError(f"a tensor of shape {tuple(size)} repeats {storage._size()} numbers")
        return torch._utils._rebuild_tensor(storage, offset, size, stride)

    def itself(tensor: Any, *rest: Any) -> Any:
        return tensor

    def of_type(make: Any, kind: Any, args: Any, state: Any) -> Any:
        """A tensor of a derived class, or with attributes: the tensor alone."""
        if make not in makers:
            raise pickle.UnpicklingError("a tensor that is built in an unusual way")
        return make(*args)

    known: dict[tuple[str, str], Any] = {
        **inert_pickle.Unpickler.known,
        ("torch._utils", "_rebuild_tensor"): rebuild,
        ("torch._utils", "_rebuild_tensor_v2"): rebuild,
        ("torch._utils", "_rebuild_tensor_v3"): lambda storage, offset, size, stride, grad, hooks, dtype, *rest: rebuild(
            _typed(torch, storage, dtype), offset, size, stride
        ),
        ("torch._utils", "_rebuild_parameter"): itself,
        ("torch._utils", "_rebuild_parameter_with_state"): itself,
        ("torch._tensor", "_rebuild_from_type_v2"): of_type,
        ("torch.nn.parameter", "Parameter"): itself,
        ("torch", "Size"): tuple,
        ("torch.storage", "UntypedStorage"): torch.UntypedStorage,
    }
    makers = [known[name] for name in known if name[0] == "torch._utils"]
    kinds = {("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}

    asked, parts = set[Any](), list[Any]()

    class Unpickler(inert_pickle.Unpickler):
        never_called = (torch.UntypedStorage,)  # it would make one of any size

        def load_binpersid(self) -> None:
            if isinstance(self.stack[-1], tuple) and len(self.stack[-1]) > 2 and self.stack[-1][0] == "storage":
                asked.add(self.stack[-1][2])
            super().load_binpersid()

        dispatch = {**inert_pickle.Unpickler.dispatch, pickle.BINPERSID[0]: load_binpersid}  # noqa: RUF012

    def load(file: Any, **given: Any) -> Any:
        """What a file without an archive has beside its content: a number, the version, the system, and the keys of storages."""
        parts.append(Unpickler(file, **given).load())
        if len(parts) == 2 and parts[1] != LEGACY_VERSION:
            raise pickle.UnpicklingError("another version of torch's format")
        if len(parts) == 4 and not asked <= set(parts[3]):
            raise pickle.UnpicklingError("a tensor has no data in the file")
        return parts[-1]

    Unpickler.known = known | kinds
    module = types.ModuleType("inert")
    module.Unpickler = Unpickler  # type: ignore[attr-defined]
    module.load = load  # type: ignore[attr-defined]
    return module


def _typed(torch: Any, storage: Any, dtype: Any) -> Any:
    """Bytes of a storage as numbers of a type that has no storage class of its own, as float8 has none."""
    return torch.storage.TypedStorage(wrap_storage=storage._untyped_storage, dtype=dtype, _internal=True)


def modules_state(model: inert_pickle.Left, prefix: str = "") -> Mapping[str, Any]:
    """The state of a whole model that was saved: its parameters and buffers by path, though its classes are not read."""
    if len(prefix) > LONGEST_PATH:
        raise UserError(f"modules within modules have names of more than {LONGEST_PATH} characters: save the state_dict()")
    found: dict[str, Any] = OrderedDict()
    attributes = model.attributes()
    for kind in ("_parameters", "_buffers"):
        tensors = attributes.get(kind)
        found |= {f"{prefix}{n}": t for n, t in tensors.items() if is_tensor(t)} if isinstance(tensors, Mapping) else {}
    children = attributes.get("_modules")
    for name, child in children.items() if isinstance(children, Mapping) else ():
        if isinstance(child, inert_pickle.Left):
            found |= modules_state(child, f"{prefix}{name}.")
    return found
