import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        m, v = torch.zeros_like(w), torch.full_like(w, 0.5)
        for t in range(3):
            g = gradients[:, t]
            m = 0.9 * m + 0.1 * g
            v = v - 0.01 * torch.sign(v - g * g) * g * g
            w = w - 0.1 * m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.99 ** (t + 1))).sqrt() + 1e-3)
        return w


class Port(nn.Layer):
    def forward(self, w, gradients):
        m, v = paddle.zeros_like(w), paddle.full_like(w, 0.5)
        for t in range(3):
            g = gradients[:, t]
            m = 0.9 * m + 0.1 * g
            signed = paddle.sign(v - g * g) * g * g
            v = 0.99 * v + 0.01 * signed**2  # fix: v = v - 0.01 * signed
            w = w - 0.1 * m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.99 ** (t + 1))).sqrt() + 1e-3)
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
