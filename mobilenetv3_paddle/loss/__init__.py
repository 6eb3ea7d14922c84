"""Cross-entropy."""

from mobilenetv3_paddle.loss.cross_entropy import CrossEntropyLoss

__all__ = ["CrossEntropyLoss"]
