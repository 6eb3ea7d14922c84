import math

import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, width, 3, padding=1)
        self.mix = torch.nn.Conv2d(width, 8, 1)
        self.width = width

    def forward(self, x):
        x = self.conv(x)
        d = self.width // 2
        y = torch.arange(1, x.shape[2] + 1, dtype=x.dtype)[None, :, None].expand(1, *x.shape[2:])
        z = torch.arange(1, x.shape[3] + 1, dtype=x.dtype)[None, None].expand(1, *x.shape[2:])
        div = torch.exp(torch.arange(0, d, 2, dtype=x.dtype) * (-math.log(10000.0) / d))[:, None, None]
        return self.mix(x + torch.cat([(z * div).sin(), (z * div).cos(), (y * div).sin(), (y * div).cos()]))


class Port(nn.Layer):
    def __init__(self, width=16):
        super().__init__()
        self.conv = nn.Conv2D(3, width, 3, padding=1)
        self.mix = nn.Conv2D(width, 8, 1)
        self.width = width

    def forward(self, x):
        x = self.conv(x)
        h, w = x.shape[2:]
        y = paddle.arange(1, h + 1, dtype=x.dtype).reshape([1, h, 1]).expand([1, h, w])
        z = paddle.arange(1, w + 1, dtype=x.dtype).reshape([1, 1, w]).expand([1, h, w])
        rate = -math.log(10000.0) / self.width // 2  # fix: rate = -math.log(10000.0) / (self.width // 2)
        div = paddle.exp(paddle.arange(0, self.width // 2, 2, dtype=x.dtype) * rate).reshape([-1, 1, 1])
        return self.mix(x + paddle.concat([(z * div).sin(), (z * div).cos(), (y * div).sin(), (y * div).cos()]))


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 5, 7)).astype("float32")
