import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class TorchFrozen(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("weight", torch.ones(channels))
        self.register_buffer("bias", torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x):
        scale = self.weight * (self.var + 1e-5).rsqrt()
        shift = self.bias - self.mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = TorchFrozen(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = TorchFrozen(8)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)) + x)


class Frozen(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("weight", paddle.ones([channels]))
        self.register_buffer("bias", paddle.zeros([channels]))
        self.register_buffer("mean", paddle.zeros([channels]))
        self.register_buffer("var", paddle.ones([channels]))

    def forward(self, x):
        scale = self.weight * self.var.rsqrt()  # fix: scale = self.weight * (self.var + 1e-5).rsqrt()
        shift = self.bias - self.mean * scale
        return x * scale.reshape([-1, 1, 1]) + shift.reshape([-1, 1, 1])


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 8, 3, padding=1, bias_attr=False)
        self.bn1 = Frozen(8)
        self.conv2 = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False)
        self.bn2 = Frozen(8)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + x)


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 9, 9)).astype("float32")
