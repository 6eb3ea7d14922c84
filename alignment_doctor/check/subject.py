"""A run put together as training puts it together, and what its first batch and first updates showed."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from alignment.frameworks import framework_of
from alignment.frameworks.base import Framework
from alignment_doctor.check.defaults import Default, relied_on
from alignment_doctor.check.initialisation import Initialisation, compare_initialisation
from alignment_doctor.check.rates import DIVERGED, RateRange, find_range
from alignment_doctor.frameworks import probe_of
from alignment_doctor.frameworks.base import Treated
from alignment_doctor.relation import Relation, relate
from mobilenetv3_common.class_weights import class_weights
from mobilenetv3_common.lr_range import RangeTest
from mobilenetv3_common.param_groups import parse_rules, rule_of
from mobilenetv3_common.parts import Ranks
from mobilenetv3_common.run import Run, build_run
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import micro_batches
from mobilenetv3_common.training_backend import Builder, TrainingBackend

Arrays = dict[str, np.ndarray]
UPDATES = 30  # on one and the same batch; three times as many where the loss falls slowly
LEARNT = 0.5  # of the loss above its floor, after those updates
LOOKED_AT = 3  # updates whose gradients and movement are looked at
ROSE = 1.1  # times the first loss
FACTORS = (10.0, 100.0, 1000.0)  # of other learning rates, tried where the batch is not learnt
OTHERS = 4  # further batches that are asked where a gradient was zero


@dataclass
class RunSubject:
    """What was observed. The checks read it and compute nothing with the model.

    Attributes:
        config: of the run, whose data is loaded in this process.
        backend: what computes.
        run: as it was put together; its weights have moved since.
        engine: the same framework as the alignment engine sees it.
        workers: processes that are to load the run's data.
        images, labels: the first batch, as the loader gave it.
        logits: of the first forward pass, float64 (N, classes), in training mode.
        losses: of each update on that batch, by the run's own criterion.
        before, after: weights and statistics before and after the first ``LOOKED_AT`` updates.
        trainable: names of the parameters that are not frozen.
        gradients: largest absolute gradient of each parameter that had one, in the first ``LOOKED_AT`` updates.
        norms: of all gradients together, before clipping, in those updates.
        late: the same as ``gradients`` of parameters whose gradient was zero until then, in the updates after them, in
            other batches, and with their weights of the other sign; ``others`` batches were asked.
        unmeant: names of the frozen parameters that no setting freezes.
        wrong_modes: modules in the wrong mode, with what they were to do.
        apart: relative difference of a picture's output in evaluation, alone and in its batch.
        rates: learning rate of each unit of the schedule over the whole run.
        learnt_at: another learning rate at which the first batch is learnt; None where it is learnt already, or at none.
        rate_range: the learning rates at which the loss of the first batch falls; None where that was not asked.
        treated: what the optimizer does with each parameter that it holds, by name.
        unlike: starting weights, and the first batch, that a second start with the same seed makes otherwise.
        initialisation: the run's fresh weights against the reference's.
    """

    config: TrainConfig
    backend: TrainingBackend
    run: Run
    engine: Framework
    workers: int = 0
    images: np.ndarray = field(default_factory=lambda: np.zeros(0))
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0))
    logits: np.ndarray = field(default_factory=lambda: np.zeros(0))
    losses: list[float] = field(default_factory=list)
    before: Arrays = field(default_factory=dict)
    after: Arrays = field(default_factory=dict)
    trainable: list[str] = field(default_factory=list)
    gradients: dict[str, float] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    late: dict[str, float] = field(default_factory=dict)
    others: int = 0
    unmeant: list[str] = field(default_factory=list)
    wrong_modes: list[str] = field(default_factory=list)
    apart: float = 0.0
    rates: list[float] = field(default_factory=list)
    learnt_at: float | None = None
    rate_range: RateRange | None = None
    treated: dict[str, Treated] = field(default_factory=dict)
    unlike: list[str] = field(default_factory=list)
    initialisation: Initialisation = field(default_factory=Initialisation)

    @property
    def base_rate(self) -> float:
        """The configured learning rate, of the whole batch of an update."""
        config = self.config
        return config.optimizer_config(config.batch_size * self.run.ranks.world_size * config.accumulate).lr

    @property
    def num_classes(self) -> int:
        return self.run.train_index.num_classes

    @functools.cached_property
    def defaults(self) -> list[tuple[Default, int]]:
        """Defaults that differ between the frameworks, of the stock layers and the optimizer of the run, with their number."""
        run = self.run
        return relied_on(self.engine.name, [type(part) for part in (*self.engine.modules(run.model).values(), run.optimizer)])

    @functools.cached_property
    def relation(self) -> Relation:
        """Whether labels can be told from pictures, those of validation from those of training."""
        return relate({"train": self.run.train_index, "val": self.run.val_index})

    @functools.cached_property
    def targets(self) -> np.ndarray:
        """Class probabilities of the first batch, float64 (N, classes), smoothed as the config says."""
        hard = self.labels if self.labels.ndim == 2 else np.eye(self.num_classes)[self.labels.astype(int)]
        smoothing = self.config.label_smoothing
        return hard.astype(np.float64) * (1 - smoothing) + smoothing / self.num_classes

    @functools.cached_property
    def class_weights(self) -> np.ndarray:
        """Of each class in the loss, float64 (classes,); ones where the config weighs none."""
        given = class_weights(self.config.class_weights, self.run.train_index)
        return np.ones(self.num_classes) if given is None else np.array(given, dtype=np.float64)

    def loss_of(self, logarithms: np.ndarray) -> float:
        """The mean cross-entropy of the first batch without a teacher's part.

        Args:
            logarithms: of the probabilities that a model gives to each class, (N, classes).
        """
        soft = self.labels.ndim == 2
        count = len(self.labels) if soft else self.class_weights[self.labels.astype(int)].sum()  # torch divides by the weights
        weighed = self.targets * self.class_weights
        with np.errstate(invalid="ignore"):
            return float(-np.where(weighed > 0, weighed * logarithms, 0.0).sum() / count)

    @property
    def learnt(self) -> bool:
        """Whether the first batch is learnt by heart as far as so few updates can show."""
        return self.learnt_in(self.losses)

    def learnt_in(self, losses: list[float]) -> bool:
        """The same of the losses of other updates on that batch."""
        first, last = losses[0] - self.floor, min(losses[-5:]) - self.floor
        return last <= LEARNT * first or last < 0.1

    @property
    def rises(self) -> bool:
        """Whether its loss has risen, or is no number any more."""
        return not np.isfinite(self.losses).all() or max(self.losses) > ROSE * self.losses[0]

    @property
    def falls(self) -> bool:
        """Whether its loss has fallen by far more than chance makes."""
        return self.falls_in(self.losses)

    def falls_in(self, losses: list[float]) -> bool:
        """The same of the losses of other updates on that batch."""
        return min(losses[-5:]) - self.floor < 0.9 * (losses[0] - self.floor)

    @property
    def silent(self) -> list[str]:
        """Parameters that are to be trained and had a gradient of zero, or none, in all that was computed so far."""
        return [name for name in self.trainable if not self.gradients.get(name) and not self.late.get(name)]

    @property
    def floor(self) -> float:
        """The smallest loss that the first batch can have; above 0 where its labels are soft."""
        weighed = self.targets * self.class_weights
        with np.errstate(divide="ignore"):
            return self.loss_of(np.log(weighed / weighed.sum(1, keepdims=True)))


def observe(backend: TrainingBackend, config: TrainConfig, ranks: Ranks, builder: Builder | None = None) -> RunSubject:
    """Put a run together, look at its first batch, and make a few updates on that batch. Nothing is written.

    Args:
        backend: what computes.
        config: of the run; it begins anew, whatever ``resume`` says, and loads its data in this process.
        ranks: this process alone.
        builder: makes the network for a number of classes; that of ``config.model`` where None.

    Raises:
        UserError: the data or the weights cannot be used.
    """
    workers, config = config.workers, replace(config, resume=None, workers=0)
    run = build_run(backend, config, ranks, builder)
    config = run.config  # its batch is fitted to the pictures
    subject = RunSubject(config, backend, run, framework_of(run.model), workers)
    subject.rates = _rates(subject)
    batches = micro_batches(run)
    gathered = [next(batches)[0] for _ in range(config.accumulate)]
    engine = subject.engine
    subject.images, subject.labels = (engine.array(part) for part in gathered[0])
    subject.before = engine.state(run.model)
    parameters = engine.parameters(run.model)
    subject.trainable = [name for name, tensor in parameters.items() if engine.trainable(tensor)]
    subject.unmeant = [name for name in parameters if name not in subject.trainable and not _meant_frozen(subject, name)]
    _start_again(subject, ranks, builder)
    subject.initialisation = compare_initialisation(backend, config, subject.num_classes, subject.before, builder)
    if not _labels_fit(subject):
        return subject  # a loss would be of nothing
    _evaluate(subject)
    _update(subject, gathered)
    if subject.silent and np.isfinite(subject.losses[-1]):
        _look_again(subject)
    if config.teacher is None and config.amp_level == "O0" and subject.base_rate > 0:
        if not subject.learnt:
            subject.learnt_at = _other_rate(subject, gathered)
        subject.rate_range = find_range(subject.base_rate, subject.floor, lambda rates: _sweep(subject, gathered, rates))
    return subject


def _start_again(subject: RunSubject, ranks: Ranks, builder: Builder | None) -> None:
    """Put the run together a second time, with the same seed."""
    run, engine = build_run(subject.backend, subject.config, ranks, builder), subject.engine
    made = engine.state(run.model)
    subject.unlike = [
        n for n, array in subject.before.items() if not np.array_equal(array, made.get(n, np.zeros(0)), equal_nan=True)
    ]
    batch = [engine.array(part) for part in next(micro_batches(run))[0]]
    if not all(map(np.array_equal, batch, (subject.images, subject.labels))):
        subject.unlike.append("the first batch")


def _meant_frozen(subject: RunSubject, name: str) -> bool:
    """Whether a setting freezes a parameter."""
    config, layer = subject.config, name.rpartition(".")[0]
    normalises = f"{layer}.running_mean" in subject.before
    return rule_of(name, parse_rules(config.param_groups)).frozen or (config.freeze_bn and normalises)


def _labels_fit(subject: RunSubject) -> bool:
    labels = subject.labels
    return labels.ndim == 2 or bool(((labels >= 0) & (labels < subject.num_classes)).all())


def _rates(subject: RunSubject) -> list[float]:
    """The schedule of the whole run, walked through on an optimizer of its own."""
    config, run, backend = subject.config, subject.run, subject.backend
    pictures = config.batch_size * run.ranks.world_size * config.accumulate
    optimizer = backend.build_optimizer(run.model, config.optimizer_config(pictures))
    schedule = backend.build_schedule(optimizer, config.schedule_config(run.updates_per_epoch))
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch: that the optimizer makes no step, which is meant here
        for _ in range(config.epochs * (run.updates_per_epoch if config.lr_unit == "update" else 1)):
            rates.append(backend.learning_rate(optimizer))
            schedule.step()
    return rates


def _evaluate(subject: RunSubject) -> None:
    """The modes, and one picture's output alone and in its batch."""
    run, engine = subject.run, subject.engine
    run.train_mode()
    norms = {name.rpartition(".")[0] for name in subject.before if name.endswith("running_mean")}
    for path, module in engine.modules(run.model).items():
        expected = not (subject.config.freeze_bn and path in norms)
        if engine.training(module) != expected:
            subject.wrong_modes.append(f"{path or '(model)'}: in {'evaluation' if expected else 'training'} mode while training")
    run.model.eval()
    for path, module in engine.modules(run.model).items():
        if engine.training(module):
            subject.wrong_modes.append(f"{path or '(model)'}: in training mode while evaluating")
    images = subject.images.astype(np.float32)
    whole = engine.call(run.model, (images,)).outputs[0][0].astype(np.float64)
    alone = engine.call(run.model, (images[:1],)).outputs[0][0].astype(np.float64)
    size = max(float(np.linalg.norm(whole)), float(np.linalg.norm(alone)), 1e-30)
    subject.apart = float(np.linalg.norm(whole - alone)) / size
    engine.load(run.model, subject.before)  # whatever evaluation did to statistics


