"""Pictures to class names with probabilities: the same code around every engine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from mobilenetv3_common.class_folders import pictures_below
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import PICTURE_EXTENSIONS, decode_bytes, decode_image
from mobilenetv3_common.picture_format import PREDICTION, Rules
from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.terminal import printable
from mobilenetv3_paddle.deploy.engines import Engine

STANDARD_INPUT = Path("-")
Picture = str | Path | bytes | Image.Image
AnyPicture = TypeVar("AnyPicture", bound=Picture)


@dataclass(frozen=True)
class Prediction:
    """One class: its number, name and probability (0..1)."""

    index: int
    name: str
    probability: float


@dataclass
class Times:
    """Seconds that the pictures of one batch took."""

    preprocess: float
    inference: float
    postprocess: float


class Predictor:
    """An engine with the preprocessing and class names of its model.

    Args:
        engine: float32 (N, 3, H, W) to logits (N, classes).
        preset: preprocessing.
        classes: names, as many as logits.
        image_backend: ``pil`` or ``cv2``.
        rules: formats and sizes that are decoded; whether pictures are turned upright.
    """

    def __init__(
        self, engine: Engine, preset: EvalPreset, classes: Sequence[str], image_backend: str = "pil", rules: Rules = PREDICTION
    ) -> None:
        self.engine, self.preset, self.classes, self.image_backend = engine, preset, tuple(classes), image_backend
        self.rules = rules
        self._piped = b""
        self.times: list[Times] = []

    def decode(self, picture: str | Path | bytes) -> Image.Image:
        """A picture's file, or the bytes of one, to RGB.

        Raises:
            UserError: it is missing, damaged, or no picture.
        """
        if picture == STANDARD_INPUT:
            self._piped = self._piped or sys.stdin.buffer.read()
            return decode_bytes(self._piped, "standard input", self.image_backend, self.rules)
        if isinstance(picture, bytes):
            return decode_bytes(picture, "the picture", self.image_backend, self.rules)
        return decode_image(picture, self.image_backend, self.rules)

    def preprocess(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to the network's input, float32 (3, crop, crop)."""
        return eval_transform(image, self.preset)

    def predict(self, pictures: Sequence[Picture], topk: int = 5) -> list[list[Prediction]]:
        """The likeliest classes of each picture, in one batch; its times are added to ``times``.

        Raises:
            UserError: a picture cannot be used.
        """
        return [found for _, found in self.predict_usable(pictures, topk, _raised)]

    def predict_usable(
        self, pictures: Sequence[AnyPicture], topk: int, on_bad: Callable[[UserError], None]
    ) -> list[tuple[AnyPicture, list[Prediction]]]:
        """Like ``predict``, with those pictures alone that can be used; ``on_bad`` is told what is wrong with the others."""
        start = time.perf_counter()
        usable, images = [], []
        for picture in pictures:
            try:
                images.append(self.preprocess(picture if isinstance(picture, Image.Image) else self.decode(picture)))
                usable.append(picture)
            except UserError as error:
                on_bad(error)
        if not images:
            return []
        batch = np.stack(images)
        ready = time.perf_counter()
        logits = self.engine(batch)
        known = time.perf_counter()
        predictions = top_k(softmax(logits), self.classes, topk)
        self.times.append(Times(ready - start, known - ready, time.perf_counter() - known))
        return list(zip(usable, predictions, strict=True))

    def predict_files(
        self, paths: Sequence[Path], batch_size: int, topk: int, on_bad: Callable[[UserError], None]
    ) -> Iterator[tuple[Path, list[Prediction]]]:
        """``predict_usable`` of many files, ``batch_size`` at a time, the last batch smaller; gives each as soon as it is known."""
        for start in range(0, len(paths), batch_size):
            yield from self.predict_usable(paths[start : start + batch_size], topk, on_bad)


def _raised(error: UserError) -> None:
    raise error


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities, float64 (N, classes), from logits.

    Raises:
        UserError: the logits are not finite, which only damaged weights or another model's preprocessing give.
    """
    if not np.isfinite(logits).all():
        raise UserError("the model's output is not finite: its weights are damaged or its training diverged")
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def top_k(probabilities: np.ndarray, classes: Sequence[str], k: int) -> list[list[Prediction]]:
    """The ``k`` likeliest classes of each row, likeliest first; of equals the one with the smaller number.

    The rows are sorted together: the service calls this beside its event loop, and numpy waits for Python's lock again after
    each operation.
    """
    count = probabilities.shape[1]
    k = min(k, count)
    least = np.partition(probabilities, count - k, axis=1)[:, count - k, None] if k else np.inf
    rows, columns = np.nonzero(probabilities >= least)  # the others need not be sorted
    values = probabilities[rows, columns]
    order = np.lexsort((columns, -values, rows))
    found: list[list[Prediction]] = [[] for _ in probabilities]
    for row, column, value in zip(rows[order].tolist(), columns[order].tolist(), values[order].tolist(), strict=True):
        if len(found[row]) < k:
            found[row].append(Prediction(column, classes[column], value))
    return found


def find_pictures(paths: Iterable[str | Path]) -> list[Path]:
    """Pictures that are named, and all below the folders that are named, sorted; ``-`` is standard input.

    Raises:
        UserError: there is no such file or folder, or a folder without pictures.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        try:
            folder, file = path.is_dir(), path.is_file()
        except OSError as error:  # a name that is too long
            raise UserError(f"cannot read {printable(path)[:200]}: {error.strerror}") from error
        if path == STANDARD_INPUT or file:
            found.append(path)
        elif folder:
            below, passed = pictures_below(path, PICTURE_EXTENSIONS)
            for line in passed.lines():
                print(f"note: {printable(path)}: {line}", file=sys.stderr)
            if not below:
                raise UserError(f"{path} has no pictures ({', '.join(PICTURE_EXTENSIONS)})")
            found += below
        else:
            raise UserError(f"no such picture or folder: {printable(path)}")
    return found
