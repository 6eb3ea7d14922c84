import torch
from paddle import nn


class TorchMlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(8, 16)
        self.act = torch.nn.GELU()
        self.norm = torch.nn.LayerNorm(16)
        self.fc2 = torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.fc2(self.norm(self.act(self.fc1(x))))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(8, 8)
        self.mlp = TorchMlp()

    def forward(self, x):
        x = self.embed(x)
        return x + self.mlp(x)


class Mlp(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.act = nn.GELU()
        self.norm = nn.LayerNorm(16)
        self.fc2 = nn.Linear(16, 8)

    def forward(self, x):
        x = self.act(self.fc1(x))
        # add: x = self.norm(x)
        return self.fc2(x)


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.mlp = Mlp()

    def forward(self, x):
        x = self.embed(x)
        return x + self.mlp(x)


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 8)).astype("float32")
