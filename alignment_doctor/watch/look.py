"""What is seen at one look at a training run, and what the checks read."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

Samples = dict[str, np.ndarray]  # a tensor's name -> some of its elements, always the same ones, float64


@dataclass(frozen=True)
class Settings:
    """What the run means to do.

    Attributes:
        frozen: patterns of names (as of files) of tensors and modules that do not change.
        accumulate: backward passes an update.
        begun_at: updates that were done before this start; above 0 for a resumed run.
        scaled: whether the loss is scaled.
        rank, world_size: this process among the others.
        shared_statistics: whether the ranks compute normalisation's statistics together.
    """

    frozen: tuple[str, ...] = ()
    accumulate: int = 1
    begun_at: int = 0
    scaled: bool = False
    rank: int = 0
    world_size: int = 1
    shared_statistics: bool = False

    def is_frozen(self, name: str) -> bool:
        """Whether a tensor or a module is not to change."""
        return any(fnmatchcase(name, pattern) for pattern in self.frozen)


@dataclass
class Look:
    """One update, looked at before, in the middle and after.

    Attributes:
        update: its number, from 1.
        begun: whether the watch was told of it before the optimizer's step.
        rate: the optimizer's learning rate for it; ``meant`` is that of the schedule, where one is known.
        losses: (update, loss) of every update since the look before, this one included.
        trainable: names of the parameters that gradients are to reach.
        sizes: elements of each parameter.
        left_over: norms of the gradients of the update before that were still there when the first backward pass began; None where
            that was not seen.
        pulled: whether a gradient that is not zero reached the model's output.
        lost: whether the gradients of earlier backward passes were gone when the last one began.
        gradients: norm of each parameter's gradient after the last backward pass; a parameter without one is absent.
        alike: weights whose units all have the same gradient, of those that began with one value.
        pulls: elements of the gradients, the same ones, of parameters that may stand still.
        before, after: elements of the parameters and statistics before the first forward pass and after the update.
        statistics: names among them that are statistics.
        rates: learning rate of each parameter that the optimizer holds; absent where it does not hold it.
        state_before, state_after: the optimizer's tensors of state.
        softmax_twice: whether the model gave probabilities, and the loss took their softmax, by the gradient that came back.
        sigmoid_twice: the same of a sigmoid.
        cut_off: whether a ReLU made the output that a cross-entropy took for logits.
        one_class: why an output of one column tells nothing of a class; empty where it may.
        unnormalised: where the gradient is that of a loss of log-probabilities, and the output other numbers: what such a loss is.
        one_target: factor and target where the loss pulls every output of one column to the same value, and what it is if that
            is the target of all.
        own_steps: whether the optimizer chooses how far it goes (L-BFGS), whatever the learning rate.
        modes: module -> whether it was in training mode, of those that compute otherwise in evaluation (normalisation, dropout),
            and of the model itself (``""``); empty where no forward pass was seen.
        dead: activation -> share of its channels that gave zero for every picture looked at.
        narrow: activations of so few channels that all of them may be zero by the chance of their first weights.
        kernels: parameters of two or more axes -> the norm that the elements looked at have by a common initialisation.
        stale: parameters that are not to be trained and have a gradient yet, by which an optimizer may move them.
        left_in_evaluation: layers in evaluation mode whose parent is in training mode, or trains nothing: somebody's choice.
        idle: outputs of the model that no gradient has reached.
        called: modules that computed in the forward pass, of those that hold parameters.
        coarse: parameters in 16 bits -> relative distance of neighbouring numbers.
        unregistered: parameters with a gradient that stood still, of layers that computed and are no part of the model.
        clipped_at: norm of all gradients, where they are still scaled when the update is made; None elsewhere.
        scale_before, scale: of the loss, before and after the update; None where nothing is scaled.
        memory: of this process and of the GPU, MiB.
        held: graphs of earlier losses that are still alive.
        held_outputs: graphs of the model's outputs between looks that are.
        ranks: for each rank the figures of ``alignment_doctor.watch.ranks.figures``; empty where there is one rank.
        names: figure -> what its numbers belong to.
    """

    update: int
    rate: float = 0.0
    meant: float | None = None
    losses: list[tuple[int, float]] = field(default_factory=list)
    trainable: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    left_over: dict[str, float] | None = None
    pulled: bool = False
    lost: bool = False
    gradients: dict[str, float] = field(default_factory=dict)
    alike: list[str] = field(default_factory=list)
    pulls: Samples = field(default_factory=dict)
    before: Samples = field(default_factory=dict)
    after: Samples = field(default_factory=dict)
    statistics: set[str] = field(default_factory=set)
    rates: dict[str, float] = field(default_factory=dict)
    state_before: int = 0
    state_after: int = 0
    modes: dict[str, bool] = field(default_factory=dict)
    dead: dict[str, float] = field(default_factory=dict)
    narrow: set[str] = field(default_factory=set)
    kernels: dict[str, float] = field(default_factory=dict)
    left_in_evaluation: set[str] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    coarse: dict[str, float] = field(default_factory=dict)
    own_steps: bool = False
    softmax_twice: bool = False
    sigmoid_twice: bool = False
    cut_off: bool = False
    one_class: str = ""
    unnormalised: list[float] = field(default_factory=list)
    one_target: tuple[float, float, float] | None = None
    begun: bool = False
    unregistered: list[str] = field(default_factory=list)
    clipped_at: float | None = None
    scale_before: float | None = None
    scale: float | None = None
    memory: float = 0.0
    held: int = 0
    held_outputs: int = 0
    ranks: list[dict[str, np.ndarray]] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether every gradient is."""
        return bool(np.isfinite(list(self.gradients.values())).all())

    def moved(self, name: str) -> bool:
        """Whether a tensor changed in this update, by the elements that are looked at."""
        return not np.array_equal(self.before[name], self.after[name], equal_nan=True)


@dataclass
class Evaluation:
    """What was seen of one evaluation.

    Attributes:
        training: modules that were in training mode, of those that compute otherwise then.
        apart: relative difference of two passes over the same pictures; None where that was not tried.
        drops: whether dropout was active in the second of them.
        changed: tensors of which the model has other values after it than before.
        seen: whether a forward pass of it was seen.
    """

    training: list[str] = field(default_factory=list)
    apart: float | None = None
    drops: bool = False
    changed: list[str] = field(default_factory=list)
    seen: bool = False


@dataclass
class Seen:
    """The subject of the checks.

    Attributes:
        settings: of the run.
        start: elements of every tensor when the watch began.
        looks: the latest ones, the present one last.
        evaluation: the latest one, where it has not been judged yet.
    """

    settings: Settings
    start: Samples = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    evaluation: Evaluation | None = None

    @property
    def look(self) -> Look:
        return self.looks[-1]

    def last(self, count: int) -> list[Look]:
        """The latest looks; empty where there are fewer."""
        return self.looks[-count:] if len(self.looks) >= count else []
