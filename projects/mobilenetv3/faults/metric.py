"""Faults of the metric."""

from __future__ import annotations

from collections.abc import Callable

import paddle

from alignment.project import Project
from mobilenetv3_paddle.metric import TopKAccuracy, top_k_correct

from .base import Kind, fault


def correct_by(project: Project, function: Callable) -> Project:
    """The project whose port's accuracy uses another rule for right answers."""

    class Accuracy(TopKAccuracy):
        def update(self, logits, labels, mask=None):
            right = function(logits, labels, self.ks)
            right = right & mask.unsqueeze(1) if mask is not None else right
            counts = right.astype("int64").sum(axis=0).tolist()
            self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]
            self.count += int(mask.astype("int64").sum()) if mask is not None else labels.shape[0]

    return project.with_port("metric", top_k_correct=function, TopKAccuracy=Accuracy)


def rank_by(project: Project, ahead: Callable, nan_is_wrong: bool = True) -> Project:
    """The project whose port ranks the label's logit by another comparison."""

    def function(logits, labels, ks):
        own = paddle.take_along_axis(logits, labels.unsqueeze(1), axis=1)
        rank = ahead(logits, own, labels).astype("int64").sum(axis=1)
        valid = ~paddle.isnan(logits).any(axis=1) if nan_is_wrong else paddle.ones([len(labels)], "bool")
        return paddle.stack([(rank < k) & valid for k in ks], axis=1)

    return correct_by(project, function)


def earlier(logits, labels):
    return paddle.arange(logits.shape[1]).unsqueeze(0) < labels.unsqueeze(1)


@fault("metric", 3, "top_k_correct", Kind.TIES_RIGHT)
def ties_count_as_right(stack, project):
    return rank_by(project, lambda logits, own, labels: logits > own)


@fault("metric", 3, "top_k_correct", Kind.NAN_RIGHT)
def nan_counts_as_right(stack, project):
    return rank_by(project, lambda logits, own, labels: (logits > own) | ((logits == own) & earlier(logits, labels)), False)


@fault("metric", 3, "top_k_correct", Kind.K_OFF_BY_ONE)
def top5_is_top4(stack, project):
    return correct_by(project, lambda logits, labels, ks: top_k_correct(logits, labels, [1 if k == 1 else k - 1 for k in ks]))


@fault("metric", 3, "TopKAccuracy.update", Kind.PADDING_COUNTED)
def padding_counted(stack, project):
    class IgnoresMask(TopKAccuracy):
        def update(self, logits, labels, mask=None):
            super().update(logits, labels)

    return project.with_port("metric", TopKAccuracy=IgnoresMask)
