"""Ports of ``targets_theirs.py``."""

import paddle
from paddle import nn
from paddle.nn import functional as F


class Divergence(nn.Layer):
    """Paddle stops the gradient of the target."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, teacher):
        return F.kl_div(F.log_softmax(self.head(x), -1), F.softmax(teacher, -1), reduction="batchmean")


class DivergenceDetached(Divergence):
    """In so many words."""

    def forward(self, x, teacher):
        return super().forward(x.detach(), teacher)


class DivergenceFrozen(Divergence):
    """The gradient of the head is cut, so that nothing is trained."""

    def forward(self, x, teacher):
        logits = self.head(x)
        return F.kl_div(F.log_softmax(logits.detach(), -1), F.softmax(teacher, -1), reduction="batchmean") + 0 * logits.sum()


class Distance(nn.Layer):
    def forward(self, student, teacher):
        return F.kl_div(F.log_softmax(student, -1), F.softmax(teacher, -1), reduction="batchmean")


class DistanceStopped(Distance):
    """The gradient of what is trained is cut, without a call that says so."""

    def forward(self, student, teacher):
        with paddle.no_grad():
            student = F.log_softmax(student, -1)
        return F.kl_div(student, F.softmax(teacher, -1), reduction="batchmean")


class DivergenceInside(nn.Layer):
    made = Distance

    def __init__(self):
        super().__init__()
        self.head, self.criterion = nn.Linear(8, 6), self.made()

    def forward(self, x, teacher):
        return self.criterion(self.head(x), teacher)


class DivergenceInsideStopped(DivergenceInside):
    made = DistanceStopped


class Weighted(nn.Layer):
    share = 0.75

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        logits = self.head(x)
        weight = self.share * F.sigmoid(logits).detach() ** 2 * (1 - target) + target
        return F.binary_cross_entropy_with_logits(logits, target, weight=weight, reduction="sum")


class WeightedQuarter(Weighted):
    share = 0.25


class Focal(nn.Layer):
    def forward(self, logits, target):
        weight = 0.75 * F.sigmoid(logits).detach() ** 2 * (1 - target) + target
        return F.binary_cross_entropy_with_logits(logits, target, weight=weight, reduction="sum")


class WeightedInside(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head, self.criterion = nn.Linear(8, 6), Focal()

    def forward(self, x, target):
        return self.criterion(self.head(x), target)


class Soft(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        return F.cross_entropy(self.head(x), target, soft_label=True)


class SoftTwice(Soft):
    def forward(self, x, target):
        return super().forward(x, F.softmax(target, -1))
