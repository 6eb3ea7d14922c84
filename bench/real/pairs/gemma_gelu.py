import torch
from paddle import nn


class TorchMlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(12, 24, bias=False)
        self.up = torch.nn.Linear(12, 24, bias=False)
        self.down = torch.nn.Linear(24, 12, bias=False)
        self.act = torch.nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = TorchMlp()
        self.head = torch.nn.Linear(12, 5)

    def forward(self, x):
        return self.head(x + self.mlp(x))


class Mlp(nn.Layer):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(12, 24, bias_attr=False)
        self.up = nn.Linear(12, 24, bias_attr=False)
        self.down = nn.Linear(24, 12, bias_attr=False)
        self.act = nn.GELU()  # fix: self.act = nn.GELU(approximate=True)

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.mlp = Mlp()
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(x + self.mlp(x))


def inputs(samples, generator):
    return generator.standard_normal((samples, 7, 12)).astype("float32")
