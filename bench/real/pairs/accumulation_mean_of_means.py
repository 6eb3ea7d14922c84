import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target):
        logits, kept = self.head(x), target >= 0
        return TF.cross_entropy(logits[kept], target[kept])


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        logits, losses = self.head(x), []
        for part in (slice(0, 3), slice(3, 7)):  # two micro-batches
            some, wanted = logits[:, part].flatten(0, 1), target[:, part].flatten()
            losses.append(F.cross_entropy(some, wanted))  # fix: losses.append(F.cross_entropy(some, wanted, reduction="sum"))
        return sum(losses) / 2  # fix: return sum(losses) / (target >= 0).sum().astype(x.dtype)


def inputs(samples, generator):
    target = generator.integers(0, 6, (samples, 7))
    target[:, 5:] = -100
    target[:, 0] = -100
    return generator.standard_normal((samples, 7, 8)).astype("float32"), target
