import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)

    def forward(self, x, noise):
        levels = [100.0**2 * (0.02**2 / 100.0**2) ** (i / 4) for i in range(5)]
        for level in levels:
            x = x + 0.01 * level**0.5 * noise
            x = x - 0.1 * torch.tanh(self.net(x / (1 + level) ** 0.5))
        return x


class Port(nn.Layer):
    def __init__(self, low=0.02, high=100.0):
        super().__init__()
        self.net = nn.Linear(8, 8)
        # add: self.schedule = [high**2 * (low**2 / high**2) ** (i / 4) for i in range(5)]
        self.schedule = [high * (low**2 / high**2) ** (i / 4) for i in range(5)]  # drop

    def forward(self, x, noise):
        for level in self.schedule:
            x = x + 0.01 * level**0.5 * noise
            x = x - 0.1 * paddle.tanh(self.net(x / (1 + level) ** 0.5))
        return x


def inputs(samples, generator):
    return tuple(generator.standard_normal((samples, 8)).astype("float32") for _ in range(2))
