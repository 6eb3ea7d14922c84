"""Cross-entropy, and distillation."""

from mobilenetv3_ref.loss.cross_entropy import CrossEntropyLoss
from mobilenetv3_ref.loss.distillation import DistillationLoss

__all__ = ["CrossEntropyLoss", "DistillationLoss"]
