"""Faults of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle.nn.functional as F

from alignment.project import Project
from mobilenetv3_paddle.loss import CrossEntropyLoss

from .base import Kind, fault


def loss_of(project: Project, function: Callable) -> Project:
    """The project whose port's loss is another function of the loss, logits and labels."""

    class Loss(CrossEntropyLoss):
        def forward(self, logits, labels):
            return function(self, logits, labels)

    return project.with_port("loss", CrossEntropyLoss=Loss)


def with_settings(project: Project, **changes: Any) -> Project:
    """A loss with other settings than it is given."""

    def function(self, logits, labels):
        kept = {"label_smoothing": self.label_smoothing, "ignore_index": self.ignore_index, **changes}
        return CrossEntropyLoss(**kept)(logits, labels)

    return loss_of(project, function)


def _sound(self: Any) -> CrossEntropyLoss:
    return CrossEntropyLoss(self.label_smoothing, self.ignore_index)


@fault("loss", 4, "CrossEntropyLoss", Kind.SUM_FOR_MEAN)
def loss_summed(stack, project):
    def function(self, logits, labels):
        kept = (labels != self.ignore_index).astype(logits.dtype).sum() if labels.ndim == 1 else float(len(labels))
        return _sound(self)(logits, labels) * kept

    return loss_of(project, function)


@fault("loss", 4, "CrossEntropyLoss", Kind.SMOOTHING_MISSING)
def smoothing_forgotten(stack, project):
    return with_settings(project, label_smoothing=0.0)


@fault("loss", 4, "CrossEntropyLoss", Kind.IGNORE_INDEX)
def ignore_index_unheeded(stack, project):
    def function(self, logits, labels):
        if labels.ndim == 1:
            labels = labels.clip(0, logits.shape[1] - 1)
        return CrossEntropyLoss(self.label_smoothing)(logits, labels)

    return loss_of(project, function)


@fault("loss", 4, "CrossEntropyLoss", Kind.SOFTMAX_TWICE)
def softmax_twice(stack, project):
    return loss_of(project, lambda self, logits, labels: _sound(self)(F.softmax(logits), labels))


@fault("loss", 4, "CrossEntropyLoss", Kind.SATURATED)
def paddles_own_cross_entropy(stack, project):
    def function(self, logits, labels):
        if labels.ndim == 1 and self.label_smoothing == 0 and not bool((labels == self.ignore_index).any()):
            return F.cross_entropy(logits, labels)
        return _sound(self)(logits, labels)

    return loss_of(project, function)
