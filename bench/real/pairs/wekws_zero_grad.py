import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, batches):
        for t in range(3):
            w = w - 0.1 * (w * batches[:, t] - 1) * batches[:, t]
        return w


class Port(nn.Layer):
    def forward(self, w, batches):
        grad = paddle.zeros_like(w)
        for t in range(3):
            # add: grad = paddle.zeros_like(w)
            grad = grad + (w * batches[:, t] - 1) * batches[:, t]
            w = w - 0.1 * grad
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
