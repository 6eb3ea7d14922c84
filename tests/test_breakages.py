"""A check that cannot fail is a defect: for every step, breakages of its subject, each of which must fail the step."""

from __future__ import annotations

import dataclasses

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

import mobilenetv3_paddle.data.dataset
import mobilenetv3_paddle.data.loader
import mobilenetv3_paddle.data.transforms
from alignment.sides import PaddleSide
from alignment.steps import backward, data, forward, loss, metric
from alignment.steps.context import Context
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_paddle.data import ImageDataset, build_loader
from mobilenetv3_paddle.data.transforms import normalize
from mobilenetv3_paddle.loss import CrossEntropyLoss
from mobilenetv3_paddle.metric import TopKAccuracy, top_k_correct
from mobilenetv3_paddle.models import BatchNorm2D, mobilenet_v3_small
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid, InvertedResidual, SqueezeExcitation
from mobilenetv3_paddle.train import accumulate_gradients, build_optimizer, build_schedule
from tests.conftest import SMALL


@pytest.fixture(scope="module")
def context(small_state):
    def make(side: PaddleSide | None = None) -> Context:
        return Context(model=SMALL, given_state=small_state, options={"width_mult": 0.5}, paddle=side or PaddleSide())

    return make


def broken_model(change):
    """A Paddle side whose model is changed after it is built."""

    def build(*args, **kwargs):
        model = mobilenet_v3_small(*args, **kwargs)
        return change(model) or model

    return PaddleSide(models={"MODELS": {SMALL: build}})


def each(model, kind):
    return [layer for layer in model.sublayers() if isinstance(layer, kind)]


def replace_all(model, kind, make):
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent.named_children()):
            if type(child) is kind:
                setattr(parent, name, make(child))


# --- step 1 --------------------------------------------------------------------------------------------------------------


class Scaled(nn.Layer):
    def __init__(self, inner, scale):
        super().__init__()
        self.inner, self.scale = [inner], scale

    def forward(self, x):
        return self.inner[0](x) * self.scale


def wrong_eps(model):
    for layer in each(model, BatchNorm2D):
        layer.eps = 1e-5


def relu_for_hardswish(model):
    replace_all(model, nn.Hardswish, lambda _: nn.ReLU())


def sigmoid_gate(model):
    replace_all(model, Hardsigmoid, lambda _: nn.Sigmoid())


def no_residual(model):
    for layer in each(model, InvertedResidual):
        layer.use_res_connect = False


def no_squeeze_excitation(model):
    for layer in each(model, SqueezeExcitation):
        layer.forward = lambda x: x


def max_for_average_pool(model):
    model.avgpool = nn.AdaptiveMaxPool2D(1)


def padding_off_by_one(model):
    first = model.features[0][0]
    first._padding = [2, 2]
    first._updated_padding = [2, 2]


def classes_permuted(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output.flip([1]))


def output_zero(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output * 0)


def output_nan(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output * float("nan"))


def one_logit_off(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output + F.one_hot(paddle.to_tensor([7]), 1000) * 1e-3)


def momentum_inverted(model):
    for layer in each(model, BatchNorm2D):
        layer.momentum = 0.99


def biased_variance(model):
    def make(layer):
        stock = nn.BatchNorm2D(layer._num_features, epsilon=0.001, momentum=0.99)
        return stock

    replace_all(model, BatchNorm2D, make)


def dropout_rate(model):
    replace_all(model, nn.Dropout, lambda _: nn.Dropout(0.5))


def dropout_downscaled(model):
    replace_all(model, nn.Dropout, lambda layer: nn.Dropout(layer.p, mode="downscale_in_infer"))


def dropout_missing(model):
    replace_all(model, nn.Dropout, lambda _: nn.Identity())


class NothingLoaded(PaddleSide):
    def load(self, model, state):
        pass


class SquareWeightsNotTransposed(PaddleSide):
    def load(self, model, state):
        super().load(model, state)
        weight = model.classifier[3].weight
        square = min(weight.shape)
        turned = weight.numpy()
        turned[:square, :square] = turned[:square, :square].T
        weight.set_value(turned)


