"""A backend in numpy that the training loop runs on, and that notes what the loop does with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from mobilenetv3_common.checkpoint import read_checkpoint
from mobilenetv3_common.parts import Judgement
from mobilenetv3_common.samples import Samples, collate
from projects.witnesses.loop import network
from projects.witnesses.loop.network import Arrays


class Killed(BaseException):
    """What ends a run at once, as a signal that nobody can heed."""


class Array(np.ndarray):
    """An array that tells its values as a tensor does."""

    def numpy(self) -> np.ndarray:
        return np.asarray(self)


class Pictures(Samples):
    """The samples of a split, by the plain transforms."""

    arrays = np

    def eval_transform(self, image: Any, preset: Any) -> np.ndarray:
        pixels = np.asarray(image)
        return network.transformed(pixels, (0, 0, *pixels.shape[:2]), False, None)

    def train_transform(self, image: Any, preset: Any, params: Any) -> np.ndarray:
        return network.transformed(np.asarray(image), params.crop, params.flip, params.erase)

    def mix_batch(self, images: np.ndarray, labels: np.ndarray, params: Any, num_classes: int) -> Any:
        return network.mixed(images, labels, params.lam, params.box, num_classes)


class Net:
    """The plain network as a model."""

    def __init__(self, state: Arrays) -> None:
        self.state, self.gradients = state, Arrays()
        self.training = self.centring = True
        self.uniform: Any = None
        self.drawn: np.ndarray | None = None  # by which the last pass dropped

    def train(self) -> None:
        self.training = self.centring = True

    def eval(self) -> None:
        self.training = self.centring = False

    def passed(self, images: Any) -> network.Forward:
        self.drawn = None
        if self.training and self.uniform is not None:
            self.drawn = self.uniform((len(images), network.FEATURES))
        return network.forward(self.state, images, self.training, self.centring, self.drawn)

    def __call__(self, images: Any) -> np.ndarray:
        return self.passed(images).logits


class Loss:
    """Cross-entropy, alone or with a teacher's part; its gradient is what ``backward`` of a framework would give."""

    def __init__(self, smoothing: float, weight: Sequence[float] | None) -> None:
        self.smoothing, self.weight = smoothing, weight
        self.teacher: Net | None = None
        self.temperature = self.alpha = 0.0

    def look(self, images: Any) -> None:
        assert self.teacher is not None
        self.seen, self.teaches_in_training = self.teacher(images), self.teacher.training

    def __call__(self, logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = network.cross_entropy(logits, np.asarray(labels), self.smoothing, self.weight)
        if self.teacher is None:
            return loss, gradient
        other, by_teacher = network.divergence(logits, self.seen, self.temperature)
        return (1 - self.alpha) * loss + self.alpha * other, (1 - self.alpha) * gradient + self.alpha * by_teacher


class Average:
    """A moving average of all arrays of a model; it notes each of its steps."""

    def __init__(self, model: Net, decay: float, notes: list[dict[str, Any]]) -> None:
        self.model, self.decay, self.notes, self.kept = model, decay, notes, Arrays()

    def update(self) -> None:
        if not self.decay:
            return
        first, own = not self.kept, self.model.state
        self.kept = {n: array.copy() if first else self.decay * self.kept[n] + (1 - self.decay) * array for n, array in own.items()}
        self.notes.append({"decay": self.decay, **{f"average {name}": array.copy() for name, array in self.kept.items()}})

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        own = self.model.state
        if self.kept:
            self.model.state = {name: array.copy() for name, array in self.kept.items()}
        try:
            yield
        finally:
            self.model.state = own

    def arrays(self) -> Arrays:
        return dict(self.kept)

    def load(self, arrays: Any) -> None:
        self.kept = {name: np.asarray(array) for name, array in arrays.items()}


class Precision:
    """Float64 throughout."""

    scales = False

    def __init__(self, *given: Any) -> None:
        self.given = given

    def autocast(self) -> Any:
        return contextlib.nullcontext()

    def prepare(self, model: Any, optimizer: Any) -> None:
        pass

    def state(self) -> dict[str, float]:
        return {}

    def load(self, state: Any) -> None:
        pass


class Guard:
    """Whether logits and gradients are finite."""

    def __init__(self) -> None:
        self.finite = True

    def watch(self, logits: np.ndarray) -> None:
        self.finite &= bool(np.isfinite(logits).all())

    def healthy(self, model: Net, gradients: bool = True) -> bool:
        return self.finite and (not gradients or all(np.isfinite(one).all() for one in model.gradients.values()))


class Schedule:
    """The rate of a unit, by the settings that the loop made."""

    def __init__(self, optimizer: Any, config: Any) -> None:
        self.optimizer, self.config, self.start, self.unit = optimizer, config, optimizer.lr, 0
        self.take()

    def take(self) -> None:
        config = self.config
        if config.name == "step":
            share = network.step(self.unit, config.step_size, config.gamma)
        elif config.name == "cosine":
            share = network.cosine(self.unit, config.total, config.warmup, config.warmup_decay)
        else:
            share = 1.0
        self.optimizer.lr = self.start * share

    def step(self) -> None:
        self.unit += 1
        self.take()


@dataclass
class Backend:
    """``TrainingBackend`` in numpy.

    Attributes:
        ranks: of this process.
        updates: what each update was made of, in order.
        averages: each step of a moving average.
        criterion: with what the loss was made.
        configs: of the networks that were built, in order.
        overflowing: number of the update whose gradients are infinite though its logits are not; 0 for none.
        poisoned: numbers of the updates, counted from 1 through all attempts, that give weights that are no numbers.
        killed: number of the batch to evaluate, counted from 1, at which the run is killed; 0 for none.
    """

    ranks: Any = field(default_factory=lambda: ranks_of_one())
    updates: list[dict[str, Any]] = field(default_factory=list)
    averages: list[dict[str, Any]] = field(default_factory=list)
    criterion: dict[str, Any] = field(default_factory=dict)
    configs: list[Any] = field(default_factory=list)
    poisoned: tuple[int, ...] = ()
    overflowing: int = 0
    killed: int = 0
    evaluated: int = 0
    NAME: str = "numpy"

    Precision = Precision
    Guard = Guard
    ImageDataset = Pictures

    # --- processes and parts ---

    @contextlib.contextmanager
    def started(self, *given: Any) -> Iterator[Any]:
        yield self.ranks

    def check_config(self, config: Any, ranks: Any) -> None:
        pass

    def build_model(self, config: Any, num_classes: int, builder: Any = None) -> Net:
        self.configs.append(config)
        model = Net(network.initial(config.seed, num_classes))
        if config.pretrained:
            known = read_checkpoint(config.pretrained)
            taken = known.part("model") if config.checkpoint_weights == "raw" else known.weights()
            model.state = {name: array.copy() for name, array in taken.items()}
        return model

    def place_model(self, model: Net, ranks: Any) -> Net:
        return model

    parallel = place_model

    def compiled(self, model: Net) -> Net:
        return model

    def train_mode(self, model: Net, freeze_bn: bool) -> None:
        model.train()
        model.centring = not freeze_bn

    def share_dropout(self, model: Net, uniform: Any) -> int:
        model.uniform = uniform
        return 1

    def CrossEntropyLoss(self, label_smoothing: float = 0.0, ignore_index: int = -100, weight: Any = None) -> Loss:
        self.criterion = {"label_smoothing": label_smoothing, "weight": weight and list(weight)}
        return Loss(label_smoothing, weight)

    def DistillationLoss(self, criterion: Loss, teacher: Net, temperature: float = 4.0, alpha: float = 0.5) -> Loss:
        criterion.teacher, criterion.temperature, criterion.alpha = teacher, temperature, alpha
        return criterion

    def MovingAverage(self, model: Net, decay: float) -> Average:
        return Average(model, decay, self.averages)

    def build_optimizer(self, model: Net, config: Any) -> Any:
        own = {"norm.weight": config.norm_weight_decay, "fc.bias": config.bias_weight_decay}
        decays = {name: config.weight_decay if own.get(name) is None else own[name] for name in network.TRAINED}
        return SimpleNamespace(lr=config.lr, factor=1.0, momentum=config.momentum, decays=decays, velocity={})

    def build_schedule(self, optimizer: Any, config: Any) -> Schedule:
        return Schedule(optimizer, config)

    def follow_rates(self, optimizer: Any, rates: np.ndarray) -> Any:
        raise NotImplementedError

    def learning_rate(self, optimizer: Any) -> float:
        return float(optimizer.lr)

    def scale_rates(self, optimizer: Any, factor: float) -> None:
        optimizer.factor *= factor

    def build_loader(self, dataset: Samples, plan: Any, num_workers: int = 0, mix_group: int | None = None) -> Any:
        return Batches(dataset, plan, mix_group or plan.batch_size)

    # --- updates ---

    def accumulate_gradients(
        self, model: Net, criterion: Loss, batches: Any, precision: Any = None, begin: Any = None, watch: Any = None
    ) -> float:
        """The gradients of the mean loss of equal micro-batches are added to what was not cleared."""
        note: dict[str, list[Any]] = {name: [] for name in ("pictures", "labels", "dropped", "modes", "teacher")}
        total = 0.0
        for number, (images, labels) in enumerate(batches):
            begin(number)
            passed = model.passed(images)
            loss, by_logits = criterion(passed.logits, labels)
            for name, gradient in network.backward(model.state, passed, by_logits / len(batches)).items():
                model.gradients[name] = model.gradients.get(name, 0.0) + gradient
            watch(passed.logits, labels)
            total += loss / len(batches)
            note["pictures"].append(np.array(images))
            note["labels"].append(np.array(labels))
            note["dropped"].append(np.zeros(0) if model.drawn is None else model.drawn < network.DROPOUT)
            note["modes"].append([model.training, model.centring])
            note["teacher"].append(criterion.teacher is not None and criterion.teaches_in_training)
        self.updates.append({**note, "loss": total})
        if len(self.updates) == self.overflowing:
            model.gradients["fc.bias"] = model.gradients["fc.bias"] + np.inf
        return total

    def apply_update(self, model: Net, optimizer: Any, clip_norm: float | None = None, precision: Any = None) -> None:
        rate = optimizer.lr * optimizer.factor
        gradients = self.ranks.mean(model.gradients)
        network.moved(
            model.state, optimizer.velocity, network.clipped(gradients, clip_norm), rate, optimizer.momentum, optimizer.decays
        )
        model.gradients = {}
        if len(self.updates) in self.poisoned:
            model.state["fc.bias"] = model.state["fc.bias"] * np.nan
        self.updates[-1] |= {"clip": clip_norm, "rate": rate, **{name: array.copy() for name, array in model.state.items()}}

    def first_offender(self, model: Net, forward: Any) -> str:
        return "numpy"

    def count_right(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return right_of(logits, np.asarray(labels)).sum(0).astype(np.float64)

    # --- evaluation and state ---

    def judge_batch(self, model: Net, images: Any, labels: Any, counted: np.ndarray, ranks: Any, precision: Any) -> Judgement:
        self.evaluated += 1
        if self.evaluated == self.killed:
            raise Killed
        logits, true = model(images), np.asarray(labels)
        loss, _ = network.cross_entropy(logits[counted], true[counted])
        confidence = np.exp(network.log_softmax(logits)).max(1)
        return Judgement(right_of(logits, true), true, logits.argmax(1), confidence, loss)

    def average_statistics(self, model: Net, ranks: Any) -> None:
        model.state |= ranks.mean({"norm.running": model.state["norm.running"]})

    def model_arrays(self, model: Net) -> Arrays:
        return {name: array.copy() for name, array in model.state.items()}

    def load_model_arrays(self, model: Net, arrays: Arrays, source: str) -> None:
        model.state = {name: np.array(array) for name, array in arrays.items()}

    def optimizer_arrays(self, model: Net, optimizer: Any, precision: Any) -> Arrays:
        return {f"velocity/{name}": array.copy() for name, array in optimizer.velocity.items()}

    def load_optimizer_arrays(self, model: Net, optimizer: Any, precision: Any, arrays: Arrays) -> None:
        optimizer.velocity = {name.removeprefix("velocity/"): np.array(array) for name, array in arrays.items()}

    def schedule_state(self, optimizer: Any, schedule: Schedule) -> dict[str, Any]:
        return {"schedule": schedule.unit}

    def load_schedule_state(self, optimizer: Any, schedule: Schedule, meta: dict[str, Any]) -> None:
        schedule.unit = meta["schedule"]
        schedule.take()


class Batches:
    """A loader that can be iterated again."""

    def __init__(self, dataset: Samples, plan: Any, group: int) -> None:
        self.dataset, self.plan, self.group = dataset, plan, group

    def __iter__(self) -> Iterator[list[Array]]:
        for keys in self.plan:
            yield [array.view(Array) for array in collate([self.dataset[key] for key in keys], self.dataset, self.group)]


def right_of(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which samples have their label, or the largest of its probabilities, among the one and the five largest logits."""
    numbers = labels if labels.ndim == 1 else labels.argmax(1)
    larger = (logits > np.take_along_axis(logits, numbers[:, None], 1)).sum(1)
    return np.stack([larger < 1, larger < 5], 1)


def ranks_of_one() -> Any:
    """A process alone."""
    return SimpleNamespace(
        rank=0,
        world_size=1,
        device="cpu",
        first=True,
        place=lambda tensor: tensor,
        sum=lambda values: np.asarray(values, dtype=np.float64),
        mean=lambda arrays: arrays,
    )