def _update(subject: RunSubject, gathered: list[Any]) -> None:
    """Updates on one batch at the full learning rate, without the schedule."""
    config, run, backend, engine = subject.config, subject.run, subject.backend, subject.engine
    pictures = config.batch_size * run.ranks.world_size * config.accumulate
    optimizer = backend.build_optimizer(run.model, config.optimizer_config(pictures))
    named = {id(tensor): name for name, tensor in engine.parameters(run.model).items()}
    held = probe_of(run.model)[1].treated(optimizer)
    subject.treated = {named[id]: treated for id, treated in held.items() if id in named}
    run.precision.prepare(run.model, optimizer)
    run.train_mode()

    def watch(logits: Any, _labels: Any) -> None:
        if subject.logits.size == 0:
            subject.logits = engine.array(logits).astype(np.float64)

    for number in range(3 * UPDATES):
        if number >= UPDATES and (subject.learnt or not subject.falls):
            break
        subject.losses.append(_backward(subject, gathered, watch))
        if number < LOOKED_AT:
            subject.norms.append(_keep_largest(subject, subject.gradients))
        elif subject.silent:
            _keep_largest(subject, subject.late)
        backend.apply_update(run.model, optimizer, config.clip_norm, run.precision)
        if number == LOOKED_AT - 1:
            subject.after = engine.state(run.model)
        if not np.isfinite(subject.losses[-1]):
            break


