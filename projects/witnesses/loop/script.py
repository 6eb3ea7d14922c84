"""A training run as a plain script, written from the documents of the settings: what the training loop has to give.

It knows nothing of ``mobilenetv3_common``'s runs, plans and configs. What is drawn at random (an epoch's order, the parameters of a
sample and of a mixing group, dropout's numbers at a place) it takes from the functions that draw it, of which step 2 and other
witnesses speak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import DropoutStream, SampleKey, epoch_order, mix_params, sample_params
from projects.witnesses.loop import network
from projects.witnesses.loop.network import Arrays

DEFAULTS: dict[str, Any] = {
    "epochs": 2, "batch_size": 4, "accumulate": 1, "drop_last": True, "seed": 5, "lr": 0.25, "momentum": 0.0, "weight_decay": 0.0,
    "norm_weight_decay": None, "bias_weight_decay": None, "lr_schedule": "constant", "lr_unit": "update", "warmup_epochs": 0,
    "warmup_decay": 0.01, "lr_step_epochs": 1, "lr_gamma": 0.5, "scale_lr_from": None, "clip_norm": None, "label_smoothing": 0.0,
    "class_weights": None, "ema_decay": 0.0, "ema_every": 1, "ema_warmup": False, "mixup_alpha": 0.0, "cutmix_alpha": 0.0,
    "mix_group": None, "mix_off_epochs": 0, "min_crop_scale": 0.5, "hflip_prob": 0.5, "random_erase": 0.0, "freeze_bn": False,
    "eval_every": 1, "eval_raw": False, "early_stop": 0, "print_every": 2, "teacher": None, "distill_alpha": 0.5,
    "distill_temperature": 4.0,
}  # fmt: skip


@dataclass
class Pictures:
    """Training and validation pictures: RGB pixels, and class numbers."""

    train: list[np.ndarray]
    labels: list[int]
    val: list[np.ndarray]
    val_labels: list[int]

    @property
    def classes(self) -> int:
        return max(self.labels) + 1


@dataclass
class History:
    """What a run did.

    Attributes:
        updates: of each, what it was made of.
        averages: of each step of the moving average, its decay and its arrays.
        lines: of the log.
        ending: where it ended.
    """

    updates: list[dict[str, Any]] = field(default_factory=list)
    averages: list[dict[str, Any]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    ending: dict[str, Any] = field(default_factory=dict)


class Script:
    """One run.

    Args:
        pictures: to train and to evaluate on.
        teacher: weights to distil from.
        lowered: after how many updates the rates are multiplied, and by what.
        ranks: processes; what is returned is of all of them together, the statistic of each in ``statistics``.
        settings: that differ from ``DEFAULTS``.
    """

    def __init__(
        self,
        pictures: Pictures,
        teacher: Arrays | None = None,
        ranks: int = 1,
        lowered: tuple[int, float] = (0, 1.0),
        **settings: Any,
    ) -> None:
        self.lowered = lowered
        self.pictures, self.teacher, self.ranks, self.given = pictures, teacher, ranks, {**DEFAULTS, **settings}
        self.state = network.initial(self.given["seed"], pictures.classes)
        self.velocity, self.average = Arrays(), Arrays()
        self.statistics = [self.state["norm.running"].copy() for _ in range(ranks)]
        self.made = History()
        self.interval: list[tuple[float, np.ndarray, int]] = []

    def run(self) -> History:
        given, best, stale, epoch = self.given, -1.0, 0, 0
        total = given["epochs"]
        for epoch in range(total):
            for number, places in enumerate(self._updates()):
                self._update(epoch, number, places)
                if (number + 1) % given["print_every"] == 0 or number + 1 == self.per_epoch:
                    self._say(epoch, number + 1)
            self.statistics = [np.mean(self.statistics, axis=0)] * self.ranks
            if (epoch + 1) % given["eval_every"] and epoch + 1 != total:
                continue
            if given["eval_raw"]:
                self._line("eval_raw", epoch, self._evaluated(self.state))
            figures = self._evaluated(self.average or self.state)
            self._line("eval", epoch, figures)
            stale = 0 if figures["top1"] > best else stale + 1
            best = max(best, figures["top1"])
            if given["early_stop"] and stale >= given["early_stop"]:
                break
        self.made.ending = {"epoch": epoch + 1, "best": best, "stale": stale, "update": (epoch + 1) * self.per_epoch}
        return self.made

    # --- one epoch --------------------------------------------------------------------------------------------------------

    @property
    def per_epoch(self) -> int:
        return len(list(self._updates()))

    def _updates(self) -> Iterator[list[tuple[int, int]]]:
        """The micro-batches of each update of an epoch: where in the order each begins, and its size, over all ranks."""
        count, size = len(self.pictures.train), self.given["batch_size"] * self.ranks
        parts = [(start, min(size, count - start)) for start in range(0, count, size)]
        if self.given["drop_last"]:
            parts = [part for part in parts if part[1] == size]
        each = self.given["accumulate"]
        yield from (parts[at : at + each] for at in range(0, len(parts) - each + 1, each))

    def _batch(self, epoch: int, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        given, order = self.given, epoch_order(len(self.pictures.train), self.given["seed"], epoch)
        preset = TrainPreset(
            crop_size=network.SIZE, crop_scale=(given["min_crop_scale"], 1.0), hflip_prob=given["hflip_prob"],
            random_erase_prob=given["random_erase"], mixup_alpha=given["mixup_alpha"], cutmix_alpha=given["cutmix_alpha"],
        )  # fmt: skip
        made = []
        for place in range(start, start + count):
            pixels, key = self.pictures.train[order[place]], SampleKey(epoch, int(order[place]), place)
            params = sample_params(preset, given["seed"], key, *pixels.shape[:2])
            made.append(network.transformed(pixels, params.crop, params.flip, params.erase))
        images, labels = np.stack(made), np.array([self.pictures.labels[order[place]] for place in range(start, start + count)])
        mixes = given["mixup_alpha"] > 0 or given["cutmix_alpha"] > 0
        if not mixes or epoch >= given["epochs"] - given["mix_off_epochs"]:
            return images, labels
        size, parts = given["mix_group"] or given["batch_size"], []
        for at in range(0, count, size):
            params_of = mix_params(preset, given["seed"], epoch, (start + at) // size, network.SIZE, network.SIZE)
            part = slice(at, at + size)
            parts.append(network.mixed(images[part], labels[part], params_of.lam, params_of.box, self.pictures.classes))
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    # --- one update -------------------------------------------------------------------------------------------------------

    def _update(self, epoch: int, number: int, parts: list[tuple[int, int]]) -> None:
        note: dict[str, Any] = {name: [] for name in ("pictures", "labels", "dropped", "modes", "teacher")}
        gradients, total, right = Arrays(), 0.0, np.zeros(2)
        for start, count in parts:
            images, labels = self._batch(epoch, start, count)
            stream = DropoutStream(self.given["seed"])
            stream.at(epoch, start)
            uniform = stream((count, network.FEATURES))
            share, pieces = -(-count // self.ranks), []
            for rank in range(self.ranks):
                part = slice(rank * share, (rank + 1) * share)
                loss, by, logits = self._of_rank(rank, images[part], labels[part], uniform[part])
                total += loss / len(parts) / self.ranks
                for name, gradient in by.items():
                    gradients[name] = gradients.get(name, 0.0) + gradient / len(parts) / self.ranks
                pieces.append(logits)
            right += right_of(np.concatenate(pieces), labels).sum(0)
            note["pictures"].append(images)
            note["labels"].append(labels)
            note["dropped"].append(uniform < network.DROPOUT)
            note["modes"].append([True, not self.given["freeze_bn"]])
            note["teacher"].append(False)
        rate = self._rate(epoch, number, sum(count for _, count in parts))
        own = {"norm.weight": self.given["norm_weight_decay"], "fc.bias": self.given["bias_weight_decay"]}
        decays = {name: self.given["weight_decay"] if own.get(name) is None else own[name] for name in network.TRAINED}
        limited = network.clipped(gradients, self.given["clip_norm"])
        network.moved(self.state, self.velocity, limited, rate, self.given["momentum"], decays)
        self.state["norm.running"] = self.statistics[0]
        after = {name: array.copy() for name, array in self.state.items()}
        self.made.updates.append({**note, "loss": total, "clip": self.given["clip_norm"], "rate": rate, **after})
        self._average(epoch * self.per_epoch + number + 1)
        self.interval.append((total, right, sum(count for _, count in parts)))

    def _of_rank(self, rank: int, images: np.ndarray, labels: np.ndarray, uniform: np.ndarray) -> tuple[float, Arrays, np.ndarray]:
        given, state = self.given, {**self.state, "norm.running": self.statistics[rank]}
        passed = network.forward(state, images, True, not given["freeze_bn"], uniform)
        self.statistics[rank] = state["norm.running"]
        loss, by_logits = network.cross_entropy(passed.logits, labels, given["label_smoothing"], given["class_weights"])
        if self.teacher is not None:
            seen = network.forward(dict(self.teacher), images, False, False, None).logits
            other, by_teacher = network.divergence(passed.logits, seen, given["distill_temperature"])
            alpha = given["distill_alpha"]
            loss, by_logits = (1 - alpha) * loss + alpha * other, (1 - alpha) * by_logits + alpha * by_teacher
        return loss, network.backward(state, passed, by_logits), passed.logits

    def _rate(self, epoch: int, number: int, pictures: int) -> float:
        given, per = self.given, self.per_epoch if self.given["lr_unit"] == "update" else 1
        unit = epoch * self.per_epoch + number if given["lr_unit"] == "update" else epoch
        full = self.given["batch_size"] * self.given["accumulate"] * self.ranks
        lr = given["lr"] * (full / given["scale_lr_from"] if given["scale_lr_from"] else 1.0)
        lr *= self.lowered[1] if epoch * self.per_epoch + number >= self.lowered[0] else 1.0
        if given["lr_schedule"] == "cosine":
            return lr * network.cosine(unit, given["epochs"] * per, given["warmup_epochs"] * per, given["warmup_decay"])
        return (
            float(lr * network.step(unit, given["lr_step_epochs"] * per, given["lr_gamma"]))
            if given["lr_schedule"] == "step"
            else lr
        )

    def _average(self, update: int) -> None:
        given = self.given
        if not given["ema_decay"] or update % given["ema_every"]:
            return
        step = update // given["ema_every"]
        decay = min(given["ema_decay"], (1 + step) / (10 + step)) if given["ema_warmup"] else given["ema_decay"]
        old = self.average or self.state
        self.average = {name: decay * old[name] + (1 - decay) * array for name, array in self.state.items()}
        self.made.averages.append({"decay": decay, **{f"average {name}": array for name, array in self.average.items()}})

    # --- what is told -----------------------------------------------------------------------------------------------------

    def _say(self, epoch: int, number: int) -> None:
        losses, right, samples = zip(*self.interval, strict=True)
        shares, count = np.sum(right, axis=0) / sum(samples), len(losses)
        figures = {"top1": shares[0], "top5": shares[1], "lr": self.made.updates[-1]["rate"], "loss": sum(losses) / count}
        self._line("train", epoch, {**figures, "avg_samples": sum(samples) / count}, number)
        self.interval = []

    def _line(self, kind: str, epoch: int, figures: dict[str, Any], number: int = 0) -> None:
        place = {"kind": kind, "epoch": epoch, "iter": number, "update": len(self.made.updates)}
        self.made.lines.append({**place, **figures})

    def _evaluated(self, state: Arrays) -> dict[str, Any]:
        images = np.stack([network.transformed(pixels, (0, 0, *pixels.shape[:2]), False, None) for pixels in self.pictures.val])
        labels = np.array(self.pictures.val_labels)
        logits = network.forward(dict(state), images, False, False, None).logits
        shares = right_of(logits, labels).mean(0)
        loss = network.cross_entropy(logits, labels)[0]
        return {"top1": shares[0], "top5": shares[1], "loss": loss, "samples": len(labels), "skipped": 0}


def right_of(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether each label, or the largest of its probabilities, is the largest and among the five largest logits."""
    numbers = labels if labels.ndim == 1 else labels.argmax(1)
    first = np.argsort(-logits, axis=1, kind="stable")
    return np.stack([(first[:, :k] == numbers[:, None]).any(1) for k in (1, 5)], 1)