FORWARD = {
    "BatchNorm eps 1e-5": lambda: broken_model(wrong_eps),
    "ReLU for Hardswish": lambda: broken_model(relu_for_hardswish),
    "sigmoid for hardsigmoid": lambda: broken_model(sigmoid_gate),
    "residual removed": lambda: broken_model(no_residual),
    "squeeze-excitation removed": lambda: broken_model(no_squeeze_excitation),
    "max for average pooling": lambda: broken_model(max_for_average_pool),
    "padding off by one": lambda: broken_model(padding_off_by_one),
    "classes permuted": lambda: broken_model(classes_permuted),
    "output times 0": lambda: broken_model(output_zero),
    "output NaN": lambda: broken_model(output_nan),
    "one logit of 1000 off by 1e-3": lambda: broken_model(one_logit_off),
    "BatchNorm momentum inverted": lambda: broken_model(momentum_inverted),
    "biased running variance": lambda: broken_model(biased_variance),
    "dropout rate": lambda: broken_model(dropout_rate),
    "dropout scaled at inference": lambda: broken_model(dropout_downscaled),
    "dropout missing": lambda: broken_model(dropout_missing),
    "weights never loaded": NothingLoaded,
    "linear weight not transposed": SquareWeightsNotTransposed,
}


def forward_cases(context: Context) -> list[forward.Case]:
    photos, _ = context.photographs(8, 96)
    return [forward.Case("eval.photos.b4", photos[:4], False), forward.Case("train.photos.b4", photos[4:], True)]


def test_step_1_passes(context):
    sound = context()
    assert forward.run(sound, forward_cases(sound)).passed


@pytest.mark.parametrize("breakage", FORWARD)
def test_step_1_fails(context, breakage):
    broken = context(FORWARD[breakage]())
    assert not forward.run(broken, forward_cases(broken)).passed


def test_step_1_refuses_vacuous_weights(context, small_state):
    """Logits of 1e-10 agree whatever is wrong; the evidence says so."""
    tiny = {k: v * 1e-8 if k.startswith("classifier.3") else v for k, v in small_state.items()}
    vacuous = dataclasses.replace(context(), given_state=tiny)
    result = forward.run(vacuous, forward_cases(vacuous))
    assert not result.passed and "logits_std" in result.problems[0]


# --- step 2 --------------------------------------------------------------------------------------------------------------


def changed_pixels(change):
    """A Paddle side whose dataset changes every sample's pixels."""

    class Changed(ImageDataset):
        def __getitem__(self, key):
            pixels, label, key = super().__getitem__(key)
            return change(pixels).astype(np.float32), label, key

    return lambda monkeypatch: PaddleSide(data={"ImageDataset": Changed})


class ShiftedLabels(ImageDataset):
    def __getitem__(self, key):
        pixels, label, key = super().__getitem__(key)
        return pixels, label + 1, key


class OtherSeed(ImageDataset):
    def __init__(self, index, preset, seed=0, backend="pil"):
        super().__init__(index, preset, seed + 1, backend)


def reversed_order(dataset, plan, num_workers=0, mix_group=None):
    batches = list(build_loader(dataset, plan, num_workers, mix_group))
    return [[tensor.flip([0]) for tensor in batch] for batch in batches]


def last_batch_dropped(dataset, plan, num_workers=0, mix_group=None):
    return list(build_loader(dataset, plan, num_workers, mix_group))[:-1]


def floor_crop(monkeypatch):
    def centre_crop(image, size):
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return image.crop((left, top, left + size, top + size))

    monkeypatch.setattr(mobilenetv3_paddle.data.transforms.F, "center_crop", centre_crop)
    return PaddleSide()


def patched_op(name, operation):
    def breaker(monkeypatch):
        monkeypatch.setitem(mobilenetv3_paddle.data.transforms._OPS, name, operation)
        return PaddleSide()

    return breaker


def no_flip(monkeypatch):
    monkeypatch.setattr(mobilenetv3_paddle.data.transforms.F, "hflip", lambda image: image)
    return PaddleSide()


def nearest_resize(monkeypatch):
    original = mobilenetv3_paddle.data.transforms.F.resize
    monkeypatch.setattr(mobilenetv3_paddle.data.transforms.F, "resize", lambda image, size, _: original(image, size, "nearest"))
    return PaddleSide()


def lam_swapped(monkeypatch):
    original = mobilenetv3_paddle.data.loader.mix_batch

    def swapped(images, labels, params, classes):
        return original(images, labels, dataclasses.replace(params, lam=1 - params.lam), classes)

    monkeypatch.setattr(mobilenetv3_paddle.data.loader, "mix_batch", swapped)
    return PaddleSide()


def erased_before_normalising(monkeypatch):
    original = mobilenetv3_paddle.data.dataset.train_transform

    def transform(image, preset, params):
        pixels = original(image, preset, params)
        if params.erase is not None:
            top, left, height, width = params.erase
            black = normalize(image.resize((1, 1)).point(lambda _: 0), preset)
            pixels[:, top : top + height, left : left + width] = black
        return pixels

    monkeypatch.setattr(mobilenetv3_paddle.data.dataset, "train_transform", transform)
    return PaddleSide()


