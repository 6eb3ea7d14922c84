"""Mistakes that both sides share, each made on purpose: step 2 fails, and its place is found; sound code stays silent.

The shared code is changed in place, so that port and reference agree and only what is known from outside can tell.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import sys

import numpy as np
import pytest
from PIL import Image

import mobilenetv3_paddle.data.transforms
import mobilenetv3_ref.data.mixing
import mobilenetv3_ref.data.transforms
from alignment.comparisons.comparison import explained
from alignment.comparisons.data import data, drawn_operations
from alignment.comparisons.data import draws as data_draws
from alignment.comparisons.data import plan as data_plan
from alignment.comparisons.data import presets as data_presets
from alignment.comparisons.data.operations import EveryOperation
from alignment.comparisons.explain import locate
from alignment.comparisons.result import StepResult
from mobilenetv3_common import image, presets, samples, sampling, train_config
from tests.breaking import first_finding

pytestmark = pytest.mark.slow  # make test-slow

CROP, ERASING = sampling.random_resized_crop_box, sampling.random_erasing_box
DRAW, MIX = sampling.sample_params, sampling.mix_params
RAND, TRIVIAL, IMAGENET = sampling.rand_augment, sampling.trivial_augment_wide, sampling.auto_augment_imagenet
BatchPlan, BATCHES, PLACE = sampling.BatchPlan, sampling.BatchPlan.__iter__, sampling.BatchPlan.place
GENERATOR, ORDER = sampling.generator, sampling.epoch_order


def run(check, context):
    result = StepResult(2, "data")
    check(context, result)
    return result


def located(check, context):
    """What a step with one check finds, from what it measured."""
    return locate(context, [data.run(context, {}, (check,))], with_table=False).first


def failed(check, context):
    return [row.name for row in run(check, context).quantities if not row.passed]


@pytest.mark.parametrize("check", data.CHECKS)
def test_sound_code_is_silent(context, check):
    result = run(check, context())
    covers = result.covers or check is data.padded_crops  # its topic is that of the other crops
    assert result.passed and covers, [f"{row.name}: {row.reason}" for row in result.quantities if not row.passed]


# --- drawn parameters ------------------------------------------------------------------------------------------------------


def uniform_ratio(rng, height, width, scale, ratio):
    logarithms = [math.log(r) for r in ratio]

    class Uniform:
        def uniform(self, low, high):
            return math.log(rng.uniform(*ratio)) if [low, high] == logarithms else rng.uniform(low, high)

        def integers(self, *args):
            return rng.integers(*args)

    return CROP(Uniform(), height, width, scale, ratio)


def columns_first(*args):
    top, left, h, w = CROP(*args)
    return left, top, w, h


def top_left(rng, height, width, scale, ratio):
    return (0, 0, *CROP(rng, height, width, scale, ratio)[2:])


def fallback_at_the_top(rng, height, width, scale, ratio):
    top, left, h, w = CROP(rng, height, width, scale, ratio)
    return (0, left, h, w) if (top, h) == ((height - h) // 2, round(width * 4 / 3)) else (top, left, h, w)


def one_row_short(rng, height, width, scale, ratio):
    top, left, h, w = CROP(rng, height, width, scale, ratio)
    return (min(top, max(height - h - 1, 0)), left, h, w)


def with_preset(**changes):
    return lambda preset, *args: DRAW(dataclasses.replace(preset, **changes), *args)


def forgetful(stream, seed, *key):
    """The generator without the epoch."""
    return GENERATOR(stream, seed, *key[1:])


def one_stream(stream, seed, *key):
    return GENERATOR("crop", seed, *key)


def other_box(order):
    def mixed(*args):
        params = MIX(*args)
        return params if params.box is None else dataclasses.replace(params, box=tuple(params.box[i] for i in order))

    return mixed


def with_alpha(alpha):
    def mixed(preset, *args):
        return MIX(dataclasses.replace(preset, mixup_alpha=alpha) if preset.mixup_alpha else preset, *args)

    return mixed


def smaller_crops(rng, height, width, scale, ratio):
    return CROP(rng, height, width, (0.05 if scale[0] == 0.08 else scale[0], scale[1]), ratio)


def cut_box(params):
    return params if params.box is None else dataclasses.replace(params, box=(0, 0, *params.box[2:]))


def operations_of(policy, change):
    """A policy whose operations are changed one by one."""
    return lambda *args, **given: tuple(change(*operation) for operation in policy(*args, **given))


def only_rotate(change):
    return lambda name, magnitude: (name, change(magnitude)) if name == "Rotate" else (name, magnitude)


CROPS, ERASES = "random_resized_crop_box", "random_erasing_box"
# Name -> the function that is replaced, by what, and where it has to be found as what.
DRAWN = {
    "crop scale .05 for .08": (CROPS, smaller_crops, f"{CROPS}: crop scale", "range"),
    "crop scale of samples": ("sample_params", with_preset(crop_scale=(0.05, 1.0)), "sample_params: crop scale", "range"),
    "uniform aspect ratios": (CROPS, uniform_ratio, f"{CROPS}: crop ratio", "uniform_for_log"),
    "aspect ratios from .7": ("sample_params", with_preset(crop_ratio=(0.7, 4 / 3)), "sample_params: crop ratio", "range"),
    "crops at the top left": (CROPS, top_left, f"{CROPS}: crop position", "position"),
    "crop axes exchanged": (CROPS, columns_first, f"{CROPS}: crop axes", "axes_swapped"),
    "fallback at the top": (CROPS, fallback_at_the_top, f"{CROPS}: crop fallback", "position"),
    "last row never cropped": (CROPS, one_row_short, f"{CROPS}: crop position", "position"),
    "flip .45 for .5": ("sample_params", with_preset(hflip_prob=0.45), "sample_params: flip", "probability"),
    "erased too often": ("sample_params", with_preset(random_erase_prob=0.55), "sample_params: erase probability", "probability"),
    "erased area from .05": (ERASES, lambda r, h, w, *_: ERASING(r, h, w, (0.05, 0.33)), f"{ERASES}: erase scale", "range"),
    "one stream for all": ("generator", one_stream, "generator", "not_independent"),
    "epochs alike": ("generator", forgetful, "generator", "not_independent"),
    "one magnitude bin off": (
        "rand_augment",
        lambda *args, magnitude=9: RAND(*args, magnitude=min(magnitude + 1, 30)),
        "rand_augment: magnitude",
        "magnitude",
    ),
    "a sign lost": ("rand_augment", operations_of(RAND, only_rotate(abs)), "rand_augment: Rotate", "sign"),
    "a shorter table": (
        "trivial_augment_wide",
        operations_of(TRIVIAL, only_rotate(lambda magnitude: magnitude * 134 / 135)),
        "trivial_augment_wide: Rotate",
        "magnitude",
    ),
    "another operation": (
        "auto_augment_imagenet",
        operations_of(IMAGENET, lambda name, magnitude: ("ShearY" if name == "ShearX" else name, magnitude)),
        "auto_augment_imagenet: ShearY",
        "other_operation",
    ),
    "an operation lost": (
        "trivial_augment_wide",
        operations_of(TRIVIAL, lambda name, magnitude: ("Equalize", 0.0) if name == "Posterize" else (name, magnitude)),
        "trivial_augment_wide: Posterize",
        "other_operation",
    ),
    "a magnitude too often": (
        "auto_augment_imagenet",
        operations_of(IMAGENET, lambda name, magnitude: (name, 6.0) if name == "Posterize" else (name, magnitude)),
        "auto_augment_imagenet: Posterize",
        "magnitude",
    ),
    "mixup of another parameter": ("mix_params", with_alpha(0.4), "mix_params: share", "range"),
    "cutmix axes exchanged": ("mix_params", other_box((1, 0, 3, 2)), "mix_params: box", "axes_swapped"),
    "cutmix at the corner": ("mix_params", lambda *args: cut_box(MIX(*args)), "mix_params: box", "distribution"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_parameters_from_another_distribution_are_found(name, context, monkeypatch):
    function, broken, *expected = DRAWN[name]
    monkeypatch.setattr(sampling, function, broken)
    found = explained(run(data_draws.run, context()))
    assert found is not None, "nothing is found"
    assert [found.location, found.kind] == expected, found.line()
    assert found.measured  # by a row of the step, which fails


@pytest.mark.parametrize("name", ["fallback at the top", "a sign lost", "one stream for all", "cutmix axes exchanged"])
def test_what_is_drawn_is_drawn_once_even_where_it_is_wrong(name, context, monkeypatch):
    function, broken, *expected = DRAWN[name]
    monkeypatch.setattr(sampling, function, broken)
    result = run(data_draws.run, context())

    def gone(*args, **kwargs):
        raise AssertionError("drawn again")

    for name in (
        "sample_params",
        "mix_params",
        "generator",
        CROPS,
        ERASES,
        *(name for name, _ in drawn_operations.POLICIES.values()),
    ):
        monkeypatch.setattr(sampling, name, gone)
    assert first_finding(context(), result) == tuple(expected)


def test_the_step_fails_by_another_distribution(context, monkeypatch):
    monkeypatch.setattr(sampling, CROPS, smaller_crops)
    assert {f"draws.{CROPS}.area", "draws.usual.crop.area"} <= set(failed(data_draws.run, context()))


# --- values, plans ---------------------------------------------------------------------------------------------------------


def defaults(kind, **changes):
    """A dataclass's constructor with other defaults."""
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple(changes.get(name, value) for name, value in zip(names, kind.__init__.__defaults__, strict=True))


