"""Two states of one model as the checks see them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.checkpoint import LATEST, is_checkpoint, read_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.sharded_weights import file_in
from mobilenetv3_common.weights import COUNTER, as_torch, is_paddle_state, is_statistic, read_state

State = dict[str, np.ndarray]


@dataclass(frozen=True)
class Loaded:
    """A file of weights.

    Attributes:
        path: of the file.
        state: name -> array, float64; counters are left out.
        meta: of a checkpoint of this project (``update``, ``config``, ...); empty for another file.
    """

    path: Path
    state: State
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def update(self) -> int | None:
        """Updates done; None where the file does not say."""
        return self.meta.get("update")

    @property
    def freezes_norm(self) -> bool:
        """Whether the run says that it keeps BatchNorm as it is."""
        return bool(self.meta.get("config", {}).get("freeze_bn"))


@dataclass(frozen=True)
class Tensor:
    """One tensor in both states, of equal shape.

    Attributes:
        before, after: float64 values.
        statistic: whether it is a running mean or variance.
    """

    name: str
    before: np.ndarray
    after: np.ndarray
    statistic: bool

    @property
    def moved(self) -> bool:
        return not np.array_equal(self.before, self.after)

    @functools.cached_property
    def norms(self) -> tuple[float, float]:
        """L2 norm before and after."""
        return float(np.linalg.norm(self.before)), float(np.linalg.norm(self.after))

    @property
    def movement(self) -> float | None:
        """L2 norm of the change over that before; None where that is 0."""
        return float(np.linalg.norm(self.after - self.before)) / self.norms[0] if self.norms[0] else None

    @property
    def growth(self) -> float | None:
        """Norm after over norm before; None where one is 0 or not finite."""
        before, after = self.norms
        return after / before if before > 0 and after > 0 and np.isfinite([before, after]).all() else None


@dataclass
class WeightsSubject:
    """Two states, and the tensors that both have."""

    before: Loaded
    after: Loaded

    @functools.cached_property
    def tensors(self) -> list[Tensor]:
        there, here = self.before.state, self.after.state
        common = [name for name in here if name in there and there[name].shape == here[name].shape]
        return [Tensor(name, there[name], here[name], is_statistic(name)) for name in common]

    @property
    def parameters(self) -> list[Tensor]:
        return [tensor for tensor in self.tensors if not tensor.statistic]

    @property
    def statistics(self) -> list[Tensor]:
        return [tensor for tensor in self.tensors if tensor.statistic]

    @functools.cached_property
    def norm_layers(self) -> set[str]:
        """Names of the layers that have running statistics."""
        return {tensor.name.rpartition(".")[0] for tensor in self.statistics}

    @property
    def trained(self) -> list[Tensor]:
        """The parameters that are not frozen by the run's own settings."""
        if not (self.before.freezes_norm or self.after.freezes_norm):
            return self.parameters
        return [tensor for tensor in self.parameters if tensor.name.rpartition(".")[0] not in self.norm_layers]


def load(path: str | Path, take: str = "raw") -> Loaded:
    """Read a checkpoint, the latest of a run's folder, or a file of weights.

    Args:
        path: of the file or the folder.
        take: which weights of a training checkpoint, one of ``mobilenetv3_common.weights_file.TAKE``.

    Raises:
        UserError: it is missing, damaged or holds something else.
    """
    path = Path(path)
    if path.is_dir():
        missing = f"holds no {LATEST}: give a run's folder, a checkpoint or a file of weights"
        path = path / LATEST if (path / LATEST).is_file() else file_in(path, missing)
    state = read_state(path, take)
    meta = read_checkpoint(path).meta if path.suffix == ".safetensors" and is_checkpoint(path) else {}
    kept = {name: array for name, array in state.items() if not name.endswith(COUNTER) and array.dtype.kind in "fiu"}
    return Loaded(path, {name: array.astype(np.float64) for name, array in kept.items()}, meta)


def load_pair(before: str | Path, after: str | Path, take: str = "raw") -> WeightsSubject:
    """Read two states; where one is in Paddle's naming and one in torch's, both are compared in torch's.

    Raises:
        UserError: as ``load``, or the two have no tensor in common.
    """
    one, two = load(before, take), load(after, take)
    if is_paddle_state(one.state) != is_paddle_state(two.state):
        one, two = (Loaded(side.path, as_torch(side.state), side.meta) for side in (one, two))
    subject = WeightsSubject(one, two)
    if not subject.tensors:
        raise UserError(f"{one.path} and {two.path} have no tensor of the same name and shape: are they of one model?")
    return subject
