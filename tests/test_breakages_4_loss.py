"""A check that cannot fail is a defect: faults of what step 4 compares, each of which must fail the step and be found."""

from __future__ import annotations

import pytest

from alignment.steps import loss
from mobilenetv3_paddle.loss import CrossEntropyLoss
from projects.mobilenetv3.faults.loss import loss_of
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of, first_finding, found_where_it_is

plain = CrossEntropyLoss.forward


def over_ignored(self, x, y):
    return plain(self, x, y) * ((y != self.ignore_index).astype(x.dtype).mean() if y.ndim == 1 else 1.0)


def over_others(self, x, y):
    return CrossEntropyLoss(self.label_smoothing * x.shape[1] / (x.shape[1] - 1), self.ignore_index)(x, y)


OTHERS = {
    "soft labels hardened": (lambda self, x, y: plain(self, x, y.argmax(1) if y.ndim == 2 else y), "soft_as_hard"),
    "mean over all samples, ignored ones too": (over_ignored, "mean_over_ignored"),
    "smoothed over the other classes only": (over_others, "smoothing_over_others"),
    "always 0": (lambda self, x, y: (x * 0).sum(), ""),
    "no gradient": (lambda self, x, y: plain(self, x.detach(), y) + (x * 0).sum(), "gradient_scaled"),
}


def test_step_4_passes(context):
    assert loss.run(context()).passed


@pytest.mark.parametrize("name", faults_of(4))
def test_step_4_fails(context, name):
    found_where_it_is(name, context, loss.run)


@pytest.mark.parametrize("name", OTHERS)
def test_step_4_fails_too(context, name):
    function, kind = OTHERS[name]
    broken = context(loss_of(PROJECT, function))
    assert first_finding(broken, loss.run(broken)) == ("CrossEntropyLoss", kind)
