"""Every hypothesis about a picture, a box, an operation or a mixed group names its mistake, on plain arrays."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from alignment.localize.hypotheses import augmentations, mixing, picture_boxes, pictures
from alignment.localize.hypotheses.hypothesis import Observed
from mobilenetv3_common.sampling import MixParams, SampleParams

RNG = np.random.default_rng(0)
PAIR = [RNG.random((3, 20, 20)) for _ in range(2)]
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def hint(family, cases):
    """Kind and words, and that a sound port is not accused."""
    sound = [dataclasses.replace(one, ours=one.right) for one in cases]
    if family is not pictures.PIXELS:
        assert pictures.in_every_case(family, sound) == ("", "")
    return pictures.in_every_case(family, cases)


SEEN = {
    "shape": lambda x: x[:, 1:],
    "not_finite": lambda x: np.where(x > 0.99, np.nan, x),
    "few_elements": lambda x: x + (np.arange(x.size).reshape(x.shape) == 7),
    "affine": lambda x: 2 * x + 1,
}


@pytest.mark.parametrize("name", SEEN)
def test_what_is_seen_of_two_pictures_is_named(name):
    kind, words = hint(pictures.PIXELS, [pictures.pixels(SEEN[name](right), right) for right in PAIR])
    assert kind == name and words


@pytest.mark.parametrize("name", [name for name in pictures.PIXELS.makers if name not in SEEN])
def test_what_moves_all_pixels_is_named(name):
    (one,) = pictures.PIXELS.makers[name](PAIR)
    cases = [pictures.pixels(one.predict((np.zeros_like(right), right)), right) for right in PAIR]
    assert hint(pictures.PIXELS, cases) == one.hint


def normalised(line):
    raw = [np.floor(255 * picture) for picture in PAIR]
    made = lambda x, a, b: np.asarray(a)[:, None, None] * x + np.asarray(b)[:, None, None]  # noqa: E731
    given = [pictures.Levels(x, MEAN, STD) for x in raw]
    return [Observed(g, made(g.raw, *line), made(g.raw, 1 / (255 * STD), -MEAN / STD), 1e-5) for g in given]


FITTED = {"other_mean_or_std", "reversed_channels"}
LINES = [name for name in pictures.NORMALISATION.makers if name not in FITTED]


@pytest.mark.parametrize("name", LINES)
def test_another_normalisation_is_named(name):
    (one,) = pictures.NORMALISATION.makers[name](normalised((STD, MEAN)))
    cases = [dataclasses.replace(case, ours=one.predict(case.given)) for case in normalised((STD, MEAN))]
    assert hint(pictures.NORMALISATION, cases) == one.hint


@pytest.mark.parametrize(
    ("mean", "std", "kind"),
    [(MEAN + 0.1, STD, "wrong_mean"), (MEAN, STD + 0.1, "wrong_std"), (MEAN + 0.1, STD + 0.1, "wrong_mean_std")],
)
def test_a_mean_and_a_standard_deviation_of_no_name_are_told(mean, std, kind):
    assert hint(pictures.NORMALISATION, normalised((1 / (255 * std), -mean / std)))[0] == kind


def test_channels_that_are_reversed_before_normalising_are_named():
    turned = normalised((1 / (255 * STD), -MEAN / STD))
    line = lambda raw: (raw[::-1] / 255 - MEAN[:, None, None]) / STD[:, None, None]  # noqa: E731
    cases = [dataclasses.replace(case, ours=line(case.given.raw)) for case in turned]
    assert hint(pictures.NORMALISATION, cases)[0] == "channels_reversed"


@pytest.mark.parametrize(
    ("corners", "kind"),
    [([((1, 2), (1, 1)), ((5, 5), (6, 6))], "crop_off_by_one"), ([((3, 9), (9, 3))], "axes_swapped"), ([((0, 0), (9, 3))], "crop")],
)
def test_where_crops_begin_is_told(corners, kind):
    assert picture_boxes.window_hint(corners)[0] == kind


def cut(picture):
    return lambda box: np.array([picture[:, box[0] : box[0] + box[2], box[1] : box[1] + box[3]].sum(), *box], float)


def boxed():
    given = [picture_boxes.Boxed(box, cut(PAIR[0]), (20, 20)) for box in ((5, 2, 9, 8), (6, 3, 11, 14))]
    return [Observed(one, one.made(one.box), one.made(one.box), 1e-9) for one in given]


@pytest.mark.parametrize("name", picture_boxes.BOXES.makers)
def test_another_box_is_named(name):
    one = next(iter(picture_boxes.BOXES.makers[name]([dataclasses.replace(case, ours=case.right + 1) for case in boxed()])))
    made = [dataclasses.replace(case, ours=one.predict(case.given)) for case in boxed()]
    cases = [case for case in made if case.ours is not None]
    assert not cases or hint(picture_boxes.BOXES, cases) == one.hint


def resized():
    images = [Image.fromarray(RNG.integers(0, 256, (40, 50, 3), dtype=np.uint8)) for _ in range(2)]
    finish = lambda image: np.asarray(image.crop((0, 0, 15, 15)), float)  # noqa: E731
    sizes = {"the right size": (20, 16), "a square": (18, 18)}
    given = [picture_boxes.Resized(image, sizes, finish) for image in images]
    return [Observed(g, None, finish(picture_boxes.FILTERS["bilinear"](g.picture, (20, 16))), 1e-9) for g in given]


@pytest.mark.parametrize("name", picture_boxes.RESIZING.makers)
def test_another_filter_or_size_is_named(name):
    one = list(picture_boxes.RESIZING.makers[name](resized()))[-1]
    assert hint(picture_boxes.RESIZING, [dataclasses.replace(c, ours=one.predict(c.given)) for c in resized()]) == one.hint


def operated(name, change):
    """What an operation of a made-up reference gives for some magnitudes, and the port's."""
    code = {operation: number for number, (operation, _) in enumerate(augmentations.usual_operations())}
    made = lambda other, size: np.array([code[other], 0 if other == "Identity" else size, 1.0])  # noqa: E731
    given = [augmentations.Operated(name, magnitude, made) for magnitude in (17.0, -17.0, 8.5)]
    return [Observed(g, np.asarray(change(g), float), made(name, g.magnitude), 1e-9) for g in given]


