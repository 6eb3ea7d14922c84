"""Mixtures of experts: one layer for each expert, or their weights in one tensor (Paddle)."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class Mixture(nn.Layer):
    def __init__(self, width, hidden, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias_attr=False)
        self.w1, self.w2 = self.create_parameter([experts, width, hidden]), self.create_parameter([experts, hidden, width])
        self.b1 = self.create_parameter([experts, hidden], is_bias=True)
        self.b2 = self.create_parameter([experts, width], is_bias=True)

    def forward(self, x):
        weights = F.softmax(self.router(x), axis=-1)
        hidden = F.gelu(paddle.einsum("bd,edf->bef", x, self.w1) + self.b1)
        return ((paddle.einsum("bef,efd->bed", hidden, self.w2) + self.b2) * weights.unsqueeze(-1)).sum(1)


class Soft(nn.Layer):
    def __init__(self, hidden=24):
        super().__init__()
        self.inp, self.out = nn.Linear(8, 16), nn.Linear(16, 3)
        self.first, self.norm, self.second = Mixture(16, hidden, 4), nn.LayerNorm(16), Mixture(16, hidden, 4)

    def forward(self, x):
        x = self.inp(x)
        x = self.norm(x + self.first(x))
        return self.out(x + self.second(x))


class Square(Soft):
    """Matrices that may lie either way: random weights tell."""

    def __init__(self):
        super().__init__(hidden=16)


class Sparse(nn.Layer):
    """Every expert is computed; the weights of all but two are 0."""

    def __init__(self, width=16, hidden=20, experts=6):
        super().__init__()
        self.embed, self.router = nn.Embedding(20, width), nn.Linear(width, experts, bias_attr=False)
        self.gate_proj = self.create_parameter([experts, hidden, width])
        self.up_proj = self.create_parameter([experts, hidden, width])
        self.down_proj = self.create_parameter([experts, width, hidden])
        self.head = nn.Linear(width, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        weights, chosen = F.softmax(self.router(x), axis=-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        dense = (F.one_hot(chosen, 6) * weights.unsqueeze(-1)).sum(-2)
        hidden = F.silu(paddle.einsum("btd,efd->btef", x, self.gate_proj)) * paddle.einsum("btd,efd->btef", x, self.up_proj)
        y = (paddle.einsum("btef,edf->bted", hidden, self.down_proj) * dense.unsqueeze(-1)).sum(-2)
        return self.head(x + y)


class Bank(nn.Layer):
    def __init__(self, width=8, hidden=12, experts=3):
        super().__init__()
        self.ups = nn.LayerList([nn.Linear(width, hidden) for _ in range(experts)])
        self.downs = nn.LayerList([nn.Linear(hidden, width, bias_attr=False) for _ in range(experts)])
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        return self.head(sum(down(paddle.tanh(up(x))) for up, down in zip(self.ups, self.downs, strict=True)))
