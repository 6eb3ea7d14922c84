"""References of pairs whose parts differ in form, and whose outputs do not."""

import torch
import torch.nn.functional as F
from torch import nn


class Reader(nn.Module):
    """Convolutions with a padding of their own, and a recurrent layer with the sequence first."""

    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.rnn = nn.LSTM(6, 4, bidirectional=True)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.cnn(x).mean(2).permute(2, 0, 1)
        return F.log_softmax(self.fc(torch.relu(self.rnn(x)[0])), 2).transpose(0, 1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.dw = nn.Conv1d(8, 8, 3, padding=2, groups=8)
        self.norm = nn.LayerNorm(8)
        self.mixed = nn.Linear(8, 9, bias=False)
        self.out = nn.Linear(2, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        y = self.norm(F.silu(self.dw(x.transpose(1, 2))[:, :, : x.shape[1]].transpose(1, 2)))
        gate, left, right = self.mixed(y).split([2, 4, 3], -1)
        gate = self.out(gate * left.mean(-1, keepdim=True))
        return x + self.scale * torch.sigmoid(gate) * right.amax(-1, keepdim=True)


class Patches(nn.Module):
    """A patch embedding by convolution, a packed projection in unequal parts, a causal convolution that is cut, linear layers."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, (2, 3), (2, 3))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.fc1 = nn.Linear(8, 8)
        self.fc2 = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.fc2(F.gelu(self.fc1(x.mean(1))))


class Scaled(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(100 * torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return F.linear(x, self.weight * 0.01 * self.weight.shape[1] ** -0.5, self.bias * 0.01)


class Styles(nn.Module):
    """A generator whose styles come from linear layers with a small learning rate."""

    def __init__(self):
        super().__init__()
        self.mapping = nn.Sequential(Scaled(8, 8), nn.LeakyReLU(0.2), Scaled(8, 8), nn.LeakyReLU(0.2))
        self.start = nn.Parameter(torch.randn(1, 8, 4))

    def forward(self, z):
        return torch.tanh(self.start * (1 + self.mapping(z).unsqueeze(2) * 0.1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.table = nn.Parameter(torch.randn(9, 2))
        self.proj = nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        weights = q @ k.transpose(2, 3) / 2 + self.table[: x.shape[1]].T[None, :, None]
        return self.proj((weights.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attn = Attention()

    def forward(self, x):
        return x + self.attn(self.norm(x))


class Tables(nn.Module):
    """Tables of one shape in blocks whose numbers are others in the port, and a cell that returns one state."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleList([Layer(), Layer()]), nn.ModuleList([Layer()])])
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x):
        for layers in self.layers:
            for layer in layers:
                x = layer(x)
        state = torch.zeros_like(x[:, 0])
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3))

    def forward(self, x):
        return self.conv(x)


class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.pos_bias_u = nn.Parameter(torch.zeros(8))
        self.gate = Gate()

    def forward(self, x):
        return self.gate(self.fc(x) + self.pos_bias_u)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale_g = nn.Parameter(torch.ones(8))
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x) * self.scale_g
