"""Ports as strangers write them: own names, nesting, order of definition; ``wide``, ``extra`` and ``missing`` are wrong."""

# ruff: noqa: E731, E741, RUF100, I001
import paddle
import paddle.nn.functional as F
from paddle import nn


class Attn(nn.Layer):
    def __init__(self, d=16, h=4, split=True):
        super().__init__()
        self.h = h
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = [l(x).reshape([b, n, self.h, d // self.h]).transpose([0, 2, 1, 3]) for l in (self.q, self.k, self.v)]
        a = F.softmax(q @ k.transpose([0, 1, 3, 2]) / (d // self.h) ** 0.5, -1)
        return self.out((a @ v).transpose([0, 2, 1, 3]).reshape([b, n, d]))


class Block(nn.Layer):
    def __init__(self, d=16):
        super().__init__()
        self.ln1 = nn.LayerNorm(d)
        self.attention = Attn(d)
        self.ln2 = nn.LayerNorm(d)
        self.ffn = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class ViT(nn.Layer):
    def __init__(self, d=16, depth=2):
        super().__init__()
        self.head = nn.Linear(d, 5)
        self.final = nn.LayerNorm(d)
        self.cls = self.create_parameter([1, 1, d])
        self.position = self.create_parameter([1, 17, d])
        self.layers = nn.LayerList([Block(d) for _ in range(depth)])
        self.embed = nn.Conv2D(3, d, 4, 4)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose([0, 2, 1])
        x = paddle.concat([self.cls.expand([x.shape[0], 1, -1]), x], 1) + self.position
        for l in self.layers:
            x = l(x)
        return self.head(self.final(x)[:, 0])


class Cell(nn.Layer):  # LSTM with one bias, x and h in Linear layers
    def __init__(self, i=6, h=5):
        super().__init__()
        self.x2h = nn.Linear(i, 4 * h)
        self.h2h = nn.Linear(h, 4 * h, bias_attr=False)
        self.hs = h

    def forward(self, x):
        b, n, _ = x.shape
        h = paddle.zeros([b, self.hs], x.dtype)
        c = paddle.zeros([b, self.hs], x.dtype)
        out = []
        for t in range(n):
            i, f, g, o = paddle.chunk(self.x2h(x[:, t]) + self.h2h(h), 4, -1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(c)
            out.append(h)
        return paddle.stack(out, 1)


class LSTMNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cell = Cell()
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.cell(x)[:, -1])


class Gates(nn.Layer):
    def __init__(self, i=6, h=5):
        super().__init__()
        self.hs = h
        self.Wo, self.Wf, self.Wi, self.Wg = [nn.Linear(i, h) for _ in range(4)]
        self.Ui, self.Uf, self.Ug, self.Uo = [nn.Linear(h, h, bias_attr=False) for _ in range(4)]
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        b, n, _ = x.shape
        h = paddle.zeros([b, self.hs], x.dtype)
        c = paddle.zeros([b, self.hs], x.dtype)
        for t in range(n):
            u = x[:, t]
            f = F.sigmoid(self.Wf(u) + self.Uf(h))
            i = F.sigmoid(self.Wi(u) + self.Ui(h))
            o = F.sigmoid(self.Wo(u) + self.Uo(h))
            g = paddle.tanh(self.Wg(u) + self.Ug(h))
            c = f * c + i * g
            h = o * paddle.tanh(c)
        return self.out(h)


class Enc(nn.Layer):
    def __init__(self, d=16):
        super().__init__()
        self.mha = nn.MultiHeadAttention(d, 4)
        self.n1 = nn.LayerNorm(d)
        self.n2 = nn.LayerNorm(d)
        self.w1 = nn.Linear(d, 32)
        self.w2 = nn.Linear(32, d)

    def forward(self, x):
        x = self.n1(x + self.mha(x))
        return self.n2(x + self.w2(F.relu(self.w1(x))))


class Encoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stack = nn.LayerList([Enc() for _ in range(2)])
        self.wrap = nn.Sequential(nn.Sequential(nn.Linear(16, 3)))

    def forward(self, x):
        for l in self.stack:
            x = l(x)
        return self.wrap(x)


class Towers(nn.Layer):
    def __init__(self):
        super().__init__()
        t = lambda: nn.Sequential(nn.Conv2D(3, 4, 3, padding=1), nn.BatchNorm2D(4), nn.ReLU(), nn.Conv2D(4, 4, 3, padding=1))
        self.left = t()
        self.right = t()
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        r = self.right(x)
        l = self.left(x)
        return self.fc(paddle.concat([l, r], 1).mean([2, 3]))


class CBR(nn.Layer):
    def __init__(self, i, o, s=1, k=3):
        super().__init__()
        self.c = nn.Conv2D(i, o, k, s, k // 2, bias_attr=False)
        self.b = nn.BatchNorm2D(o)

    def forward(self, x):
        return self.b(self.c(x))


class Unit(nn.Layer):
    def __init__(self, i, o, s=1, wide=0, extra=False, skip=False):
        super().__init__()
        self.short = CBR(i, o, s, 1) if (i != o or s > 1) else None
        self.two = CBR(o + wide, o)
        self.one = CBR(i, o + wide, s)
        self.extra = CBR(o, o) if extra else None
        self.skip = skip

    def forward(self, x):
        y = x if self.short is None else self.short(x)
        z = F.relu(self.one(x))
        if not self.skip:
            z = self.two(z)
        if self.extra:
            z = self.extra(z)
        return F.relu(z + y)


class ResNet(nn.Layer):
    def __init__(self, kind=""):
        super().__init__()
        self.classifier = nn.Linear(16, 5)
        self.stage2 = nn.Sequential(Unit(8, 16, 2, wide=4 if kind == "wide" else 0), Unit(16, 16, extra=kind == "extra"))
        self.stage1 = nn.Sequential(Unit(8, 8), Unit(8, 8))
        self.stem = CBR(3, 8)
        if kind == "missing":
            u = self.stage1[1]
            u.skip = True
            del u.two

    def forward(self, x):
        return self.classifier(self.stage2(self.stage1(F.relu(self.stem(x)))).mean([2, 3]))


def wide():
    return ResNet("wide")


def extra():
    return ResNet("extra")


def missing():
    return ResNet("missing")