def _other_rate(subject: RunSubject, gathered: list[Any]) -> float | None:
    """The nearest other rate at which the batch is learnt: lower ones first where the loss rises, else higher ones."""
    lower = [subject.base_rate / factor for factor in FACTORS]
    higher = [subject.base_rate * factor for factor in FACTORS]
    return next((rate for rate in (lower if subject.rises else higher) if _learns(subject, gathered, rate)), None)


def _learns(subject: RunSubject, gathered: list[Any], rate: float) -> bool:
    """Whether the batch is learnt at a rate, from the starting weights, which the model has again afterwards."""
    run, backend = subject.run, subject.backend
    optimizer = _begun_again(subject, rate)
    losses: list[float] = []
    for number in range(3 * UPDATES):
        if number >= UPDATES and (subject.learnt_in(losses) or not subject.falls_in(losses)):
            break
        losses.append(_backward(subject, gathered))
        if not np.isfinite(losses[-1]):
            break
        backend.apply_update(run.model, optimizer, subject.config.clip_norm, run.precision)
    subject.engine.clear_gradients(run.model)
    subject.engine.load(run.model, subject.before)
    return bool(np.isfinite(losses[-1])) and not max(losses) > ROSE * losses[0] and subject.learnt_in(losses)


def _begun_again(subject: RunSubject, rate: float) -> Any:
    """An optimizer of a rate, for the model with its starting weights in training mode."""
    config, run = subject.config, subject.run
    subject.engine.load(run.model, subject.before)
    subject.engine.clear_gradients(run.model)
    settings = replace(config.optimizer_config(run.global_batch * config.accumulate), lr=rate)
    optimizer = subject.backend.build_optimizer(run.model, settings)
    run.precision.prepare(run.model, optimizer)
    run.train_mode()
    return optimizer


