"""A check that cannot fail is a defect: faults of what step 4 compares, each of which must fail the step and be found."""

from __future__ import annotations

import functools

import paddle
import pytest

from alignment.comparisons import guarded
from alignment.comparisons.comparison import explained
from alignment.comparisons.loss import cases
from alignment.comparisons.loss import step as loss
from alignment.comparisons.loss.losses import ModelLoss
from mobilenetv3_paddle.loss import CrossEntropyLoss, DistillationLoss
from mobilenetv3_paddle.loss.distillation import divergence
from projects.mobilenetv3.faults.loss import loss_of
from projects.mobilenetv3.project import PROJECT
from tests.breaking import Once, faults_of, first_finding, found_where_it_is

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


def maximum_of_the_batch(self, x, y):
    """Log-sum-exp with one shift for all samples: that of a sample far below the others is the logarithm of 0."""
    shifted = x - x.detach().max()
    if y.ndim == 1 and self.label_smoothing == 0.0 and self.weight is None and bool((y >= 0).all()):
        return (paddle.exp(shifted).sum(1).log() - paddle.take_along_axis(shifted, y.unsqueeze(1), 1).squeeze(1)).mean()
    return plain(self, x, y)


OTHERS = {
    "maximum over the batch": (maximum_of_the_batch, ""),
    "0.9 times": (lambda self, x, y: plain(self, x, y) * 0.9, "scaled"),
    "no gradient of the softmax's sum": (normaliser_detached, "detached"),
    "soft labels hardened": (lambda self, x, y: plain(self, x, y.argmax(1) if y.ndim == 2 else y), "soft_as_hard"),
    "mean over all samples, ignored ones too": (over_ignored, "mean_over_ignored"),
    "smoothed over the other classes only": (over_others, "smoothing_over_others"),
    "one smoothing alone": (
        lambda self, x, y: CrossEntropyLoss(0.1 * (self.label_smoothing > 0), self.ignore_index)(x, y),
        "smoothing",
    ),
    "0 where all are ignored": (
        lambda self, x, y: (x * 0).sum() if y.ndim == 1 and bool((y == self.ignore_index).all()) else plain(self, x, y),
        "ignore_index",
    ),
    "always 0": (lambda self, x, y: (x * 0).sum(), ""),
    "no gradient": (lambda self, x, y: plain(self, x.detach(), y) + (x * 0).sum(), "gradient_scaled"),
}


MODEL_LOSS = Once(ModelLoss)


@pytest.fixture(scope="module")
def context(same_models):
    return same_models


@pytest.fixture(autouse=True)
def reference_measured_once(monkeypatch):
    """Every fault is the port's loss: what the reference's model gives is the same for all of them."""
    monkeypatch.setattr(ModelLoss, "measure", functools.partialmethod(MODEL_LOSS))


def test_step_4_passes(context):
    result = loss.run(context())
    assert result.passed and result.covers == ["class weights", "distillation"]


def by_samples(self, x, y):
    return plain(self, x, y) * (_weights_of(self, y) if self.weight is not None and y.ndim == 1 else 1.0)


def _weights_of(self, y):
    counted = y != self.ignore_index
    own = paddle.gather(self.weight, paddle.where(counted, y, paddle.zeros_like(y))) * counted.astype("float64")
    return (own.sum() / counted.astype("float64").sum()).astype("float64")


def labels_weight(self, x, y):
    if self.weight is None or y.ndim == 2:
        return plain(self, x, y)
    both = [CrossEntropyLoss(0.0, self.ignore_index, self.weight.numpy())(x, y)]
    counted = (y != self.ignore_index).astype(x.dtype)
    own = paddle.gather(self.weight, paddle.where(counted > 0, y, paddle.zeros_like(y))).astype(x.dtype) * counted
    uniform = x.logsumexp(1) - x.mean(1)
    return both[0] * (1 - self.label_smoothing) + (uniform * own).sum() / own.sum() * self.label_smoothing


def unweighted(self, x, y):
    return CrossEntropyLoss(self.label_smoothing, self.ignore_index)(x, y)


WEIGHTED = {
    "weights left out": (unweighted, "class weights are left out"),
    "mean over the samples": (by_samples, "the mean is over the samples"),
    "smoothing by the label's weight": (labels_weight, "smoothing takes the label's weight"),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_class_weights_used_otherwise_are_found(context, name):
    function, words = WEIGHTED[name]
    broken = context(loss_of(PROJECT, function))
    found = explained(loss.run(broken))
    assert found.kind == "class_weights" and found.hint.startswith(words), found.line()
    assert name != "weights left out" or first_finding(broken, loss.run(broken)) == ("CrossEntropyLoss", "class_weights")


def distilled(change):
    class Changed(DistillationLoss):
        def forward(self, x, y):
            return change(self, x, y)

    return PROJECT.with_port("loss", DistillationLoss=Changed)


def mixed(self, x, y, soft, alpha=None):
    alpha = self.alpha if alpha is None else alpha
    return self.criterion(x, y) * (1 - alpha) + soft * alpha


DISTILLED = {
    "no square": (lambda s, x, y: mixed(s, x, y, divergence(x, s.soft, s.temperature) / s.temperature**2), "the divergence is not"),
    "turned": (lambda s, x, y: mixed(s, x, y, divergence(s.soft, x, s.temperature)), "the divergence is that of the teacher"),
    "shares": (lambda s, x, y: mixed(s, x, y, divergence(x, s.soft, s.temperature), 1 - s.alpha), "the shares of the two parts"),
    "no temperature": (lambda s, x, y: mixed(s, x, y, divergence(x, s.soft, 1.0) * s.temperature**2), "the logits are not divided"),
}


@pytest.mark.parametrize("name", DISTILLED)
def test_another_distillation_is_found(context, name):
    change, words = DISTILLED[name]
    broken = context(distilled(change))
    found = explained(loss.run(broken))
    assert found.kind == "distillation" and found.hint.startswith(words), found.line()
    assert name != "no square" or first_finding(broken, loss.run(broken)) == ("DistillationLoss", "distillation")


class OtherShare(DistillationLoss):
    def __init__(self, criterion, teacher, temperature=4.0, alpha=1.0):
        super().__init__(criterion, teacher, temperature, alpha)


def test_another_default_of_the_distillation_is_found(context):
    broken = context(PROJECT.with_port("loss", DistillationLoss=OtherShare))
    result = loss.run(broken)
    assert [q.name for q in result.quantities if not q.passed] == ["distilled_by_default.loss", "distilled_by_default.gradient"]
    assert first_finding(broken, result) == ("DistillationLoss", "distillation")


def test_a_loss_without_these_options_is_compared_without_and_says_so(context):
    without = context(PROJECT.with_port("loss", CrossEntropyLoss=OtherDefault, DistillationLoss=None))
    assert not cases.takes_weights(without) and not cases.distils(without) and loss.run(without).covers == []
    assert cases.takes_weights(context()) and cases.distils(context()) and explained(loss.run(context())) is None


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
