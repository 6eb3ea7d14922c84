import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, batches):
        grad, count = torch.zeros_like(w), 0
        for _ in range(2):
            for t in range(5):
                grad, count = grad + (w * batches[:, t] - 1) * batches[:, t], count + 1
                if count == 2:
                    w, grad, count = w - 0.1 * grad, torch.zeros_like(w), 0
        return w


class Port(nn.Layer):
    def forward(self, w, batches):
        grad, count = paddle.zeros_like(w), 0
        for _ in range(2):
            grad = paddle.zeros_like(w)  # drop
            for t in range(5):
                grad, count = grad + (w * batches[:, t] - 1) * batches[:, t], count + 1
                if count == 2:
                    w, grad, count = w - 0.1 * grad, paddle.zeros_like(w), 0
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 5, 6)).astype("float32")
