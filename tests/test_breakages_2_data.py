"""A check that cannot fail is a defect: faults of what step 2 compares, each of which must fail the step and be found."""

from __future__ import annotations

import contextlib
import dataclasses
import functools

import numpy as np
import pytest

import mobilenetv3_paddle.data.transforms
from alignment.comparisons import guarded
from alignment.comparisons.data import data
from alignment.comparisons.data import errors as data_errors
from alignment.comparisons.data.batches import Batches
from alignment.comparisons.data.eval_transform import Decoding, EvalTransform
from alignment.comparisons.data.evaluation import Evaluation
from alignment.comparisons.data.loading import batches, first_pictures
from alignment.comparisons.data.operations import EveryOperation
from alignment.comparisons.data.samples import SampleCalls
from alignment.comparisons.data.train_transform import TrainTransform
from alignment.comparisons.explain import locate
from alignment.faults import injected, replaced
from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.data import ImageDataset, build_loader
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.project import PROJECT
from tests.breaking import Once, faults_of, first_finding, found_where_it_is

FEW_POLICIES = {name: data.POLICIES[name] for name in ("autoaugment", "randaugment", "erasing", "mixup")}


def changed_pixels(change):
    """The project whose port's dataset changes every sample's pixels."""

    class Changed(ImageDataset):
        def __getitem__(self, key):
            pixels, label, key = super().__getitem__(key)
            return change(pixels).astype(np.float32), label, key

    return PROJECT.with_port("data", ImageDataset=Changed)


def reversed_order(dataset, plan, num_workers=0, mix_group=None):
    return [[tensor.flip([0]) for tensor in batch] for batch in build_loader(dataset, plan, num_workers, mix_group)]


OTHERS = {
    "one pixel of one picture": (
        lambda: changed_pixels(lambda x: x + 1e-6 * (np.arange(x.size).reshape(x.shape) == 77)),
        ("ImageDataset", "few_elements"),
    ),
    "mirrored": (lambda: changed_pixels(lambda x: x[:, :, ::-1].copy()), ("ImageDataset", "mirrored")),
    "BGR after normalising": (lambda: changed_pixels(lambda x: x[::-1].copy()), ("ImageDataset", "channels_reversed")),
    "upside down": (lambda: changed_pixels(lambda x: x[:, ::-1].copy()), ("ImageDataset", "upside_down")),
    "another order in the batch": (lambda: PROJECT.with_port("data", build_loader=reversed_order), ("order", "reversed")),
}


ONCE = {kind: Once(kind) for kind in (Batches, Evaluation, Decoding, EvalTransform, TrainTransform, EveryOperation, SampleCalls)}


@pytest.fixture(scope="module")
def context(same_models):
    return same_models


@pytest.fixture(autouse=True)
def reference_measured_once(monkeypatch):
    """Every fault is the port's: what the reference loads is the same for all of them."""
    for kind, once in ONCE.items():
        monkeypatch.setattr(kind, "measure", functools.partialmethod(once))


def test_step_2_passes(context):
    assert data.run(context(), FEW_POLICIES, ()).passed


@pytest.mark.parametrize("name", faults_of(2))
def test_step_2_fails(context, name):
    found_where_it_is(name, context, lambda broken: data.run(broken, FEW_POLICIES, ()))


@pytest.mark.parametrize("name", ["crop_rounded_down", "labels_off_by_one", "not_shuffled", "mixup_share_swapped"])
def test_what_failed_is_explained_from_what_was_measured(context, name, monkeypatch):
    """The port's data part is not asked again: a side is measured once."""
    with injected(PROJECT, name) as project:
        broken = context(project)
        result = guarded(2, lambda: data.run(broken, {"mixup": FEW_POLICIES["mixup"]}, ()))
        asked = []
        for part in ("ImageDataset", "build_loader", "eval_transform", "train_transform"):
            monkeypatch.setattr(broken.port.data, part, lambda *given, part=part, **more: asked.append(part))
        finding = locate(broken, [result], with_table=False).first
    assert result.failed and (finding.location, finding.kind) == (FAULTS[name].location, FAULTS[name].hint) and asked == []


@pytest.mark.parametrize("name", OTHERS)
def test_step_2_fails_too(context, name):
    make, expected = OTHERS[name]
    broken = context(make())
    result = data.run(broken, {"autoaugment": FEW_POLICIES["autoaugment"]}, ())
    assert first_finding(broken, result) == expected


def test_rotation_with_another_interpolation_is_found(context):
    operations = mobilenetv3_paddle.data.transforms._OPS
    with replaced(operations, "Rotate", lambda image, degrees: image.rotate(degrees)):
        result = data.run(context(), {"autoaugment": FEW_POLICIES["autoaugment"]}, ())
        assert first_finding(context(), result)[0] == "apply_op:Rotate"


class SkipsWhatItCannotRead(ImageDataset):
    """Another picture in the place of one that cannot be read, as some loaders in circulation do."""

    def __getitem__(self, key):
        try:
            return super().__getitem__(key)
        except UserError:
            return super().__getitem__(key._replace(sample=0))


def without_the_path(dataset, plan, num_workers=0, mix_group=None):
    try:
        yield from build_loader(dataset, plan, num_workers, mix_group)
    except UserError:
        raise RuntimeError("blocking queue is killed") from None


def ends_early(dataset, plan, num_workers=0, mix_group=None):
    with contextlib.suppress(UserError, RuntimeError):
        yield from build_loader(dataset, plan, num_workers, mix_group)


class OneView(ImageDataset):
    def eval_transform(self, image, preset):
        return super().eval_transform(image, dataclasses.replace(preset, tta="none"))


@pytest.mark.parametrize(
    ("names", "row"),
    [
        ({"ImageDataset": SkipsWhatItCannotRead}, "errors.picture"),
        ({"build_loader": without_the_path}, "errors.picture"),
        ({"build_loader": ends_early}, "errors.picture"),
    ],
)
def test_a_loader_that_hides_a_damaged_picture_fails(context, names, row):
    broken = context(PROJECT.with_port("data", **names))
    result = data.run(broken, {}, (data_errors.run,))
    assert next(q.name for q in result.quantities if not q.passed) == row
    assert first_finding(broken, result) == ("build_loader", "raises")


def test_views_that_are_not_made_fail(context):
    result = data.run(context(PROJECT.with_port("data", ImageDataset=OneView)), {}, ())
    assert [q.name for q in result.quantities if not q.passed][:1] == ["eval.views.flip.images"]


def test_an_error_in_a_worker_ends_the_loop(context):
    """Labels beyond the classes make mixing raise in Paddle's loader; the loop gets the error and does not wait for ever."""
    with injected(PROJECT, "labels_off_by_one") as project:
        broken = context(project)
        index = first_pictures(broken.material.index("train"))
        with pytest.raises(RuntimeError, match="in a loader's worker: IndexError"):
            list(batches(broken.port, broken, index, data.POLICIES["mixup"], 0))
