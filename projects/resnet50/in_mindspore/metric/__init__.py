"""Top-k accuracy."""

from projects.resnet50.in_mindspore.metric.accuracy import TopKAccuracy, top_k_correct

__all__ = ["TopKAccuracy", "top_k_correct"]
