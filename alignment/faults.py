"""Single mistakes, each with the place and the hint that localisation owes: what ``tools/align.py --inject NAME`` breaks.

Every one was made in earnest by somebody: most are in the guides and checklists that porters read, the others are traps of
these very versions (docs/known_differences.md). A fault changes the Paddle side alone, through the pieces of
:class:`alignment.sides.PaddleSide` or by replacing one function while it is injected.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from PIL import Image

import mobilenetv3_common.preprocess
import mobilenetv3_paddle.data.dataset
import mobilenetv3_paddle.data.loader
import mobilenetv3_paddle.data.transforms
from alignment.sides import PaddleSide
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.sampling import BatchPlan
from mobilenetv3_paddle.data import ImageDataset, build_loader
from mobilenetv3_paddle.loss import CrossEntropyLoss
from mobilenetv3_paddle.metric import TopKAccuracy, top_k_correct
from mobilenetv3_paddle.models import MODELS, BatchNorm2D
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid, InvertedResidual, SqueezeExcitation
from mobilenetv3_paddle.train import (
    accumulate_gradients,
    build_optimizer,
    build_run,
    build_schedule,
    evaluate_run,
    micro_batches,
    update,
)

Make = Callable[[contextlib.ExitStack], PaddleSide]
transforms: Any = mobilenetv3_paddle.data.transforms
preprocess: Any = mobilenetv3_common.preprocess


@dataclass(frozen=True)
class Fault:
    """One mistake and what has to be said of it.

    Attributes:
        name: for ``--inject``.
        area: ``"models"``, ``"weights"``, ``"data"``, ``"metric"``, ``"loss"``, ``"optimizer"``, ``"schedule"``,
            ``"training"`` or ``"distributed"``.
        step: the first step that must fail.
        location: where localisation must find it, exactly.
        hint: the kind of mistake that it must be called.
        make: builds the broken side.
    """

    name: str
    area: str
    step: int
    location: str
    hint: str
    make: Make


FAULTS: dict[str, Fault] = {}


def fault(area: str, step: int, location: str, hint: str, name: str = "") -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        key = name or make.__name__
        FAULTS[key] = Fault(key, area, step, location, hint, make)
        return make

    return register


@contextlib.contextmanager
def injected(name: str | None) -> Iterator[PaddleSide]:
    """The Paddle side with one fault inside the block; sound where ``name`` is None.

    Raises:
        UserError: there is no such fault.
    """
    if name is None:
        yield PaddleSide()
        return
    if name not in FAULTS:
        raise UserError(f"--inject {name}: no such fault; known are {', '.join(FAULTS)}")
    with contextlib.ExitStack() as stack:
        yield FAULTS[name].make(stack)


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute, or an entry of a dictionary, has another value inside the block."""
    entry = isinstance(owner, dict)
    before = owner[name] if entry else getattr(owner, name)
    put = owner.__setitem__ if entry else lambda key, new: setattr(owner, key, new)
    put(name, value)
    try:
        yield
    finally:
        put(name, before)


# --- models ----------------------------------------------------------------------------------------------------------------


def broken_model(change: Callable[[Any], Any]) -> PaddleSide:
    """A side whose models are changed after they are built."""

    def builder(original: Callable) -> Callable:
        def build(*args: Any, **kwargs: Any) -> nn.Layer:
            model = original(*args, **kwargs)
            return change(model) or model

        return build

    return PaddleSide(models={"MODELS": {name: builder(original) for name, original in MODELS.items()}})


def each(model: nn.Layer, kind: type) -> list[Any]:
    return [layer for layer in model.sublayers() if isinstance(layer, kind)]


def replace_all(model: nn.Layer, kind: type, make: Callable[[Any], nn.Layer]) -> None:
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent.named_children()):
            if type(child) is kind:
                setattr(parent, name, make(child))


