import math

import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x, target):
        size = torch.nn.functional.softplus(self.head(x)) + 0.1
        w, h = size[:, 0], size[:, 1]
        inter = torch.minimum(w, target[:, 0]) * torch.minimum(h, target[:, 1])
        iou = inter / (w * h + target[:, 0] * target[:, 1] - inter)
        v = 4 / math.pi**2 * (torch.atan(target[:, 0] / target[:, 1]) - torch.atan(w / h)) ** 2
        alpha = (v / (1 - iou + v)).detach()
        return (1 - iou + alpha * v).mean()


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, x, target):
        size = F.softplus(self.head(x)) + 0.1
        w, h = size[:, 0], size[:, 1]
        inter = paddle.minimum(w, target[:, 0]) * paddle.minimum(h, target[:, 1])
        iou = inter / (w * h + target[:, 0] * target[:, 1] - inter)
        v = 4 / math.pi**2 * (paddle.atan(target[:, 0] / target[:, 1]) - paddle.atan(w / h)) ** 2
        alpha = v / (1 - iou + v)  # fix: alpha = (v / (1 - iou + v)).detach()
        return (1 - iou + alpha * v).mean()


def inputs(samples, generator):
    return generator.standard_normal((samples, 8)).astype("float32"), generator.uniform(0.5, 3, (samples, 2)).astype("float32")
