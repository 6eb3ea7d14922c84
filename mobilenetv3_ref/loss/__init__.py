"""Cross-entropy."""

from mobilenetv3_ref.loss.cross_entropy import CrossEntropyLoss

__all__ = ["CrossEntropyLoss"]
