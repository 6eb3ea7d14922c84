import torch
from paddle import nn


class Reference(torch.nn.Module):
    def forward(self, w, gradients):
        for t in range(3):
            g = gradients[:, t]
            norm = g.norm(dim=1, keepdim=True)
            w = w - 0.1 * g / (norm / 1.0).clamp(min=1)
        return w


class Port(nn.Layer):
    def forward(self, w, gradients):
        bfloat16, limit = True, 1.0
        for t in range(3):
            g = gradients[:, t]
            if not bfloat16:  # fix: if limit > 0:
                norm = g.norm(axis=1, keepdim=True)
                g = g / (norm / limit).clip(min=1)
            w = w - 0.1 * g
        return w


def inputs(samples, generator):
    w = generator.standard_normal((samples, 6)).astype("float32")
    return w, generator.standard_normal((samples, 3, 6)).astype("float32")
