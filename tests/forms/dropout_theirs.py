"""Dropout as a function and as a layer, nested and alone."""

import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.hidden = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5))
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        x = F.dropout2d(F.relu(self.conv(x)), 0.25, self.training)
        return self.out(F.dropout(self.hidden(x.mean((2, 3))), 0.125, self.training))