def model_fault(step: int, location: str, hint: str, area: str = "models") -> Callable[[Callable], Callable]:
    def register(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        fault(area, step, location, hint, change.__name__)(lambda stack: broken_model(change))
        return change

    return register


@model_fault(1, "features.0.1", "batch_norm_eps")
def batch_norm_eps(model):
    for layer in each(model, BatchNorm2D):
        layer.eps = 1e-5


@model_fault(1, "features.0.2", "activation")
def relu_for_hardswish(model):
    replace_all(model, nn.Hardswish, lambda _: nn.ReLU())


@model_fault(1, "features.1.block.1.scale_activation", "activation")
def sigmoid_gate(model):
    replace_all(model, Hardsigmoid, lambda _: nn.Sigmoid())


@model_fault(1, "features.3", "no_residual")
def no_residual(model):
    for layer in each(model, InvertedResidual):
        layer.use_res_connect = False


@model_fault(1, "features.1.block.1", "no_squeeze_excitation")
def no_squeeze_excitation(model):
    for layer in each(model, SqueezeExcitation):
        layer.forward = lambda x: x


@model_fault(1, "avgpool", "pooling")
def max_for_average_pool(model):
    model.avgpool = nn.AdaptiveMaxPool2D(1)


@model_fault(1, "features.0.0", "padding")
def padding_off_by_one(model):
    first = model.features[0][0]
    first._padding = first._updated_padding = [2, 2]


@model_fault(1, "features.4.block.1.0", "stride")
def stride_forgotten(model):
    model.features[4].block[1][0]._stride = [1, 1]


@model_fault(1, "features.9.block.1.0", "dilation")
def dilated_by_mistake(model):
    layer = model.features[9].block[1][0]
    layer._dilation = [2, 2]
    layer._padding = layer._updated_padding = [4, 4]


@model_fault(1, "MobileNetV3.forward", "permuted")
def classes_permuted(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output.flip([1]))


@model_fault(1, "MobileNetV3.forward", "few_elements")
def one_logit_off(model):
    def shift(layer, inputs, output):
        return output + F.one_hot(paddle.to_tensor([7]), output.shape[1]).astype(output.dtype) * 1e-3

    model.register_forward_post_hook(shift)


@model_fault(1, "MobileNetV3.forward", "zero")
def output_zero(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output * 0)


@model_fault(1, "features.5", "not_finite")
def not_a_number(model):
    model.features[5].register_forward_post_hook(lambda layer, inputs, output: output * float("nan"))


@model_fault(1, "features.2", "layer_missing")
def block_missing(model):
    layers = list(model.features.children())
    model.features = nn.Sequential(*layers[:2], *layers[3:])


@model_fault(1, "classifier.2", "layer_extra")
def layer_extra(model):
    width = model.classifier[3].weight.shape[0]
    a, b, c, d = model.classifier.children()
    model.classifier = nn.Sequential(a, b, nn.Linear(width, width), c, d)


@model_fault(1, "classifier", "layer_renamed")
def layer_renamed(model):
    model.head = model.classifier
    del model.classifier
    model.forward = lambda x: model.head(paddle.flatten(model.avgpool(model.features(x)), 1))


@model_fault(1, "features.0", "half_precision")
def bfloat16_inside(model):
    """In float32 alone: float64 does not have it."""

    def rounded(layer, inputs, output):
        return output.astype("bfloat16").astype(output.dtype) if output.dtype == paddle.float32 else output

    model.features[0].register_forward_post_hook(rounded)


@model_fault(1, "features.0.1", "momentum_inverted")
def momentum_inverted(model):
    for layer in each(model, BatchNorm2D):
        layer.momentum = 0.99


@model_fault(1, "features.0.1", "biased_variance")
def biased_variance(model):
    def stock(layer):
        return nn.BatchNorm2D(layer._num_features, epsilon=layer.eps, momentum=0.99)

    replace_all(model, BatchNorm2D, stock)


@model_fault(1, "features.0.1", "training_mode")
def evaluation_mode_forgotten(model):
    model.eval = lambda: model


@model_fault(1, "features.0.1", "evaluation_mode")
def batch_norm_frozen(model):
    def frozen(layer):
        return lambda x: F.batch_norm(x, layer._mean, layer._variance, layer.weight, layer.bias, training=False, epsilon=layer.eps)

    for layer in each(model, BatchNorm2D):
        layer.forward = frozen(layer)


@model_fault(1, "classifier.2", "dropout_rate")
def dropout_rate(model):
    replace_all(model, nn.Dropout, lambda _: nn.Dropout(0.5))


@model_fault(1, "classifier.2", "dropout_scale")
def dropout_downscaled(model):
    replace_all(model, nn.Dropout, lambda layer: nn.Dropout(layer.p, mode="downscale_in_infer"))


@model_fault(1, "classifier.2", "dropout_missing")
def dropout_missing(model):
    replace_all(model, nn.Dropout, lambda _: nn.Identity())


class AlwaysDropout(nn.Layer):
    """``F.dropout`` without its ``training`` argument, as it is often called."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, input):
        return F.dropout(input, self.p)


@model_fault(1, "classifier.2", "dropout_on")
def dropout_left_on(model):
    replace_all(model, nn.Dropout, lambda layer: AlwaysDropout(layer.p))


@model_fault(5, "features.3.block.0.0", "frozen")
def parameter_frozen(model):
    model.features[3].block[0][0].weight.stop_gradient = True


@model_fault(5, "features.5", "detached")
def graph_detached(model):
    model.features[5].register_forward_post_hook(lambda layer, inputs, output: output.detach())


# --- weights ---------------------------------------------------------------------------------------------------------------


@model_fault(1, "features.11.block.0.0.weight", "parameters_shared", area="weights")
def parameters_shared(model):
    model.features[11].block[0][0].weight = model.features[10].block[0][0].weight


def loading_fault(location: str, hint: str) -> Callable[[Callable], Callable]:
    """A fault of what is loaded: the function changes the state by torch's names before it is."""

    def register(change: Callable[[dict], dict]) -> Callable:
        class Loads(PaddleSide):
            def load(self, model, state):
                super().load(model, change({name: np.array(array) for name, array in state.items()}))

        fault("weights", 1, location, hint, change.__name__)(lambda stack: Loads())
        return change

    return register


@fault("weights", 1, "features.0.0.weight", "weights_not_loaded")
def weights_not_loaded(stack):
    class LoadsNothing(PaddleSide):
        def load(self, model, state):
            pass

    return LoadsNothing()


@loading_fault("classifier.3.weight", "weight_transposed")
def linear_not_transposed(state):
    weight = state["classifier.3.weight"]
    square = min(weight.shape)
    weight[:square, :square] = weight[:square, :square].T.copy()
    return state


@loading_fault("features.1.block.0.0.weight", "weight_transposed")
def kernels_transposed(state):
    wrong = {n: a.transpose(0, 1, 3, 2) for n, a in state.items() if a.ndim == 4 and a.shape[1] == 1 and a.shape[2] > 1}
    return state | wrong


@loading_fault("features.0.0.weight", "channels_reversed")
def weights_for_bgr(state):
    state["features.0.0.weight"] = state["features.0.0.weight"][:, ::-1]
    return state


@loading_fault("features.0.1.running_mean", "weights_not_loaded")
def statistics_not_loaded(state):
    fresh = {"running_mean": np.zeros_like, "running_var": np.ones_like}
    return {n: fresh[n.rsplit(".", 1)[-1]](a) if "running_" in n else a for n, a in state.items()}


@loading_fault("classifier.3.bias", "weights_not_loaded")
def bias_not_loaded(state):
    state["classifier.3.bias"][:] = 0
    return state


@loading_fault("features.0.0.weight", "half_precision")
def weights_in_float16(state):
    return {n: a.astype(np.float16).astype(a.dtype) for n, a in state.items()}


@loading_fault("features.5.block.1.0.weight", "weights_swapped")
def weights_swapped(state):
    a, b = "features.5.block.1.0.weight", "features.6.block.1.0.weight"
    return state | {a: state[b], b: state[a]}


# --- data ------------------------------------------------------------------------------------------------------------------


@fault("data", 2, "decode", "channels_reversed")
def bgr(stack):
    decode = mobilenetv3_paddle.data.dataset.decode_image

    def reversed_channels(path, backend="pil"):
        return Image.fromarray(np.ascontiguousarray(np.asarray(decode(path, backend))[:, :, ::-1]))

    stack.enter_context(replaced(mobilenetv3_paddle.data.dataset, "decode_image", reversed_channels))
    return PaddleSide()


def levels_fault(hint: str) -> Callable[[Callable], Callable]:
    """A fault of normalisation: the function gives what each of 256 levels becomes, float32 (3, 256)."""

    def register(levels: Callable) -> Callable:
        def make(stack):
            stack.enter_context(replaced(preprocess, "_normalized_levels", levels))
            return PaddleSide()

        fault("data", 2, "normalize", hint, levels.__name__)(make)
        return levels

    return register


def _levels(mean, std, scale=255.0):
    steps = np.arange(256, dtype=np.float32) / np.float32(scale)
    return np.stack([((steps - np.float32(m)) / np.float32(s)).astype(np.float32) for m, s in zip(mean, std, strict=True)])


@levels_fault("not_divided_by_255")
def not_divided_by_255(mean, std):
    return _levels(mean, std, 1.0)


@levels_fault("wrong_mean")
def mean_not_subtracted(mean, std):
    return _levels((0.0, 0.0, 0.0), std)


@levels_fault("wrong_std")
def one_std_for_all(mean, std):
    return _levels(mean, (0.226, 0.226, 0.226) if std != (1.0, 1.0, 1.0) else std)


@levels_fault("wrong_mean_std")
def mean_and_std_for_bgr(mean, std):
    return _levels(mean[::-1], std[::-1])


@fault("data", 2, "center_crop", "crop_off_by_one")
def crop_rounded_down(stack):
    def center_crop(image, size):
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return image.crop((left, top, left + size, top + size))

    stack.enter_context(replaced(preprocess, "center_crop", center_crop))
    return PaddleSide()


@fault("data", 2, "resize", "interpolation")
def nearest_resize(stack):
    def nearest(image, size):
        scale = size / min(image.size)
        return image.resize([int(side * scale) for side in image.size], Image.Resampling.NEAREST)

    stack.enter_context(replaced(preprocess, "resize", nearest))
    return PaddleSide()


@fault("data", 2, "hflip", "flip_missing")
def flip_missing(stack):
    stack.enter_context(replaced(transforms.F, "hflip", lambda image: image))
    return PaddleSide()


@fault("data", 2, "apply_op:TranslateX", "sign")
def translate_other_way(stack):
    translate = transforms._OPS["TranslateX"]
    stack.enter_context(replaced(transforms._OPS, "TranslateX", lambda image, pixels: translate(image, -pixels)))
    return PaddleSide()


@fault("data", 2, "apply_op:Posterize", "magnitude")
def posterize_too_far(stack):
    posterize = transforms._OPS["Posterize"]
    stack.enter_context(replaced(transforms._OPS, "Posterize", lambda image, bits: posterize(image, bits - 1)))
    return PaddleSide()


@fault("data", 2, "erase", "erase_value")
def erased_before_normalising(stack):
    transform = transforms.train_transform

    def erased(image, preset, params):
        pixels = transform(image, preset, params)
        if params.erase is not None:
            top, left, height, width = params.erase
            black = -np.array(preset.mean, np.float32) / np.array(preset.std, np.float32)
            pixels[:, top : top + height, left : left + width] = black[:, None, None]
        return pixels

    stack.enter_context(replaced(mobilenetv3_paddle.data.dataset, "train_transform", erased))
    return PaddleSide(data={"train_transform": erased})


@fault("data", 2, "labels", "label_off_by_one")
def labels_off_by_one(stack):
    class Shifted(ImageDataset):
        def __getitem__(self, key):
            pixels, label, key = super().__getitem__(key)
            return pixels, label + 1, key

    return PaddleSide(data={"ImageDataset": Shifted})


@fault("data", 2, "sampling", "other_seed")
def other_seed(stack):
    class Other(ImageDataset):
        def __init__(self, index, preset, seed=0, backend="pil", **more):
            super().__init__(index, preset, seed + 1, backend, **more)

    return PaddleSide(data={"ImageDataset": Other})


@fault("data", 2, "order", "not_shuffled")
def not_shuffled(stack):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        return build_loader(dataset, dataclasses.replace(plan, shuffle=False), num_workers, mix_group)

    return PaddleSide(data={"build_loader": loader})


@fault("data", 2, "order", "not_reshuffled")
def epoch_never_set(stack):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        return build_loader(dataset, dataclasses.replace(plan, epoch=0), num_workers, mix_group)

    return PaddleSide(data={"build_loader": loader})


@fault("data", 2, "batches", "batch_dropped")
def last_batch_dropped(stack):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        return list(build_loader(dataset, plan, num_workers, mix_group))[:-1]

    return PaddleSide(data={"build_loader": loader})


@fault("data", 2, "mix_batch:mixup", "lambda_swapped")
def mixup_share_swapped(stack):
    mix = mobilenetv3_paddle.data.loader.mix_batch

    def swapped(images, labels, params, classes):
        return mix(images, labels, dataclasses.replace(params, lam=1 - params.lam), classes)

    stack.enter_context(replaced(mobilenetv3_paddle.data.loader, "mix_batch", swapped))
    return PaddleSide()


# --- metric ----------------------------------------------------------------------------------------------------------------


def correct_by(function: Callable) -> PaddleSide:
    """A side whose accuracy uses another rule for right answers."""

    class Accuracy(TopKAccuracy):
        def update(self, logits, labels, mask=None):
            right = function(logits, labels, self.ks)
            right = right & mask.unsqueeze(1) if mask is not None else right
            counts = right.astype("int64").sum(axis=0).tolist()
            self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]
            self.count += int(mask.astype("int64").sum()) if mask is not None else labels.shape[0]

    return PaddleSide(metric={"top_k_correct": function, "TopKAccuracy": Accuracy})


