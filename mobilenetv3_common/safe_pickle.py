"""Unpickling that can build arrays and plain containers and nothing else.

``.pdparams``, ``.pdopt`` and reprod_log's ``.npy`` records are pickles, and ``paddle.load`` and
``numpy.load(allow_pickle=True)`` run whatever code such a file carries (docs/known_differences.md). The unpickler here
resolves only the handful of names that numpy writes for an array; any other name is refused before it is imported.
"""

from __future__ import annotations

import collections
import pickle
from typing import IO, Any

import numpy as np
from numpy._core import multiarray

from mobilenetv3_common.errors import UserError


def _reconstruct(subtype: type, shape: tuple, dtype: Any) -> Any:
    if subtype is not np.ndarray or tuple(shape) != (0,):
        raise pickle.UnpicklingError("an array is built in an unusual way")
    return multiarray._reconstruct(subtype, shape, dtype)  # type: ignore[attr-defined]


def _scalar(dtype: np.dtype, data: Any = b"") -> Any:
    if dtype.hasobject:
        raise pickle.UnpicklingError("a scalar of object type")
    return multiarray.scalar(dtype, data)  # type: ignore[attr-defined]


def _encode(text: str, encoding: str) -> bytes:
    # Pickle protocol 2 spells bytes as _codecs.encode(text, "latin1").
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the text encoding {encoding!r}")
    return text.encode("latin1")


ALLOWED = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    ALLOWED[_module, "_reconstruct"] = _reconstruct
    ALLOWED[_module, "scalar"] = _scalar


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which could run code")
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to data outside the file")


def load_arrays(file: IO[bytes], name: str, encoding: str = "ASCII") -> Any:
    """Unpickle one object made of dicts, lists, tuples, strings, numbers and numpy arrays.

    Args:
        file: an open binary file, positioned at the pickle.
        name: what to call the file in an error.
        encoding: of strings that Python 2 wrote.

    Raises:
        UserError: the pickle is damaged, or holds anything that could run code. Nothing in it has been run.
    """
    try:
        return _ArrayUnpickler(file, encoding=encoding).load()
    except (pickle.UnpicklingError, EOFError, MemoryError) as error:
        raise UserError(f"{name} is not read: {error or 'the file ends too early'}") from error
    except Exception as error:  # a damaged pickle can raise almost anything while objects are being rebuilt
        raise UserError(f"{name} is damaged: {type(error).__name__}: {error}") from error