@pytest.mark.parametrize(
    ("kind", "field", "value", "location"),
    [
        (presets.TrainPreset, "crop_scale", (0.05, 1.0), "TrainPreset.crop_scale"),
        (presets.TrainPreset, "ra_magnitude", 10, "TrainPreset.ra_magnitude"),
        (presets.EvalPreset, "mean", (0.406, 0.456, 0.485), "EvalPreset.mean"),
        (presets.EvalPreset, "resize_size", 255, "EvalPreset.resize_size"),
        (train_config.TrainConfig, "hflip_prob", 0.45, "TrainConfig().train_preset: TrainPreset.hflip_prob"),
        (train_config.TrainConfig, "alpha", 0.99, None),
    ],
)
def test_another_default_is_found(kind, field, value, location, context, monkeypatch):
    monkeypatch.setattr(kind.__init__, "__defaults__", defaults(kind, **{field: value}))
    if location is None:  # the recipes state it, so that the default does not matter
        assert failed(data_presets.run, context()) == []
        return
    assert f"presets.torchvision.{location}" in failed(data_presets.run, context())
    found = located(data_presets.run, context())
    assert (found.location, found.kind) == (location, "preset") and str(value) in found.hint


def test_another_policy_entry_or_recipe_is_found(context, monkeypatch, tmp_path):
    policy = list(sampling.IMAGENET_POLICY)
    policy[6] = (("Solarize", 0.6, 3), ("Equalize", 0.7, None))
    with monkeypatch.context() as patched:
        patched.setattr(data_presets, "IMAGENET_POLICY", tuple(policy))
        assert located(data_presets.run, context()).location == "IMAGENET_POLICY[6]"
    sound = context()
    (path, documented), *_ = sound.project.independent.recipes().items()
    other = tmp_path / path.name
    other.write_text(path.read_text().replace("lr_gamma: 0.973", "lr_gamma: 0.97"))
    recipes = dataclasses.replace(sound.project.independent, recipes=lambda: {other: documented})
    broken = context(dataclasses.replace(sound.project, independent=recipes))
    assert failed(data_presets.run, broken) == [f"presets.torchvision.{path.name}: lr_gamma"]
    found = located(data_presets.run, broken)
    assert (found.location, found.hint) == (f"{path.name}: lr_gamma", "0.97, expected 0.973")


