"""Small training loops in both frameworks, each with one planted mistake or none, watched as anyone would watch their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
import torch

from alignment_doctor.watch import Watch
from tests import recorder

recorder.record()
Mistakes = frozenset[str]
CLASSES, BATCH = 4, 8
ONE_COLUMN = ("one_class", "broadcast", "regression", "discriminator")  # the second and third are sound
SQUASHED = ("sigmoid_twice", "binary")  # the second is sound
PROBABILITIES = ("softmax_twice", "probabilities")  # the second has a loss of probabilities and is sound


def batches(count: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pictures (BATCH, 3, 8, 8) whose class can be told by their mean, with labels."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        labels = random.integers(0, CLASSES, BATCH)
        pictures = random.standard_normal((BATCH, 3, 8, 8)) + labels[:, None, None, None] * 0.5
        made.append((pictures.astype(np.float32), labels.astype(np.int64)))
    return made


class TorchNet(torch.nn.Module):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        n, self.mistake = torch.nn, mistake
        self.features = n.Sequential(n.Conv2d(3, 8, 3), n.BatchNorm2d(8), n.ReLU(), n.Conv2d(8, 8, 3), n.BatchNorm2d(8), n.ReLU())
        self.dropout, self.head = n.Dropout(0.1), n.Linear(8, CLASSES)
        if mistake == "dead":
            self.features[4].bias.data.fill_(-1e3)
        if mistake == "momentum":
            self.features[1].momentum = 0.0
        if mistake == "unregistered":
            self.listed = [n.Linear(8, 8), n.Linear(8, 8)]
        if mistake == "constant_start":
            self.features[0].weight.data.fill_(0.1)
            self.features[3].weight.data.fill_(0.1)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        made = self.features(pictures)
        if self.mistake == "detached":
            made = made.detach()
        pooled = made.mean((2, 3))
        for layer in self.listed if self.mistake == "unregistered" else ():
            pooled = layer(pooled)
        always = torch.nn.functional.dropout(pooled, 0.5) if self.mistake == "functional_dropout" else self.dropout(pooled)
        made = self.head(always)
        if self.mistake in (*ONE_COLUMN, *SQUASHED):
            return made[:, :1] if self.mistake in ONE_COLUMN else made.sigmoid()
        if self.mistake == "cut_off":
            return torch.relu(made)
        return made.log_softmax(-1) if self.mistake == "likelihood" else made.softmax(-1) if self.mistake in PROBABILITIES else made


class PaddleNet(paddle.nn.Layer):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        n, self.mistake = paddle.nn, mistake
        self.features = n.Sequential(n.Conv2D(3, 8, 3), n.BatchNorm2D(8), n.ReLU(), n.Conv2D(8, 8, 3), n.BatchNorm2D(8), n.ReLU())
        self.dropout, self.head = n.Dropout(0.1), n.Linear(8, CLASSES)
        if mistake == "dead":
            self.features[4].bias.set_value(np.full(8, -1e3, np.float32))
        if mistake == "momentum":
            self.features[1]._momentum = 1.0
        if mistake == "unregistered":
            self.listed = [n.Linear(8, 8), n.Linear(8, 8)]
        if mistake == "constant_start":
            self.features[0].weight.set_value(np.full((8, 3, 3, 3), 0.1, np.float32))
            self.features[3].weight.set_value(np.full((8, 8, 3, 3), 0.1, np.float32))

    def forward(self, pictures: paddle.Tensor) -> paddle.Tensor:
        made = self.features(pictures)
        if self.mistake == "detached":
            made = made.detach()
        pooled = made.mean([2, 3])
        for layer in self.listed if self.mistake == "unregistered" else ():
            pooled = layer(pooled)
        always = paddle.nn.functional.dropout(pooled, 0.5) if self.mistake == "functional_dropout" else self.dropout(pooled)
        made = self.head(always)
        if self.mistake in (*ONE_COLUMN, *SQUASHED):
            return made[:, :1] if self.mistake in ONE_COLUMN else paddle.nn.functional.sigmoid(made)
        if self.mistake == "cut_off":
            return paddle.nn.functional.relu(made)
        if self.mistake == "likelihood":
            return paddle.nn.functional.log_softmax(made, -1)
        return paddle.nn.functional.softmax(made, -1) if self.mistake in PROBABILITIES else made


class OnTorch:
    """What the loop asks of torch."""

    Net = TorchNet
    tensor = staticmethod(torch.tensor)
    cross_entropy = staticmethod(torch.nn.functional.cross_entropy)
    binary_of_logits = staticmethod(torch.nn.functional.binary_cross_entropy_with_logits)
    no_grad = staticmethod(torch.no_grad)

    @staticmethod
    def seed(number: int) -> None:
        torch.manual_seed(number)

    @staticmethod
    def optimizer(parameters: Any, lr: float, kind: str) -> Any:
        made = {
            "sgd": lambda: torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=1e-4),
            "adamw": lambda: torch.optim.AdamW(parameters, lr),
            "rmsprop": lambda: torch.optim.RMSprop(parameters, lr, eps=0.03, momentum=0.9),
        }
        return made[kind]()

    @staticmethod
    def schedule(optimizer: Any, lr: float) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)

    @staticmethod
    def clear(optimizer: Any) -> None:
        optimizer.zero_grad()

    @staticmethod
    def freeze(module: Any) -> None:
        module.requires_grad_(False)

    @staticmethod
    def shrink(weight: Any) -> None:
        weight.data.mul_(0.5)

    @staticmethod
    def scaler() -> Any:
        return torch.amp.GradScaler("cpu", init_scale=1.9 * 2.0**127, backoff_factor=0.99)


class OnPaddle:
    """The same of Paddle."""

    Net = PaddleNet
    tensor = staticmethod(paddle.to_tensor)
    cross_entropy = staticmethod(paddle.nn.functional.cross_entropy)
    binary_of_logits = staticmethod(paddle.nn.functional.binary_cross_entropy_with_logits)
    no_grad = staticmethod(paddle.no_grad)

    @staticmethod
    def seed(number: int) -> None:
        paddle.seed(number)

    @staticmethod
    def optimizer(parameters: Any, lr: float, kind: str) -> Any:
        made = {
            "sgd": lambda: paddle.optimizer.Momentum(lr, 0.9, list(parameters), weight_decay=1e-4),
            "adamw": lambda: paddle.optimizer.AdamW(lr, parameters=list(parameters)),
            "rmsprop": lambda: paddle.optimizer.RMSProp(lr, epsilon=1e-3, momentum=0.9, parameters=list(parameters)),
        }
        return made[kind]()

    @staticmethod
    def schedule(optimizer: Any, lr: float) -> Any:
        schedule = paddle.optimizer.lr.StepDecay(lr, 1, 0.9)
        optimizer.set_lr_scheduler(schedule)
        return schedule

    @staticmethod
    def clear(optimizer: Any) -> None:
        optimizer.clear_grad()

    @staticmethod
    def freeze(module: Any) -> None:
        for parameter in module.parameters():
            parameter.stop_gradient = True

    @staticmethod
    def shrink(weight: Any) -> None:
        weight.set_value(weight * 0.5)

    @staticmethod
    def scaler() -> Any:
        return paddle.amp.GradScaler(init_loss_scaling=1.9 * 2.0**127, decr_ratio=0.99)


def likelihood(side: Any, made: Any, labels: np.ndarray) -> Any:
    """The loss of log-probabilities."""
    return -(made * side.tensor(np.eye(CLASSES, dtype=np.float32)[labels])).sum(-1).mean()


def distance(side: Any, made: Any, targets: np.ndarray) -> Any:
    return ((made - side.tensor(targets.astype(np.float32))) ** 2).mean()


def binary(side: Any, made: Any, labels: np.ndarray) -> Any:
    wanted = side.tensor(np.eye(CLASSES, dtype=np.float32)[labels])
    return -(wanted * made.log() + (1 - wanted) * (1 - made).log()).mean()


ODD_LOSSES: dict[str, Any] = {
    "one_class": lambda side, made, labels: side.cross_entropy(made, side.tensor(labels * 0)),
    "likelihood": likelihood,
    "likelihood_of_logits": likelihood,
    "broadcast": distance,
    "regression": lambda side, made, labels: distance(side, made, labels[:, None]),
    "discriminator": lambda side, made, labels: distance(side, made, np.ones((len(labels), 1))),
    "binary": binary,
    "sigmoid_twice": lambda side, made, labels: side.binary_of_logits(made, side.tensor(np.eye(CLASSES, dtype=np.float32)[labels])),
}
SIDES = {"torch": OnTorch, "paddle": OnPaddle}


@dataclass
class Told:
    """What a watch said: check -> its first event."""

    events: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    watch: Any = None


def kept_in(kept: list[Any], mistake: str, number: int, made: Any, loss: Any) -> None:
    """What a loop keeps from update to update: a sum of losses, losses or outputs in a list; or what is sound, without a graph."""
    if mistake in ("summed_losses", "summed_by_ten"):
        kept[:] = [loss + kept[0]] if kept and not (mistake == "summed_by_ten" and number % 10 == 1) else [loss]
    elif mistake == "listed_losses":
        kept.append(loss)
    elif mistake == "listed_outputs":
        kept.append(made)
    elif mistake == "numbers_kept":
        kept += [float(loss), loss.detach(), made.detach()]


def loop(
    framework: str,
    mistake: str = "",
    updates: int = 4,
    kind: str = "sgd",
    lr: float = 0.02,
    accumulate: int = 1,
    seed: int = 0,
    evaluate: bool = True,
    journal: Any = None,
    every: int = 10,
) -> Told:
    """A loop as anyone writes it, with the mistake of that name."""
    side = SIDES[framework]
    side.seed(seed)
    lr = 0.0 if mistake == "rate_zero" else lr
    model = side.Net(mistake)
    frozen: tuple[str, ...] = ()
    parameters = list(model.parameters())
    if mistake == "frozen_left_on":  # a name that fits nothing
        frozen = ("features.0.*",)
    if mistake == "frozen_statistics":
        frozen = ("features.*",)
        side.freeze(model.features)
        parameters = list(model.head.parameters())
    if mistake == "left_out":
        parameters = list(model.features.parameters())
    optimizer = side.optimizer(parameters, lr, kind)
    schedule = side.schedule(optimizer, lr)
    if mistake == "built_before":
        side.seed(seed + 1)
        model = side.Net(mistake)
    if mistake == "head_replaced":
        model.head = type(model)("").head
    told = Told()
    begun = 0
    if mistake in ("state_lost", "resumed"):
        begun = 3
        if mistake == "resumed":
            for pictures, labels in batches(begun, 7):
                side.cross_entropy(model(side.tensor(pictures)), side.tensor(labels)).backward()
                optimizer.step()
                side.clear(optimizer)
                schedule.step()
        else:
            for _ in range(begun):
                schedule.step()
    scaler = side.scaler() if mistake in ("overflowing", "scaler", "clipped_scaled") else None
    if mistake in ("scaler", "clipped_scaled"):
        scaler = type(scaler)("cpu", init_scale=256.0) if framework == "torch" else paddle.amp.GradScaler(init_loss_scaling=256.0)
    rates = lambda update: lr * 0.9 ** (update - 1)  # noqa: E731
    watch = Watch(
        model, optimizer, journal, frozen=frozen, rates=rates, scaler=scaler, accumulate=accumulate, update=begun, every=every,
        say=told.lines.append,
    )  # fmt: skip
    kept: list[Any] = []
    start = {name: side.tensor(np.array(value)) for name, value in model.state_dict().items()} if mistake == "written_back" else {}
    model.train()
    if mistake == "evaluation_mode":
        model.eval()
    for number, (pictures, labels) in enumerate(batches(updates * accumulate, seed), 1):
        if mistake == "spoilt_picture" and number == 2:
            pictures[0, 0, 0, 0] = np.nan
        if mistake == "same_batch":
            pictures, labels = batches(1, seed)[0]
        if mistake == "shuffled_labels":
            labels = labels[::-1].copy()
        made = model(side.tensor(pictures))
        if mistake == "probabilities":
            loss = -(made * side.tensor(np.eye(CLASSES, dtype=np.float32)[labels])).sum(-1).log().mean() / accumulate
        elif mistake in ODD_LOSSES:
            loss = ODD_LOSSES[mistake](side, made, labels)
        else:
            loss = side.cross_entropy(made, side.tensor(labels)) / accumulate
        if mistake == "memory":
            kept.append(np.ones(1 << 20))
        kept_in(kept, mistake, number, made, loss)
        if mistake == "constant_loss":
            loss = loss * 0.0 + 1.0
        if mistake in ("summed", "overflowing"):
            loss = loss * 1e5
        (scaler.scale(loss) if scaler else loss).backward()
        if mistake == "lost":
            watch.before_update(loss) if number % accumulate == 0 else None
        if number % accumulate:
            if mistake == "lost":
                side.clear(optimizer)
            continue
        if mistake == "clipped_scaled":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if mistake == "cleared_early":
            side.clear(optimizer)
        if mistake != "lost":
            watch.before_update(loss)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        elif mistake != "no_step":
            optimizer.step()
        if mistake == "written_back":
            model.set_state_dict(start) if framework == "paddle" else model.load_state_dict(start)
        if mistake != "left_over":
            side.clear(optimizer)
        if mistake != "schedule_not_stepped":
            schedule.step()
        if mistake == "schedule_twice":
            schedule.step()
        watch.after_update()
    if evaluate:
        with watch.evaluating():
            if mistake != "training_mode":
                model.eval()
            with side.no_grad():
                for pictures, _ in batches(2, 99):
                    model(side.tensor(pictures))
            if mistake == "average_left":
                side.shrink(model.head.weight)
        if mistake != "stays_in_evaluation":
            model.train()
        for pictures, labels in batches(accumulate, seed + 50):
            made = model(side.tensor(pictures))
            loss = (
                ODD_LOSSES[mistake](side, made, labels) if mistake in ODD_LOSSES else side.cross_entropy(made, side.tensor(labels))
            )
            (scaler.scale(loss) if scaler else loss).backward()
        watch.before_update(loss)
        if mistake not in ("no_step",):
            scaler.step(optimizer) if scaler else optimizer.step()
        scaler.update() if scaler else None
        side.clear(optimizer)
        watch.after_update()
    watch.close()
    told.watch = watch
    for event in watch.events:
        told.events.setdefault(event.check, event)
    return told
