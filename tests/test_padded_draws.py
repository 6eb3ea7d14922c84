"""Step 2 on crops out of a padded picture: where they lie, and what is beyond the picture's border."""

import types

import numpy as np
import pytest
from PIL import Image

import mobilenetv3_paddle.data.transforms as ours
from alignment.comparisons.comparison import compare
from alignment.comparisons.data import data
from alignment.comparisons.data.drawn_padding import DrawnPadding
from alignment.comparisons.result import StepResult
from alignment.faults import replaced
from mobilenetv3_common import sampling
from projects.mobilenetv3 import torchvision_draws
from tests.breaking import first_finding

PLACES = {
    "one short": (lambda rng, p: (int(rng.integers(2 * p)) - p, int(rng.integers(2 * p)) - p), "range", "rows -3 to 2"),
    "not outside": (lambda rng, p: (int(rng.integers(p + 1)), int(rng.integers(p + 1))), "range", "rows 0 to 3"),
    "one number for both": (lambda rng, p: (int(rng.integers(2 * p + 1)) - p,) * 2, "position", "equally likely"),
    "more often in the middle": (
        lambda rng, p: tuple(int(np.clip(round(rng.normal(0, p / 2)), -p, p)) for _ in range(2)),
        "position",
        "equally likely",
    ),
}


def drawn(context, draws=torchvision_draws):
    result = StepResult(2, "data")
    return compare(context, result, DrawnPadding(draws)), result


def test_the_right_places_pass_and_a_part_without_them_is_not_compared(context):
    compared, result = drawn(context())
    assert result.passed and len(result.quantities) == 2 and compared.explain() is None
    compared, result = drawn(context(), types.SimpleNamespace())
    assert result.quantities == [] and compared.explain() is None


@pytest.mark.parametrize("name", PLACES)
def test_other_places_are_found(context, name, monkeypatch):
    place, kind, words = PLACES[name]
    monkeypatch.setattr(sampling, "padded_crop_box", lambda rng, h, w, p: (*place(rng, p), h, w))
    compared, result = drawn(context())
    finding = compared.explain()
    assert result.failed and (finding.location, finding.kind) == ("padded_crop_box", kind) and words in finding.hint


def test_a_crop_of_another_size_is_found(context, monkeypatch):
    right = sampling.padded_crop_box
    monkeypatch.setattr(sampling, "padded_crop_box", lambda rng, h, w, p: (*right(rng, h, w, p)[:2], w, h))
    finding = drawn(context())[0].explain()
    assert finding.kind == "box" and "a crop of (32, 24) pixels, expected (24, 32)" in finding.measured


def padded(mode, **given):
    def crop(image, top, left, height, width):
        size = 64
        pixels = np.pad(np.asarray(image), ((size, size), (size, size), (0, 0)), mode, **given)
        return Image.fromarray(pixels[top + size : top + size + height, left + size : left + size + width])

    return crop


def moved_inside(image, top, left, height, width):
    rows, columns = image.height - height, image.width - width
    top, left = min(max(top, 0), rows), min(max(left, 0), columns)
    return image.crop((left, top, left + width, top + height))


BORDERS = {
    "reflection": (padded("reflect"), "padding", "there is its reflection, expected black"),
    "edge": (padded("edge"), "padding", "there is its edge repeated, expected black"),
    "grey": (padded("constant", constant_values=128), "padding", "there is grey of level 128, expected black"),
    "moved inside": (moved_inside, "box", "moved into it"),
}


def step(context):
    return data.run(context, {}, [data.padded_crops])


def test_black_borders_pass(context):
    result = step(context())
    assert result.passed and {q.name for q in result.quantities} >= {
        "train.padded.reference.images",
        "train.padded.torchvision.images",
    }
    with replaced(ours.F, "crop", padded("constant")):
        assert step(context()).passed


@pytest.mark.parametrize("name", BORDERS)
def test_another_border_is_found_and_named(context, name):
    crop, kind, words = BORDERS[name]
    with replaced(ours.F, "crop", crop):
        broken = context()
        result = step(broken)
        found = [compared.explain() for compared in result.compared]
    assert result.failed and first_finding(broken, result) == ("crop", kind) and any(words in one.hint for one in found)
