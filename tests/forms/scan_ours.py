"""The same mixer without a loop: all steps at once, each pair of times with the decay between them."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class SelectiveStateSpace(nn.Layer):
    def __init__(self, width=6, channels=8, states=3, low=2, taps=3):
        super().__init__()
        self.states, self.low, self.taps = states, low, taps
        self.in_proj = nn.Linear(width, 2 * channels, bias_attr=False)
        self.conv1d = nn.Conv1D(channels, channels, taps, groups=channels)
        self.x_proj = nn.Linear(channels, low + 2 * states, bias_attr=False)
        self.dt_proj = nn.Linear(low, channels)
        steps = paddle.arange(1, states + 1).astype("float32").log().tile([channels, 1])
        self.A_log = self.create_parameter([channels, states], default_initializer=nn.initializer.Assign(steps))
        self.D = self.create_parameter([channels], default_initializer=nn.initializer.Constant(1.0))
        self.out_proj = nn.Linear(channels, width, bias_attr=False)

    def scan(self, x, step, drive, read):
        rate = step.unsqueeze(-1) * -self.A_log.exp()
        total = paddle.cumsum(rate, axis=1)
        between = total.unsqueeze(2) - total.unsqueeze(1)
        length = x.shape[1]
        later = paddle.tril(paddle.ones([length, length], dtype="bool"))[None, :, :, None, None]
        kernel = paddle.where(
            later, paddle.exp(paddle.where(later, between, paddle.zeros_like(between))), paddle.zeros_like(between)
        )
        given = (step * x).unsqueeze(-1) * drive.unsqueeze(2)
        held = (kernel * given.unsqueeze(1)).sum(2)
        return (held * read.unsqueeze(2)).sum(-1)

    def forward(self, tokens):
        both = self.in_proj(tokens)
        size = both.shape[-1] // 2
        x, gate = both[..., :size], both[..., size:]
        padded = F.pad(x.transpose([0, 2, 1]), [self.taps - 1, 0], data_format="NCL")
        x = F.silu(self.conv1d(padded).transpose([0, 2, 1]))
        parts = self.x_proj(x)
        low, drive, read = paddle.split(parts, [self.low, self.states, self.states], axis=-1)
        step = F.softplus(self.dt_proj(low))
        y = self.scan(x, step, drive, read)
        y = y + self.D * x
        return self.out_proj(F.silu(gate) * y)


class Scan(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.norm = nn.LayerNorm(6)
        self.mixer = SelectiveStateSpace()
        self.head = nn.Linear(6, 4)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        return self.head(self.mixer(self.norm(hidden)) + hidden)
