import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(24, 12)
        self.mix = torch.nn.Linear(12, 12)
        self.norm = torch.nn.LayerNorm(12)
        self.proj = torch.nn.Linear(12, 6, bias=False)

    def forward(self, ids):
        x = self.token(ids)
        x = self.norm(x + self.mix(x).cumsum(1))
        end = (ids == 19).int().argmax(1)
        return self.proj(x[torch.arange(len(x)), end])


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(24, 12)
        self.mix = nn.Linear(12, 12)
        self.norm = nn.LayerNorm(12)
        self.proj = nn.Linear(12, 6, bias_attr=False)

    def forward(self, ids):
        x = self.token(ids)
        x = self.norm(x + self.mix(x).cumsum(1))
        end = ids.argmax(1)  # fix: end = (ids == 19).astype("int64").argmax(1)
        return self.proj(x[paddle.arange(x.shape[0]), end])


def inputs(samples, generator):
    ids = generator.integers(0, 18, (samples, 8))
    ids[:, 6] = 19
    ids[:, 2] = 21  # a token that was added later
    return ids