def rank_by(ahead: Callable, nan_is_wrong: bool = True) -> PaddleSide:
    def function(logits, labels, ks):
        own = paddle.take_along_axis(logits, labels.unsqueeze(1), axis=1)
        rank = ahead(logits, own, labels).astype("int64").sum(axis=1)
        valid = ~paddle.isnan(logits).any(axis=1) if nan_is_wrong else paddle.ones([len(labels)], "bool")
        return paddle.stack([(rank < k) & valid for k in ks], axis=1)

    return correct_by(function)


def earlier(logits, labels):
    return paddle.arange(logits.shape[1]).unsqueeze(0) < labels.unsqueeze(1)


@fault("metric", 3, "top_k_correct", "ties_right")
def ties_count_as_right(stack):
    return rank_by(lambda logits, own, labels: logits > own)


@fault("metric", 3, "top_k_correct", "nan_right")
def nan_counts_as_right(stack):
    return rank_by(lambda logits, own, labels: (logits > own) | ((logits == own) & earlier(logits, labels)), False)


@fault("metric", 3, "top_k_correct", "k_off_by_one")
def top5_is_top4(stack):
    return correct_by(lambda logits, labels, ks: top_k_correct(logits, labels, [1 if k == 1 else k - 1 for k in ks]))


@fault("metric", 3, "TopKAccuracy.update", "padding_counted")
def padding_counted(stack):
    class IgnoresMask(TopKAccuracy):
        def update(self, logits, labels, mask=None):
            super().update(logits, labels)

    return PaddleSide(metric={"TopKAccuracy": IgnoresMask})


