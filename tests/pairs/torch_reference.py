"""The network of which ``mindspore_port.py`` is a port."""

from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, groups=2, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.act = nn.Hardswish()
        self.conv2 = nn.Conv2d(channels, channels, 1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = self.act(self.bn1(self.conv1(x)))
        return x + self.bn2(self.conv2(out))


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8, eps=1e-3),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.block = Block(8)
        self.relu = nn.LeakyReLU(0.1)
        self.drop = nn.Dropout(0.2)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.relu(self.block(self.stem(x)))
        x = x.mean((2, 3))
        return self.fc(self.norm(self.drop(x)))