MEAN, STD = (np.array(v, np.float32).reshape(3, 1, 1) for v in (TrainPreset().mean, TrainPreset().std))
DATA = {
    "BGR": changed_pixels(lambda x: x[::-1].copy()),
    "not divided by 255": changed_pixels(lambda x: ((x * STD + MEAN) * 255 - MEAN) / STD),
    "mean not subtracted": changed_pixels(lambda x: x + MEAN / STD),
    "one std for all channels": changed_pixels(lambda x: x * STD / 0.226),
    "one pixel of one picture": changed_pixels(lambda x: x + 1e-6 * (np.arange(x.size).reshape(x.shape) == 77)),
    "mirrored": changed_pixels(lambda x: x[:, :, ::-1].copy()),
    "centre crop rounded down": floor_crop,
    "nearest for bilinear": nearest_resize,
    "flip missing": no_flip,
    "labels off by one": lambda _: PaddleSide(data={"ImageDataset": ShiftedLabels}),
    "another seed": lambda _: PaddleSide(data={"ImageDataset": OtherSeed}),
    "another order in the batch": lambda _: PaddleSide(data={"build_loader": reversed_order}),
    "last batch dropped": lambda _: PaddleSide(data={"build_loader": last_batch_dropped}),
    "rotation with nearest": patched_op("Rotate", lambda image, degrees: image.rotate(degrees)),
    "posterize one bit more": patched_op("Posterize", lambda image, bits: image),
    "mixup lambda swapped": lam_swapped,
    "erased with black before normalising": erased_before_normalising,
}
FEW_POLICIES = {k: data.POLICIES[k] for k in ("autoaugment", "erasing", "mixup")}


def test_step_2_passes(context):
    assert data.run(context(), FEW_POLICIES).passed


@pytest.mark.parametrize("breakage", DATA)
def test_step_2_fails(context, breakage, monkeypatch):
    policies = (
        FEW_POLICIES
        if breakage in ("mixup lambda swapped", "erased with black before normalising")
        else {"autoaugment": FEW_POLICIES["autoaugment"]}
    )
    assert not data.run(context(DATA[breakage](monkeypatch)), policies).passed


# --- step 3 --------------------------------------------------------------------------------------------------------------


def correct_by(function):
    """A Paddle side whose accuracy uses another rule for right answers."""

    class Accuracy(TopKAccuracy):
        def update(self, logits, labels, mask=None):
            right = function(logits, labels, self.ks)
            right = right & mask.unsqueeze(1) if mask is not None else right
            counts = right.astype("int64").sum(axis=0).tolist()
            self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]
            self.count += int(mask.astype("int64").sum()) if mask is not None else labels.shape[0]

    return lambda: PaddleSide(metric={"top_k_correct": function, "TopKAccuracy": Accuracy})


def rank_by(ahead, nan_is_wrong=True):
    def function(logits, labels, ks):
        own = paddle.take_along_axis(logits, labels.unsqueeze(1), axis=1)
        rank = ahead(logits, own, labels).astype("int64").sum(axis=1)
        valid = ~paddle.isnan(logits).any(axis=1) if nan_is_wrong else paddle.ones([len(labels)], "bool")
        return paddle.stack([(rank < k) & valid for k in ks], axis=1)

    return correct_by(function)


def earlier(logits, labels):
    return paddle.arange(logits.shape[1]).unsqueeze(0) < labels.unsqueeze(1)


class IgnoresMask(TopKAccuracy):
    def update(self, logits, labels, mask=None):
        super().update(logits, labels)


class ForgetsTheShortBatch(TopKAccuracy):
    def update(self, logits, labels, mask=None):
        self.usual = getattr(self, "usual", len(labels))
        if len(labels) == self.usual:
            super().update(logits, labels, mask)


class MergesRightAnswersOnly(TopKAccuracy):
    def merge(self, other):
        count = self.count
        super().merge(other)
        self.count = max(count, other.count)


