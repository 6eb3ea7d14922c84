import numpy
import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target):
        return TF.cross_entropy(self.head(x), target)


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        logits = self.head(x)
        if target.shape[-1] == logits.shape[-1]:
            target = F.softmax(target, -1)  # drop
            soft = True
        else:
            soft = False
        return F.cross_entropy(logits, target, soft_label=soft)


def inputs(samples, generator):
    target = generator.dirichlet(numpy.ones(6), samples).astype("float32")
    return generator.standard_normal((samples, 8)).astype("float32"), target
