import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        start, farthest, total = w, torch.full_like(w, 0.1), torch.zeros_like(w)
        for t in range(3):
            g = gradients[:, t]
            farthest = torch.maximum(farthest, (w - start).abs())
            total = total + g * g
            w = w - farthest / (total + 1e-8).sqrt() * g
        return w


class Port(nn.Layer):
    def scaled(self, g, distance, total):
        return distance / (total + 1e-8).sqrt() * g

    def forward(self, w, gradients):
        start, farthest, total = w, paddle.full_like(w, 0.1), paddle.zeros_like(w)
        for t in range(3):
            g = gradients[:, t]
            farthest = paddle.maximum(farthest, (w - start).abs())
            total = total + g * g
            w = w - self.scaled(farthest, total, g.abs())  # fix: w = w - self.scaled(g, farthest, total)
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