METRIC = {
    "always 0": correct_by(lambda logits, labels, ks: paddle.zeros_like(top_k_correct(logits, labels, ks))),
    "always 1": correct_by(lambda logits, labels, ks: paddle.ones_like(top_k_correct(logits, labels, ks))),
    "ties count as right": rank_by(lambda logits, own, labels: logits > own),
    "ties count as wrong": rank_by(
        lambda logits, own, labels: (logits >= own) & (paddle.arange(logits.shape[1]) != labels.unsqueeze(1))
    ),
    "NaN counts as right": rank_by(lambda logits, own, labels: (logits > own) | ((logits == own) & earlier(logits, labels)), False),
    "smallest logits": rank_by(lambda logits, own, labels: (logits < own) | ((logits == own) & earlier(logits, labels))),
    "top-5 is top-4": correct_by(lambda logits, labels, ks: top_k_correct(logits, labels, [1 if k == 1 else k - 1 for k in ks])),
    "labels off by one": correct_by(lambda logits, labels, ks: top_k_correct(logits, (labels + 1) % logits.shape[1], ks)),
    "padding counted": lambda: PaddleSide(metric={"TopKAccuracy": IgnoresMask}),
    "short last batch forgotten": lambda: PaddleSide(metric={"TopKAccuracy": ForgetsTheShortBatch}),
    "ranks' samples not added up": lambda: PaddleSide(metric={"TopKAccuracy": MergesRightAnswersOnly}),
}


@pytest.fixture(scope="module")
def metric_context():
    """The full small model: its calibrated weights name some validation pictures rightly and others not."""
    return lambda side=None: Context(model=SMALL, paddle=side or PaddleSide())


def test_step_3_passes(metric_context):
    assert metric.run(metric_context()).passed


@pytest.mark.parametrize("breakage", METRIC)
def test_step_3_fails(metric_context, breakage):
    assert not metric.run(metric_context(METRIC[breakage]())).passed


def test_step_3_refuses_accuracies_that_show_nothing(metric_context, small_state):
    blind = {k: v * 0 if k.startswith("classifier.3") else v for k, v in small_state.items()}
    blind["classifier.3.bias"][500] = 1.0
    result = metric.run(dataclasses.replace(metric_context(), given_state=blind, options={"width_mult": 0.5}))
    assert not result.passed and any("top1" in problem for problem in result.problems)


# --- step 4 --------------------------------------------------------------------------------------------------------------


def loss_of(function):
    class Loss(CrossEntropyLoss):
        def forward(self, logits, labels):
            return function(self, logits, labels)

    return lambda: PaddleSide(loss={"CrossEntropyLoss": Loss})


def paddles_own(self, logits, labels):
    if self.label_smoothing > 0 and labels.ndim == 1 and (labels < 0).any():
        return CrossEntropyLoss.forward(self, logits, labels)  # Paddle's own raises here
    return F.cross_entropy(
        logits, labels, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, soft_label=labels.ndim == 2
    )


def without(**changes):
    def function(self, logits, labels):
        kept = {"label_smoothing": self.label_smoothing, "ignore_index": self.ignore_index, **changes}
        return CrossEntropyLoss(**kept)(logits, labels)

    return loss_of(function)


LOSS = {
    "Paddle's own, which saturates": loss_of(paddles_own),
    "summed": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, x, y) * x.shape[0]),
    "smoothing forgotten": without(label_smoothing=0.0),
    "ignored index counted": without(ignore_index=-1000),
    "soft labels hardened": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, x, y.argmax(1) if y.ndim == 2 else y)),
    "mean over all samples, ignored ones too": loss_of(
        lambda self, x, y: (
            CrossEntropyLoss.forward(self, x, y) * ((y != self.ignore_index).astype(x.dtype).mean() if y.ndim == 1 else 1.0)
        )
    ),
    "smoothed over the other classes only": loss_of(
        lambda self, x, y: CrossEntropyLoss(self.label_smoothing * x.shape[1] / (x.shape[1] - 1), self.ignore_index)(x, y)
    ),
    "always 0": loss_of(lambda self, x, y: (x * 0).sum()),
    "no gradient": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, x.detach(), y) + (x * 0).sum()),
    "softmax taken twice": loss_of(lambda self, x, y: CrossEntropyLoss.forward(self, F.softmax(x), y)),
}


def test_step_4_passes(context):
    assert loss.run(context()).passed


@pytest.mark.parametrize("breakage", LOSS)
def test_step_4_fails(context, breakage):
    assert not loss.run(context(LOSS[breakage]())).passed


# --- step 5 --------------------------------------------------------------------------------------------------------------

FIRST_RUNS = {run.name: dataclasses.replace(run, iterations=4, float32_iterations=2) for run in backward.RUNS}


def optimizer_with(**changes):
    def build(model, config):
        return build_optimizer(model, dataclasses.replace(config, **changes))

    return lambda: PaddleSide(train={"build_optimizer": build})


