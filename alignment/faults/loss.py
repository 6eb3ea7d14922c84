"""Faults of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle.nn.functional as F

from alignment.faults.base import fault
from alignment.sides import PaddleSide
from mobilenetv3_paddle.loss import CrossEntropyLoss


def loss_of(function: Callable) -> PaddleSide:
    class Loss(CrossEntropyLoss):
        def forward(self, logits, labels):
            return function(self, logits, labels)

    return PaddleSide(loss={"CrossEntropyLoss": Loss})


def with_settings(**changes: Any) -> PaddleSide:
    """A loss with other settings than it is given."""

    def function(self, logits, labels):
        kept = {"label_smoothing": self.label_smoothing, "ignore_index": self.ignore_index, **changes}
        return CrossEntropyLoss(**kept)(logits, labels)

    return loss_of(function)


def _sound(self: Any) -> CrossEntropyLoss:
    return CrossEntropyLoss(self.label_smoothing, self.ignore_index)


@fault("loss", 4, "CrossEntropyLoss", "sum_for_mean")
def loss_summed(stack):
    def function(self, logits, labels):
        kept = (labels != self.ignore_index).astype(logits.dtype).sum() if labels.ndim == 1 else float(len(labels))
        return _sound(self)(logits, labels) * kept

    return loss_of(function)


@fault("loss", 4, "CrossEntropyLoss", "smoothing_missing")
def smoothing_forgotten(stack):
    return with_settings(label_smoothing=0.0)


@fault("loss", 4, "CrossEntropyLoss", "ignore_index")
def ignore_index_unheeded(stack):
    def function(self, logits, labels):
        if labels.ndim == 1:
            labels = labels.clip(0, logits.shape[1] - 1)
        return CrossEntropyLoss(self.label_smoothing)(logits, labels)

    return loss_of(function)


@fault("loss", 4, "CrossEntropyLoss", "softmax_twice")
def softmax_twice(stack):
    return loss_of(lambda self, logits, labels: _sound(self)(F.softmax(logits), labels))


@fault("loss", 4, "CrossEntropyLoss", "saturated")
def paddles_own_cross_entropy(stack):
    def function(self, logits, labels):
        if labels.ndim == 1 and self.label_smoothing == 0 and not bool((labels == self.ignore_index).any()):
            return F.cross_entropy(logits, labels)
        return _sound(self)(logits, labels)

    return loss_of(function)
