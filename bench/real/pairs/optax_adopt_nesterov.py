import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        m, v = torch.zeros_like(w), gradients[:, 0] ** 2
        for t in range(1, 3):
            g = gradients[:, t]
            scaled = g / v.sqrt().clamp(min=1e-6)
            m = 0.9 * m + 0.1 * scaled
            w = w - 0.1 * (0.9 * m + 0.1 * scaled)
            v = 0.99 * v + 0.01 * g * g
        return w


class Port(nn.Layer):
    def forward(self, w, gradients):
        m, v = paddle.zeros_like(w), gradients[:, 0] ** 2
        for t in range(1, 3):
            g = gradients[:, t]
            scaled = g / v.sqrt().clip(min=1e-6)
            m = 0.9 * m + 0.1 * scaled
            m = 0.9 * m + 0.1 * scaled  # fix: ahead = 0.9 * m + 0.1 * scaled
            w = w - 0.1 * m  # fix: w = w - 0.1 * ahead
            v = 0.99 * v + 0.01 * g * g
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