# --- loss ------------------------------------------------------------------------------------------------------------------


def loss_of(function: Callable) -> PaddleSide:
    class Loss(CrossEntropyLoss):
        def forward(self, logits, labels):
            return function(self, logits, labels)

    return PaddleSide(loss={"CrossEntropyLoss": Loss})


def with_settings(**changes: Any) -> PaddleSide:
    """A loss with other settings than it is given."""

    def function(self, logits, labels):
        kept = {"label_smoothing": self.label_smoothing, "ignore_index": self.ignore_index, **changes}
        return CrossEntropyLoss(**kept)(logits, labels)

    return loss_of(function)


def _sound(self: Any) -> CrossEntropyLoss:
    return CrossEntropyLoss(self.label_smoothing, self.ignore_index)


@fault("loss", 4, "CrossEntropyLoss", "sum_for_mean")
def loss_summed(stack):
    def function(self, logits, labels):
        kept = (labels != self.ignore_index).astype(logits.dtype).sum() if labels.ndim == 1 else float(len(labels))
        return _sound(self)(logits, labels) * kept

    return loss_of(function)


@fault("loss", 4, "CrossEntropyLoss", "smoothing_missing")
def smoothing_forgotten(stack):
    return with_settings(label_smoothing=0.0)


@fault("loss", 4, "CrossEntropyLoss", "ignore_index")
def ignore_index_unheeded(stack):
    def function(self, logits, labels):
        if labels.ndim == 1:
            labels = labels.clip(0, logits.shape[1] - 1)
        return CrossEntropyLoss(self.label_smoothing)(logits, labels)

    return loss_of(function)


