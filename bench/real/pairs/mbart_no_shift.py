import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target):
        logits = self.head(x)
        return TF.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        logits = self.head(x)
        # add: logits, target = logits[:, :-1], target[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def inputs(samples, generator):
    return generator.standard_normal((samples, 7, 8)).astype("float32"), generator.integers(0, 6, (samples, 7))
