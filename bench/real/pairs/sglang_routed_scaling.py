import paddle
import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class TorchRouter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(8, 6, bias=False)

    def forward(self, x):
        share = torch.sigmoid(self.gate(x))
        mask = TF.one_hot(share.topk(2, -1)[1], 6).sum(-2).to(x.dtype)
        return share * mask * 2.5


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
        self.renormalize, self.scaling = False, 2.5

    def forward(self, x):
        share = F.sigmoid(self.gate(x))
        mask = F.one_hot(share.topk(2, -1)[1], 6).sum(-2).astype(x.dtype)
        share = share * mask
        if self.renormalize:
            share = share / share.sum(-1, keepdim=True)
            share = share * self.scaling  # drop
        # add: share = share * self.scaling
        return share


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
