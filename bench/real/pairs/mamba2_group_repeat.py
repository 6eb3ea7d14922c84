import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.value = torch.nn.Linear(10, 8 * 3)
        self.state_in = torch.nn.Linear(10, 2 * 4)
        self.state_out = torch.nn.Linear(10, 2 * 4)
        self.out = torch.nn.Linear(24, 10)

    def forward(self, x):
        batch, steps, _ = x.shape
        value = self.value(x).view(batch, steps, 8, 3)
        b = self.state_in(x).view(batch, steps, 2, 4).repeat_interleave(4, 2)
        c = self.state_out(x).view(batch, steps, 2, 4).repeat_interleave(4, 2)
        state = torch.zeros(batch, 8, 3, 4, dtype=x.dtype)
        outputs = []
        for t in range(steps):
            state = 0.8 * state + value[:, t, :, :, None] * b[:, t, :, None]
            outputs.append((state * c[:, t, :, None]).sum(-1).flatten(1))
        return self.out(torch.stack(outputs, 1))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(10, 8 * 3)
        self.state_in = nn.Linear(10, 2 * 4)
        self.state_out = nn.Linear(10, 2 * 4)
        self.out = nn.Linear(24, 10)

    def forward(self, x):
        batch, steps, _ = x.shape
        value = self.value(x).reshape([batch, steps, 8, 3])
        b = self.state_in(x).reshape([batch, steps, 2, 4])
        c = self.state_out(x).reshape([batch, steps, 2, 4])
        b = b.tile([1, 1, 4, 1])  # fix: b = b.repeat_interleave(4, 2)
        c = c.tile([1, 1, 4, 1])  # fix: c = c.repeat_interleave(4, 2)
        state = paddle.zeros([batch, 8, 3, 4], dtype=x.dtype)
        outputs = []
        for t in range(steps):
            state = 0.8 * state + value[:, t].unsqueeze(-1) * b[:, t].unsqueeze(2)
            outputs.append((state * c[:, t].unsqueeze(2)).sum(-1).flatten(1))
        return self.out(paddle.stack(outputs, 1))


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 10)).astype("float32")
