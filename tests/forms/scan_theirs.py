"""A selective state space mixer as the paper's loop."""

import torch
import torch.nn.functional as F
from torch import nn


class Mixer(nn.Module):
    def __init__(self, d=6, inner=8, state=3, rank=2, kernel=3):
        super().__init__()
        self.inner, self.state, self.rank = inner, state, rank
        self.in_proj = nn.Linear(d, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, d, bias=False)

    def forward(self, u):
        length = u.shape[1]
        x, z = self.in_proj(u).chunk(2, dim=-1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., :length]).transpose(1, 2)
        dt, B, C = torch.split(self.x_proj(x), [self.rank, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        A = -torch.exp(self.A_log)
        h, ys = u.new_zeros(u.shape[0], self.inner, self.state), []
        for t in range(length):
            decay = torch.exp(dt[:, t, :, None] * A)
            h = decay * h + dt[:, t, :, None] * B[:, t, None, :] * x[:, t, :, None]
            ys.append((h * C[:, t, None, :]).sum(-1))
        y = torch.stack(ys, 1) + x * self.D
        return self.out_proj(y * F.silu(z))


class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.norm = nn.LayerNorm(6)
        self.mixer = Mixer()
        self.head = nn.Linear(6, 4)

    def forward(self, u):
        h = self.embed(u)
        return self.head(h + self.mixer(self.norm(h)))
