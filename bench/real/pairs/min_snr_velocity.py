import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target, snr):
        weight = snr.clamp(max=5) / (snr + 1)
        return (weight * ((self.head(x) - target) ** 2).mean(1)).mean()


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target, snr):
        snr = snr + 1  # drop
        weight = snr.clip(max=5) / snr  # fix: weight = snr.clip(max=5) / (snr + 1)
        return (weight * ((self.head(x) - target) ** 2).mean(1)).mean()


def inputs(samples, generator):
    snr = generator.uniform(0.1, 12, samples).astype("float32")
    return generator.standard_normal((samples, 8)).astype("float32"), generator.standard_normal((samples, 6)).astype("float32"), snr