OPERATED = {
    "does_nothing": lambda given: given.made("Identity", 0.0),
    "sign": lambda given: given.made(given.name, -given.magnitude),
    "other_operation": lambda given: given.made("ShearX", given.magnitude),
    "magnitude": lambda given: given.made(given.name, given.magnitude / 2),
}


@pytest.mark.parametrize("kind", OPERATED)
def test_another_operation_is_named(kind):
    assert hint(augmentations.OPERATION, operated("Rotate", OPERATED[kind]))[0] == kind


def test_a_hypothesis_that_holds_for_one_magnitude_of_three_is_not_named():
    once = lambda given: given.made(given.name, given.magnitude / (2 if given.magnitude > 10 else 3))  # noqa: E731
    assert hint(augmentations.OPERATION, operated("Rotate", once)) == ("", "")


def applied():
    params = SampleParams((0, 0, 20, 20), True, (("Rotate", 17.0), ("Posterize", 4.0)), (2, 3, 4, 5))
    code = {"Rotate": 2.0, "Posterize": 3.0}

    def made(params):
        picture = PAIR[0][:, :, ::-1].copy() if params.flip else PAIR[0].copy()
        for name, _ in params.ops:
            picture = np.roll(picture, int(code[name]), 2) * code[name] + code[name]
        if params.erase:
            picture[:, 2:6, 3:8] = 0
        return picture

    return [Observed(augmentations.Applied(params, made), None, made(params), 1e-9)]


@pytest.mark.parametrize(
    ("stage", "name"), [(stage, name) for stage, family in augmentations.APPLIED.items() for name in family.makers]
)
def test_what_is_not_applied_or_in_another_order_is_named(stage, name):
    (one,) = augmentations.APPLIED[stage].makers[name](())
    cases = [dataclasses.replace(case, ours=one.predict(case.given)) for case in applied()]
    assert hint(augmentations.APPLIED[stage], cases) == one.hint


@pytest.mark.parametrize("other", ["seed 1, expected those of 0", "epoch 0, expected those of 1", *augmentations.CHANGED])
def test_other_random_parameters_are_named(other):
    others = [
        {name: RNG.random(9) for name in ("seed 1, expected those of 0", "epoch 0, expected those of 1", *augmentations.CHANGED)}
    ]
    kind, words = hint(augmentations.SAMPLED, [Observed(one, one[other], np.zeros(9), 1e-9) for one in others])
    assert kind and words.endswith(other)


def groups(params, change):
    images, labels = RNG.random((6, 3, 20, 32)), np.eye(10)[:6]
    found = []
    for whole in (True, False):
        given = [mixing.MixedGroup(images, labels, one, whole, images) for one in params]
        made = [change(one) if whole else change(one)[: images.size] for one in given]
        given = [g._replace(ours=m[: images.size].reshape(images.shape)) for g, m in zip(given, made, strict=True)]
        found.append([Observed(g, m, g.otherwise()) for g, m in zip(given, made, strict=True)])
    return found[0]


MIXUP = (MixParams("mixup", 0.3), MixParams("mixup", 0.8))
CUTMIX = (MixParams("cutmix", 0.85, (2, 11, 7, 13)), MixParams("cutmix", 0.7, (0, 15, 12, 7)))
MIXED = {
    "a sample's own share is 0.7000, expected 0.3000 = 1 - it": (MIXUP, lambda g: g.otherwise(1 - g.params.lam)),
    "a sample's own share is 0.1500, expected 0.3000": (MIXUP, lambda g: g.otherwise(g.params.lam / 2)),
    "mixed with the next sample, expected the sample before it": (
        MIXUP,
        lambda g: g.otherwise(partner=mixing.PARTNERS["the next sample"]),
    ),
    "the batch is not mixed": (MIXUP, lambda g: g.flat(g.images, g.labels)),
    "rows and columns of the box are exchanged": (CUTMIX, lambda g: g.otherwise(box=tuple(g.params.box[i] for i in (1, 0, 3, 2)))),
    "height and width of the box are exchanged": (CUTMIX, lambda g: g.otherwise(box=tuple(g.params.box[i] for i in (0, 1, 3, 2)))),
    "top and left of the box are exchanged": (CUTMIX, lambda g: g.otherwise(box=tuple(g.params.box[i] for i in (1, 0, 2, 3)))),
    "the box holds the sample itself and the rest the sample before it, expected the other way round": (
        CUTMIX,
        lambda g: g.flat(
            g.pasted(np.roll(g.images, 1, 0), g.images, g.params.box),
            g.params.lam * g.labels + (1 - g.params.lam) * np.roll(g.labels, 1, 0),
        ),
    ),
}


@pytest.mark.parametrize("words", MIXED)
def test_a_group_that_is_mixed_otherwise_is_named(words):
    assert hint(mixing.MIXING, groups(*MIXED[words]))[1] == words
