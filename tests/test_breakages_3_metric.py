"""A check that cannot fail is a defect: breakages of what step 3 compares, each of which must fail the step."""

from __future__ import annotations

import dataclasses

import paddle
import pytest

from alignment.sides import PaddleSide
from alignment.steps import metric
from alignment.steps.context import Context
from mobilenetv3_paddle.metric import TopKAccuracy, top_k_correct
from tests.conftest import SMALL


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
