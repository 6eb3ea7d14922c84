"""References that return a loss: what they are given besides pictures needs no gradient."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Divergence(nn.Module):
    """(batch, 8), (batch, 6)."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, teacher):
        return F.kl_div(F.log_softmax(self.head(x), -1), F.softmax(teacher, -1), reduction="batchmean")


class Distance(nn.Module):
    def forward(self, student, teacher):
        return F.kl_div(F.log_softmax(student, -1), F.softmax(teacher, -1), reduction="batchmean")


class DivergenceInside(nn.Module):
    """The loss is a module of its own."""

    def __init__(self):
        super().__init__()
        self.head, self.criterion = nn.Linear(8, 6), Distance()

    def forward(self, x, teacher):
        return self.criterion(self.head(x), teacher)


class Weighted(nn.Module):
    """torch has no derivative of the weight, and refuses to run where it is asked for one."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        logits = self.head(x)
        weight = 0.75 * torch.sigmoid(logits).detach() ** 2 * (1 - target) + target
        return F.binary_cross_entropy_with_logits(logits, target, weight=weight, reduction="sum")


class Focal(nn.Module):
    def forward(self, logits, target):
        weight = 0.75 * torch.sigmoid(logits).detach() ** 2 * (1 - target) + target
        return F.binary_cross_entropy_with_logits(logits, target, weight=weight, reduction="sum")


class WeightedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.criterion = nn.Linear(8, 6), Focal()

    def forward(self, x, target):
        return self.criterion(self.head(x), target)


class Soft(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        return F.cross_entropy(self.head(x), target)


def logits(samples, generator):
    return generator.standard_normal((samples, 8)).astype("float32"), generator.standard_normal((samples, 6)).astype("float32")


def student(samples, generator):
    return generator.standard_normal((samples, 6)).astype("float32"), generator.standard_normal((samples, 6)).astype("float32")


def shares(samples, generator):
    """Soft labels, whose sum is 1 to float32's rounding."""
    return generator.standard_normal((samples, 8)).astype("float32"), generator.dirichlet(np.ones(6), samples).astype("float32")
