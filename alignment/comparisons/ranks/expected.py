"""What the ranks must come to: the reference in one process with the batches of all ranks.

Where each rank has BatchNorm statistics of its own, the batches of the ranks are micro-batches of one accumulated update,
and each is normalised with the statistics of its rank. With synchronised BatchNorm they are one batch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from alignment.comparisons.context import Context
from alignment.comparisons.ranks.plan import FIGURES, RankCase, Record, begin, evaluation_batches, in_float64, norm_of, summed
from alignment.comparisons.run.train import engine, next_epoch
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.sampling import SampleKey, sample_params
from mobilenetv3_common.weights import State


def shares_of(records: Sequence[Record]) -> list[list[State]]:
    """What each micro-batch of each rank adds to an update's gradients; empty where the ranks' batches are one."""
    parts = sum(part.startswith("share") for part in records[0])
    return [[record[f"share{part}"] for record in records] for part in range(parts)]


def mean_gradient(records: Sequence[Record]) -> State:
    """The mean of an update's gradients over ranks and micro-batches, before it is clipped."""
    shares = shares_of(records)
    return summed([share for of_ranks in shares for share in of_ranks]) if shares else records[0]["gradients"]


@dataclass(frozen=True)
class Reduction:
    """What the gradients of one update are made of.

    Attributes:
        ranks: how many.
        mean: over ranks and micro-batches, before it is clipped.
        shares: what each micro-batch of each rank adds to it; empty where the ranks' batches are one.
        clip_norm: to which it is clipped; None for not at all.
    """

    ranks: int
    mean: State
    shares: Sequence[Sequence[State]]
    clip_norm: float | None

    @functools.cached_property
    def own(self) -> list[State]:
        """By rank: the gradients of its own pictures."""
        return [summed([part[rank] for part in self.shares], self.ranks) for rank in range(self.ranks if self.shares else 0)]

    def clipped(self, state: State, size: float | None = None) -> State:
        """A state clipped by its own norm, or by another."""
        if self.clip_norm is None:
            return state
        return summed([state], min(1.0, self.clip_norm / ((norm_of(state) if size is None else size) + 1e-6)))

    def scaled(self, factor: float) -> State:
        """The mean times a factor, then clipped."""
        return self.clipped(summed([self.mean], factor))

    def clipped_by_rank(self) -> State | None:
        """The mean of what each rank has clipped."""
        local = [self.clipped(state) for state in self.own]
        return summed(local, 1 / self.ranks) if self.clip_norm is not None and local else None

    def of_part(self, place: int) -> State | None:
        """One micro-batch's, averaged over the ranks."""
        return self.clipped(summed(list(self.shares[place]))) if len(self.shares) > 1 else None

    def part_reduced(self, place: int, rank: int) -> State | None:
        """Those of one micro-batch are averaged, of the others each rank has its own."""
        parts = [[summed(list(part)), summed([part[rank]], self.ranks)] for part in self.shares]
        place %= max(len(parts), 1)
        return self.clipped(summed([one[number != place] for number, one in enumerate(parts)])) if len(parts) > 1 else None


@dataclass(frozen=True)
class Spread:
    """What a BatchNorm layer was given in the first update: mean and biased variance of each rank's part, and of all.

    Attributes:
        means, variances: (ranks, channels).
        mean, variance: (channels,).
        count: values of a channel over all ranks.
        momentum: share of the new batch in the running statistics.
        start: running statistics before it, by last name.
    """

    means: np.ndarray
    variances: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    count: int
    momentum: float
    start: State

    @property
    def here(self) -> int:
        """Values of a channel on one rank."""
        return self.count // len(self.means)

    def running(self, mean: np.ndarray, variance: np.ndarray, count: int) -> State:
        """The running statistics after a batch."""
        taken = {"running_mean": mean, "running_var": variance * (count / (count - 1))}
        keep = 1 - self.momentum
        return {name: self.start[name].astype(np.float64) * keep + taken[name] * self.momentum for name in taken}

    def about_the_mean(self, rank: int) -> np.ndarray:
        """The variance of a rank's batch about the mean of all."""
        return self.variances[rank] + self.means[rank] ** 2 - 2 * self.means[rank] * self.mean + self.mean**2


