"""The port of capsules_theirs.py: other names, the routing with einsum."""

import paddle
import paddle.nn.functional as F
from paddle import nn


def squash(s, axis=-1, eps=1e-8):
    n2 = paddle.sum(s * s, axis=axis, keepdim=True)
    return n2 / (1.0 + n2) * s / paddle.sqrt(n2 + eps)


class Primary(nn.Layer):
    def __init__(self):
        super().__init__()
        self.convs = nn.LayerList([nn.Conv2D(8, 4, 3, stride=2) for _ in range(4)])

    def forward(self, x):
        u = paddle.stack([conv(x) for conv in self.convs], axis=1)
        return squash(u.reshape([x.shape[0], 4, -1]).transpose([0, 2, 1]))


class Routing(nn.Layer):
    def __init__(self, routes, classes=3, given=4, made=5, iterations=3):
        super().__init__()
        self.iterations = iterations
        self.weight = self.create_parameter([1, routes, classes, made, given])

    def forward(self, u):
        votes = paddle.einsum("rcmg,brg->brcm", self.weight[0], u)
        logits = paddle.zeros([1, votes.shape[1], votes.shape[2]], dtype=votes.dtype)
        for number in range(self.iterations):
            c = F.softmax(logits, axis=2).unsqueeze(-1)
            v = squash(paddle.sum(c * votes, axis=1, keepdim=True))
            if number + 1 < self.iterations:
                logits = logits + paddle.mean(paddle.sum(votes * v, axis=-1), axis=0, keepdim=True)
        return v.squeeze(1)


class Capsules(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.caps, self.routing = nn.Conv2D(1, 8, 3), Primary(), Routing(64)
        self.rebuild = nn.Sequential(nn.Linear(15, 12), nn.ReLU(), nn.Linear(12, 20), nn.Sigmoid())

    def forward(self, x):
        v = self.routing(self.caps(F.relu(self.stem(x))))
        classes = F.softmax(paddle.sqrt(paddle.sum(v * v, axis=-1)), axis=-1)
        kept = F.one_hot(paddle.argmax(classes, axis=1), 3).astype(x.dtype)
        return classes, self.rebuild((v * kept.unsqueeze(-1)).reshape([x.shape[0], -1]))
