import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        m, v = torch.zeros_like(w), torch.zeros_like(w)
        for t in range(3):
            g = gradients[:, t]
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            update = m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.99 ** (t + 1))).sqrt() + 1e-8)
            w = w * (1 - 0.1 * 0.2) - 0.1 * update
        return w


class Port(nn.Layer):
    def forward(self, w, gradients):
        m, v = paddle.zeros_like(w), paddle.zeros_like(w)
        for t in range(3):
            g = gradients[:, t] + 0.2 * w  # fix: g = gradients[:, t]
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            update = m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.99 ** (t + 1))).sqrt() + 1e-8)
            w = w - 0.1 * update  # fix: w = w * (1 - 0.1 * 0.2) - 0.1 * update
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