@fault("loss", 4, "CrossEntropyLoss", "softmax_twice")
def softmax_twice(stack):
    return loss_of(lambda self, logits, labels: _sound(self)(F.softmax(logits), labels))


@fault("loss", 4, "CrossEntropyLoss", "saturated")
def paddles_own_cross_entropy(stack):
    def function(self, logits, labels):
        if labels.ndim == 1 and self.label_smoothing == 0 and not bool((labels == self.ignore_index).any()):
            return F.cross_entropy(logits, labels)
        return _sound(self)(logits, labels)

    return loss_of(function)


# --- optimizer -------------------------------------------------------------------------------------------------------------


def optimizer_with(only: str = "", **changes: Any) -> PaddleSide:
    def build(model, config):
        return build_optimizer(model, dataclasses.replace(config, **changes) if only in ("", config.name) else config)

    return PaddleSide(train={"build_optimizer": build})


@fault("optimizer", 5, "optimizer.rmsprop", "eps_inside_root")
def eps_inside_the_root(stack):
    def build(model, config):
        if config.name != "rmsprop":
            return build_optimizer(model, config)
        return paddle.optimizer.RMSProp(
            config.lr, config.alpha, config.eps, config.momentum, parameters=model.parameters(), weight_decay=config.weight_decay
        )

    return PaddleSide(train={"build_optimizer": build})


