"""Ports of branches_theirs.py, which call their branches in another order and hold them under other names."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class ConvBNReLU(nn.Layer):
    def __init__(self, i, o, k, d=1, s=1, act=True, eps=1e-5):
        super().__init__()
        self._conv = nn.Conv2D(i, o, k, stride=s, padding=d if k == 3 else 0, dilation=d, bias_attr=False)
        self._bn = nn.BatchNorm2D(o, epsilon=eps)
        self._act = act

    def forward(self, x):
        x = self._bn(self._conv(x))
        return F.relu(x) if self._act else x


class ASPPModule(nn.Layer):
    def __init__(self, i, o, rates=(2, 4, 6)):
        super().__init__()
        self.b0 = ConvBNReLU(i, o, 1)
        self.b1 = ConvBNReLU(i, o, 3, rates[0])
        self.b2 = ConvBNReLU(i, o, 3, rates[1])
        self.b3 = ConvBNReLU(i, o, 3, rates[2])
        self.pool = nn.AdaptiveAvgPool2D(1)
        self.image = ConvBNReLU(i, o, 1)
        self.project = ConvBNReLU(5 * o, o, 1)

    def forward(self, x):
        g = self.image(self.pool(x))
        g = F.interpolate(g, size=x.shape[-2:], mode="bilinear", align_corners=False)
        a, b, c, d = self.b0(x), self.b1(x), self.b2(x), self.b3(x)
        y = paddle.concat([a, b, c, d, g], axis=1)
        return self.project(y)


class Deep(nn.Layer):
    def __init__(self):
        super().__init__()
        self.backbone = ConvBNReLU(3, 8, 3, 1, 2)
        self.aspp = ASPPModule(8, 8)
        self.conv = ConvBNReLU(8, 8, 3)
        self.cls = nn.Conv2D(8, 4, 1)

    def forward(self, x):
        y = self.cls(self.conv(self.aspp(self.backbone(x))))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class L2Norm(nn.Layer):
    def __init__(self, n):
        super().__init__()
        self.weight = self.create_parameter([n], default_initializer=nn.initializer.Constant(20.0))

    def forward(self, x):
        norm = x.pow(2).sum(axis=1, keepdim=True).sqrt() + 1e-10
        return self.weight.reshape([1, -1, 1, 1]) * (x / norm)


class Normed(nn.Layer):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2D(3, 2, 3, padding=1)
        self.norm = L2Norm(2)
        self.c2 = nn.Conv2D(2, 4, 3, padding=1)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(self.norm(x)))
        return self.fc(x.mean([2, 3]))


class Bare(nn.Layer):
    """No ReLU stands between a norm of exactly 0 and the layer before it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        root = (self.first(x) * 0).sum(-1, keepdim=True).sqrt()
        return self.last(x[:, :3] + root)


class Rootless(nn.Layer):
    """A root of exactly 0 behind every parameter."""

    def __init__(self):
        super().__init__()
        self.only = nn.Linear(5, 3)

    def forward(self, x):
        return (self.only(x) * 0).sqrt() + x[:, :3]
