"""A framework in numpy: the training loop runs on this module as on any other ``TrainingBackend``.

Its network is softmax regression on a picture's pixels. It has one rank, plain gradient descent and no moving average.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np

from mobilenetv3_common.parts import Judgement
from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.samples import Samples, collate

NAME = "numpy"


class Array(np.ndarray):
    """An array that tells its values as a tensor does."""

    def numpy(self):
        return np.asarray(self)


class ImageDataset(Samples):
    arrays = np

    def eval_transform(self, image, preset):
        return eval_transform(image, preset)

    def train_transform(self, image, preset, params):
        top, left, height, width = params.crop
        square = image.crop((left, top, left + width, top + height)).resize((preset.crop_size, preset.crop_size))
        return eval_transform(square, EvalPreset(preset.crop_size, preset.crop_size, preset.mean, preset.std))

    def mix_batch(self, images, labels, params, num_classes):
        raise NotImplementedError


class Loader:
    def __init__(self, dataset, plan):
        self.dataset, self.plan = dataset, plan

    def __iter__(self):
        for keys in self.plan:
            yield [array.view(Array) for array in collate([self.dataset[key] for key in keys], self.dataset, 1)]


def build_loader(dataset, plan, num_workers=0, mix_group=None):
    return Loader(dataset, plan)


class Network:
    def __init__(self, features, num_classes):
        self.weight, self.bias = np.zeros((features, num_classes)), np.zeros(num_classes)
        self.gradients = {}

    def __call__(self, images):
        return images.reshape(len(images), -1) @ self.weight + self.bias

    def train(self):
        pass

    eval = train


@contextlib.contextmanager
def started(device="auto", timeout=1800.0, deterministic=False):
    yield SimpleNamespace(rank=0, world_size=1, device="cpu", first=True, place=lambda tensor: tensor, sum=np.asarray)


def build_model(config, num_classes, builder=None):
    return builder(num_classes) if builder else Network(3 * config.crop_size**2, num_classes)


def check_config(config, ranks):
    pass


def place_model(model, ranks):
    return model


parallel = place_model


def compiled(model):
    return model


def train_mode(model, freeze_bn):
    model.train()


def share_dropout(model, uniform):
    return 0


def average_statistics(model, ranks):
    pass


def DistillationLoss(criterion, teacher, temperature=4.0, alpha=0.5):
    raise NotImplementedError


def CrossEntropyLoss(label_smoothing=0.0, ignore_index=-100, weight=None):
    """Loss, and its gradient by the logits."""

    def loss(logits, labels):
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        target = np.eye(logits.shape[1])[labels]
        return float(-(np.log(shares) * target).sum(1).mean()), (shares - target) / len(labels)

    return loss


class Precision:
    scales = False

    def __init__(self, level="O0", dtype="float16", device="cpu"):
        pass

    def autocast(self):
        return contextlib.nullcontext()

    def prepare(self, model, optimizer):
        pass

    def state(self):
        return {}

    def load(self, state):
        pass


class MovingAverage:
    def __init__(self, model, decay):
        pass

    def update(self):
        pass

    def applied(self):
        return contextlib.nullcontext()

    def arrays(self):
        return {}

    def load(self, arrays):
        pass


class Schedule:
    """A rate a unit."""

    def __init__(self, optimizer, rates):
        self.optimizer, self.rates, self.at = optimizer, rates, 0

    def step(self):
        self.at += 1
        self.optimizer.lr = self.rates(self.at)


def build_optimizer(model, config):
    return SimpleNamespace(lr=config.lr, factor=1.0)


def build_schedule(optimizer, config):
    start = optimizer.lr
    return Schedule(optimizer, lambda at: start * (1 + np.cos(np.pi * at / config.total)) / 2)


def follow_rates(optimizer, rates):
    return Schedule(optimizer, lambda at: float(rates[min(at, len(rates) - 1)]))


def scale_rates(optimizer, factor):
    optimizer.factor *= factor


def learning_rate(optimizer):
    return optimizer.lr


class Guard:
    finite = True

    def watch(self, logits):
        self.finite &= bool(np.isfinite(logits).all())

    def healthy(self, model, gradients=True):
        return self.finite


def accumulate_gradients(model, criterion, batches, precision=None, begin=None, watch=None):
    total, model.gradients = 0.0, {"weight": 0.0, "bias": 0.0}
    for number, (images, labels) in enumerate(batches):
        begin(number)
        logits = model(images)
        loss, gradient = criterion(logits, labels)
        model.gradients["weight"] += images.reshape(len(images), -1).T @ gradient / len(batches)
        model.gradients["bias"] += gradient.sum(0) / len(batches)
        watch(logits, labels)
        total += loss / len(batches)
    return total


def apply_update(model, optimizer, clip_norm=None, precision=None):
    for name, gradient in model.gradients.items():
        setattr(model, name, np.asarray(getattr(model, name) - optimizer.lr * optimizer.factor * gradient))


def first_offender(model, forward):
    return "numpy"


def _right(logits, labels):
    ranks = (logits > np.take_along_axis(logits, labels[:, None], 1)).sum(1)
    return np.asarray(np.stack([ranks < 1, ranks < 5], 1))


def count_right(logits, labels):
    return _right(logits, labels).sum(0).astype(np.float32)


def judge_batch(model, images, labels, counted, ranks, precision):
    logits = np.asarray(model(images))
    loss, _ = CrossEntropyLoss()(logits[counted], np.asarray(labels)[counted])
    confidence = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
    return Judgement(_right(logits, np.asarray(labels)), np.asarray(labels), logits.argmax(1), confidence, loss)


def model_arrays(model):
    return {"weight": model.weight, "bias": model.bias}


def load_model_arrays(model, arrays, source):
    model.weight, model.bias = arrays["weight"], arrays["bias"]


def optimizer_arrays(model, optimizer, precision):
    return {}


def load_optimizer_arrays(model, optimizer, precision, arrays):
    pass


def schedule_state(optimizer, schedule):
    return {"schedule": schedule.at}


def load_schedule_state(optimizer, schedule, meta):
    schedule.at = meta["schedule"]
    optimizer.lr = schedule.rates(schedule.at)
