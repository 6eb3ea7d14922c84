"""Tensors, tables and dropouts that the reference holds joined, divided, or in another shape (Paddle)."""

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class Conditional(nn.Layer):
    def __init__(self):
        super().__init__()
        self.scale, self.shift, self.fc = nn.Embedding(20, 6), nn.Embedding(20, 6), nn.Linear(6, 4)

    def forward(self, tokens):
        return self.fc(paddle.tanh(self.scale(tokens)) + self.shift(tokens))


class Additive(nn.Layer):
    def __init__(self, width=6):
        super().__init__()
        self.embed, self.cell = nn.Embedding(20, width), nn.GRUCell(2 * width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias_attr=False)
        self.vector, self.out = nn.Linear(width, 1, bias_attr=False), nn.Linear(width, 3)

    def forward(self, tokens):
        words = F.max_pool1d(F.relu(self.embed(tokens).transpose([0, 2, 1])), 3, 1, 1).transpose([0, 2, 1])
        keys, state, states = self.key(words), paddle.zeros_like(words[:, 0]), []
        for place in range(words.shape[1]):
            weights = F.softmax(self.vector(paddle.tanh(self.query(state).unsqueeze(1) + keys)), axis=1)
            _, state = self.cell(paddle.concat([words[:, place], (weights * words).sum(1)], -1), state)
            states.append(state)
        return self.out(paddle.stack(states, 1))


class HighwayLayer(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.transform, self.carry = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        new = F.relu(self.transform(x))
        carry = F.sigmoid(self.carry(x))
        return new + carry * (x - new)


class Highway(nn.Layer):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(20, width, padding_idx=0)
        self.high, self.out = nn.Sequential(*[HighwayLayer(width) for _ in range(3)]), nn.Linear(width, 3)

    def forward(self, tokens):
        return self.out(self.high(self.embed(tokens)))


class Level(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.drop = nn.Conv1D(width, width, 1), nn.Conv1D(width, width, 1), nn.Dropout(0.3)

    def forward(self, x):
        return x + self.drop(F.relu(self.b(self.drop(F.relu(self.a(x))))))


class Twice(nn.Layer):
    def __init__(self):
        super().__init__()
        self.levels, self.last = nn.LayerList([Level(4), Level(4)]), nn.Conv1D(4, 2, 1)

    def forward(self, x):
        for level in self.levels:
            x = level(x)
        return self.last(x)


class Causal(nn.Layer):
    def __init__(self, i, o, kernel):
        super().__init__()
        self.weight = self.create_parameter([o, i, kernel, kernel])
        self.bias = self.create_parameter([o], is_bias=True)
        flat = np.zeros(kernel * kernel, "float32")
        flat[: kernel * kernel // 2] = 1
        self.register_buffer("allowed", paddle.to_tensor(flat.reshape(1, 1, kernel, kernel)))
        self.padding = kernel // 2

    def forward(self, x):
        return F.conv2d(x, self.weight * self.allowed.astype(x.dtype), self.bias, padding=self.padding)


class Statistics(nn.Layer):
    """Normalises by the statistics of the given axes."""

    def __init__(self, channels, axes):
        super().__init__()
        self.axes = axes
        self.gamma = self.create_parameter([1, channels, 1, 1], default_initializer=nn.initializer.Constant(1.0))
        self.beta = self.create_parameter([1, channels, 1, 1], is_bias=True)

    def forward(self, x):
        mean, variance = x.mean(self.axes, keepdim=True), x.var(self.axes, unbiased=False, keepdim=True)
        return (x - mean) / paddle.sqrt(variance + 1e-5) * self.gamma + self.beta


class Pixels(nn.Layer):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(Causal(3, 6, 5), Statistics(6, [0, 2, 3]), nn.ReLU(), Causal(6, 6, 3), Statistics(6, [1, 2, 3]))

    def forward(self, x):
        return self.main(x)


class Rotary(nn.Layer):
    def __init__(self, width=8):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, width), nn.Linear(width, 5)
        angles = np.outer(np.arange(12), 1 / 10000 ** (np.arange(0, width, 2) / width))
        table = paddle.to_tensor(np.stack([np.cos(angles), np.sin(angles)]).astype("float32"))
        self.register_buffer("table", table, persistable=False)

    def forward(self, tokens):
        a, b = paddle.chunk(self.embed(tokens), 2, -1)
        cosines, sines = self.table[:, : tokens.shape[1]].astype(a.dtype)
        return self.out(paddle.concat([a * cosines - b * sines, a * sines + b * cosines], -1))


class Angles(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.centres = self.create_parameter([8, 5])

    def forward(self, x):
        return F.normalize(paddle.tanh(self.body(x))) @ F.normalize(self.centres, axis=0)


class Skips(nn.Layer):
    def __init__(self, width=6):
        super().__init__()
        self.width = width
        self.convs = nn.LayerList([nn.Conv1D(width, 8, 1) for _ in range(2)])
        self.both = nn.LayerList([nn.Conv1D(8, 2 * width, 1) for _ in range(2)])

    def forward(self, x):
        total = 0
        for conv, both in zip(self.convs, self.both, strict=True):
            on, skip = paddle.chunk(both(paddle.tanh(conv(x))), 2, axis=1)
            x, total = x + on, total + skip
        return total


class Step(nn.Layer):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2D(i, o, 1)

    def forward(self, x):
        return F.relu(self.conv(x))


class Context(nn.Layer):
    def __init__(self):
        super().__init__()
        self.local, self.pooled, self.project = Step(3, 4), Step(3, 4), nn.Conv2D(8, 2, 1)

    def forward(self, x):
        whole = self.pooled(x.mean([2, 3], keepdim=True)).expand([-1, -1, *x.shape[2:]])
        return self.project(paddle.concat([self.local(x), whole], 1))
