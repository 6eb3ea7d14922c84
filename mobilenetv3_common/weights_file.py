"""One reader for files of weights, for every command: whatever trainer wrote them, nothing in them is executed.

What a file is follows from its first bytes, not from its name: safetensors, an archive of torch (also Lightning's ``.ckpt`` and
``pytorch_model.bin``), a pickle of Paddle, a checkpoint of MindSpore. Of a training checkpoint one set of weights is taken: the
moving average where it has one, or the weights themselves, as ``take`` says. What was taken and what was left is said in one line.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.checkpoint import is_checkpoint, read_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import refuse_stand_in
from mobilenetv3_common.growth import refuse_growth, written_out
from mobilenetv3_common.inert_pickle import ArrayUnpickler, Left
from mobilenetv3_common.mindspore_checkpoint import read_ckpt
from mobilenetv3_common.safe_pickle import load_arrays
from mobilenetv3_common.safetensors_file import as_known, read_safetensors
from mobilenetv3_common.sharded_weights import INDEX, file_in, is_index, read_shards
from mobilenetv3_common.terminal import printable
from mobilenetv3_common.torch_file import as_array, is_tensor, modules_state, read_torch

State = dict[str, np.ndarray]
FORMATS = (".pth", ".pt", ".pdparams", ".ckpt", ".safetensors")  # that are written
READ = (*FORMATS, ".bin", ".tar", ".pdema", INDEX)  # others that trainers write: HF's .bin, timm's .pth.tar, PaddleClas's .pdema
TAKE = ("auto", "averaged", "raw")  # what is taken of a training checkpoint; auto is averaged where there is such a set

LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # the number with which torch before 1.6 begins its files
AVERAGED = re.compile(r"(^|_)(ema|swa|avg|averaged?|shadow)(_|$)")
NO_WEIGHTS = re.compile(r"optim|sched|scaler|callback|criterion|averaging_state|^(opt|loss|meta|message_hub|rng|random)(_|$)")
PREFERRED = ("state_dict", "model", "model_state_dict", "current_model_state", "module", "net", "network", "weights", "params")
MOST_VALUES = 1_000_000  # in a file's dictionaries and modules, written out
DEEPEST = 4  # dictionaries within each other, of which trainers write two or three
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")  # torch's and Lightning's
NAMED = 4  # entries of a file that the line names


@dataclass(frozen=True)
class Weights:
    """What was read of a file.

    Attributes:
        state: name -> array, in the file's own layout and naming, without what a trainer puts around a model.
        kind: ``"averaged"`` or ``"raw"``; None where the file has one set and does not say which.
        notes: what was taken and left, for people; empty for a file of weights alone.
        trained_as: the architecture as the trainer calls it, e.g. timm's ``tf_mobilenetv3_small_100``; None where it is not said.
    """

    state: State
    kind: str | None = None
    notes: list[str] = field(default_factory=list)
    trained_as: str | None = None


def read_state(path: str | os.PathLike, take: str = "auto") -> State:
    """``read_weights`` for who needs the arrays alone; what was taken is said on standard error."""
    weights = read_weights(path, take)
    say(path, weights.notes)
    return weights.state


def read_weights(path: str | os.PathLike, take: str = "auto") -> Weights:
    """Read a file of weights, or the weights of a training checkpoint.

    Args:
        path: of one of the kinds ``READ``, or of a folder in which a trainer has put one.
        take: one of ``TAKE``.

    Returns:
        Arrays of numpy's types; bfloat16 and float8 as float32, which holds them exactly.

    Raises:
        UserError: the file is missing, damaged or of another kind, holds no weights or several sets, or a tensor is of a type that
            is not read. The line names it.
    """
    path = file_in(Path(path))
    if not path.is_file():
        raise UserError(f"no such weights file: {path}")
    if not path.name.endswith(READ):
        raise UserError(f"{path}: unknown kind of weights file; use one of {', '.join(READ)}")
    refuse_stand_in(path)
    if path.suffix == ".safetensors" and is_checkpoint(path):
        checkpoint = read_checkpoint(path)
        return _of_own_checkpoint(checkpoint.part("model"), checkpoint.part("ema"), path, take)
    content = _content(path)
    _refuse_tangle(content, path)
    with naming(path):
        sets = _sets(content)
        label, found, kind = _chosen(sets, content, path, take)
        arrays, odd = _arrays(found, path)
        state, removed = without_wrappers(arrays)
    left = _left_out(label, sets, content) if label and isinstance(content, Mapping) else []
    said = [f"took {label}" + (f" ({kind})" if kind else "")] if label else []
    said += [f"without {' and '.join(removed)} in the names"] if removed else []
    said += [f"left out {_listed([*left, *odd], content)}"] if left or odd else []
    return Weights(state, kind, [", ".join(said)] if said else [], _trained_as(content))


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """What is refused inside the block is said with the file's name, once."""
    try:
        yield
    except UserError as error:
        if str(path) in error.line:
            raise
        raise UserError(f"{path}: {error.line}") from error


