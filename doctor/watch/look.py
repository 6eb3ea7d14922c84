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
        unnormalised: whether a loss of log-probabilities was given other numbers.
        one_target: factor and target where the loss pulls every output of one column to the same value.
        own_steps: whether the optimizer chooses how far it goes (L-BFGS), whatever the learning rate.
        modes: module -> whether it was in training mode, of those that compute otherwise in evaluation (normalisation, dropout),
            and of the model itself (``""``); empty where no forward pass was seen.
        dead: activation -> share of its channels that gave zero for every picture looked at.
        kernels: names of the parameters of two or more axes.
        called: modules that computed in the forward pass, of those that hold parameters.
        coarse: parameters in 16 bits -> relative distance of neighbouring numbers.
        scale_before, scale: of the loss, before and after the update; None where nothing is scaled.
        memory: of this process and of the GPU, MiB.
        ranks: for each rank the figures of ``doctor.watch.ranks.figures``; empty where there is one rank.
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
    kernels: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    coarse: dict[str, float] = field(default_factory=dict)
    own_steps: bool = False
    softmax_twice: bool = False
    sigmoid_twice: bool = False
    unnormalised: bool = False
    one_target: tuple[float, float] | None = None
    begun: bool = False
    scale_before: float | None = None
    scale: float | None = None
    memory: float = 0.0
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
        changed: tensors of which the model has other values after it than before.
        seen: whether a forward pass of it was seen.
    """

    training: list[str] = field(default_factory=list)
    apart: float | None = None
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
