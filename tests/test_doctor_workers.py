"""check.workers: loader workers that draw the same augmentation are found, and other ways of drawing it are not."""

from __future__ import annotations

import numpy as np
import pytest

from alignment_doctor.findings import Verdict
from tests.test_doctor_check import BOTH, few, outcomes  # noqa: F401 (a fixture)

MANY = {"workers": 2}


def brightening(draw, fixed=False):
    """A dataset whose pictures are made brighter by a number that ``draw`` takes from the dataset.

    ``fixed``: nothing else of the augmentation changes with the epoch.
    """

    def of(module):
        class Brightened(module.ImageDataset):
            def __init__(self, *args):
                super().__init__(*args)
                self.generator = np.random.default_rng(self.seed)

            def __getitem__(self, key):
                image, label, shown = super().__getitem__(key._replace(epoch=0) if fixed else key)
                return image + float(draw(self)), label, shown

        return {"ImageDataset": Brightened}

    return of


def own(dataset):
    return dataset.generator.uniform(0, 0.1)


def of_numpy(_dataset):
    return np.random.uniform(0, 0.1)


def none(_dataset):
    return 0.0


@pytest.mark.parametrize("framework", BOTH)
def test_workers_with_copies_of_one_generator_are_found(few, framework):  # noqa: F811
    told = outcomes(framework, changes=brightening(own, fixed=True), **MANY)
    assert told["check.workers"].verdict is Verdict.FOUND and told["check.workers"].where == ("training pictures",)
    assert told["check.augmentation"].verdict is Verdict.NONE, "in one process the generator goes on"


@pytest.mark.parametrize("framework", BOTH)
def test_our_own_pictures_and_generators_that_the_framework_seeds_in_each_worker_are_no_problem(few, framework):  # noqa: F811
    said = outcomes(framework, **MANY, mixup_alpha=0.2)["check.workers"]
    assert said.verdict is Verdict.NONE and said.measured == "16 pictures of two workers differ"
    assert outcomes(framework, changes=brightening(of_numpy, fixed=True), **MANY)["check.workers"].verdict is Verdict.NONE


def test_what_no_two_workers_draw_is_not_asked(few):  # noqa: F811
    for settings in ({"workers": 1}, {}):
        said = outcomes("ref", **settings)["check.workers"]
        assert said.verdict is Verdict.NOT_APPLICABLE and "no two workers make pictures" in said.measured
    told = outcomes("ref", changes=brightening(none, fixed=True), **MANY)
    assert told["check.workers"].verdict is Verdict.NOT_APPLICABLE and "within one process, too" in told["check.workers"].measured
    assert told["check.augmentation"].verdict is Verdict.FOUND