def say(path: str | os.PathLike, notes: list[str]) -> None:
    """Tell what was done to a file, each line once, by the first rank alone."""
    if os.environ.get("RANK", os.environ.get("PADDLE_TRAINER_ID", "0")) != "0":
        return
    for note in notes:
        line = f"note: {path}: {note}"
        if line not in _said:
            _said.add(line)
            print(printable(line), file=sys.stderr)


_said: set[str] = set()


def _of_own_checkpoint(model: State, average: State, path: Path, take: str) -> Weights:
    if take == "averaged" and not average:
        raise UserError(f"{path} holds no moving average: the run had no --ema-decay; take raw")
    averaged = bool(average) and take != "raw"
    return Weights(average if averaged else model, "averaged" if averaged else "raw")


# --- what a file is --------------------------------------------------------------------------------------------------------


def written_as(path: str | os.PathLike) -> str:
    """The suffix that a file's first bytes ask for, whatever it is called: Lightning's ``.ckpt`` is a ``.pth`` file."""
    path = Path(path)
    path = file_in(path) if path.is_dir() else path
    if is_index(path):
        return ".safetensors" if path.name.endswith(f".safetensors.{INDEX}") else ".pth"
    if not path.is_file():
        return path.suffix
    with open(path, "rb") as file:
        head = file.read(len(LEGACY_TORCH))
    if path.suffix == ".safetensors" or (head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size):
        return ".safetensors"
    if head[:4] == b"PK\x03\x04" or head == LEGACY_TORCH:
        return ".pth"
    if path.suffix in (".pdparams", ".pdema") or head[:1] == b"\x80":
        return ".pdparams"
    return ".ckpt" if path.suffix == ".ckpt" else ".pth"


def _content(path: Path) -> Any:
    """What a file holds, tensors as they are; what the shards of an index hold, as arrays."""
    if is_index(path):
        return read_shards(path, _of_shard)
    readers: dict[str, Callable[[Path], Any]] = {".safetensors": read_safetensors, ".pdparams": _paddle, ".ckpt": read_ckpt}
    return readers.get(written_as(path), read_torch)(path)


def _of_shard(path: Path) -> State:
    refuse_stand_in(path)
    content = _content(path)
    _refuse_tangle(content, path)
    if not isinstance(content, Mapping):
        raise UserError(f"{path} does not hold a dictionary of named arrays, as a shard does")
    return _arrays(content, path)[0]


def _paddle(path: Path) -> Any:
    with open(path, "rb") as file:
        content = load_arrays(file, str(path), unpickler=ArrayUnpickler)
    if isinstance(content, dict):
        content.pop("StructuredToParameterName@@", None)
    return content


def _refuse_tangle(content: Any, path: Path) -> None:
    """Refuse dictionaries and modules that refer to each other so often that nobody could go through them."""
    try:
        many = written_out(content, _inner, MOST_VALUES) > MOST_VALUES
    except RecursionError:
        many = True
    if many:
        raise UserError(
            f"{path} is not read: written out, its dictionaries would have more than {MOST_VALUES} entries, or no end: save the "
            "state_dict() alone"
        )


