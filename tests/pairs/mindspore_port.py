"""A small network in MindSpore, a port of ``torch_reference.py``; tests break it by editing this text."""

from mindspore import nn, ops


class Block(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, pad_mode="pad", padding=1, group=2)
        self.bn1 = nn.BatchNorm2d(channels, momentum=0.9)
        self.act = nn.HSwish()
        self.conv2 = nn.Conv2d(channels, channels, 1, has_bias=True)
        self.bn2 = nn.BatchNorm2d(channels)

    def construct(self, x):
        out = self.act(self.bn1(self.conv1(x)))
        return x + self.bn2(self.conv2(out))


class Port(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(
            nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1),
            nn.BatchNorm2d(8, eps=1e-3),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, pad_mode="pad", padding=1),
        )
        self.block = Block(8)
        self.relu = nn.LeakyReLU(alpha=0.1)
        self.drop = nn.Dropout(p=0.2)
        self.norm = nn.LayerNorm((8,), epsilon=1e-5)
        self.fc = nn.Dense(8, 5)

    def construct(self, x):
        x = self.relu(self.block(self.stem(x)))
        x = ops.mean(x, (2, 3))
        return self.fc(self.norm(self.drop(x)))