def _sweep(subject: RunSubject, gathered: list[Any], rates: np.ndarray) -> RangeTest:
    """An update on one batch at each rate, from the starting weights, which the model has again afterwards."""
    config, run, backend = subject.config, subject.run, subject.backend
    optimizer = _begun_again(subject, float(rates[0]))
    schedule = backend.follow_rates(optimizer, rates)
    losses: list[float] = []
    for _ in rates:
        loss = _backward(subject, gathered)
        if not np.isfinite(loss):
            break
        losses.append(loss)
        if loss > DIVERGED * min(losses):
            break
        backend.apply_update(run.model, optimizer, config.clip_norm, run.precision)
        schedule.step()
    subject.engine.clear_gradients(run.model)
    subject.engine.load(run.model, subject.before)
    done = len(losses)
    return RangeTest(rates[:done], np.array(losses), np.zeros(done), losses != [] and done < len(rates))


def _backward(subject: RunSubject, batches: list[Any], watch: Callable[[Any, Any], None] = lambda logits, labels: None) -> float:
    """The loss of an update; its gradients are left in the model."""
    config, run = subject.config, subject.run

    def begin(number: int) -> None:
        run.dropout.at(0, number * config.batch_size)
        if config.teacher is not None:
            run.criterion.look(batches[number][0])

    return float(subject.backend.accumulate_gradients(run.parallel, run.criterion, batches, run.precision, begin, watch))


def _keep_largest(subject: RunSubject, kept: dict[str, float]) -> float:
    """Take the gradients in; returns the norm of all of them."""
    squares = 0.0
    for name, gradient in subject.engine.gradients(subject.run.model).items():
        squares += float(np.square(gradient.astype(np.float64)).sum())
        largest = float(np.abs(gradient).max()) if gradient.size else 0.0
        kept[name] = max(kept.get(name, 0.0), largest)
    return squares**0.5


def _look_again(subject: RunSubject) -> None:
    """Gradients of zero once more, in other batches, and there with the weights of the other sign.

    A ReLU that gives zero for a whole batch stops every gradient before it, and one behind a mean over each picture may do so
    for all pictures of fresh weights: no connection is cut. A weight of the other sign wakes it; what is cut stays cut.
    """
    run, engine = subject.run, subject.engine
    longer = replace(subject.config, epochs=OTHERS + 1)  # an epoch may have one batch
    batches = micro_batches(replace(run, config=longer))
    asked = [[batch for batch, _ in itertools.islice(batches, subject.config.accumulate)] for _ in range(OTHERS + 1)][1:]
    subject.others = len(asked)
    silent = set(subject.silent)
    turned = {name: -array if name in silent and array.ndim > 1 else array for name, array in subject.before.items()}
    for start in (subject.before, turned):
        engine.load(run.model, start)
        for batch in asked:
            if not subject.silent:
                return
            engine.clear_gradients(run.model)
            _backward(subject, batch)
            _keep_largest(subject, subject.late)
