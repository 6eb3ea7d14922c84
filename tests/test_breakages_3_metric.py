"""A check that cannot fail is a defect: faults of what step 3 compares, each of which must fail the step and be found."""

from __future__ import annotations

import dataclasses

import paddle
import pytest

from alignment.comparisons import guarded
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.metric import step as metric
from alignment.faults import injected
from mobilenetv3_paddle.metric import TopKAccuracy, top_k_correct
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.faults.metric import correct_by, earlier, rank_by
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of, first_finding, found_where_it_is


class ForgetsTheShortBatch(TopKAccuracy):
    def update(self, logits, labels, mask=None):
        self.usual = getattr(self, "usual", len(labels))
        if len(labels) == self.usual:
            super().update(logits, labels, mask)


def all_alike(make):
    return correct_by(PROJECT, lambda logits, labels, ks: make(top_k_correct(logits, labels, ks)))


def shifted(logits, labels, ks):
    return top_k_correct(logits, (labels + 1) % logits.shape[1], ks)


def right_beside_nan(logits, labels, ks):
    """Only a row that is NaN throughout is wrong."""
    filled = paddle.where(paddle.isnan(logits), paddle.full_like(logits, -float("inf")), logits)
    return top_k_correct(filled, labels, ks) & ~paddle.isnan(logits).all(axis=1, keepdim=True)


class NoShareOfOne(TopKAccuracy):
    def compute(self):
        if self.count == 1:
            raise ValueError("accuracy of no samples")
        return super().compute()


class NothingIsZero(TopKAccuracy):
    def compute(self):
        return super().compute() if self.count else dict.fromkeys(("top1", "top5"), 0.0)


class OtherDefault(TopKAccuracy):
    def __init__(self, ks=(1, 4)):
        super().__init__(ks)


OTHERS = {
    "one picture raises": (lambda: PROJECT.with_port("metric", TopKAccuracy=NoShareOfOne), ("TopKAccuracy.compute", "raises")),
    "no picture is 0": (lambda: PROJECT.with_port("metric", TopKAccuracy=NothingIsZero), ("TopKAccuracy.compute", "raises")),
    "another default": (lambda: PROJECT.with_port("metric", TopKAccuracy=OtherDefault), ("TopKAccuracy.__init__", "count")),
    "one NaN counts as right": (lambda: correct_by(PROJECT, right_beside_nan), ("top_k_correct", "nan_right")),
    "always 0": (
        lambda: correct_by(PROJECT, lambda x, y, ks: paddle.zeros_like(top_k_correct(x, y, ks))),
        ("top_k_correct", "always_wrong"),
    ),
    "always 1": (
        lambda: correct_by(PROJECT, lambda x, y, ks: paddle.ones_like(top_k_correct(x, y, ks))),
        ("top_k_correct", "always_right"),
    ),
    "ties count as wrong": (
        lambda: rank_by(PROJECT, lambda x, own, y: (x >= own) & (paddle.arange(x.shape[1]) != y.unsqueeze(1))),
        ("top_k_correct", "ties_wrong"),
    ),
    "smallest logits": (
        lambda: rank_by(PROJECT, lambda x, own, y: (x < own) | ((x == own) & earlier(x, y))),
        ("top_k_correct", "smallest"),
    ),
    "labels off by one": (lambda: correct_by(PROJECT, shifted), ("top_k_correct", "label_off_by_one")),
    "short last batch forgotten": (
        lambda: PROJECT.with_port("metric", TopKAccuracy=ForgetsTheShortBatch),
        ("TopKAccuracy.update", "last_batch_forgotten"),
    ),
}


@pytest.fixture(scope="module")
def metric_context():
    """The full small model: its calibrated weights name some validation pictures rightly and others not."""
    return lambda project=PROJECT: Context(project)


def test_step_3_passes(metric_context):
    assert metric.run(metric_context()).passed


@pytest.mark.parametrize("name", faults_of(3))
def test_step_3_fails(metric_context, name):
    found_where_it_is(name, metric_context, metric.run)


@pytest.mark.parametrize("name", OTHERS)
def test_step_3_fails_too(metric_context, name):
    make, expected = OTHERS[name]
    broken = metric_context(make())
    result = metric.run(broken)
    assert first_finding(broken, result) == expected


def test_step_3_refuses_accuracies_that_show_nothing(metric_context, small_state):
    blind = {k: v * 0 if k.startswith("classifier.3") else v for k, v in small_state.items()}
    blind["classifier.3.bias"][500] = 1.0
    result = metric.run(dataclasses.replace(metric_context(), given_state=blind, options={"width_mult": 0.5}))
    assert not result.passed and any("top1" in problem for problem in result.problems)


@pytest.mark.parametrize("name", faults_of(3)[:3])
def test_what_failed_is_explained_from_what_was_measured(metric_context, name, monkeypatch):
    """The port's metric is not asked again: a side is measured once."""
    with injected(PROJECT, name) as project:
        broken = metric_context(project)
        result = metric.run(broken)
        asked = []
        for part in ("top_k_correct", "TopKAccuracy"):
            monkeypatch.setattr(broken.port.metric, part, lambda *given, part=part: asked.append(part))
        finding = locate(broken, [result], with_table=False).first
    assert result.failed and finding.location in FAULTS[name].location and asked == []


def test_a_metric_that_raises_is_found_at_its_line(metric_context):
    def raises(logits, labels, ks):
        raise KeyError("no such class")

    broken = metric_context(PROJECT.with_port("metric", top_k_correct=raises))
    result = guarded(3, lambda: metric.run(broken))
    finding = locate(broken, [result], with_table=False).first
    assert finding.kind == "raises" and "test_breakages_3_metric.py" in finding.location and "in test_a_metric" in finding.location
