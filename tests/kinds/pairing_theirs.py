"""References whose layers and weights go by other names, other forms and other nesting than the port's."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class ConvBias(nn.Module):
    """A convolution's bias before BatchNorm: its gradient is zero in training mode."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class Own(nn.Module):
    """A linear layer of its own: (out, in)."""

    def __init__(self, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width) * width**-0.5)

    def forward(self, x):
        return x @ self.weight.t()


class Turned(nn.Module):
    """Square raw weights, one of them beside a renamed layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Linear(6, 8), Own(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.mix(torch.relu(self.embed(x)))))


class TurnedRaw(nn.Module):
    """A raw square matrix of the model itself."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.mix = nn.Parameter(torch.randn(8, 8) * 0.3)

    def forward(self, x):
        return self.head(torch.tanh(F.linear(torch.relu(self.embed(x)), self.mix)))


class Packed(nn.Module):
    """Attention with separate projections of equal shapes."""

    def __init__(self, width=12, heads=3):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out, self.norm, self.head = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(self.norm(x)).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
        a = (q @ k.transpose(-1, -2) / math.sqrt(c // self.heads)).softmax(-1)
        return self.head(x + self.to_out((a @ v).transpose(1, 2).reshape(b, n, c)))


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        a = (q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, n, c))


class ClassAttention(nn.Module):
    """The query is made of the class token alone."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.proj = heads, nn.Linear(width, width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x[:, 0]).unsqueeze(1).reshape(b, 1, self.heads, -1).permute(0, 2, 1, 3)
        k, v = (f(x).reshape(b, n, self.heads, -1).permute(0, 2, 1, 3) for f in (self.k, self.v))
        a = (q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, 1, c))


class Cait(nn.Module):
    def __init__(self, width=12, heads=3):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), SelfAttention(width, heads)
        self.norm2, self.token = nn.LayerNorm(width), nn.Parameter(torch.zeros(1, 1, width))
        self.cls_attn, self.head = ClassAttention(width, heads), nn.Linear(width, 4)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        token = self.token.expand(x.shape[0], -1, -1)
        token = token + self.cls_attn(self.norm2(torch.cat([token, x], 1)))
        return self.head(token[:, 0])


class Rotary(nn.Module):
    """Tables of angles that are made in the constructor, in float32."""

    def __init__(self, width=16, heads=2, length=32):
        super().__init__()
        self.heads, d = heads, width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, 4)
        inverse = 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d))
        angles = torch.einsum("i,j->ij", torch.arange(length).float(), inverse)
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        cos, sin = self.cos[:n], self.sin[:n]

        def turned(t):
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        a = (turned(q) @ turned(k).transpose(-1, -2) * (c // self.heads) ** -0.5).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, n, c))


class Sine(nn.Module):
    """Sine positions of a vision transformer, by ``cumsum`` in float32, as in DETR."""

    def __init__(self, width=8):
        super().__init__()
        self.conv, self.head, self.half = nn.Conv2d(3, width, 3, padding=1), nn.Linear(width, 4), width // 2

    def forward(self, x):
        x = self.conv(x)
        ones = torch.ones_like(x[:, 0])
        y, z = ones.cumsum(1, dtype=torch.float32), ones.cumsum(2, dtype=torch.float32)
        y, z = y / (y[:, -1:, :] + 1e-6) * 2 * math.pi, z / (z[:, :, -1:] + 1e-6) * 2 * math.pi
        t = torch.arange(self.half, dtype=torch.float32)
        t = 10000 ** (2 * torch.div(t, 2, rounding_mode="floor") / self.half)
        z, y = z[..., None] / t, y[..., None] / t
        z = torch.stack((z[..., 0::2].sin(), z[..., 1::2].cos()), 4).flatten(3)
        y = torch.stack((y[..., 0::2].sin(), y[..., 1::2].cos()), 4).flatten(3)
        return self.head((x.permute(0, 2, 3, 1) + torch.cat((y, z), 3)).mean((1, 2)))


class Positions(nn.Module):
    """A sine table in the constructor, as in the annotated transformer."""

    def __init__(self, width=8, length=20):
        super().__init__()
        self.fc, self.head = nn.Linear(6, width), nn.Linear(width, 3)
        table = torch.zeros(length, width)
        place = torch.arange(0, length).unsqueeze(1).float()
        step = torch.exp(torch.arange(0, width, 2).float() * -(math.log(10000.0) / width))
        table[:, 0::2], table[:, 1::2] = torch.sin(place * step), torch.cos(place * step)
        self.register_buffer("pe", table.unsqueeze(0))

    def forward(self, x):
        x = self.fc(x)
        return self.head(torch.tanh(x + self.pe[:, : x.shape[1]]))


class TimeNet(nn.Module):
    """A U-Net's conditioning: its ``time_mlp`` gets the embedded times."""

    def __init__(self, width=8):
        super().__init__()
        self.width = width
        self.time_mlp = nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 16))
        self.conv, self.out = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 1)

    def embedded(self, t):
        half = self.width // 2
        f = torch.exp(torch.arange(half, dtype=t.dtype) * -(math.log(10000) / (half - 1)))
        a = t[:, None] * f[None]
        return torch.cat([a.sin(), a.cos()], -1)

    def forward(self, x):
        t = x[:, 0, 0, 0] * 10
        t = self.time_mlp(self.embedded(t))
        return self.out(F.silu(self.conv(x)) + t[:, :, None, None])


