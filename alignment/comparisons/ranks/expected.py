"""What the ranks must come to: the reference in one process with the batches of all ranks.

Where each rank has BatchNorm statistics of its own, the batches of the ranks are micro-batches of one accumulated update,
and each is normalised with the statistics of its rank. With synchronised BatchNorm they are one batch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from alignment.compare import norm
from alignment.comparisons.context import Context
from alignment.comparisons.ranks.plan import RankCase, begin, evaluation_batches, in_float64
from alignment.comparisons.run.train import engine, next_epoch
from mobilenetv3_common.weights import State


@dataclass
class RightUpdate:
    """One update as it should be; lists of lists are by micro-batch, then by rank.

    Attributes:
        epoch: in which it is made.
        pixels, labels: of the pictures.
        losses: by rank.
        rate: the learning rate.
        shares: what each micro-batch of each rank adds to the gradients; empty with synchronised BatchNorm.
        gradients: as the optimizer gets them.
        weights: parameters after the update.
        statistics, averages: running statistics and the moving average after it, by rank.
    """

    epoch: int = 0
    pixels: list[list[np.ndarray]] = field(default_factory=list)
    labels: list[list[np.ndarray]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rate: float = 0.0
    shares: list[list[State]] = field(default_factory=list)
    gradients: State = field(default_factory=dict)
    weights: State = field(default_factory=dict)
    statistics: list[State] = field(default_factory=list)
    averages: list[State] = field(default_factory=list)

    def mean_gradient(self) -> State:
        """The mean over ranks and micro-batches, before it is clipped."""
        return summed([share for of_ranks in self.shares for share in of_ranks])


@dataclass
class Spread:
    """What a BatchNorm layer was given in the first update: mean and biased variance of each rank's part, and of all.

    Attributes:
        means, variances: (ranks, channels).
        mean, variance: (channels,).
        count: values of a channel over all ranks.
        momentum: share of the new batch in the running statistics.
    """

    means: np.ndarray
    variances: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    count: int
    momentum: float


@dataclass
class Expected:
    """A whole case.

    Attributes:
        start: the weights and statistics from which it starts.
        updates: in order.
        statistics, average: the means over the ranks with which the evaluation runs.
        figures: of the evaluation: samples, top1, top5, loss, confusion.
        spreads: of the first update with synchronised BatchNorm, by layer in the order of computation.
    """

    start: State
    updates: list[RightUpdate] = field(default_factory=list)
    statistics: State = field(default_factory=dict)
    average: State = field(default_factory=dict)
    figures: State = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)


def summed(states: list[State], factor: float = 1.0) -> State:
    """The sum of several states, tensor by tensor, times a factor."""
    return {name: factor * np.sum([state[name] for state in states], axis=0) for name in states[0]}


def norm_of(state: State) -> float:
    """L2 norm of all tensors together."""
    return sum(norm(array) ** 2 for array in state.values()) ** 0.5


class Simulation:
    """The reference's run of one case.

    Args:
        context: the two sides.
        case: its recipe is for one rank.
        ranks: how many.
        start: canonical weights.
        dropout_of: the rank whose dropout masks a rank gets, for a hypothesis.
    """

    def __init__(
        self, context: Context, case: RankCase, ranks: int, start: State, dropout_of: Callable[[int], int] = lambda rank: rank
    ) -> None:
        self.context, self.case, self.ranks, self.dropout_of = context, case, ranks, dropout_of
        self.framework, self.train = context.reference.framework, engine(context, "reference")
        config = case.config
        self.together = config.sync_bn  # whether the batches of all ranks are one
        self.batch = config.batch_size
        if self.together:
            config = replace(config, batch_size=self.batch * ranks, sync_bn=False)
        else:
            config = replace(config, accumulate=config.accumulate * ranks)
        self.run = run = begin(context, "reference", config, self.train.Ranks())
        context.networks.load("reference", run.model, start)
        self.expected, self.now = Expected(start), RightUpdate()
        described = self.framework.described(run.model)
        self.buffers = {entry.canonical: tensor for entry, tensor in described if entry.role == "buffer"}
        sets = range(1 if self.together else ranks)
        self.statistics = [self._buffers() for _ in sets]
        self.averages = [run.backend.MovingAverage(run.model, config.ema_decay) for _ in sets]
        self.accumulate = run.backend.accumulate_gradients
        run.average = SimpleNamespace(update=self._update_averages)
        run.backend = SimpleNamespace(**{**vars(run.backend), "accumulate_gradients": self._accumulate})
        self.step = run.optimizer.step
        run.optimizer.step = functools.wraps(self.step)(lambda *args, **kwargs: self._step(*args, **kwargs))

    def __call__(self, updates: int | None = None) -> Expected:
        """The whole case, or its first updates alone."""
        batches = self.train.micro_batches(self.run)
        for _ in range(updates or self.case.updates):
            self.now = RightUpdate(self.run.epoch)
            gathered = [next(batches) for _ in range(self.run.config.accumulate)]
            self._note_pictures([batch for batch, _ in gathered])
            given = [((in_float64(self.context, "reference", images), labels), count) for (images, labels), count in gathered]
            with self.framework.precision("float64"):
                self.train.update(self.run, given)
            self.run.meter = type(self.run.meter)()
            self._note_update()
            next_epoch(self.run)
        if updates is None and self.case.evaluates:
            self._evaluate()
        return self.expected

    # --- one update --------------------------------------------------------------------------------------------------------

    def _note_pictures(self, batches: list[tuple[Any, Any]]) -> None:
        arrays = [(self.framework.array(images), self.framework.array(labels)) for images, labels in batches]
        size = 1 if self.together else self.ranks
        for at in range(0, len(arrays), size):
            images, labels = (np.concatenate(parts) for parts in zip(*arrays[at : at + size], strict=True))
            self.now.pixels.append(np.split(images, self.ranks))
            self.now.labels.append(np.split(labels, self.ranks))

    def _accumulate(
        self,
        model: Any,
        criterion: Any,
        batches: Any,
        precision: Any = None,
        begin: Callable[[int], None] = lambda number: None,
        watch: Callable[[Any, Any], None] = lambda logits, labels: None,
    ) -> Any:
        """The reference's own accumulation, with the statistics of each rank in turn, and watched."""
        losses: list[list[float]] = [[] for _ in range(self.ranks)]
        before: State = {}
        number = 0

        def begun(count: int) -> None:
            nonlocal before, number
            begin(count)
            number, before = count, self.framework.gradients(model)
            if not self.together:
                self._put(self.statistics[number % self.ranks])
                self._share_dropout(number)

        def watched(logits: Any, labels: Any) -> None:  # called after the backward pass of its micro-batch
            watch(logits, labels)
            if self.together:
                for rank in range(self.ranks):
                    part = slice(rank * self.batch, (rank + 1) * self.batch)
                    losses[rank].append(float(criterion(logits[part], labels[part])))
                return
            rank = number % self.ranks
            losses[rank].append(float(criterion(logits, labels)))
            self.statistics[rank] = self._buffers()
            after = self.framework.gradients(model)
            if rank == 0:
                self.now.shares.append([])
            self.now.shares[-1].append({name: array - before.get(name, 0.0) for name, array in after.items()})

        with self._spreads_noted():
            loss = self.accumulate(model, criterion, batches, precision, begun, watched)
        if self.together:
            self.statistics = [self._buffers()]
        self.now.losses = [float(np.mean(of_rank)) for of_rank in losses]
        return loss

    def _share_dropout(self, number: int) -> None:
        part, rank = divmod(number, self.ranks)
        if self.dropout_of(rank) != rank:
            place = (self.run.iteration * self.case.config.accumulate + part) * self.ranks + self.dropout_of(rank)
            self.run.dropout.at(self.run.epoch, place * self.batch)

    def _step(self, *args: Any, **kwargs: Any) -> Any:
        self.now.gradients = self.framework.gradients(self.run.model)
        return self.step(*args, **kwargs)

    def _update_averages(self) -> None:
        for statistics, average in zip(self.statistics, self.averages, strict=True):
            self._put(statistics)
            average.update()

    def _note_update(self) -> None:
        times = self.ranks if self.together else 1  # with one set of statistics each rank has the same
        now = self.now
        now.rate = self.run.rate
        state = self.framework.state(self.run.model)
        now.weights = {name: array for name, array in state.items() if name not in self.buffers}
        now.statistics = self.statistics * times
        now.averages = [self._canonical(average.arrays()) for average in self.averages] * times
        self.expected.updates.append(now)

    def _canonical(self, arrays: State) -> State:
        return self.framework.canonical(self.run.model, arrays, "the moving average") if arrays else {}

    def _buffers(self) -> State:
        return {name: self.framework.array(tensor) for name, tensor in self.buffers.items()}

    def _put(self, statistics: State) -> None:
        for name, array in statistics.items():
            self.framework.assign(self.buffers[name], array)

    @contextlib.contextmanager
    def _spreads_noted(self) -> Iterator[None]:
        """Note what each BatchNorm is given, in the first update with synchronised BatchNorm."""
        if not self.together or self.expected.updates:
            yield
            return
        framework, layers = self.framework, self.framework.modules(self.run.model)
        norms = {name: layer for name, layer in layers.items() if framework.layer(layer).kind == "batch_norm"}

        def noting(name: str) -> Callable:
            def note(module: Any, args: tuple) -> None:
                given = framework.array(args[0])
                axes = (0, *range(2, given.ndim))
                parts = np.split(given, self.ranks)
                self.expected.spreads[name] = Spread(
                    means=np.stack([part.mean(axes) for part in parts]),
                    variances=np.stack([part.var(axes) for part in parts]),
                    mean=given.mean(axes),
                    variance=given.var(axes),
                    count=given.size // given.shape[1],
                    momentum=float(framework.layer(module).settings["momentum"]),
                )

            return note

        with contextlib.ExitStack() as stack:
            for name, layer in norms.items():
                stack.callback(framework.hook(layer, before=noting(name)).remove)
            yield

    # --- the evaluation ----------------------------------------------------------------------------------------------------

    def _evaluate(self) -> None:
        """With the statistics, and the moving average, that are the means of the ranks'."""
        run, expected = self.run, self.expected
        expected.statistics = summed(self.statistics, 1 / len(self.statistics))
        self._put(expected.statistics)
        arrays = [average.arrays() for average in self.averages]
        run.average = self.averages[0]
        if arrays[0]:
            run.average.load({name: array.astype(np.float32) for name, array in summed(arrays, 1 / len(arrays)).items()})
            expected.average = self._canonical(run.average.arrays())
        with self.framework.precision("float64"):
            result = self.train.evaluate_run(run, evaluation_batches(self.context, "reference", run))
        names = ("samples", "top1", "top5", "loss", "confusion")
        expected.figures = {name: np.array(getattr(result, name)) for name in names}
