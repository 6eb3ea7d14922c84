"""The same as other people write them in Paddle."""

import paddle
from paddle import nn
from paddle.nn import functional as F


class SelfAttention(nn.Layer):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (layer(x).reshape([b, t, self.heads, -1]).transpose([0, 2, 1, 3]) for layer in (self.q, self.k, self.v))
        scores = paddle.matmul(q, k, transpose_y=True) / (d // self.heads) ** 0.5
        return self.out((F.softmax(scores, axis=-1) @ v).transpose([0, 2, 1, 3]).flatten(2))


class RMSNorm(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.scale = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        return x / paddle.sqrt(paddle.mean(x * x, axis=-1, keepdim=True) + 1e-6) * self.scale


class DecoderLayer(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.before, self.attention, self.between = RMSNorm(width), SelfAttention(width), RMSNorm(width)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.second(F.gelu(self.first(self.between(x))))


class Text(nn.Layer):
    def __init__(self, width=8):
        super().__init__()
        self.layers, self.classes = nn.LayerList([DecoderLayer(width), DecoderLayer(width)]), nn.Linear(width, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.classes(x)


class Matrix(nn.Layer):
    def __init__(self, outputs, inputs):
        super().__init__()
        self.w, self.b = self.create_parameter([outputs, inputs]), self.create_parameter([outputs], is_bias=True)

    def forward(self, x):
        return paddle.matmul(x, self.w, transpose_y=True) + self.b


class Faint(nn.Layer):
    def __init__(self):
        super().__init__()
        self.affine, self.linear = Matrix(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.linear(x) * (1 + 1e-7 * self.affine(x)[:, :4])


class Gated(nn.Layer):
    def __init__(self, channels, aux):
        super().__init__()
        self.filter, self.gate = (nn.Conv1D(channels, channels, 3, padding=1) for _ in range(2))
        self.filter_aux, self.gate_aux = (nn.Conv1D(aux, channels, 1, bias_attr=False) for _ in range(2))

    def forward(self, x, h):
        f = self.filter(x) + self.filter_aux(h)
        g = self.gate(x) + self.gate_aux(h)
        return x + paddle.tanh(f) * F.sigmoid(g)


class Wave(nn.Layer):
    def __init__(self, channels=6, aux=4):
        super().__init__()
        self.upsample = nn.Conv1D(channels, aux, 1)
        self.layers = nn.LayerList([Gated(channels, aux) for _ in range(3)])

    def forward(self, x):
        h = self.upsample(x)
        for layer in self.layers:
            x = layer(x, h)
        return x


class Points(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(3, 6), nn.Dropout(0.3), nn.Linear(6, 4)

    def forward(self, x):
        return self.b(self.drop(F.relu(self.a(x.transpose([0, 2, 1])))))


class PackedSpatial(nn.Layer):
    def __init__(self, channels=6):
        super().__init__()
        self.to_qkv = nn.Conv2D(channels, 3 * channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = paddle.split(self.to_qkv(x).flatten(2), 3, axis=1)
        weights = F.softmax(paddle.matmul(q, k, transpose_x=True) / c**0.5, axis=-1)
        return x + paddle.matmul(v, weights, transpose_y=True).reshape([b, c, h, w])


class Places(nn.Layer):
    def __init__(self, channels=6):
        super().__init__()
        self.first, self.attention = nn.Conv2D(3, channels, 3, padding=1), PackedSpatial(channels)
        self.last = nn.Conv2D(channels, 2, 1)

    def forward(self, x):
        return self.last(self.attention(self.first(x)))


class Grid(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2D(3, 8, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        y = self.head(x).reshape([b, 2, 4, h * w]).transpose([0, 1, 3, 2])
        columns, rows = paddle.arange(w).tile([h]).astype(y.dtype), paddle.arange(h).repeat_interleave(w).astype(y.dtype)
        first, second = F.sigmoid(y[..., 0]) + columns, F.sigmoid(y[..., 1]) + rows
        return paddle.concat([paddle.stack([first, second], -1), y[..., 2:]], -1).reshape([b, -1, 4])


class Synthesis(nn.Layer):
    def __init__(self, inputs, outputs, style, size):
        super().__init__()
        self.kernel = self.create_parameter([outputs, inputs, 3, 3])
        self.affine = nn.Linear(style, inputs)
        self.noise_strength = self.create_parameter([1])
        self.act_bias = self.create_parameter([outputs], is_bias=True)
        self.register_buffer("noise_const", paddle.randn([1, 1, size, size]))
        fir = paddle.to_tensor([1.0, 2.0, 1.0])
        self.register_buffer("fir", (fir.unsqueeze(0) * fir.unsqueeze(1) / 16).reshape([1, 1, 3, 3]))

    def forward(self, x, style):
        x = F.conv2d(x * self.affine(style).unsqueeze(-1).unsqueeze(-1), self.kernel, padding=1)
        x = x + self.noise_const * self.noise_strength + self.act_bias.reshape([1, -1, 1, 1])
        channels = x.shape[1]
        return F.leaky_relu(F.conv2d(x, self.fir.tile([channels, 1, 1, 1]), padding=1, groups=channels), 0.2)


class Style(nn.Layer):
    def __init__(self, style=7):
        super().__init__()
        self.const = self.create_parameter([1, 5, 4, 4], default_initializer=nn.initializer.Normal())
        self.b4_conv, self.b8_up, self.b8_conv = (Synthesis(5, 5, style, 4) for _ in range(3))

    def forward(self, style):
        x = self.const.expand([style.shape[0], -1, -1, -1])
        for layer in (self.b4_conv, self.b8_up, self.b8_conv):
            x = layer(x, style)
        return x
