"""What is given to an alignment, before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from alignment.comparisons.earlier import Earlier
from alignment.frameworks.base import Framework
from alignment.models.links import Link
from alignment.project import ModelSpec, Project, Side
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.terminal import Progress
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State

T = TypeVar("T")


class once(Generic[T]):
    """A property of an object that has ``known``: computed when it is first asked for, and kept there by its name."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, holder: Any, owner: type) -> T:
        if self.name not in holder.known:
            holder.known[self.name] = self.compute(holder)
        return holder.known[self.name]


@dataclass(frozen=True)
class Given:
    """What is given to an alignment: the project, one of its models, and how the two sides are to be compared.

    Attributes:
        project: what is aligned.
        model: name of one of its models; the first where empty.
        data_path: pictures; the project's own by default.
        take: which weights of a training checkpoint are meant, one of ``mobilenetv3_common.weights_file.TAKE``.
        weights_from: None for calibrated weights, the name of published ones, or a file.
        calibrate: whether what is random in these weights stays as it is and the rest is calibrated: for fresh weights.
        given_state: a canonical state to use instead.
        port_weights: a file that holds the same weights converted for the port, which the port then takes as it is.
        names: of modules of the port, or whole parts, that are called otherwise: port path -> reference path.
        links: tensors of the port that hold those of the reference otherwise, as a person wrote them.
        fake: samples in place of those that are drawn, float32 (N, *shape); none where None.
        fake_labels: their labels, int64 (N,); none where None.
        options: of the model's builders, besides those of its spec.
        seed: of fake data, ulp changes and dropout masks.
        device: of both frameworks.
        image_backend: decoder of pictures.
        recipe: what steps 5 and 6 train by instead of the project's own recipe, in small; ``recipe_name`` is for people.
        precision: in which steps 1, 4 and 5 compare besides, ``"bfloat16"`` or ``"float16"``; none where empty.
        without_training: why training mode is not compared; ``""`` to compare it where it can be.
        updates: how many the step without training code makes (``alignment.comparisons.update.updates``); none where 0.
        fitting: whether the port takes the reference's weights where they fit and keeps its own elsewhere: to look further
            where the structure or the weights are wrong.
        mended: modules that compute in the port what they compute in the reference, by the reference's paths, since their mistakes
            are known.
        known_fresh: parameters whose fresh values are known to be drawn otherwise.
        not_held: what two dumps do not hold, where these are the two sides.
        in_haste: whether a step ends where something has failed, and steps 5 and 6 compare what is quick first: for many attempts
            of which nobody reads the rows.
        suspect: name of a row that failed in an earlier attempt: in haste, what makes it is compared first.
        kept: a folder in which step 6 keeps the reference's training runs for the next attempt; none where None. They depend on
            nothing of the port.
        earlier: what an attempt with another port has measured, or is to be measured for later ones; none where None.
        progress: what is told how far a long step is.
    """

    project: Project
    model: str = ""
    data_path: Path | None = None
    weights_from: str | None = None
    calibrate: bool = False
    take: str = "auto"
    given_state: State | None = None
    port_weights: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[Link] = ()
    fake: np.ndarray | None = None
    fake_labels: np.ndarray | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "cpu"
    image_backend: str = "pil"
    recipe: TrainConfig | None = None
    recipe_name: str = ""
    precision: str = ""
    without_training: str = ""
    updates: int = 0
    fitting: bool = False
    mended: tuple[str, ...] = ()
    known_fresh: frozenset[str] = frozenset()
    not_held: tuple[str, ...] = ()
    in_haste: bool = False
    suspect: str = ""
    kept: Path | None = None
    earlier: Earlier | None = field(default=None, compare=False)
    progress: Progress = field(default_factory=Progress, compare=False)

    def __post_init__(self) -> None:
        model = self.model or next(iter(self.project.models))
        if model not in self.project.models:
            raise UserError(f"unknown model {model!r}: use one of {', '.join(self.project.models)}")
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "data_path", self.data_path or self.project.sample_data)

    @property
    def port(self) -> Side:
        return self.project.port

    @property
    def reference(self) -> Side:
        return self.project.reference

    @property
    def sides(self) -> dict[str, Side]:
        """``{"port": ..., "reference": ...}``"""
        return {"port": self.port, "reference": self.reference}

    @property
    def frameworks(self) -> tuple[Framework, Framework]:
        """Of the port and of the reference."""
        return self.port.framework, self.reference.framework

    @property
    def spec(self) -> ModelSpec:
        return self.project.models[self.model]

    def titles(self) -> tuple[str, str]:
        """What to call the two sides: the names of their frameworks where these differ."""
        names = self.port.framework.title, self.reference.framework.title
        return names if names[0] != names[1] else (f"ported {names[0]}", f"reference {names[1]}")

    def suspects_first(self, parts: Sequence[T], name: Callable[[T], str]) -> list[T]:
        """Parts of a step, each with its rows, in the order in which they are compared."""
        return sorted(parts, key=lambda one: not (self.in_haste and self.suspect.startswith(f"{name(one)}.")))

    def shape(self, small: bool = False) -> tuple[int, ...]:
        """The shape of one sample: the model's, or the smaller one for many passes."""
        return (self.spec.small_shape if small else None) or self.spec.input_shape

    def fake_data(self, count: int, *shape: int) -> np.ndarray:
        """Standard normal pictures, float32 (count, *shape), a pure function of the seed."""
        return np.random.default_rng([self.seed, count, shape[-1]]).standard_normal((count, *shape)).astype(np.float32)

    def fake_inputs(self, count: int, small: bool = False) -> tuple[Any, ...]:
        """Inputs of one forward pass made without pictures: arrays in the structure that the model takes, samples first."""
        if self.fake is not None and not small:
            return (self.fake[np.arange(count) % len(self.fake)],)
        shape = self.shape(small)
        if self.spec.inputs is not None:
            return self.spec.inputs(count, shape, np.random.default_rng([self.seed, count]))
        return (self.fake_data(count, *shape),)
