"""More networks whose exports are audited: pictures with their preprocessing inside, and words."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.exported_net import Tokens


class Normalise(nn.Module):
    """Pixels of 0 to 1, less a mean, over a deviation."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1))

    def forward(self, x):
        return (x - self.mean) / self.std


class Pixels(nn.Module):
    """Preprocessing inside, a padding of its own, nearest upsampling, a map that becomes a row, and a square linear layer."""

    def __init__(self):
        super().__init__()
        self.normalise = Normalise()
        self.margin = nn.ZeroPad2d((1, 2, 3, 0))
        self.conv, self.bend = nn.Conv2d(3, 6, 3, stride=2), nn.ELU()
        self.wide = nn.Upsample(scale_factor=1.5, mode="nearest")
        self.small = nn.MaxPool2d(4, 4)
        self.row = nn.Flatten()
        self.square, self.tanh = nn.Linear(54, 54), nn.Tanh()
        self.last = nn.Linear(54, 5)

    def forward(self, x):
        x = self.small(self.wide(self.bend(self.conv(self.margin(self.normalise(x))))))
        return self.last(self.tanh(self.square(self.row(x))))


def pixels():
    torch.manual_seed(2)
    return Pixels().eval()


class Words(nn.Module):
    """Numbers of words, of which many are above 255, through an embedding and a transformer's block."""

    def __init__(self):
        super().__init__()
        self.table, self.block, self.head = nn.Embedding(5000, 16), Tokens(), nn.Linear(16, 7)

    def forward(self, ids):
        return self.head(self.block(self.table(ids)).mean(1))


def words():
    torch.manual_seed(3)
    return Words().eval()


class NormAct(nn.BatchNorm2d):
    """A normalisation whose class has its activation inside, and an identity in the place of a dropout, as timm's have."""

    def __init__(self, channels):
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.Hardswish()

    def forward(self, x):
        return self.act(
            self.drop(functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps))
        )


class SameConv(nn.Conv2d):
    """A convolution that pads by what the sizes ask for, as TensorFlow does: an exporter writes that out, in floating numbers."""

    def forward(self, x):
        sizes = torch.tensor(x.shape[2:]) if not torch.jit.is_tracing() else torch.stack([one.clone() for one in x.shape[2:]])
        more = ((sizes / 2).ceil() * 2 + 1 - sizes).clamp(min=0).long()
        return functional.conv2d(functional.pad(x, (0, more[1], 0, more[0])), self.weight, self.bias, self.stride)


class Inside(nn.Module):
    """Layers of classes of somebody's own that call others inside."""

    def __init__(self, sort):
        super().__init__()
        self.first, self.norm1 = sort(3, 6, 3, 2, bias=False), NormAct(6)
        self.second, self.norm2 = sort(6, 6, 3, 2, bias=False), NormAct(6)
        self.third = sort(6, 4, 3, 2)

    def forward(self, x):
        return self.third(self.norm2(self.second(self.norm1(self.first(x)))))


def inside(sort=nn.Conv2d):
    torch.manual_seed(4)
    model = Inside(sort).eval()
    for one in (model.norm1, model.norm2):
        for tensor, low, high in ((one.running_mean, -0.5, 0.5), (one.running_var, 0.2, 1.5), (one.weight, 0.5, 1.5)):
            nn.init.uniform_(tensor, low, high)
        nn.init.uniform_(one.bias, -0.5, 0.5)
    return model
