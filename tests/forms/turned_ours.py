"""A port whose blocks take the batch first, and whose neck takes a list and begins with all of its first convolutions."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class FPN(nn.Layer):
    def __init__(self, widths, out):
        super().__init__()
        self.lateral = nn.LayerList([nn.Conv2D(width, out, 1) for width in widths])
        self.convs = nn.LayerList([nn.Conv2D(out, out, 3, padding=1) for _ in widths])

    def forward(self, feats):
        sides = [conv(f) for conv, f in zip(self.lateral, feats, strict=True)]
        for i in range(len(sides) - 1, 0, -1):
            up = F.interpolate(sides[i], size=sides[i - 1].shape[2:], mode="nearest")
            sides[i - 1] = sides[i - 1] + up
        return [conv(f) for conv, f in zip(self.convs, sides, strict=True)]


class Layer(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, 12)
        self.linear2 = nn.Linear(12, width)

    def forward(self, x, pos):  # B, T, C
        y = self.norm(x + pos)
        weights = F.softmax(paddle.matmul(y, y, transpose_y=True) / 8**0.5, axis=-1)
        y = paddle.matmul(weights, y)
        return x + self.linear2(F.relu(self.linear1(y)))


class MLP(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, 12)
        self.act = nn.GELU(approximate=True)
        self.fc2 = nn.Linear(12, width)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Last(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 4, 3, 2, 1)
        self.conv2 = nn.Conv2D(4, 6, 3, 2, 1)
        self.conv3 = nn.Conv2D(6, 10, 3, 2, 1)
        self.fpn = FPN([4, 6, 10], 8)
        self.position = self.create_parameter([6, 8])
        self.layers = nn.LayerList([Layer(8) for _ in range(2)])
        self.last = Last(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        c1 = paddle.tanh(self.conv1(x))
        c2 = paddle.tanh(self.conv2(c1))
        c3 = paddle.tanh(self.conv3(c2))
        feats = self.fpn([c1, c2, c3])
        y = feats[-1].flatten(2).transpose([0, 2, 1])
        pos = self.position.unsqueeze(0).tile([x.shape[0], 1, 1])
        for layer in self.layers:
            y = layer(y, pos)
        return {"maps": dict(zip(["fine", "middle", "coarse"], feats, strict=True)), "classes": self.fc(self.last(y))}