def test_what_nobody_publishes_is_named_and_not_covered(context):
    result = run(data_presets.run, context())
    assert "TrainPreset.mixup_alpha" in result.evidence["defaults_without_outside_counterpart"]
    assert "mobilenet_v3_small_sgd120.yaml" in result.evidence["recipes_without_outside_counterpart"]
    assert [topic for topic in result.covers if "sgd120" in topic or "digits" in topic] == []


def plan_with(**methods):
    def apply(monkeypatch):
        for name, method in methods.items():
            monkeypatch.setattr(sampling.BatchPlan, name, method)

    return apply


def padded(plan):
    """Every rank makes as many batches as the first."""
    order = sampling.epoch_order(plan.size, plan.seed, plan.epoch, plan.shuffle)
    for number in range(-(-plan.size // (plan.batch_size * plan.world_size))):
        start = (number * plan.world_size + plan.rank) * plan.batch_size
        yield [sampling.SampleKey(plan.epoch, int(order[at % plan.size]), at) for at in range(start, start + plan.batch_size)]


def interleaved(plan):
    order = sampling.epoch_order(plan.size, plan.seed, plan.epoch, plan.shuffle)[plan.rank :: plan.world_size]
    for start in range(0, len(order), plan.batch_size):
        keys = [sampling.SampleKey(plan.epoch, int(n), start + i) for i, n in enumerate(order[start : start + plan.batch_size])]
        if len(keys) == plan.batch_size or not plan.drop_last:
            yield keys


def repeated_in_blocks(plan):
    """The repetitions of a picture on one rank, where torchvision deals them out."""
    contiguous = BATCHES(plan)
    if plan.repeats == 1:
        return contiguous
    own = BatchPlan(**(dataclasses.asdict(plan) | {"rank": 0, "world_size": 1}))
    return iter(list(BATCHES(own))[plan.rank :: plan.world_size])


def without_pad(plan):
    other = copy.copy(plan)
    other.pad = False
    return other


def same_draws(preset, seed, key, *size):
    return DRAW(preset, seed, key._replace(repeat=0), *size)


def order_with(change):
    return lambda monkeypatch: monkeypatch.setattr(sampling, "epoch_order", change)


def rolled(size, seed, epoch, shuffle=True):
    return np.roll(np.arange(size), seed * 7 + epoch) if shuffle else np.arange(size)


def first_epochs(size, seed, epoch, shuffle=True):
    return ORDER(size, seed, 0, shuffle)


def groups_of_the_batch(monkeypatch):
    monkeypatch.setattr(sampling, "mix_groups", lambda keys, size: [(at, slice(at, at + size)) for at in range(0, len(keys), size)])


PLANS = {
    "padded ranks": (plan_with(__iter__=padded), ("BatchPlan: shards", "shards_overlap")),
    "interleaved ranks": (plan_with(__iter__=interleaved), ("BatchPlan: order", "order")),
    "kept last batch of other sizes": (
        plan_with(place=lambda plan, n: PLACE(without_pad(plan), n)),
        ("BatchPlan: last batch", "batch_dropped"),
    ),
    "repetitions on one rank": (plan_with(__iter__=repeated_in_blocks), ("BatchPlan: repeats", "order")),
    "repetitions drawn once": (
        lambda monkeypatch: monkeypatch.setattr(sampling, "sample_params", same_draws),
        ("sample_params", ""),
    ),
    "epochs in one order": (order_with(first_epochs), ("epoch_order: epoch", "not_reshuffled")),
    "rolled, not shuffled": (order_with(rolled), ("epoch_order", "distribution")),
    "groups of the batch": (groups_of_the_batch, ("mix_groups", "")),
}


@pytest.mark.parametrize("name", PLANS)
def test_another_plan_is_found(name, context, monkeypatch):
    make, expected = PLANS[name]
    make(monkeypatch)
    assert failed(data_plan.run, context())
    found = data_plan.Planned().explain(data_plan.Planned().measure(context(), "port"), {})
    assert (found.location, found.kind) == expected, found.line()


# --- pictures --------------------------------------------------------------------------------------------------------------


def both(change):
    """The same change of ``apply_op`` in both packages."""

    def apply(monkeypatch):
        for package in (mobilenetv3_paddle, mobilenetv3_ref):
            module = package.data.transforms
            monkeypatch.setattr(module, "apply_op", change(module.apply_op))

    return apply


def steeper(apply_op):
    return lambda picture, name, magnitude: apply_op(
        picture, name, magnitude * 1.1 if name == "Rotate" and magnitude < -100 else magnitude
    )


def bgr(monkeypatch):
    pixels = image._pixels_cv2
    monkeypatch.setattr(image, "_pixels_cv2", lambda *args: np.ascontiguousarray(pixels(*args)[..., ::-1]))


def cut_transposed(monkeypatch):
    cut = image.crop_and_resize

    def turned(pixels, box, size):
        return cut(pixels, (min(box[1], pixels.shape[0] - 2), min(box[0], pixels.shape[1] - 2), box[3], box[2]), size)

    for package in (mobilenetv3_paddle, mobilenetv3_ref):
        monkeypatch.setattr(package.data.transforms, "crop_and_resize", turned)


def exchanged_sizes(monkeypatch):
    monkeypatch.setattr(samples, "sample_params", lambda preset, seed, key, height, width: DRAW(preset, seed, key, width, height))


def mixed_axes(monkeypatch):
    for package in (mobilenetv3_paddle, mobilenetv3_ref):
        original = package.data.mixing.mix_batch

        def turned(images, labels, params, classes, original=original):
            box = params.box and (params.box[1], params.box[0], params.box[3], params.box[2])
            return original(images, labels, dataclasses.replace(params, box=box), classes)

        monkeypatch.setattr(package.data.dataset, "mix_batch", turned)


def numbered_in_the_batch(monkeypatch):
    groups = samples.mix_groups
    monkeypatch.setattr(samples, "mix_groups", lambda keys, size: [(n, part) for n, (_, part) in enumerate(groups(keys, size))])


PICTURES = {
    "one magnitude of both": (both(steeper), data.operations, ("apply_op:Rotate", "operation")),
    "BGR with OpenCV": (bgr, data.with_opencv, ("decode", "channels_reversed")),
    "OpenCV's crop transposed": (cut_transposed, data.with_opencv, ("crop", None)),
    "height and width exchanged": (exchanged_sizes, data.training_pictures, ("ImageDataset", None)),
    "axes of cutmix": (mixed_axes, data.mixing, ("mix_batch:cutmix", "axes_swapped")),
    "groups numbered in the batch": (numbered_in_the_batch, data.mixing, ("collate:mixup", "batch")),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_that_both_sides_get_wrong_are_found(name, context, monkeypatch):
    make, check, expected = PICTURES[name]
    make(monkeypatch)
    rows = failed(check, context())
    assert rows and all("torchvision" in row or row.startswith("operations.") for row in rows), "both sides agree"
    found = located(check, context())
    assert found.location == expected[0] and expected[1] in (None, found.kind), found.line()
    assert "against torchvision" in found.measured


def test_the_whole_step_finds_a_shared_mistake(context, monkeypatch):
    bgr(monkeypatch)
    result = data.run(context(), {}, (data.with_opencv,))
    assert first_finding(context(), result) == ("decode", "channels_reversed")


def test_without_opencv_its_part_is_not_run(context, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    result = run(data.with_opencv, context())
    assert result.not_run == "the OpenCV backend: OpenCV is not installed"
    assert not result.quantities and "OpenCV backend" not in result.covers


def test_without_an_independent_part_nothing_of_it_is_covered(context):
    sound = context()
    alone = context(dataclasses.replace(sound.project, independent=None))
    for check in (data_presets.run, data_draws.run, data.training_pictures):
        assert run(check, alone).quantities == [] and run(check, alone).covers == []
    assert failed(data.with_opencv, alone) == [] and failed(data.mixing, alone) == []
    ours, theirs = (EveryOperation(one, []) for one in (alone, sound))
    assert isinstance(ours.picture, Image.Image) and ours.magnitudes.keys() == theirs.magnitudes.keys()


class ErasedByTheLoop(mobilenetv3_paddle.data.ImageDataset):
    """What is erased is taken for something that the loop does after its normalisation; it does not."""

    @property
    def ends_in_normalisation(self):
        return isinstance(self.preset, presets.EvalPreset) or not self.preset.mixes


def test_erasing_that_is_lost_as_soon_as_workers_are_used_is_found(context, monkeypatch):
    dataset = mobilenetv3_paddle.data.dataset.ImageDataset
    monkeypatch.setattr(dataset, "ends_in_normalisation", ErasedByTheLoop.ends_in_normalisation)
    rows = failed(data.training_pictures, context())
    assert rows and all("erasing" in row for row in rows)
