"""A reference whose blocks take the sequence first, whose neck takes a dictionary and begins with the smallest map, and whose last
block keeps what it calls in a function."""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn


class Neck(nn.Module):
    def __init__(self, widths, out):
        super().__init__()
        self.inner = nn.ModuleList(nn.Conv2d(width, out, 1) for width in widths)
        self.outer = nn.ModuleList(nn.Conv2d(out, out, 3, padding=1) for _ in widths)

    def forward(self, maps):
        names, found = list(maps.keys()), list(maps.values())
        last = self.inner[-1](found[-1])
        made = [self.outer[-1](last)]
        for i in range(len(found) - 2, -1, -1):
            side = self.inner[i](found[i])
            last = side + F.interpolate(last, size=side.shape[-2:], mode="nearest")
            made.insert(0, self.outer[i](last))
        return OrderedDict(zip(names, made, strict=True))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 12), nn.Linear(12, width)

    def forward(self, x, pos):  # T, B, C
        y = self.norm(x + pos)
        weights = F.softmax(torch.einsum("tbc,sbc->bts", y, y) / 8**0.5, dim=-1)
        y = torch.einsum("bts,sbc->tbc", weights, y)
        return x + self.fc2(F.relu(self.fc1(y)))


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


class Last(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"fc": nn.Linear(width, 12), "act": NewGELU(), "proj": nn.Linear(12, width)})
        m = self.mlp
        self.run = lambda x: m.proj(m.act(m.fc(x)))

    def forward(self, x):
        return x + self.run(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, 2, 1)
        self.second, self.third = nn.Conv2d(4, 6, 3, 2, 1), nn.Conv2d(6, 10, 3, 2, 1)
        self.neck = Neck([4, 6, 10], 8)
        self.pos = nn.Parameter(torch.zeros(6, 8))
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.last = Last(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        a = torch.tanh(self.first(x))
        b = torch.tanh(self.second(a))
        maps = self.neck(OrderedDict(fine=a, middle=b, coarse=torch.tanh(self.third(b))))
        y = maps["coarse"].flatten(2).permute(2, 0, 1)
        pos = self.pos.unsqueeze(1).repeat(1, x.shape[0], 1)
        for block in self.blocks:
            y = block(y, pos)
        return {"maps": maps, "classes": self.head(self.last(y)).transpose(0, 1)}
