"""The cases of step 4: hard, smoothed and soft labels, ignored samples, extreme logits, class weights, a teacher."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment.comparisons.context import Context
from alignment.frameworks.base import Framework, Wanted
from alignment.project import Side

LARGE_LOGITS = 100.0  # beyond these a loss has a spacing of 8e-6 or more in float32


@dataclass(frozen=True)
class LossCase:
    """Logits (N, classes), labels, and the arguments of the loss: class weights, and a teacher's logits to distil from.

    With ``by_default`` the distillation's temperature and share are left out.
    """

    name: str
    logits: np.ndarray
    labels: np.ndarray
    smoothing: float = 0.0
    ignore_index: int = -100
    weight: np.ndarray | None = None
    teacher: np.ndarray | None = None
    by_default: bool = False

    @property
    def hard(self) -> bool:
        """Whether its labels are numbers of classes."""
        return self.labels.dtype.kind != "f"

    @property
    def extreme(self) -> bool:
        """Whether its loss is so large that float32 leaves it no digits below the guide's threshold of 1e-5."""
        return float(np.abs(self.logits).max(initial=0.0)) > LARGE_LOGITS

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Of the loss, those left out that are the default: a port's own defaults are compared too."""
        if self.ignore_index != -100:
            return self.smoothing, self.ignore_index
        return (self.smoothing,) if self.smoothing else ()


def cases(logits: np.ndarray, labels: np.ndarray, seed: int) -> list[LossCase]:
    """Made from the logits of real pictures (float32) and their labels."""
    classes = logits.shape[1]
    rng = np.random.default_rng([seed, 4])
    one_hot = np.eye(classes, dtype=np.float32)[labels]
    mixed = (0.7 * one_hot + 0.3 * np.roll(one_hot, 1, axis=0)).astype(np.float32)
    spread = rng.dirichlet(np.ones(classes), len(labels)).astype(np.float32)
    some_ignored = np.where(np.arange(len(labels)) % 3 == 0, -100, labels)
    last_ignored = np.where(np.arange(len(labels)) % 4 == 0, classes - 1, labels)
    levels = 3000.0 * (np.arange(len(labels)) % 3)[:, None]  # of each sample: a maximum over the batch is far above most
    wrong = np.zeros_like(logits)
    wrong[np.arange(len(labels)), (labels + 1) % classes] = 500.0
    return [
        LossCase("hard", logits, labels),
        LossCase("smoothed", logits, labels, smoothing=0.1),
        LossCase("smoothed_more", logits, labels, smoothing=0.25),  # a loss may know one smoothing alone
        LossCase("soft", logits, mixed),
        LossCase("soft_dirichlet", logits, spread),
        LossCase("soft_smoothed", logits, mixed, smoothing=0.1),
        LossCase("ignored", logits, some_ignored),
        LossCase("ignored_smoothed", logits, some_ignored, smoothing=0.1),
        LossCase("ignored_last_class", logits, last_ignored, ignore_index=classes - 1),
        LossCase("gap500", wrong + logits, labels),
        LossCase("gap500_smoothed", wrong + logits, labels, smoothing=0.1),
        LossCase("gap10000", (wrong * 20 + logits).astype(np.float32), mixed),
        LossCase("offset", (logits + 3000).astype(np.float32), labels, smoothing=0.1),
        LossCase("levels", (logits + levels).astype(np.float32), labels),
        LossCase("single", logits[:1], (labels[:1] + 1) % classes),
    ]


TEMPERATURE, ALPHA = 3.0, 0.375  # of distillation


def weighted_cases(logits: np.ndarray, labels: np.ndarray, seed: int) -> list[LossCase]:
    """The kinds of labels with a weight for each class, of which the largest is some twenty times the least."""
    weight = np.exp(np.random.default_rng([seed, 6]).uniform(-1.5, 1.5, logits.shape[1]))
    plain = {case.name: case for case in cases(logits, labels, seed)}
    names = ("hard", "smoothed", "soft", "soft_smoothed", "ignored", "ignored_smoothed", "single")
    return [replace(plain[name], name=f"weighted_{name}", weight=weight) for name in names]


def distilled_cases(context: Context, logits: np.ndarray, labels: np.ndarray) -> list[LossCase]:
    """Hard and soft labels with a teacher whose logits are the pictures' in another order."""
    seed = context.seed
    plain = {case.name: case for case in cases(logits, labels, seed)}
    teacher = np.roll(logits, 1, axis=1)
    made = [replace(plain[name], name=f"distilled_{name}", teacher=teacher) for name in ("hard", "soft_smoothed", "levels")]
    losses = [getattr(side.loss, "DistillationLoss", None) for side in context.sides.values()]
    if all({"temperature", "alpha"} <= _defaults(loss) for loss in losses):
        made.append(replace(made[0], name="distilled_by_default", by_default=True))
    return made


def takes_weights(context: Context) -> bool:
    """Whether both sides' losses have class weights."""
    return all("weight" in _parameters(side.loss.CrossEntropyLoss) for side in context.sides.values() if side.loss is not None)


def distils(context: Context) -> bool:
    """Whether both sides have a distillation loss."""
    return all(getattr(side.loss, "DistillationLoss", None) is not None for side in context.sides.values())


def _parameters(made: Any) -> set[str]:
    try:
        return set(inspect.signature(made).parameters)
    except (TypeError, ValueError):
        return set()


def _defaults(made: Any) -> set[str]:
    """Names of the parameters that have a default."""
    try:
        return {name for name, one in inspect.signature(made).parameters.items() if one.default is not inspect.Parameter.empty}
    except (TypeError, ValueError):
        return set()


def value_and_gradient(
    side: Side, case: LossCase, framework: Framework | None = None, defaults: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The loss, shape (), and its gradient by the logits.

    Args:
        side: whose loss.
        case: logits, labels and arguments.
        framework: the side's, where it shall compute otherwise.
        defaults: leave the arguments out that are the default.
    """
    assert side.loss is not None
    framework = framework or side.framework
    more: dict[str, Any] = {} if case.weight is None else {"weight": case.weight.tolist()}
    criterion = side.loss.CrossEntropyLoss(*(case.arguments if defaults else (case.smoothing, case.ignore_index)), **more)
    labels = framework.tensor(case.labels)
    if case.teacher is not None:
        part: Any = side.loss
        given = () if case.by_default else (TEMPERATURE, ALPHA)
        criterion = part.DistillationLoss(criterion, lambda pictures: pictures, *given)
        criterion.look(framework.tensor(case.teacher))
    made = framework.vjp(lambda logits: criterion(logits, labels), (case.logits,), None, Wanted())
    gradient = made.inputs[0]
    return made.outputs[0], np.zeros_like(case.logits) if gradient is None else gradient


def in_precision(case: LossCase, lane: str) -> LossCase:
    """A case whose numbers have the type of a lane; those of a lane ``ulp...`` are moved by one unit in the last place."""
    dtype = np.float64 if lane.endswith("64") else np.float32
    logits = case.logits.astype(dtype)
    if lane.startswith("ulp"):
        logits = np.nextafter(logits, np.where(np.random.default_rng(4).random(logits.shape) < 0.5, -np.inf, np.inf).astype(dtype))
    labels = case.labels.astype(dtype) if case.labels.dtype.kind == "f" else case.labels
    return replace(case, logits=logits, labels=labels, teacher=None if case.teacher is None else case.teacher.astype(dtype))
