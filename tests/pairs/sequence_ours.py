"""Ports of networks for sequences and pictures as strangers write them; ``sequence_theirs.py`` has their references."""

# ruff: noqa: E741, RUF100
import paddle
import paddle.nn.functional as F
from paddle import nn


class Classifier(nn.Layer):
    """Tokens, padding masked, a stack of encoder layers, mean over what is no padding."""

    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(20, 16, padding_idx=0)
        self.pos = nn.Embedding(12, 16)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu"), 2)
        self.cls = nn.Linear(16, 3)

    def forward(self, ids):
        keep = ids != 0
        x = self.tok(ids) + self.pos(paddle.arange(ids.shape[1]))
        x = self.enc(x, keep.unsqueeze([1, 2]))
        w = keep.astype("float32").unsqueeze(-1)
        return self.cls((x * w).sum(1) / w.sum(1))


class PreNorm(nn.Layer):
    """A causal language model with tied weights."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(20, 16)
        self.blocks = nn.LayerList(
            [nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, normalize_before=True, activation="gelu") for _ in range(2)]
        )
        self.ln = nn.LayerNorm(16)

    def forward(self, ids):
        x = self.wte(ids)
        mask = paddle.tensor.triu(paddle.full([ids.shape[1]] * 2, float("-inf")), 1)
        for block in self.blocks:
            x = block(x, mask)
        return paddle.matmul(self.ln(x), self.wte.weight, transpose_y=True)


class Patch(nn.Layer):
    """A ViT whose blocks hold a MultiHeadAttention."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2D(3, 16, 4, 4)
        self.cls = self.create_parameter([1, 1, 16])
        self.pos = self.create_parameter([1, 13, 16])
        self.depth = 2
        for i in range(self.depth):
            self.add_sublayer(f"n{i}", nn.LayerNorm(16, epsilon=1e-6))
            self.add_sublayer(f"a{i}", nn.MultiHeadAttention(16, 4))
            self.add_sublayer(
                f"m{i}", nn.Sequential(nn.LayerNorm(16, epsilon=1e-6), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
            )
        self.out = nn.Sequential(nn.LayerNorm(16, epsilon=1e-6), nn.Linear(16, 5))

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose([0, 2, 1])
        x = paddle.concat([self.cls.expand([x.shape[0], -1, -1]), x], axis=1) + self.pos
        for i in range(self.depth):
            y = getattr(self, f"n{i}")(x)
            x = x + getattr(self, f"a{i}")(y, y, y)
            x = x + getattr(self, f"m{i}")(x)
        return self.out(x[:, 0])


class Tagger(nn.Layer):
    def __init__(self):
        super().__init__()
        self.word_emb = nn.Embedding(20, 8, padding_idx=0)
        self.bilstm = nn.LSTM(8, 6, num_layers=2, direction="bidirect")
        self.drop = nn.Dropout(0.3)
        self.scores = nn.Linear(12, 4)

    def forward(self, ids):
        out, _ = self.bilstm(self.word_emb(ids))
        return F.log_softmax(self.scores(self.drop(out)), axis=-1)


class ConvGRU(nn.Layer):
    """Text in a picture: convolutions, columns as a sequence, a GRU in both directions."""

    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2D(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.c2 = nn.Conv2D(8, 12, 3, padding=1)
        self.pool = nn.MaxPool2D(2, 2)
        self.rnn = nn.GRU(12, 7, direction="bidirectional")
        self.fc = nn.Linear(14, 6)

    def forward(self, x):
        x = self.pool(F.relu(self.b1(self.c1(x))))
        x = self.pool(F.relu(self.c2(x))).mean(2)
        x, _ = self.rnn(x.transpose([0, 2, 1]))
        return self.fc(x)


class Speech(nn.Layer):
    """Convolutions over time, a recurrent layer of which the last state counts."""

    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1D(6, 8, 3, stride=2, padding=1), nn.BatchNorm1D(8), nn.Hardswish())
        self.cell = nn.SimpleRNN(8, 5, num_layers=2)
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        x = self.front(x.transpose([0, 2, 1])).transpose([0, 2, 1])
        _, h = self.cell(x)
        return self.fc(h[-1])


class Translator(nn.Layer):
    """Encoder and decoder over one table."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 16)
        self.net = nn.Transformer(16, 4, 1, 1, 24, dropout=0.0)
        self.gen = nn.Linear(16, 20)

    def forward(self, ids):
        tgt = ids[:, :5]
        mask = self.net.generate_square_subsequent_mask(5)
        return self.gen(self.net(self.emb(ids), self.emb(tgt), tgt_mask=mask))


class Fused(nn.Layer):
    """Attention with one projection for query, key and value."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 16)
        self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        x = self.inp(x)
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, 4, 4]).transpose([2, 0, 3, 1, 4])
        a = F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5, axis=-1)
        return self.norm(x + self.o(paddle.matmul(a, v).transpose([0, 2, 1, 3]).reshape([b, n, c])))


class Pooling(nn.Layer):
    """A GRU whose outputs are weighted by a learned attention."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 8, num_layers=2)
        self.score = nn.Linear(8, 1, bias_attr=False)
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.ELU(0.5), nn.Linear(8, 2))

    def forward(self, x):
        y = self.gru(x)[0]
        w = F.softmax(self.score(paddle.tanh(y)), axis=1)
        return self.mlp(paddle.sum(y * w, axis=1))


class Regressor(nn.Layer):
    """Sequence first in torch, batch first here; a convolution for position."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1D(6, 16, 3, padding=1)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0), 2, norm=nn.LayerNorm(16))
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.layers(self.inp(x.transpose([0, 2, 1])).transpose([0, 2, 1])).mean(1))


class Detector(nn.Layer):
    """Learned queries attend to a picture's features; two heads in one output."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2D(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2D(16, 16, 3, 2, 1))
        self.query = nn.Embedding(4, 16)
        self.dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0), 1)
        self.cls, self.box = nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, x):
        mem = self.backbone(x).flatten(2).transpose([0, 2, 1])
        q = self.query.weight.unsqueeze(0).expand([x.shape[0], 4, 16])
        y = self.dec(q, mem)
        return paddle.concat([self.cls(y), F.sigmoid(self.box(y))], -1)
