"""Top-k accuracy."""

from mobilenetv3_paddle.metric.accuracy import TopKAccuracy, top_k_correct

__all__ = ["TopKAccuracy", "top_k_correct"]
