import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Linear(6, 12)
        self.norm = torch.nn.LayerNorm(12)
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(12, 5)
        self.head_dist = torch.nn.Linear(12, 5)

    def forward(self, x):
        x = self.norm(self.tokens(x))
        one, two = self.drop(x[:, 0]), self.drop(x[:, 1])
        return self.head(one), self.head_dist(two)


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Linear(6, 12)
        self.norm = nn.LayerNorm(12)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(12, 5)
        self.head_dist = nn.Linear(12, 5)

    def forward(self, x):
        x = self.norm(self.tokens(x))
        x, x_dist = x[:, 0], x[:, 1]
        x = self.drop(x)
        x_dist = self.drop(x)  # fix: x_dist = self.drop(x_dist)
        return self.head(x), self.head_dist(x_dist)


def inputs(samples, generator):
    return generator.standard_normal((samples, 4, 6)).astype("float32")