def _inner(value: Any) -> list[Any]:
    if isinstance(value, Left):
        children = value.attributes().get("_modules")
        return [*value.items.values(), *(children.values() if isinstance(children, Mapping) else ())]
    return list(value.values()) if isinstance(value, Mapping) else []


# --- which of its tensors --------------------------------------------------------------------------------------------------


def _sets(content: Any, label: str = "") -> dict[str, Mapping[str, Any]]:
    """The sets of named tensors in a file by where they lie: ``""`` for the file itself, ``"model"``, ``"state/model"``."""
    if isinstance(content, Left):
        content = modules_state(content) or content.items
    if not isinstance(content, Mapping) or label.count("/") >= DEEPEST:
        return {}
    if _is_state(content):
        return _beside_average(content, label) or {label: content}
    found: dict[str, Mapping[str, Any]] = {}
    for key, value in content.items():
        if isinstance(key, str) and not NO_WEIGHTS.search(key):
            found |= _sets(value, f"{label}/{key}" if label else key)
    return found


def _is_state(content: Mapping[Any, Any]) -> bool:
    """Whether a dictionary is one of named tensors: some with axes, and no sets of them or modules among them."""
    values = [_tensor(value) for value in content.values()]
    some = any(_unread(value) or (is_tensor(value) and len(value.shape)) for value in values)
    return some and all(isinstance(key, str) for key in content) and not any(map(_holds_tensors, values))


def _holds_tensors(value: Any) -> bool:
    """Whether a value is a module, or a dictionary with tensors at any depth; a layer's extra state or a note has none."""
    if isinstance(value, Left):
        return bool(modules_state(value))
    return isinstance(value, Mapping) and any(
        is_tensor(_tensor(inner)) or _unread(inner) or _holds_tensors(inner) for inner in value.values()
    )


def _beside_average(content: Mapping[str, Any], label: str) -> dict[str, Mapping[str, Any]]:
    """The two sets in a dictionary that holds a network and, under other names, its average, as Lightning writes two modules."""
    for head in {name.partition(".")[0] for name in content if "." in name}:
        average = {name.removeprefix(f"{head}."): value for name, value in content.items() if name.startswith(f"{head}.")}
        rest = {name: value for name, value in content.items() if not name.startswith(f"{head}.")}
        names = {name.removeprefix("module.") for name, value in average.items() if "." in name}
        if not AVERAGED.search(head) or not names or not rest:
            continue
        one = min(names)
        for prefix in (name.removesuffix(one) for name in rest if name.endswith(one)):
            if all(f"{prefix}{name}" in rest for name in names):
                where = f"{label}/" if label else ""
                return {f"{where}{head}.": average, f"{where}{prefix or 'the names without it'}": rest}
    return {}


def _unread(value: Any) -> bool:
    """Whether a value is a tensor or array of a kind that is not read."""
    return isinstance(value, Left) and value.title.partition(".")[0] in ("torch", "numpy") and not modules_state(value)


def _tensor(value: Any) -> Any:
    """A value of a state; Paddle writes a tensor within a nested dictionary as its name and its array."""
    named = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    value = value[1] if named and is_tensor(value[1]) else value
    return None if isinstance(value, np.ndarray) and value.dtype == object else value


def _chosen(
    sets: Mapping[str, Mapping[str, Any]], content: Any, path: Path, take: str
) -> tuple[str, Mapping[str, Any], str | None]:
    """Label, tensors and kind of the set that is taken."""
    if not sets:
        raise UserError(f"{path} does not hold a dictionary of named arrays: give a file of weights alone")
    if "" in sets:
        if take == "averaged":
            raise UserError(f"{path} holds one set of weights and does not say that it is a moving average: leave the choice out")
        return "", sets[""], None
    averaged = {label for label in sets if any(map(AVERAGED.search, re.split("[./]", label)))}
    if isinstance(content, Mapping) and {"state_dict", "ema_state_dict", "message_hub"} <= content.keys():
        averaged ^= {"state_dict", "ema_state_dict"}  # MMEngine exchanges the two when it saves
    elif isinstance(content, Mapping) and "current_model_state" in content:
        averaged |= {"state_dict"}  # so does Lightning's callback
    kinds = {"averaged": [s for s in sets if s in averaged], "raw": [s for s in sets if s not in averaged]}
    kind = ("averaged" if kinds["averaged"] else "raw") if take == "auto" else take
    if not kinds[kind]:
        missing = "no moving average" if kind == "averaged" else "a moving average alone"
        raise UserError(f"{path} holds {missing}, but {', '.join(sets)}: leave the choice of weights out")
    labels = sorted(kinds[kind], key=lambda s: PREFERRED.index(s) if s in PREFERRED else len(PREFERRED))
    if len(labels) > 1 and labels[0] not in PREFERRED:
        raise UserError(
            f"{path} holds several sets of weights ({', '.join(labels)}): save the one that is meant in a file of its own"
        )
    return labels[0], sets[labels[0]], kind if averaged else None


