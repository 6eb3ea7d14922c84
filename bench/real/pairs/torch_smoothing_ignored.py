import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target):
        kept = (target >= 0).to(x.dtype)
        logs = torch.log_softmax(self.head(x), -1)
        sharp = -logs.gather(-1, target.clamp(min=0)[..., None]).squeeze(-1)
        return ((0.9 * sharp - 0.1 * logs.mean(-1)) * kept).sum() / kept.sum()


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        kept = (target >= 0).astype(x.dtype)
        logs = F.log_softmax(self.head(x), -1)
        sharp = -paddle.take_along_axis(logs, target.clip(min=0).unsqueeze(-1), -1).squeeze(-1)
        sharp = (sharp * kept).sum() / kept.sum()
        even = -logs.mean()  # fix: even = -(logs.mean(-1) * kept).sum() / kept.sum()
        return 0.9 * sharp + 0.1 * even


def inputs(samples, generator):
    target = generator.integers(0, 6, (samples, 7))
    target[:, 4:] = -100
    return generator.standard_normal((samples, 7, 8)).astype("float32"), target
