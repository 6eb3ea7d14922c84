import math

import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        rates = [0.1 * (i + 1) / 4 for i in range(4)] + [0.05 * (math.cos(i * math.pi / 8) + 1) for i in range(8)]
        for t, rate in enumerate(rates):
            w = w - rate * gradients[:, t]
        return w


class Port(nn.Layer):
    def forward(self, w, gradients):
        warm, total = 4, 12
        rates = [0.1 * (i + 1) / warm for i in range(warm)]
        for i in range(warm, total):
            # add: rates.append(0.05 * (math.cos((i - warm) * math.pi / (total - warm)) + 1))
            rates.append(0.05 * (math.cos(i * math.pi / total) + 1))  # drop
        for t, rate in enumerate(rates):
            w = w - rate * gradients[:, t]
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 12, 6)).astype("float32")
