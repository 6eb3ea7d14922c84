"""Cross-entropy, and distillation."""

from mobilenetv3_paddle.loss.cross_entropy import CrossEntropyLoss
from mobilenetv3_paddle.loss.distillation import DistillationLoss

__all__ = ["CrossEntropyLoss", "DistillationLoss"]