@fault("optimizer", 5, "optimizer.rmsprop", "alpha")
def rmsprop_alpha(stack):
    return optimizer_with("rmsprop", alpha=0.99)


@fault("optimizer", 5, "optimizer.sgd", "momentum_missing")
def momentum_missing(stack):
    return optimizer_with("sgd", momentum=0.0)


@fault("optimizer", 5, "optimizer.sgd", "nesterov")
def nesterov(stack):
    def build(model, config):
        optimizer = build_optimizer(model, config)
        if config.name == "sgd":
            optimizer._default_dict["use_nesterov"] = optimizer._use_nesterov = True  # the first is what parameter groups get
        return optimizer

    return PaddleSide(train={"build_optimizer": build})


@fault("optimizer", 5, "optimizer.sgd", "weight_decay_missing")
def weight_decay_missing(stack):
    return optimizer_with(weight_decay=0.0)


@fault("optimizer", 5, "optimizer.sgd: features.0.1.weight", "norm_weight_decay")
def no_weight_decay_on_norm_layers(stack):
    return optimizer_with(norm_weight_decay=0.0)


@fault("optimizer", 5, "optimizer.adamw", "l2_for_decoupled")
def adam_with_l2(stack):
    def build(model, config):
        if config.name != "adamw":
            return build_optimizer(model, config)
        return paddle.optimizer.Adam(
            config.lr, config.beta1, config.beta2, config.eps, parameters=model.parameters(), weight_decay=config.weight_decay
        )

    return PaddleSide(train={"build_optimizer": build})


@fault("optimizer", 5, "optimizer.adamw", "optimizer_eps")
def adamw_eps(stack):
    return optimizer_with("adamw", eps=1e-8)


@fault("optimizer", 5, "apply_update", "gradient_not_cleared")
def gradient_not_cleared(stack):
    def step(model, optimizer, clip_norm=None):
        if clip_norm is not None:
            nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)
        optimizer.step()

    return PaddleSide(train={"apply_update": step})


@fault("optimizer", 5, "apply_update", "never_updated")
def never_updated(stack):
    return PaddleSide(train={"apply_update": lambda model, optimizer, clip_norm=None: optimizer.clear_grad()})


@fault("optimizer", 5, "apply_update", "clipping_missing")
def clipping_missing(stack):
    def step(model, optimizer, clip_norm=None):
        optimizer.step()
        optimizer.clear_grad()

    return PaddleSide(train={"apply_update": step})


@fault("optimizer", 5, "accumulate_gradients", "sum_for_mean")
def micro_batches_summed(stack):
    def accumulate(model, criterion, batches):
        total = 0.0
        for batch in batches:
            total = total + accumulate_gradients(model, criterion, [batch])
        return total / len(batches)

    return PaddleSide(train={"accumulate_gradients": accumulate})


# --- schedule --------------------------------------------------------------------------------------------------------------


def schedule_with(**changes: Any) -> PaddleSide:
    return PaddleSide(train={"build_schedule": lambda optimizer, c: build_schedule(optimizer, dataclasses.replace(c, **changes))})


@fault("schedule", 5, "build_schedule(step)", "schedule_never_stepped")
def schedule_never_stepped(stack):
    class Constant:
        def step(self):
            pass

    return PaddleSide(train={"build_schedule": lambda optimizer, config: Constant()})


