"""Cross-entropy."""

from projects.resnet50.in_mindspore.loss.cross_entropy import CrossEntropyLoss

__all__ = ["CrossEntropyLoss"]