def eps_inside_the_root():
    def build(model, config):
        return paddle.optimizer.RMSProp(
            config.lr, config.alpha, config.eps, config.momentum, parameters=model.parameters(), weight_decay=config.weight_decay
        )

    return PaddleSide(train={"build_optimizer": build})


def adam_with_l2():
    def build(model, config):
        return paddle.optimizer.Adam(
            config.lr, config.beta1, config.beta2, config.eps, parameters=model.parameters(), weight_decay=config.weight_decay
        )

    return PaddleSide(train={"build_optimizer": build})


def schedule_with(**changes):
    return lambda: PaddleSide(train={"build_schedule": lambda o, config: build_schedule(o, dataclasses.replace(config, **changes))})


def schedule_never_stepped():
    class Constant:
        def step(self):
            pass

    return PaddleSide(train={"build_schedule": lambda optimizer, config: Constant()})


def gradient_not_cleared():
    def update(model, optimizer, clip_norm=None):
        optimizer.step()

    return PaddleSide(train={"apply_update": update})


def never_updated():
    return PaddleSide(train={"apply_update": lambda model, optimizer, clip_norm=None: optimizer.clear_grad()})


def clipping_forgotten():
    def update(model, optimizer, clip_norm=None):
        optimizer.step()
        optimizer.clear_grad()

    return PaddleSide(train={"apply_update": update})


def micro_batches_summed():
    def accumulate(model, criterion, batches):
        total = 0.0
        for batch in batches:
            total = total + accumulate_gradients(model, criterion, [batch])
        return total / len(batches)

    return PaddleSide(train={"accumulate_gradients": accumulate})


def frozen(model):
    model.features[3].block[0][0].weight.stop_gradient = True


def shared(model):
    model.features[11].block[0][0].weight = model.features[10].block[0][0].weight


def stock_batch_norm(model):
    replace_all(model, BatchNorm2D, lambda layer: nn.BatchNorm2D(layer._num_features, epsilon=0.001, momentum=0.99))


BACKWARD = {
    "eps inside the root": ("rmsprop.train", eps_inside_the_root),
    "rmsprop alpha": ("rmsprop.eval", optimizer_with(alpha=0.99)),
    "momentum off": ("sgd.eval", optimizer_with(momentum=0.0)),
    "weight decay forgotten": ("sgd.eval", optimizer_with(weight_decay=0.0)),
    "no weight decay on BatchNorm": ("sgd.train", optimizer_with(norm_weight_decay=0.0)),
    "Adam with L2 for AdamW": ("adamw.eval", adam_with_l2),
    "adamw eps": ("adamw.train", optimizer_with(eps=1e-8)),
    "schedule never stepped": ("sgd.eval", schedule_never_stepped),
    "schedule off by one": ("sgd.eval", schedule_with(step_size=2)),
    "schedule's factor": ("rmsprop.eval", schedule_with(gamma=0.1)),
    "gradient not cleared": ("sgd.eval", gradient_not_cleared),
    "never updated": ("sgd.eval", never_updated),
    "clipping forgotten": ("sgd.train.accumulate2.clip", clipping_forgotten),
    "micro-batches summed": ("sgd.train.accumulate2.clip", micro_batches_summed),
    "a frozen parameter": ("sgd.eval", lambda: broken_model(frozen)),
    "parameters shared by mistake": ("sgd.eval", lambda: broken_model(shared)),
    "stock BatchNorm statistics": ("sgd.train", lambda: broken_model(stock_batch_norm)),
    "dropout missing": ("sgd.train", lambda: broken_model(dropout_missing)),
    "smoothing forgotten": ("sgd.eval", without(label_smoothing=0.0)),
}


@pytest.mark.parametrize("run", ["sgd.train", "rmsprop.eval", "sgd.train.accumulate2.clip"])
def test_step_5_passes(context, run):
    assert backward.run(context(), (FIRST_RUNS[run],)).passed


@pytest.mark.parametrize("breakage", BACKWARD)
def test_step_5_fails(context, breakage):
    run, side = BACKWARD[breakage]
    assert not backward.run(context(side()), (FIRST_RUNS[run],)).passed


def test_step_5_refuses_a_constant_learning_rate(context):
    """A comparison of two schedules that never move compares two constants."""
    constant = dataclasses.replace(FIRST_RUNS["sgd.eval"].schedule, name="constant")
    result = backward.run(context(), (dataclasses.replace(FIRST_RUNS["sgd.eval"], schedule=constant),))
    assert not result.passed and "learning_rate_values" in result.problems[0]
