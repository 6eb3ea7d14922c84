"""``fake_data.npy`` and ``fake_label.npy`` of the reproduction guide: inputs and labels that a person brings."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from alignment.comparisons.context import Context
from alignment.record import load_arrays
from mobilenetv3_common.errors import UserError


class FakeData(NamedTuple):
    """Samples, float32 (N, *shape), and labels, int64 (N,); None where they are not given."""

    data: np.ndarray | None
    labels: np.ndarray | None


def read(data: Path | None, labels: Path | None) -> FakeData:
    """Both files.

    Args:
        data: the samples, or a folder that holds ``fake_data.npy`` and, where there are labels, ``fake_label.npy``.
        labels: of the samples.

    Raises:
        UserError: a file cannot be read, or holds something else; or there are labels without data, or of another number.
    """
    if data is None:
        if labels is not None:
            raise UserError(f"--fake-label {labels}: labels of nothing: give the samples, too, with --input fake_data.npy")
        return FakeData(None, None)
    if data.is_dir():  # the guide's folder fake_data, with both files
        data, beside = data / "fake_data.npy", data / "fake_label.npy"
        labels = beside if labels is None and beside.is_file() else labels
    made = _array("--input", data)
    if made.dtype.kind not in "fiu" or made.ndim < 2 or made.size == 0:
        raise UserError(f"--input {data}: an array of {made.dtype} and shape {made.shape}; expected numbers, samples first")
    if not np.isfinite(made).all():
        raise UserError(f"--input {data}: holds NaN or infinite values: write finite ones")
    made = made.astype(np.float32) if made.dtype.kind == "f" else made
    if labels is None:
        return FakeData(made, None)
    known = _array("--fake-label", labels)
    whole = known.dtype.kind in "iu" or (known.dtype.kind == "f" and bool((known == np.floor(known)).all()))
    if not whole or known.size != len(made) or known.size != max(known.shape, default=0):
        raise UserError(
            f"--fake-label {labels}: an array of {known.dtype} and shape {known.shape}; expected a whole number for each of the "
            f"{len(made)} samples of {data}"
        )
    return FakeData(made, known.reshape(-1).astype(np.int64))


def _array(flag: str, path: Path) -> np.ndarray:
    try:
        found = load_arrays(path)
    except UserError as error:
        raise UserError(f"{flag} {path}: cannot be read: {error.line}") from error
    if len(found) != 1:
        raise UserError(f"{flag} {path}: holds {len(found)} arrays ({', '.join(list(found)[:5])}); expected one")
    return next(iter(found.values()))


def check(context: Context) -> None:
    """See that the samples have the model's axes and channels, and the labels are classes of it.

    Raises:
        UserError: they do not.
    """
    if context.fake is None:
        return
    shape, own = context.fake.shape[1:], context.spec.input_shape
    if context.spec.inputs is not None:
        raise UserError(f"--input: {context.model} takes what its project makes (ModelSpec.inputs), not one array")
    if len(shape) != len(own) or (len(own) == 3 and shape[0] != own[0]):
        raise UserError(f"--input: samples of shape {shape}; {context.model} takes {own}")
    if context.fake_labels is not None:
        least, most = int(context.fake_labels.min()), int(context.fake_labels.max())
        if least < 0 or most >= context.material.num_classes:
            wrong = least if least < 0 else most
            raise UserError(f"--fake-label: label {wrong}; {context.model} has the classes 0 to {context.material.num_classes - 1}")
