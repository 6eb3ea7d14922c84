"""Their ports: the padding lies in the convolution, the batch comes first, activations are functions, weights lie bare."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class Reader(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(1, 6, 3, padding=1, padding_mode="reflect")
        self.bn = nn.BatchNorm2D(6)
        self.lstm = nn.LSTM(6, 4, direction="bidirectional")
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x))).mean(2).transpose([0, 2, 1])
        return F.log_softmax(self.out(F.relu(self.lstm(x)[0])), -1)


class Mixing(nn.Layer):
    def __init__(self):
        super().__init__()
        self.causal = nn.Conv1D(8, 8, 3, padding=[2, 0], groups=8)
        self.norm = nn.LayerNorm(8)
        self.to_gate = nn.Linear(8, 2, bias_attr=False)
        self.gate = nn.Linear(2, 8)
        self.to_left = nn.Linear(8, 4, bias_attr=False)
        self.to_right = nn.Linear(8, 3, bias_attr=False)
        self.layer_scale = self.create_parameter([1, 1, 8])

    def forward(self, x):
        y = self.norm(F.silu(self.causal(x.transpose([0, 2, 1]))).transpose([0, 2, 1]))
        gate = self.gate(self.to_gate(y) * self.to_left(y).mean(-1, keepdim=True))
        return x + self.layer_scale * F.sigmoid(gate) * self.to_right(y).max(-1, keepdim=True)


class Head(nn.Layer):
    def __init__(self):
        super().__init__()
        self.w1 = self.create_parameter([8, 8])
        self.b1 = self.create_parameter([8], is_bias=True)
        self.w2 = self.create_parameter([8, 5])
        self.b2 = self.create_parameter([5], is_bias=True)

    def forward(self, x):
        return paddle.matmul(F.gelu(paddle.matmul(x, self.w1) + self.b1), self.w2) + self.b2


class Patches(nn.Layer):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(18, 8)
        self.mix = nn.Sequential(Mixing(), Mixing())
        self.head = Head()

    def forward(self, x):
        n, c, h, w = x.shape[0], 3, x.shape[2] // 2, x.shape[3] // 3
        x = x[:, :, : 2 * h, : 3 * w].reshape([n, c, h, 2, w, 3])
        x = x.transpose([0, 2, 4, 3, 5, 1]).reshape([n, h * w, 18])
        return self.head(self.mix(self.patch(x)).mean(1))


class Dense(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.w = self.create_parameter([outputs, inputs])
        self.b = self.create_parameter([outputs], is_bias=True)
        self.gain = 0.01 * inputs**-0.5

    def forward(self, x):
        return paddle.matmul(x, self.w * self.gain, transpose_y=True) + 0.01 * self.b


class Styles(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc0 = Dense(8, 8)
        self.fc1 = Dense(8, 8)
        self.const = self.create_parameter([1, 8, 4])

    def forward(self, z):
        style = F.leaky_relu(self.fc1(F.leaky_relu(self.fc0(z), 0.2)), 0.2)
        return F.tanh(self.const + self.const * style.reshape([-1, 8, 1]) * 0.1)


class Attending(nn.Layer):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(8)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.bias = self.create_parameter([9, 2])

    def forward(self, x):
        y = self.ln(x)
        q, k, v = (layer(y).reshape([0, x.shape[1], 2, 4]).transpose([0, 2, 1, 3]) for layer in (self.q, self.k, self.v))
        weights = paddle.matmul(q, k, transpose_y=True) * 0.5 + self.bias[: x.shape[1]].t().unsqueeze(1)
        return x + self.o(paddle.matmul(F.softmax(weights, -1), v).transpose([0, 2, 1, 3]).flatten(2))


class Tables(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stage1 = nn.Sequential(Attending(), Attending())
        self.stage2 = Attending()
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x):
        x = self.stage2(self.stage1(x))
        state = paddle.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            state, _ = self.cell(x[:, step], state)
        return state


class Normed(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.utils.weight_norm(nn.Conv1D(3, 4, 3))

    def forward(self, x):
        return self.conv(x)


class Biased(nn.Layer):
    """A layer is missing, and a parameter has a name that a tensor of spectral normalisation could have."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.pos_bias_u = self.create_parameter((8,))

    def forward(self, x):
        return self.fc(x) + self.pos_bias_u
