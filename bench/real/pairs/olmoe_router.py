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
        share = torch.softmax(self.gate(x), -1)
        mask = TF.one_hot(share.topk(2, -1)[1], 6).sum(-2).to(x.dtype)
        return share * mask


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

    def forward(self, x):
        logits = self.gate(x)
        mask = F.one_hot(logits.topk(2, -1)[1], 6).sum(-2).astype(x.dtype)
        share = F.softmax(logits - 1e9 * (1 - mask), -1)  # fix: share = F.softmax(logits, -1)
        return share * mask


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
