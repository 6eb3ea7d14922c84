"""What every step works with, and what it returns."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alignment.compare import Quantity
from alignment.reference_weights import LITE_DATA, obtain_state
from alignment.sides import PaddleSide, RefSide, Side
from alignment.weights import NameMap
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.weights import State

ULP_SEED = 20


@dataclass
class StepResult:
    """The outcome of one step.

    Attributes:
        step: its number in the guide.
        name: ``"forward"``, ``"data"``, ``"metric"``, ``"loss"``, ``"backward"`` or ``"train"``.
        quantities: one row a comparison, in the order of computation: the first that fails is the first to diverge.
        evidence: what shows that there was something to compare.
        problems: evidence that is missing; any makes the step fail.
        paddle, ref: arrays for the two records.
        curves: of step 6, for its picture: losses by side and precision, and the reference's envelope.
        seconds: wall time.
    """

    step: int
    name: str
    quantities: list[Quantity] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    paddle: dict[str, np.ndarray] = field(default_factory=dict)
    ref: dict[str, np.ndarray] = field(default_factory=dict)
    curves: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return bool(self.quantities) and not self.problems and all(q.passed for q in self.quantities)

    def require(self, name: str, value: Any, holds: bool, expected: str) -> None:
        """Note a piece of evidence; the step fails where it does not hold."""
        self.evidence[name] = value
        if not holds:
            self.problems.append(f"{name} is {value}, expected {expected}: there was nothing real to compare")

    def record(self, name: str, paddle: np.ndarray | None, ref: np.ndarray | None) -> None:
        """Keep one array of each side for the records."""
        if paddle is not None:
            self.paddle[name] = paddle
        if ref is not None:
            self.ref[name] = ref

    def extend(self, rows: Iterable[Quantity]) -> None:
        self.quantities.extend(rows)


@dataclass
class Context:
    """The model, weights, pictures and the two sides.

    Attributes:
        model: ``"mobilenet_v3_small"`` or ``"mobilenet_v3_large"``.
        data_path: pictures; lite_data by default.
        weights: as ``alignment.reference_weights.obtain_state`` takes it; ignored where ``state`` is given.
        state: a torch state to use instead.
        options: of the model's constructor.
        seed: of fake data, ulp changes and dropout masks.
        ref, paddle: the two sides; a test replaces pieces of the latter.
        image_backend: decoder of pictures.
    """

    model: str = "mobilenet_v3_small"
    data_path: Path = LITE_DATA
    weights: str | None = None
    given_state: State | None = None
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "cpu"
    image_backend: str = "pil"
    paddle: PaddleSide = field(default_factory=PaddleSide)
    ref: RefSide = field(default_factory=RefSide)
    weights_name: str = "given"

    @functools.cached_property
    def state(self) -> State:
        """The reference weights, torch's names, float32."""
        if self.given_state is not None:
            return {k: v for k, v in self.given_state.items() if not k.endswith("num_batches_tracked")}
        import mobilenetv3_paddle.models

        names = NameMap(mobilenetv3_paddle.models.MODELS[self.model](**self.options))
        state, self.weights_name = obtain_state(self.weights, self.model, names)
        return state

    @functools.cached_property
    def num_classes(self) -> int:
        return self.state["classifier.3.bias"].shape[0]

    def index(self, split: str) -> DatasetIndex:
        return index_dataset(self.data_path, split, self.num_classes)

    def photographs(self, count: int, size: int = 224) -> tuple[np.ndarray, np.ndarray]:
        """The first ``count`` validation pictures (repeated where there are fewer), preprocessed by the reference.

        Returns:
            float32 (count, 3, size, size) and int64 (count,) labels.
        """
        from mobilenetv3_ref.data import eval_transform

        index = self.index("val")
        preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)
        chosen = [i * len(index) // count if len(index) >= count else i % len(index) for i in range(count)]
        pictures = {i: eval_transform(decode_image(index.path(i), self.image_backend), preset).numpy() for i in set(chosen)}
        return np.stack([pictures[i] for i in chosen]), np.array([index.labels[i] for i in chosen], dtype=np.int64)

    def fake_data(self, count: int, size: int = 224) -> np.ndarray:
        """Standard normal pictures, float32 (count, 3, size, size), a pure function of the seed."""
        return np.random.default_rng([self.seed, count, size]).standard_normal((count, 3, size, size)).astype(np.float32)

    def ulp_changed(self, arrays: dict[str, np.ndarray], dtype: str, draw: int = 0) -> dict[str, np.ndarray]:
        """Arrays with every element moved by one unit in the last place of ``dtype``, up or down at random."""
        rng = np.random.default_rng([self.seed, ULP_SEED, *([draw] if draw else [])])
        changed = {}
        for name, array in arrays.items():
            direction = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(dtype)
            changed[name] = np.nextafter(array.astype(dtype), direction)
        return changed


class Lane:
    """One of the runs that are compared with each other: which side, which precision, which weights.

    A lane whose name begins with ``ulp`` is the reference with all it is given (weights, running statistics, pictures)
    moved by one unit in the last place: what it then changes by is rounding, and nothing can be asked to be closer.

    Args:
        context: the model and weights.
        name: a field of ``alignment.compare.Lanes``, e.g. ``"paddle64"``; ``"ulp64#1"`` is another draw of ``"ulp64"``.
        share_dropout: whether dropout takes its masks from the context's seed and this lane's ``iteration``.
    """

    def __init__(self, context: Context, name: str, share_dropout: bool = True) -> None:
        self.context = context
        self.name = name
        kind, _, draw = name.partition("#")
        self.exact = kind.endswith("64")
        self.dtype = "float64" if self.exact else "float32"
        self.side: Side = context.paddle if name.startswith("paddle") else context.ref
        self.changed = name.startswith("ulp")
        self.draw = int(draw or 0)
        self.state = context.ulp_changed(context.state, self.dtype, self.draw) if self.changed else context.state
        self.network = self.side.build(context.model, context.state, exact=self.exact, **context.options)
        self.iteration = 0
        self.dropouts = 0
        if share_dropout:
            self.dropouts = self.side.share_dropout(self.network, self._uniform)
        self.reset()

    def _uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng([self.context.seed, self.iteration]).random(shape)

    def images(self, images: np.ndarray) -> np.ndarray:
        """Pictures in this lane's precision, moved by one ulp where the lane's weights are."""
        if self.changed:
            return self.context.ulp_changed({"images": images}, self.dtype, self.draw)["images"]
        return images.astype(self.dtype)

    def reset(self) -> None:
        """Put the weights and statistics back to where the lane starts."""
        self.side.load(self.network, {k: v.astype(self.dtype) for k, v in self.state.items()})


def require_device(device: str) -> None:
    """Refuse a device that one of the frameworks does not have.

    Raises:
        UserError: no GPU, or a framework built without one.
    """
    import paddle
    import torch

    if device == "cpu":
        return
    if device != "gpu":
        raise UserError(f"unknown device {device!r}: use cpu or gpu")
    if not (paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0):
        raise UserError("--device gpu: this Paddle finds no GPU; install paddlepaddle-gpu on a GPU machine or use --device cpu")
    if not torch.cuda.is_available():
        raise UserError("--device gpu: this torch finds no GPU; install a CUDA build on a GPU machine or use --device cpu")