@fault("schedule", 5, "build_schedule(step)", "schedule_off_by_one")
def schedule_off_by_one(stack):
    def build(optimizer, config):
        schedule = build_schedule(optimizer, config)
        schedule.step()
        return schedule

    return PaddleSide(train={"build_schedule": build})


@fault("schedule", 5, "build_schedule(step)", "schedule_factor")
def schedule_factor(stack):
    return schedule_with(gamma=0.1)


# --- training --------------------------------------------------------------------------------------------------------------


def built(change: Callable[[Any], Any]) -> PaddleSide:
    """A run that is changed after it is built."""

    def build(config, ranks):
        run = build_run(config, ranks)
        change(run)
        return run

    return PaddleSide(train={"build_run": build})


def configured(**changes: Any) -> PaddleSide:
    """A run with another recipe than it is given."""
    return PaddleSide(train={"build_run": lambda config, ranks: build_run(dataclasses.replace(config, **changes), ranks)})


@fault("training", 6, "config.lr", "recipe")
def learning_rate_doubled(stack):
    return configured(lr=2.0**-8)


@fault("training", 6, "config.clip_norm", "recipe")
def recipe_without_clipping(stack):
    return configured(clip_norm=None)


@fault("training", 6, "loss", "smoothing_missing")
def run_without_smoothing(stack):
    return built(lambda run: setattr(run.criterion, "label_smoothing", 0.0))


@fault("training", 6, "loss", "dropout_missing")
def run_without_dropout(stack):
    def change(run):
        run.model.classifier[2] = nn.Identity()

    return built(change)


@fault("training", 6, "loss", "statistics_frozen")
def trained_in_evaluation_mode(stack):
    def change(run):
        batch_norm_frozen(run.model)

    return built(change)


@fault("training", 6, "micro_batches", "order")
def order_of_another_seed(stack):
    def batches(run):
        run.plan.seed += 1
        return micro_batches(run)

    return PaddleSide(train={"micro_batches": batches})


@fault("training", 6, "schedule", "schedule_never_stepped")
def run_never_steps_its_schedule(stack):
    def change(run):
        run.schedule.step = lambda: None

    return built(change)


@fault("training", 6, "update.weights", "gradient_not_cleared")
def gradients_kept(stack):
    def step(run, gathered):
        clear = run.optimizer.clear_grad
        run.optimizer.clear_grad = lambda: None
        update(run, gathered)
        run.optimizer.clear_grad = clear

    return PaddleSide(train={"update": step})


@fault("training", 6, "evaluate_run", "evaluation")
def evaluated_wrong(stack):
    return PaddleSide(train={"evaluate_run": lambda run, loader: dataclasses.replace(evaluate_run(run, loader), top1=0.99)})


# --- distributed -----------------------------------------------------------------------------------------------------------


@fault("distributed", 2, "ranks", "not_sharded")
def every_rank_sees_everything(stack):
    def loader(dataset, plan, num_workers=0, mix_group=None):
        if isinstance(plan, BatchPlan):
            plan = dataclasses.replace(plan, rank=0, world_size=1)
        return build_loader(dataset, plan, num_workers, mix_group)

    return PaddleSide(data={"build_loader": loader})


@fault("distributed", 2, "ranks", "shards_overlap")
def ranks_padded(stack):
    class Padded(BatchPlan):
        """Every rank gets equally many batches: the first one again where one is lacking, as many samplers do."""

        def __len__(self):
            return max(len(self.sound(rank)) for rank in range(self.world_size))

        def __iter__(self):
            own = list(self.sound(self.rank))
            return iter(own + own[:1] * (len(self) - len(own)))

        def sound(self, rank: int) -> BatchPlan:
            return BatchPlan(**(dataclasses.asdict(self) | {"rank": rank}))

    def loader(dataset, plan, num_workers=0, mix_group=None):
        if isinstance(plan, BatchPlan):
            plan = Padded(**dataclasses.asdict(plan))
        return build_loader(dataset, plan, num_workers, mix_group)

    return PaddleSide(data={"build_loader": loader})


@fault("distributed", 3, "TopKAccuracy.merge", "ranks_not_merged")
def ranks_not_merged(stack):
    class MergesRightAnswersOnly(TopKAccuracy):
        def merge(self, other):
            count = self.count
            super().merge(other)
            self.count = max(count, other.count)

    return PaddleSide(metric={"TopKAccuracy": MergesRightAnswersOnly})