def drawn_as(context: Context, case: RankCase, own: Record, other: Record) -> np.ndarray:
    """The pictures of one rank, augmented with the random numbers of another rank's: (micro-batches, N, 3, H, W)."""
    config, data, epoch = case.config, context.reference.data, int(own["figures"]["epoch"])
    assert data is not None
    index = index_dataset(config.data_path, "train", config.num_classes)

    def pixels(sample: int, drawn_for: int) -> np.ndarray:
        image = decode_image(index.path(sample), config.image_backend)
        params = sample_params(config.train_preset, config.seed, SampleKey(epoch, drawn_for, 0), image.height, image.width)
        return np.asarray(data.train_transform(image, config.train_preset, params))

    pairs = [zip(labels.tolist(), other["labels"][part].tolist(), strict=True) for part, labels in own["labels"].items()]
    return np.stack([np.stack([pixels(*pair) for pair in of_part]) for of_part in pairs])


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
        self.made: State = {}
        self.framework, self.train = context.reference.framework, engine(context, "reference")
        config = case.config
        self.together = config.sync_bn  # whether the batches of all ranks are one
        self.batch = config.batch_size
        if self.together:
            config = replace(config, batch_size=self.batch * ranks, sync_bn=False)
        else:
            config = replace(config, accumulate=config.accumulate * ranks)
        self._note("start", [{"state": start}] * ranks)
        self.run = run = begin(context, "reference", config, self.train.Ranks())
        context.networks.load("reference", run.model, start)
        self.now: list[Record] = []  # of the update that is being made, by rank
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

    def __call__(self, updates: int | None = None) -> State:
        """The whole case, or its first updates alone, as ranks would write it (``alignment.comparisons.ranks.plan.read_records``).

        Besides, an update says of each rank what its micro-batches add to the gradients (``"share0"``), and with synchronised
        BatchNorm, in the first update, what its layers are given (``"spread"``), in the order of computation.
        """
        batches = self.train.micro_batches(self.run)
        for number in range(updates or self.case.updates):
            epoch = np.array(self.run.epoch)
            self.now = [{"pixels": {}, "labels": {}, "spread": {}, "figures": {"epoch": epoch}} for _ in range(self.ranks)]
            gathered = [next(batches) for _ in range(self.run.config.accumulate)]
            self._note_pictures([batch for batch, _ in gathered])
            given = [((in_float64(self.context, "reference", images), labels), count) for (images, labels), count in gathered]
            with self.framework.precision("float64"):
                self.train.update(self.run, given)
            self.run.meter = type(self.run.meter)()
            self._finish_update()
            self._note(str(number), self.now)
            next_epoch(self.run)
        if updates is None and self.case.evaluates:
            self._note("evaluation", [self._evaluated()] * self.ranks)
        return self.made

    def _note(self, number: str, records: Sequence[Record]) -> None:
        for rank, record in enumerate(records):
            for part, state in record.items():
                self.made |= {f"{number}/{rank}/{part}/{name}": array for name, array in state.items()}

    # --- one update --------------------------------------------------------------------------------------------------------

    def _note_pictures(self, batches: list[tuple[Any, Any]]) -> None:
        arrays = [(self.framework.array(images), self.framework.array(labels)) for images, labels in batches]
        size = 1 if self.together else self.ranks
        for at in range(0, len(arrays), size):
            images, labels = (np.concatenate(parts) for parts in zip(*arrays[at : at + size], strict=True))
            for part, whole in (("pixels", images), ("labels", labels)):
                for record, own in zip(self.now, np.split(whole, self.ranks), strict=True):
                    record[part][str(at // size)] = own

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
            share = {name: array - before.get(name, 0.0) for name, array in after.items()}
            self.now[rank][f"share{number // self.ranks}"] = share

        with self._spreads_noted():
            loss = self.accumulate(model, criterion, batches, precision, begun, watched)
        if self.together:
            self.statistics = [self._buffers()]
        for record, of_rank in zip(self.now, losses, strict=True):
            record["figures"]["loss"] = np.array(np.mean(of_rank))
        return loss

    def _share_dropout(self, number: int) -> None:
        part, rank = divmod(number, self.ranks)
        if self.dropout_of(rank) != rank:
            place = (self.run.iteration * self.case.config.accumulate + part) * self.ranks + self.dropout_of(rank)
            self.run.dropout.at(self.run.epoch, place * self.batch)

    def _step(self, *args: Any, **kwargs: Any) -> Any:
        gradients = self.framework.gradients(self.run.model)
        for record in self.now:
            record["gradients"] = gradients
        return self.step(*args, **kwargs)

    def _update_averages(self) -> None:
        for statistics, average in zip(self.statistics, self.averages, strict=True):
            self._put(statistics)
            average.update()

    def _finish_update(self) -> None:
        state = self.framework.state(self.run.model)
        weights = {name: array for name, array in state.items() if name not in self.buffers}
        averages = [self._canonical(average.arrays()) for average in self.averages]
        for rank, record in enumerate(self.now):
            own = 0 if self.together else rank  # with one set of statistics each rank has the same
            record["figures"]["rate"] = np.array(self.run.rate)
            record |= {"state": weights, "statistics": self.statistics[own], "average": averages[own]}

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
        if not self.together or any(key.startswith("0/") for key in self.made):
            yield
            return
        framework, layers = self.framework, self.framework.modules(self.run.model)
        norms = {name: layer for name, layer in layers.items() if framework.layer(layer).kind == "batch_norm"}

        def noting(name: str) -> Callable:
            def note(module: Any, args: tuple) -> None:
                given = framework.array(args[0])
                axes = (0, *range(2, given.ndim))
                momentum = float(framework.layer(module).settings["momentum"])
                whole = {"mean": given.mean(axes), "variance": given.var(axes), "momentum": np.array(momentum)}
                whole["count"] = np.array(given.size // given.shape[1])
                for record, part in zip(self.now, np.split(given, self.ranks), strict=True):
                    made = whole | {"means": part.mean(axes), "variances": part.var(axes)}
                    record["spread"] |= {f"{name}.{key}": array for key, array in made.items()}

            return note

        with contextlib.ExitStack() as stack:
            for name, layer in norms.items():
                stack.callback(framework.hook(layer, before=noting(name)).remove)
            yield

    # --- the evaluation ----------------------------------------------------------------------------------------------------

    def _evaluated(self) -> Record:
        """With the statistics, and the moving average, that are the means of the ranks'."""
        run, record = self.run, {"statistics": summed(self.statistics, 1 / len(self.statistics))}
        self._put(record["statistics"])
        arrays = [average.arrays() for average in self.averages]
        run.average = self.averages[0]
        if arrays[0]:
            run.average.load({name: array.astype(np.float32) for name, array in summed(arrays, 1 / len(arrays)).items()})
            record["average"] = self._canonical(run.average.arrays())
        with self.framework.precision("float64"):
            result = self.train.evaluate_run(run, evaluation_batches(self.context, "reference", run))
        return record | {"figures": {name: np.array(getattr(result, name)) for name in FIGURES}}
