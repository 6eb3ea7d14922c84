import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        before = gradients[:, 0]
        for t in range(3):
            w = w - 0.1 * (2 * gradients[:, t] - before)
            before = gradients[:, t]
        return w


class Port(nn.Layer):
    def forward(self, w, gradients):
        before = paddle.zeros_like(w)  # fix: before = gradients[:, 0]
        for t in range(3):
            w = w - 0.1 * (2 * gradients[:, t] - before)
            before = gradients[:, t]
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
