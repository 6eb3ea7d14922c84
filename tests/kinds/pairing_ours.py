"""Ports of ``pairing_theirs.py``."""

import math

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F


class ConvBias(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8)
        self.conv2, self.bn2 = nn.Conv2D(8, 8, 3, padding=1), nn.BatchNorm2D(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean([2, 3]))


class ConvBiasDetached(ConvBias):
    """The gradient of the second convolution is cut."""

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x.detach())))
        return self.fc(x.mean([2, 3]))


class Own(nn.Layer):
    """(in, out)."""

    def __init__(self, width, out):
        super().__init__()
        self.w = self.create_parameter([width, out], default_initializer=nn.initializer.Normal(0, width**-0.5))

    def forward(self, x):
        return paddle.matmul(x, self.w)


class Turned(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inp, self.mixer, self.classifier = nn.Linear(6, 8), Own(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.classifier(paddle.tanh(self.mixer(F.relu(self.inp(x)))))


class TurnedSigmoid(Turned):
    def forward(self, x):
        return self.classifier(F.sigmoid(self.mixer(F.relu(self.inp(x)))))


class TurnedMissing(nn.Layer):
    """The last layer is missing."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Linear(6, 8), Own(8, 8)

    def forward(self, x):
        return paddle.tanh(self.mix(F.relu(self.embed(x))))[:, :, :3]


class TurnedRaw(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inp, self.classifier = nn.Linear(6, 8), nn.Linear(8, 3)
        self.mixing = self.create_parameter([8, 8], default_initializer=nn.initializer.Normal(0, 0.3))

    def forward(self, x):
        return self.classifier(paddle.tanh(F.relu(self.inp(x)) @ self.mixing))


class TurnedRawSame(TurnedRaw):
    def __init__(self):
        super().__init__()
        self.embed, self.head, self.mix = self.inp, self.classifier, self.mixing
        del self.inp, self.classifier, self.mixing

    def forward(self, x):
        return self.head(paddle.tanh(F.relu(self.embed(x)) @ self.mix))


class Packed(nn.Layer):
    def __init__(self, width=12, heads=3):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj, self.ln, self.fc = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.Linear(width, 4),
        )

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.ln(x)).reshape([b, n, 3, self.heads, -1]).transpose([2, 0, 3, 1, 4]).unbind(0)
        a = F.softmax(q @ k.transpose([0, 1, 3, 2]) * self.scale(c), -1)
        return self.fc(x + self.proj((a @ v).transpose([0, 2, 1, 3]).reshape([b, n, c])))

    def scale(self, c):
        return (c // self.heads) ** -0.5


class PackedScale(Packed):
    def scale(self, c):
        return c**-0.5


class SelfAttention(nn.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.q_proj, self.k_proj, self.v_proj = (
            heads,
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )
        self.out_proj = nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).reshape([b, n, self.heads, -1]).transpose([0, 2, 1, 3]) for f in (self.q_proj, self.k_proj, self.v_proj))
        a = F.softmax(q @ k.transpose([0, 1, 3, 2]) * (c // self.heads) ** -0.5, -1)
        return self.out_proj((a @ v).transpose([0, 2, 1, 3]).reshape([b, n, c]))


class ClassAttention(nn.Layer):
    """The query of the class token, cut from packed projections."""

    token = 0

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, self.heads, -1]).transpose([2, 0, 3, 1, 4]).unbind(0)
        a = F.softmax(q[:, :, self.token : self.token + 1] @ k.transpose([0, 1, 3, 2]) * (c // self.heads) ** -0.5, -1)
        return self.out((a @ v).transpose([0, 2, 1, 3]).reshape([b, 1, c]))


class ClassAttentionWrong(ClassAttention):
    token = 1


class Cait(nn.Layer):
    cls = ClassAttention

    def __init__(self, width=12, heads=3):
        super().__init__()
        self.ln1, self.sa = nn.LayerNorm(width), SelfAttention(width, heads)
        self.ln2, self.cls_token = (
            nn.LayerNorm(width),
            self.create_parameter([1, 1, width], default_initializer=nn.initializer.Constant(0.0)),
        )
        self.ca, self.fc = self.cls(width, heads), nn.Linear(width, 4)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        token = self.cls_token.expand([x.shape[0], -1, -1])
        token = token + self.ca(self.ln2(paddle.concat([token, x], 1)))
        return self.fc(token[:, 0])


class CaitWrong(Cait):
    cls = ClassAttentionWrong


class Rotary(nn.Layer):
    base = 10000

    def __init__(self, width=16, heads=2, length=32):
        super().__init__()
        self.heads, d = heads, width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, 4)
        inverse = self.base ** (-np.arange(0, d, 2, dtype="float64") / d)
        angles = np.outer(np.arange(length), inverse)
        angles = np.concatenate([angles, angles], -1)
        self.register_buffer("cos_cached", paddle.to_tensor(np.cos(angles), dtype="float32"), persistable=False)
        self.register_buffer("sin_cached", paddle.to_tensor(np.sin(angles), dtype="float32"), persistable=False)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, self.heads, -1]).transpose([2, 0, 3, 1, 4]).unbind(0)
        cos, sin = self.cos_cached[:n].astype(x.dtype), self.sin_cached[:n].astype(x.dtype)

        def turned(t):
            a, b = t.chunk(2, -1)
            return t * cos + paddle.concat([-b, a], -1) * sin

        a = F.softmax(turned(q) @ turned(k).transpose([0, 1, 3, 2]) * (c // self.heads) ** -0.5, -1)
        return self.proj((a @ v).transpose([0, 2, 1, 3]).reshape([b, n, c]))


class RotaryPlain(Rotary):
    """The tables as plain attributes, made by Paddle in float32."""

    def __init__(self, width=16, heads=2, length=32):
        super().__init__(width, heads, length)
        del self.cos_cached, self.sin_cached
        d = width // heads
        inverse = 1.0 / paddle.pow(paddle.to_tensor(10000.0), paddle.arange(0, d, 2, dtype="float32") / d)
        angles = paddle.outer(paddle.arange(length, dtype="float32"), inverse)
        angles = paddle.concat([angles, angles], -1)
        self.cos_cached, self.sin_cached = angles.cos(), angles.sin()


class RotaryBase(Rotary):
    base = 10001


class Sine(nn.Layer):
    eps = 1e-6

    def __init__(self, width=8):
        super().__init__()
        self.conv, self.head, self.half = nn.Conv2D(3, width, 3, padding=1), nn.Linear(width, 4), width // 2

    def forward(self, x):
        x = self.conv(x)
        ones = paddle.ones_like(x[:, 0])
        y, z = ones.cumsum(1, dtype="float32"), ones.cumsum(2, dtype="float32")
        y, z = y / (y[:, -1:, :] + self.eps) * 2 * math.pi, z / (z[:, :, -1:] + self.eps) * 2 * math.pi
        t = 2 * (paddle.arange(self.half) // 2).astype("float32")
        t = 10000 ** (t / self.half)
        z, y = z.unsqueeze(-1) / t, y.unsqueeze(-1) / t
        z = paddle.stack((z[:, :, :, 0::2].sin(), z[:, :, :, 1::2].cos()), 4).flatten(3)
        y = paddle.stack((y[:, :, :, 0::2].sin(), y[:, :, :, 1::2].cos()), 4).flatten(3)
        return self.head((x.transpose([0, 2, 3, 1]) + paddle.concat((y, z), 3)).mean([1, 2]))


class SineEps(Sine):
    eps = 1e-4


class Positions(nn.Layer):
    base = 10000.0

    def __init__(self, width=8, length=20):
        super().__init__()
        self.fc, self.head = nn.Linear(6, width), nn.Linear(width, 3)
        place, step = np.arange(length)[:, None], 1 / self.base ** (np.arange(0, width, 2) / width)
        table = np.zeros((length, width), dtype="float32")
        table[:, 0::2], table[:, 1::2] = np.sin(place * step), np.cos(place * step)
        self.table = paddle.to_tensor(table)

    def forward(self, x):
        x = self.fc(x)
        return self.head(paddle.tanh(x + self.table[: x.shape[1]].astype(x.dtype)))


class PositionsAnew(Positions):
    """Computes the table in each pass, which in float64 is not rounded."""

    def forward(self, x):
        place = paddle.arange(x.shape[1], dtype=x.dtype).unsqueeze(1)
        step = self.base ** (paddle.arange(0, 8, 2, dtype=x.dtype) / -8)
        table = paddle.stack([paddle.sin(place * step), paddle.cos(place * step)], -1).flatten(1)
        return self.head(paddle.tanh(self.fc(x) + table))


class PositionsAnewBase(PositionsAnew):
    base = 9999.0


class PositionsBase(Positions):
    base = 9999.0


class TimeMLP(nn.Layer):
    """Embeds the times itself."""

    def __init__(self, width, out):
        super().__init__()
        self.width, self.linear_1, self.linear_2 = width, nn.Linear(width, out), nn.Linear(out, out)

    def forward(self, t):
        half = self.width // 2
        f = paddle.exp(paddle.arange(half).astype(t.dtype) * -(math.log(10000) / (half - 1)))
        a = t.unsqueeze(1) * f.unsqueeze(0)
        return self.linear_2(F.silu(self.linear_1(paddle.concat([a.sin(), a.cos()], -1))))


class TimeNet(nn.Layer):
    times = 10

    def __init__(self, width=8):
        super().__init__()
        self.time_mlp = TimeMLP(width, 16)
        self.conv, self.out = nn.Conv2D(3, 16, 3, padding=1), nn.Conv2D(16, 3, 1)

    def forward(self, x):
        t = self.time_mlp(x[:, 0, 0, 0] * self.times)
        return self.out(F.silu(self.conv(x)) + t.unsqueeze([2, 3]))


class TimeNetWrong(TimeNet):
    times = 100


class Mlp(nn.Layer):
    """Takes pictures."""

    def __init__(self, width):
        super().__init__()
        self.fc1, self.dw, self.fc2 = nn.Linear(width, 16), nn.Conv2D(16, 16, 3, padding=1, groups=16), nn.Linear(16, width)

    def forward(self, x):
        b, _, h, w = x.shape
        x = self.fc1(x.flatten(2).transpose([0, 2, 1]))
        x = self.dw(x.transpose([0, 2, 1]).reshape([b, -1, h, w])).flatten(2).transpose([0, 2, 1])
        return self.fc2(F.gelu(x))


class Segformer(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.mlp, self.head = nn.Conv2D(3, 8, 3, 2, 1), nn.LayerNorm(8), Mlp(8), nn.Conv2D(8, 4, 1)

    def forward(self, x):
        x = self.embed(x)
        b, c, h, w = x.shape
        y = self.norm(x.flatten(2).transpose([0, 2, 1])).transpose([0, 2, 1]).reshape([b, c, h, w])
        return self.head(x + self.mlp(y).transpose([0, 2, 1]).reshape([b, c, h, w]))


class SegformerPadding(Segformer):
    def __init__(self):
        super().__init__()
        self.mlp.dw = nn.Conv2D(16, 16, 3, padding=1, groups=16, padding_mode="reflect")


class Unused(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.head = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(F.relu(self.fc(x))))


class UnusedRenamed(nn.Layer):
    def __init__(self):
        super().__init__()
        self.dense, self.ln, self.classifier = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.classifier(self.ln(F.relu(self.dense(x))))


class UnusedBoth(Unused):
    def __init__(self):
        super().__init__()
        self.types = nn.Embedding(2, 8)


class UnusedOther(Unused):
    """Another layer that nothing calls."""

    def __init__(self):
        super().__init__()
        self.pooler = nn.Linear(8, 8)


class UnusedEps(Unused):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8, epsilon=1e-3)


class FusedNet(nn.Layer):
    act = staticmethod(F.relu)

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2D(3, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
        self.conv2, self.bn2 = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.act(self.bn2(self.conv2(x))).mean([2, 3]))


class FusedLayers(FusedNet):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        return self.fc(self.relu(self.bn2(self.conv2(x))).mean([2, 3]))


class FusedWrong(FusedNet):
    act = staticmethod(F.relu6)


class FusedBare(FusedNet):
    act = staticmethod(lambda x: x)


class RMS(nn.Layer):
    eps = 1e-6

    def __init__(self, dim):
        super().__init__()
        self.g = self.create_parameter([dim], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        return x / paddle.sqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.g


class RMSEps(RMS):
    eps = 1e-5


class Llama(nn.Layer):
    rms = RMS

    def __init__(self, width=8):
        super().__init__()
        self.norm1, self.w1, self.w3 = self.rms(width), nn.Linear(width, 12, bias_attr=False), nn.Linear(width, 12, bias_attr=False)
        self.w2, self.final, self.output = (
            nn.Linear(12, width, bias_attr=False),
            self.rms(width),
            nn.Linear(width, 5, bias_attr=False),
        )

    def forward(self, x):
        h = self.norm1(x)
        return self.output(self.final(x + self.w2(self.gated(h))))

    def gated(self, h):
        return F.silu(self.w1(h)) * self.w3(h)


class LlamaEps(Llama):
    rms = RMSEps


class LlamaGelu(Llama):
    def gated(self, h):
        return F.gelu(self.w1(h)) * self.w3(h)


class OwnLayerNorm(nn.Layer):
    eps = 1e-5

    def __init__(self, dim):
        super().__init__()
        self.scale = self.create_parameter([dim], default_initializer=nn.initializer.Constant(1.0))
        self.shift = self.create_parameter([dim], default_initializer=nn.initializer.Constant(0.0))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        return (x - mean) / paddle.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + self.eps) * self.scale + self.shift


class OwnLayerNormEps(OwnLayerNorm):
    eps = 1e-3


class LayerNormNet(nn.Layer):
    norm = OwnLayerNorm

    def __init__(self, width=8):
        super().__init__()
        self.norm1, self.norm2 = self.norm(width), self.norm(width)
        self.up, self.down, self.out = nn.Linear(width, 16), nn.Linear(16, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.norm2(x + self.down(F.gelu(self.up(self.norm1(x))))))


class LayerNormNetEps(LayerNormNet):
    norm = OwnLayerNormEps


class LayerNormNetSame(nn.Layer):
    """The layers under the reference's names, the tensors under others."""

    def __init__(self, width=8):
        super().__init__()
        self.ln_1, self.ln_2 = OwnLayerNorm(width), OwnLayerNorm(width)
        self.fc, self.proj, self.head = nn.Linear(width, 16), nn.Linear(16, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.ln_2(x + self.proj(F.gelu(self.fc(self.ln_1(x))))))


class TwoSettings(nn.Layer):
    eps, momentum = 1e-3, 0.99

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2D(3, 8, 3, padding=1, bias_attr=False), nn.Linear(8, 4)
        self.bn = nn.BatchNorm2D(8, epsilon=self.eps, momentum=self.momentum)

    def forward(self, x):
        return self.fc(F.relu(self.bn(self.conv(x))).mean([2, 3]))


class TwoSettingsBoth(TwoSettings):
    eps, momentum = 1e-5, 0.9


class Normalise(nn.Layer):
    def __init__(self, groups, width):
        super().__init__()
        self.groups = groups
        self.gamma = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.beta = self.create_parameter([width], default_initializer=nn.initializer.Constant(0.0))

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape([b, self.groups, -1])
        mean = x.mean(-1, keepdim=True)
        x = (x - mean) / paddle.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
        return x.reshape([b, c, h, w]) * self.gamma.reshape([1, -1, 1, 1]) + self.beta.reshape([1, -1, 1, 1])


class Residual(nn.Layer):
    def __init__(self, a, b, emb):
        super().__init__()
        self.gn1, self.c1, self.emb = Normalise(4, a), nn.Conv2D(a, b, 3, padding=1), nn.Linear(emb, b)
        self.gn2, self.c2 = Normalise(4, b), nn.Conv2D(b, b, 3, padding=1)
        self.shortcut = nn.Conv2D(a, b, 1) if a != b else None

    def forward(self, x, emb):
        h = self.c1(F.silu(self.gn1(x)))
        h = h + self.embedded(emb).unsqueeze([2, 3])
        h = self.c2(self.act(self.gn2(h)))
        return h + (x if self.shortcut is None else self.shortcut(x))

    def embedded(self, emb):
        return self.emb(F.silu(emb))

    act = staticmethod(F.silu)


class ResidualPlainTime(Residual):
    def embedded(self, emb):
        return self.emb(emb)


class ResidualRelu(Residual):
    act = staticmethod(F.relu)


class UNet(nn.Layer):
    block, last, mode = Residual, staticmethod(F.silu), "nearest"

    def __init__(self, width=8, emb=16):
        super().__init__()
        self.width = width
        self.emb1, self.emb2 = nn.Linear(width, emb), nn.Linear(emb, emb)
        self.conv_in = nn.Conv2D(3, width, 3, padding=1)
        self.down1, self.down2 = self.block(width, width, emb), self.block(width, 2 * width, emb)
        self.downsample, self.middle = nn.Conv2D(2 * width, 2 * width, 3, 2, 1), self.block(2 * width, 2 * width, emb)
        self.up1, self.up2 = self.block(4 * width, width, emb), self.block(2 * width, width, emb)
        self.norm_out, self.conv_out = Normalise(4, width), nn.Conv2D(width, 3, 3, padding=1)

    def times(self, x):
        half = self.width // 2
        f = paddle.exp(paddle.arange(half).astype(x.dtype) * -(math.log(10000) / half))
        a = (x[:, 0, 0, 0] * 10).unsqueeze(1) * f.unsqueeze(0)
        return paddle.concat([a.sin(), a.cos()], -1)

    def joined(self, x, skip):
        return paddle.concat([x, skip], 1)

    def forward(self, x):
        t = self.emb2(F.silu(self.emb1(self.times(x))))
        x = self.conv_in(x)
        a = self.down1(x, t)
        b = self.down2(a, t)
        x = self.middle(self.downsample(b), t)
        x = F.interpolate(x, scale_factor=2, mode=self.mode)
        x = self.up1(self.joined(x, b), t)
        x = self.up2(self.joined(x, a), t)
        return self.conv_out(self.last(self.norm_out(x)))


class UNetTime(UNet):
    block = ResidualPlainTime


class UNetRelu(UNet):
    block = ResidualRelu


class UNetSinusoid(UNet):
    def times(self, x):
        half = self.width // 2
        f = paddle.exp(paddle.arange(half).astype(x.dtype) * -(math.log(10000) / half))
        a = (x[:, 0, 0, 0] * 10).unsqueeze(1) * f.unsqueeze(0)
        return paddle.concat([a.cos(), a.sin()], -1)


class UNetLast(UNet):
    last = staticmethod(F.relu)


class UNetBilinear(UNet):
    mode = "bilinear"


class UNetConcat(UNet):
    def joined(self, x, skip):
        return paddle.concat([skip, x], 1) if x.shape[1] == skip.shape[1] else paddle.concat([x, skip], 1)


class SoftLoss(nn.Layer):
    def forward(self, logits, target):
        return (-target * F.log_softmax(logits, -1)).sum(-1).mean()


class SoftLossStock(nn.Layer):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target, soft_label=True)


class SoftLossTwice(nn.Layer):
    def forward(self, logits, target):
        return (-F.softmax(target, -1) * F.log_softmax(logits, -1)).sum(-1).mean()


class Divergence(nn.Layer):
    def forward(self, pred, soft):
        return F.kl_div(F.log_softmax(pred / 4, -1), F.softmax(soft / 4, -1), reduction="none").mean(1) * 16
