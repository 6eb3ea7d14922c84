"""A place is tested with the reference's own input at every stage: what is wrong before or after it does not count against it."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import paddle
import pytest
from paddle import nn
from PIL import Image

from alignment.comparisons.comparison import explained, measured
from alignment.comparisons.data.eval_transform import EvalTransform
from alignment.comparisons.data.loading import REFERENCE, only
from alignment.comparisons.data.mixing import Mixing
from alignment.comparisons.data.samples import SampleCalls
from alignment.comparisons.data.train_transform import TrainTransform
from alignment.comparisons.explain import locate
from alignment.comparisons.loss import step as loss
from alignment.comparisons.model import explain as models
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.accumulation import Accumulation
from alignment.comparisons.update.optimizers import optimizers
from mobilenetv3_paddle.data import ImageDataset, eval_transform, mix_batch, train_transform
from mobilenetv3_paddle.loss import CrossEntropyLoss
from mobilenetv3_paddle.train import accumulate_gradients, apply_update
from projects.mobilenetv3.faults.base import with_model
from projects.mobilenetv3.faults.loss import loss_of
from projects.mobilenetv3.project import PROJECT


def trained(change):
    """The project whose port applies other parameters than were drawn."""
    other = lambda image, preset, params: train_transform(image, preset, change(params))  # noqa: E731
    return PROJECT.with_port("data", train_transform=other)


def evaluated(change):
    """The project whose port evaluates another picture under another preset."""
    return PROJECT.with_port("data", eval_transform=lambda image, preset: eval_transform(*change(image, preset)))


def squared(image, preset):
    if min(image.size) == preset.resize_size == preset.crop_size:
        return image, preset
    return image.resize((preset.resize_size, preset.resize_size), Image.Resampling.BILINEAR), preset


def swapped(box):
    return None if box is None else (box[1], box[0], box[3], box[2])


TRANSFORMS = {
    "flipped where it is not drawn": (trained(lambda p: replace(p, flip=not p.flip)), ("hflip", "flip_inverted")),
    "flipped by a generator of its own": (
        trained(lambda p: replace(p, flip=bool(np.random.rand() < 0.5))),
        ("hflip", "global_generator"),
    ),
    "rows for columns": (trained(lambda p: replace(p, crop=swapped(p.crop))), ("crop", "axes_swapped")),
    "height for width": (
        trained(lambda p: replace(p, crop=(p.crop[0], p.crop[1], p.crop[3], p.crop[2]))),
        ("crop", "axes_swapped"),
    ),
    "a row lower": (trained(lambda p: replace(p, crop=(p.crop[0] + 1, *p.crop[1:]))), ("crop", "crop_off_by_one")),
    "operations in reverse": (trained(lambda p: replace(p, ops=p.ops[::-1])), ("train_transform", "call_order")),
    "erased rows for columns": (trained(lambda p: replace(p, erase=swapped(p.erase))), ("erase", "axes_swapped")),
    "not erased": (trained(lambda p: replace(p, erase=None)), ("erase", "does_nothing")),
    "resized to a square": (evaluated(squared), ("resize", "target_size")),
    "mean for deviation": (
        evaluated(lambda image, preset: (image, replace(preset, mean=preset.std, std=preset.mean))),
        ("normalize", "mean_std_swapped"),
    ),
    "sound": (trained(lambda p: p), None),
}


def place(kind, context, *given):
    """What one comparison of step 2 finds by itself."""
    comparison = kind(context, *given)
    port, reference = (comparison.measure(context, role) for role in ("port", "reference"))
    return comparison.explain(port, only(reference, REFERENCE))


@pytest.mark.parametrize("case", TRANSFORMS)
def test_the_transform_that_is_wrong_is_named_and_not_its_neighbour(case, context):
    project, expected = TRANSFORMS[case]
    broken = context(project)
    first = place(EvalTransform, broken, "pil") or place(TrainTransform, broken, "pil")
    if expected is None:
        assert first is None, first.line()
    else:
        assert (first.location, first.kind) == expected, first.line()


def dataset(**methods):
    return PROJECT.with_port("data", ImageDataset=type("Other", (ImageDataset,), methods))


def mixed(change):
    return dataset(mix_batch=lambda self, images, labels, params, classes: mix_batch(images, labels, change(params), classes))


SAMPLES = {
    "two identical calls differ": (
        dataset(train_transform=lambda self, i, s, p: train_transform(i, s, p) + np.float32(np.random.rand())),
        ("sampling", "global_generator"),
    ),
    "flips inverted": (
        dataset(train_transform=lambda self, i, s, p: train_transform(i, s, replace(p, flip=not p.flip))),
        ("sampling", "sampled"),
    ),
    "box of rows and columns": (mixed(lambda p: replace(p, box=swapped(p.box))), ("mix_batch:cutmix", "axes_swapped")),
    "shares swapped": (mixed(lambda p: replace(p, lam=1 - p.lam)), ("mix_batch:mixup", "lambda_swapped")),
}


@pytest.mark.parametrize("case", SAMPLES)
def test_what_is_wrong_with_samples_and_mixing_is_named(case, context):
    project, expected = SAMPLES[case]
    broken = context(project)
    first = place(SampleCalls, broken, "pil") or place(Mixing, broken, [REFERENCE])
    assert (first.location, first.kind) == expected, first.line()


def test_a_loss_that_is_wrong_in_float32_alone_is_named(context):
    def rounded(self, logits, labels):
        if logits.dtype == paddle.float32:
            logits = logits.astype("bfloat16").astype("float32")
        return CrossEntropyLoss(self.label_smoothing, self.ignore_index)(logits, labels)

    broken = context(loss_of(PROJECT, rounded))
    first = explained(loss.run(broken))
    assert (first.location, first.kind) == ("CrossEntropyLoss", "half_precision")
    assert "bfloat16" in first.hint and first.measured.endswith("in float32 alone")


def clipping(change):
    """The project whose port clips otherwise: the function gets parameters and norm."""

    def update(model, optimizer, clip_norm=None):
        if clip_norm is not None:
            change([p for p in model.parameters() if not p.stop_gradient], clip_norm)
        apply_update(model, optimizer)

    return PROJECT.with_port("train", apply_update=update)


CLIPPING = {
    "by value": (lambda p, n: nn.utils.clip_grad_value_(p, n), "clipped_by_value"),
    "each by itself": (lambda p, n: [nn.utils.clip_grad_norm_([one], n) for one in p], "clipped_by_tensor"),
    "twice the norm": (lambda p, n: nn.utils.clip_grad_norm_(p, 2 * n), "clip_norm"),
    "the first half of the tensors": (lambda p, n: nn.utils.clip_grad_norm_(p[: len(p) // 2], n), "clip_norm"),
    "sound": (lambda p, n: nn.utils.clip_grad_norm_(p, n), None),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.weekly] * case.startswith("the first")) for case in CLIPPING]
)
def test_clipping_is_named_in_its_own_place(case, context):
    change, kind = CLIPPING[case]
    made = context(clipping(change))
    first = next(filter(None, (measured(made, one).explain() for one in optimizers(made))), None)
    assert first is None if kind is None else (first.location.split(":")[0], first.kind) == ("apply_update", kind), first


def test_gradients_that_are_cleared_between_micro_batches_are_named(context):
    def accumulate(model, criterion, given):
        for batch in given:
            model.clear_gradients()
            total = accumulate_gradients(model, criterion, [batch])
        return total

    first = measured(context(PROJECT.with_port("train", accumulate_gradients=accumulate)), Accumulation()).explain()
    assert (first.location, first.kind) == ("accumulate_gradients", "gradient_cleared_early"), first.line()
    assert first.hint.startswith("the gradient of the last micro-batch alone")


@pytest.mark.slow
def test_strides_that_are_all_forgotten_are_located_at_once_table_included(context):
    """Every picture is then up to 256 times as large, and the port's own pass is not waited for."""

    def forgotten(model):
        for layer in model.sublayers():
            if isinstance(layer, nn.Conv2D):
                layer._stride = [1, 1]

    broken = context(with_model(PROJECT, forgotten))
    start = time.process_time()
    outcome = locate(broken, [StepResult(1, "forward", problems=["of the test"])])
    assert time.process_time() - start < 30
    assert (outcome.first.location, outcome.first.kind) == ("features.0.0", "stride")
    assert len(outcome.layers) > 200
    assert models.forward_and_backward(context()) is None
