"""Modules that hold more, or return less, than their counterparts in the reference (Paddle)."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class RootMeanSquare(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.scale = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        return x * paddle.rsqrt(paddle.mean(x * x, -1, keepdim=True) + 1e-5) * self.scale


class Layer(nn.Layer):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = RootMeanSquare(width)
        self.to_x, self.to_gate = nn.Linear(width, inner), nn.Linear(width, inner)
        self.step, self.out = nn.Linear(inner, inner), nn.Linear(inner, width)
        self.log_decay = self.create_parameter([inner])

    def forward(self, given):
        h = self.norm(given)
        x, gate = self.to_x(h), self.to_gate(h)
        step = F.softplus(self.step(x))
        state, states = 0.0, []
        for place in range(x.shape[1]):
            state = paddle.exp(-step[:, place] * paddle.exp(self.log_decay)) * state + step[:, place] * x[:, place]
            states.append(state)
        return given + self.out(paddle.stack(states, 1) * F.silu(gate))


class Recurrent(nn.Layer):
    def __init__(self, width=8, inner=12):
        super().__init__()
        self.words, self.head = nn.Embedding(20, width), nn.Linear(width, 20)
        self.layers = nn.Sequential(Layer(width, inner), Layer(width, inner))

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens)))


class EncoderLayer(nn.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm = heads, RootMeanSquare(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias_attr=False), nn.Linear(width, width, bias_attr=False)

    def forward(self, x, bias):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape([b, n, 3, self.heads, d // self.heads]).transpose([2, 0, 3, 1, 4])
        weights = F.softmax(paddle.matmul(q, k, transpose_y=True) + bias, axis=-1)
        return x + self.proj(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([b, n, d]))


class Relative(nn.Layer):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.embed, self.norm, self.positions = nn.Embedding(20, width), RootMeanSquare(width), nn.Embedding(13, heads)
        self.layers = nn.LayerList([EncoderLayer(width, heads) for _ in range(3)])

    def forward(self, tokens):
        x, places = self.embed(tokens), paddle.arange(tokens.shape[1])
        bias = self.positions(places.unsqueeze(0) - places.unsqueeze(1) + 6).transpose([2, 0, 1]).unsqueeze(0)
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x)
