"""A check that cannot fail is a defect: faults of what step 4 compares, each of which must fail the step and be found."""

from __future__ import annotations

import pytest

from alignment.steps import guarded, loss
from mobilenetv3_paddle.loss import CrossEntropyLoss
from projects.mobilenetv3.faults.loss import loss_of
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of, first_finding, found_where_it_is

plain = CrossEntropyLoss.forward


def over_ignored(self, x, y):
    return plain(self, x, y) * ((y != self.ignore_index).astype(x.dtype).mean() if y.ndim == 1 else 1.0)


def over_others(self, x, y):
    return CrossEntropyLoss(self.label_smoothing * x.shape[1] / (x.shape[1] - 1), self.ignore_index)(x, y)


def normaliser_detached(self, x, y):
    loss = plain(self, x, y)
    graph = (x.detach().logsumexp(1) - x.logsumexp(1)) * ((y != self.ignore_index) if y.ndim == 1 else y.sum(1)).astype(x.dtype)
    kept = (y != self.ignore_index).astype(x.dtype).sum() if y.ndim == 1 else x.shape[0]
    return loss + graph.sum() / kept


class OtherDefault(CrossEntropyLoss):
    def __init__(self, label_smoothing=0.0, ignore_index=0):
        super().__init__(label_smoothing, ignore_index)


OTHERS = {
    "0.9 times": (lambda self, x, y: plain(self, x, y) * 0.9, "scaled"),
    "no gradient of the softmax's sum": (normaliser_detached, "detached"),
    "soft labels hardened": (lambda self, x, y: plain(self, x, y.argmax(1) if y.ndim == 2 else y), "soft_as_hard"),
    "mean over all samples, ignored ones too": (over_ignored, "mean_over_ignored"),
    "smoothed over the other classes only": (over_others, "smoothing_over_others"),
    "one smoothing alone": (
        lambda self, x, y: CrossEntropyLoss(0.1 * (self.label_smoothing > 0), self.ignore_index)(x, y),
        "smoothing",
    ),
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


def test_another_default_of_an_argument(context):
    broken = context(PROJECT.with_port("loss", CrossEntropyLoss=OtherDefault))
    result = guarded(4, lambda: loss.run(broken))  # -100 is then a class like any other, which Paddle does not take
    assert first_finding(broken, result) == ("CrossEntropyLoss", "ignore_index")
