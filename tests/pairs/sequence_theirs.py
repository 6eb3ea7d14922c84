"""References of ``sequence_ours.py``."""

# ruff: noqa: E741, RUF100
import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleDict({"word": nn.Embedding(20, 16, padding_idx=0), "position": nn.Embedding(12, 16)})
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens):
        pad = tokens == 0
        x = self.embeddings["word"](tokens) + self.embeddings["position"](torch.arange(tokens.shape[1]))
        x = self.encoder(x, src_key_padding_mask=pad)
        x = x.masked_fill(pad[..., None], 0)
        return self.head(x.sum(1) / (~pad).sum(1, keepdim=True))


class PreNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.h = nn.ModuleList(
            [nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", norm_first=True, batch_first=True) for _ in range(2)]
        )
        self.ln_f = nn.LayerNorm(16)

    def forward(self, tokens):
        x, n = self.embed(tokens), tokens.shape[1]
        for block in self.h:
            x = block(x, src_mask=torch.triu(torch.ones(n, n, dtype=torch.bool), 1))
        return self.ln_f(x) @ self.embed.weight.T


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16, 1e-6), nn.LayerNorm(16, 1e-6)
        self.attn = nn.MultiheadAttention(16, 4, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Patch(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.zeros(1, 13, 16))
        self.patch_embed = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(16, 1e-6), nn.Linear(16, 5)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = self.blocks(torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed)
        return self.head(self.norm(x)[:, 0])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.encoder = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.3)
        self.hidden2tag = nn.Linear(12, 4)

    def forward(self, tokens):
        hidden = self.encoder(self.embedding(tokens))[0]
        return self.hidden2tag(self.dropout(hidden)).log_softmax(-1)


class ConvGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 1, 1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.sequence = nn.GRU(12, 7, bidirectional=True)
        self.classifier = nn.Linear(14, 6)

    def forward(self, x):
        x = self.features(x).mean(2).permute(2, 0, 1)
        return self.classifier(self.sequence(x)[0].transpose(0, 1))


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv1d(6, 8, 3, 2, 1), nn.BatchNorm1d(8), nn.Hardswish()
        self.rnn = nn.RNN(8, 5, 2, batch_first=True)
        self.linear = nn.Linear(5, 3)

    def forward(self, x):
        x = self.act(self.bn(self.conv(x.transpose(1, 2))))
        return self.linear(self.rnn(x.transpose(1, 2))[1][-1])


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Linear(16, 20)
        self.embedding = nn.Embedding(20, 16)
        self.transformer = nn.Transformer(16, 4, 1, 1, 24, 0.0, batch_first=True)

    def forward(self, tokens):
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        return self.generator(self.transformer(self.embedding(tokens), self.embedding(tokens[:, :5]), tgt_mask=mask))


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.layer_norm = nn.LayerNorm(16)

    def forward(self, x):
        x = self.project(x)
        return self.layer_norm(x + self.attention(x, x, x, need_weights=False)[0])


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(6, 8, 2, batch_first=True)
        self.attn = nn.Linear(8, 1, bias=False)
        self.fc1, self.act, self.fc2 = nn.Linear(8, 8), nn.ELU(0.5), nn.Linear(8, 2)

    def forward(self, x):
        hidden, _ = self.encoder(x)
        weights = torch.softmax(self.attn(hidden.tanh()), 1)
        return self.fc2(self.act(self.fc1((hidden * weights).sum(1))))


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv1d(6, 16, 3, padding=1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x.transpose(1, 2)).permute(2, 0, 1)).mean(0))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1)
        self.queries = nn.Embedding(4, 16)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, 0.0, batch_first=True), 1)
        self.class_head, self.box_head = nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, x):
        memory = self.conv2(F.relu(self.conv1(x))).flatten(2).transpose(1, 2)
        y = self.decoder(self.queries.weight.expand(len(x), -1, -1), memory)
        return torch.cat([self.class_head(y), self.box_head(y).sigmoid()], -1)
