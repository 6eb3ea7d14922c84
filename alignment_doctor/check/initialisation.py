"""The fresh weights of a run against those of the reference: both networks are built with several seeds."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from alignment.frameworks import framework_of
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training_backend import Builder, TrainingBackend
from mobilenetv3_common.weights import State

if TYPE_CHECKING:
    from alignment.comparisons.model.fresh_weights import Verdict

REFERENCE = "mobilenetv3_ref.train.backend"  # torch's, whose networks are torchvision's
MOST_SEEDS = 4  # each takes up to a third of a second
SHARED = 0.5  # of the run's tensors, so that the two are one network


@dataclass(frozen=True)
class Initialisation:
    """How a run's fresh weights are drawn.

    Attributes:
        reason: why they were not compared; empty where they were.
        verdicts: on every tensor that both networks have.
        seeds: with how many each network was built.
    """

    reason: str = ""
    verdicts: tuple[Verdict, ...] = ()
    seeds: int = 0

    @property
    def repeats(self) -> bool:
        """Whether most of what the reference draws has the same values for every seed, as weights that were loaded."""
        random = [verdict for verdict in self.verdicts if verdict.random]
        return 2 * sum(verdict.repeats for verdict in random) > len(random)


def compare_initialisation(
    backend: TrainingBackend, config: TrainConfig, classes: int, start: State, builder: Builder | None = None
) -> Initialisation:
    """Build the run's network and the reference's with several seeds. The frameworks' generators are left in another state.

    Args:
        backend: what computes.
        config: of the run.
        classes: outputs.
        start: the run's starting weights.
        builder: makes the run's network; that of ``config.model`` where None.
    """
    if config.pretrained:
        return Initialisation("the run begins with weights from a file")
    try:
        from alignment.comparisons.model.fresh_weights import compare  # here, since the other sub-commands do without scipy

        reference = cast(TrainingBackend, importlib.import_module(REFERENCE))
    except ImportError as error:
        return Initialisation(f"this needs {error.name}, which is not installed")
    plain = TrainConfig(model=config.model, width_mult=config.width_mult, dropout=config.dropout)
    theirs = next(_states(reference, plain, None, classes, range(1)))
    shared = [name for name, array in start.items() if name in theirs and theirs[name].shape == array.shape]
    if len(shared) <= SHARED * len(start):
        return Initialisation(f"this is another network than {config.model} of the reference")
    verdicts, seeds = compare(
        lambda seeds: _states(backend, config, builder, classes, seeds),
        lambda seeds: _states(reference, plain, None, classes, seeds),
        most=MOST_SEEDS,
    )
    return Initialisation("", tuple(verdicts), seeds)


def _states(
    backend: TrainingBackend, config: TrainConfig, builder: Builder | None, classes: int, seeds: Iterable[int]
) -> Iterator[State]:
    """The fresh weights of a network for each seed."""
    for seed in seeds:
        model = backend.build_model(replace(config, seed=seed), classes, builder)
        yield framework_of(model).state(model)