def _left_out(label: str, sets: Mapping[str, Any], content: Mapping[Any, Any]) -> list[Any]:
    """What else is in a file: its other entries, and other sets within the entry of the one that is taken."""
    top = label.partition("/")[0]
    others = [name for name in content if name != top] if top in content else []  # else all is in one dictionary
    return others + [name for name in sets if name != label and (name.partition("/")[0] == top or not others)]


def _arrays(found: Mapping[str, Any], path: Path) -> tuple[State, list[str]]:
    """The tensors of a set as arrays, and the names of what is none."""
    state: State = {}
    odd, of_paddle = [], written_as(path) == ".pdparams"
    if not is_index(path):  # whose shards were held to it
        refuse_growth(path, sum(value.nbytes for value in map(_tensor, found.values()) if is_tensor(value)))
    for name, given in found.items():
        value = _tensor(given)
        if is_tensor(value):
            array = as_array(value, name, path)
            state[name] = _of_paddle(array, name, path) if of_paddle else array
        elif _unread(value):
            raise UserError(f"{path}: {name} is of type {value.title}, which is not read: save it as a dense float32 tensor")
        else:
            odd.append(name)
    return state, odd


def _of_paddle(array: np.ndarray, name: str, path: Path) -> np.ndarray:
    """An array of Paddle's files, which hold the bits of a bfloat16 as uint16, and those of a float8 as int8."""
    if array.dtype == np.uint16:
        return as_known(array.tobytes(), "bfloat16").reshape(array.shape)
    if array.dtype == np.int8:
        raise UserError(f"{path}: {name} is of type int8 or float8, which Paddle writes alike: save it as float32")
    return array


def without_wrappers(state: State) -> tuple[State, list[str]]:
    """A state without what data parallelism, compilation and averaging put around a model, and which names those were."""
    removed = []
    for wrapper in WRAPPERS:  # which may be anywhere
        if any(f"{wrapper}." in name for name in state):
            plain = {re.sub(rf"(^|\.){wrapper}\.", r"\1", name): array for name, array in state.items()}
            if len(plain) < len(state):
                raise UserError(f"the weights are there twice, with and without {wrapper}.: save one of the two alone")
            removed += [f"{wrapper}."] if plain.keys() != state.keys() else []
            state = plain
    while all(name.startswith("module.") for name, array in state.items() if array.ndim):
        # Beside what is averaged stands the number of updates, a scalar: n_averaged of torch, steps of MMEngine.
        state = {name.removeprefix("module."): array for name, array in state.items() if name.startswith("module.")}
        removed += ["module."] if "module." not in removed else []
    return state, removed


def _listed(names: list[Any], content: Any) -> str:
    """Some of the names, with the class of what is none of Python's own data."""

    def shown(name: Any) -> str:
        value = content.get(name) if isinstance(content, Mapping) else None
        return f"{name} ({value.title})" if isinstance(value, Left) else str(name)

    words = sorted(map(shown, names), key=lambda word: not word.endswith(")"))
    rest = len(words) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _trained_as(content: Any) -> str | None:
    """The architecture's name in timm's and torchvision's checkpoints."""
    if not isinstance(content, Mapping):
        return None
    args = content.get("args")
    given = [content.get("arch"), args.attributes().get("model") if isinstance(args, Left) else None]
    return next((name for name in given if isinstance(name, str)), None)