class Mlp(nn.Module):
    """Takes (batch, tokens, channels) and the size."""

    def __init__(self, width):
        super().__init__()
        self.fc1, self.dw, self.fc2 = nn.Linear(width, 16), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Linear(16, width)

    def forward(self, x, h, w):
        x = self.fc1(x)
        b, _, c = x.shape
        x = self.dw(x.transpose(1, 2).view(b, c, h, w)).flatten(2).transpose(1, 2)
        return self.fc2(F.gelu(x))


class Segformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.mlp, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.LayerNorm(8), Mlp(8), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        x = self.embed(x)
        b, c, h, w = x.shape
        x = x.flatten(2).transpose(1, 2)
        x = x + self.mlp(self.norm(x), h, w)
        return self.head(x.transpose(1, 2).reshape(b, c, h, w))


class Unused(nn.Module):
    """An embedding of token types that nothing calls."""

    def __init__(self):
        super().__init__()
        self.types = nn.Embedding(2, 8)
        self.fc, self.norm, self.head = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(torch.relu(self.fc(x))))


class BatchNormAct(nn.BatchNorm2d):
    """A normalisation with its activation, as in timm."""

    def __init__(self, width):
        super().__init__(width)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(super().forward(x))


class FusedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), BatchNormAct(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), BatchNormAct(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(self.bn2(self.conv2(self.bn1(self.conv1(x)))).mean((2, 3)))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Llama(nn.Module):
    """RMS norms with other names on the other side."""

    def __init__(self, width=8):
        super().__init__()
        self.input_layernorm, self.gate_proj, self.up_proj = (
            RMSNorm(width),
            nn.Linear(width, 12, bias=False),
            nn.Linear(width, 12, bias=False),
        )
        self.down_proj, self.norm, self.lm_head = nn.Linear(12, width, bias=False), RMSNorm(width), nn.Linear(width, 5, bias=False)

    def forward(self, x):
        h = self.input_layernorm(x)
        x = x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))
        return self.lm_head(self.norm(x))


class LayerNormNet(nn.Module):
    """A pre-norm block with torch's own layer norm."""

    def __init__(self, width=8):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc, self.proj, self.head = nn.Linear(width, 16), nn.Linear(16, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.ln_2(x + self.proj(F.gelu(self.fc(self.ln_1(x))))))


class TwoSettings(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = (
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8, eps=1e-3, momentum=0.01),
            nn.Linear(8, 4),
        )

    def forward(self, x):
        return self.fc(F.relu(self.bn(self.conv(x))).mean((2, 3)))


# --- a U-Net whose layers are its author's own ---


class GroupNorm(nn.Module):
    def __init__(self, groups, width):
        super().__init__()
        self.groups, self.scale, self.shift = groups, nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, self.groups, -1)
        x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
        return x.reshape(b, c, h, w) * self.scale.view(1, -1, 1, 1) + self.shift.view(1, -1, 1, 1)


class ResBlock(nn.Module):
    def __init__(self, a, b, time):
        super().__init__()
        self.norm1, self.conv1, self.time = GroupNorm(4, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(time, b)
        self.norm2, self.conv2 = GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, width=8, time=16):
        super().__init__()
        self.width = width
        self.time_mlp = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.downs = nn.ModuleList([ResBlock(width, width, time), ResBlock(width, 2 * width, time)])
        self.pool, self.mid = nn.Conv2d(2 * width, 2 * width, 3, 2, 1), ResBlock(2 * width, 2 * width, time)
        self.ups = nn.ModuleList([ResBlock(4 * width, width, time), ResBlock(2 * width, width, time)])
        self.norm, self.out = GroupNorm(4, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        half = self.width // 2
        f = torch.exp(torch.arange(half, dtype=x.dtype) * -(math.log(10000) / half))
        a = (x[:, 0, 0, 0] * 10)[:, None] * f[None]
        t = self.time_mlp(torch.cat([a.sin(), a.cos()], -1))
        x = self.stem(x)
        a = self.downs[0](x, t)
        b = self.downs[1](a, t)
        x = self.mid(self.pool(b), t)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.ups[0](torch.cat([x, b], 1), t)
        x = self.ups[1](torch.cat([x, a], 1), t)
        return self.out(F.silu(self.norm(x)))


class SoftLoss(nn.Module):
    """A loss of soft labels: its root inputs are the scores and the target."""

    def forward(self, logits, target):
        return torch.sum(-target * F.log_softmax(logits, -1), -1).mean()


class Divergence(nn.Module):
    def forward(self, pred, soft):
        return F.kl_div(F.log_softmax(pred / 4, -1), F.softmax(soft / 4, -1), reduction="none").mean(1) * 16
