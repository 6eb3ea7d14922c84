"""Ports of ``theirs``, as strangers write them."""

# ruff: noqa: E741, RUF100
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn


class ConvBNLayer(nn.Sequential):
    def __init__(self, i, o, s=1, act=nn.ReLU):
        super().__init__(nn.Conv2D(i, o, 3, s, 1, bias_attr=False), nn.BatchNorm2D(o), act())


class Detector(nn.Layer):
    def __init__(self, num_classes=3):
        super().__init__()
        self.c2 = ConvBNLayer(3, 8, 2)
        self.c3 = ConvBNLayer(8, 12, 2)
        self.lateral2 = nn.Conv2D(8, 8, 1)
        self.lateral3 = nn.Conv2D(12, 8, 1)
        self.cls_head = nn.Conv2D(8, num_classes, 3, padding=1)
        self.box_head = nn.Conv2D(8, 4, 3, padding=1)

    def forward(self, x):
        c2 = self.c2(x)
        c3 = self.c3(c2)
        p3 = self.lateral3(c3)
        p2 = self.lateral2(c2) + F.interpolate(p3, size=c2.shape[-2:], mode="nearest")
        scores, boxes = [], []
        for p in [p2, p3]:
            scores.append(self.cls_head(p))
            boxes.append(F.relu(self.box_head(p)))
        return scores, boxes


class UNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = ConvBNLayer(3, 6), ConvBNLayer(6, 8), ConvBNLayer(8, 10)
        self.pool = nn.MaxPool2D(2, 2)
        self.up2 = nn.Conv2DTranspose(10, 8, 2, stride=2)
        self.dec2 = ConvBNLayer(16, 8)
        self.up1 = nn.Conv2DTranspose(8, 6, 2, stride=2)
        self.dec1 = ConvBNLayer(12, 6)
        self.out = nn.Conv2D(6, 2, 1)

    def _up(self, up, x, skip):
        x = up(x)
        dh, dw = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
        x = F.pad(x, [dw // 2, dw - dw // 2, dh // 2, dh - dh // 2])
        return paddle.concat([skip, x], axis=1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.bottom(self.pool(b))
        y = self.dec2(self._up(self.up2, c, b))
        y = self.dec1(self._up(self.up1, y, a))
        return self.out(y)


class TextEncoder(nn.Layer):
    def __init__(self, vocab_size=50, hidden_size=16, num_heads=2):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, hidden_size // num_heads
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size)
        self.position_embeddings = nn.Embedding(32, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size)
        self.up = nn.Linear(hidden_size, 2 * hidden_size)
        self.down = nn.Linear(2 * hidden_size, hidden_size)
        self.pooler = nn.Linear(hidden_size, hidden_size)

    def _split(self, x):
        return x.reshape([0, 0, self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])

    def forward(self, input_ids, token_type_ids=None, attention_mask=None):
        position_ids = paddle.arange(input_ids.shape[1])
        x = self.norm(self.word_embeddings(input_ids) + self.position_embeddings(position_ids))
        q, k, v = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        product = paddle.matmul(q, k, transpose_y=True) * self.head_dim**-0.5
        if attention_mask is not None:
            bias = (1.0 - attention_mask.astype(product.dtype)) * -1e4
            product = product + bias.unsqueeze([1, 2])
        weights = F.softmax(product, axis=-1)
        a = paddle.matmul(weights, v).transpose([0, 2, 1, 3]).flatten(2)
        x = self.norm2(x + self.dense(a))
        x = x + self.down(F.gelu(self.up(x)))
        return x, F.tanh(self.pooler(x[:, 0]))


class Segmenter(nn.Layer):
    """The auxiliary output comes first."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = ConvBNLayer(3, 8, 2), ConvBNLayer(8, 8, 2)
        self.classifier = nn.Conv2D(8, 3, 1)
        self.aux_classifier = nn.Conv2D(8, 3, 1)

    def forward(self, x):
        h, w = x.shape[2:]
        mid = self.stem(x)
        deep = self.body(mid)
        aux = F.interpolate(self.aux_classifier(mid), size=[h, w], mode="bilinear", align_corners=False)
        out = F.interpolate(self.classifier(deep), size=[h, w], mode="bilinear", align_corners=False)
        return {"aux": aux, "out": out}


@dataclass
class ClipOutput:
    image_embeds: Any
    text_embeds: Any
    logits_per_image: Any
    loss: Any = None


class Clip(nn.Layer):
    def __init__(self, embed_dim=8):
        super().__init__()
        self.visual = nn.Sequential(ConvBNLayer(3, 8, 2), nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(8, embed_dim))
        self.token = nn.Embedding(40, 12)
        self.text = nn.Linear(12, embed_dim)
        self.logit_scale = self.create_parameter([], default_initializer=nn.initializer.Constant(2.0))

    def forward(self, input_ids, pixel_values):
        text_features = self.text(self.token(input_ids).mean(axis=1))
        image_features = self.visual(pixel_values)
        image_features = image_features / image_features.norm(axis=-1, keepdim=True)
        text_features = text_features / text_features.norm(axis=-1, keepdim=True)
        logits = self.logit_scale.exp() * paddle.matmul(image_features, text_features, transpose_y=True)
        return ClipOutput(image_features, text_features, logits)


VAEOutput = namedtuple("VAEOutput", ["recon", "mu", "logvar"])


class AutoEncoder(nn.Layer):
    def __init__(self, dim=6, latent=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(dim, 16), nn.ELU())
        self.mu = nn.Linear(16, latent)
        self.logvar = nn.Linear(16, latent)
        self.dec = nn.Sequential(nn.Linear(latent, 16), nn.ELU(), nn.Linear(16, dim), nn.Sigmoid())

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu
        if self.training:
            z = mu + paddle.randn(mu.shape, mu.dtype) * paddle.exp(0.5 * logvar)
        return VAEOutput(self.dec(z), mu, logvar)


class Tagger(nn.Layer):
    def __init__(self):
        super().__init__()
        self.features = ConvBNLayer(3, 8, 2)
        self.fc = nn.Linear(8, 7)

    def forward(self, x):
        probs = F.softmax(self.fc(self.features(x).mean(axis=[2, 3])))
        return {"scores": probs, "label": probs.argmax(axis=-1), "sure": probs.max(axis=-1) > 0.2}


class Tabular(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cnn = ConvBNLayer(1, 6, 2)
        self.emb = nn.LayerList([nn.Embedding(5, 3), nn.Embedding(9, 3)])
        self.num = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(20, 2)

    def forward(self, image, numbers, categories):
        parts = [self.cnn(image).mean([2, 3])]
        for i, table in enumerate(self.emb):
            parts.append(table(categories[:, i]))
        parts.append(self.num(numbers))
        return self.head(paddle.concat(parts, axis=-1))


class MultiTask(nn.Layer):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(ConvBNLayer(3, 8, 2), ConvBNLayer(8, 8))
        self.depth = nn.Conv2D(8, 1, 3, padding=1)
        self.normal = nn.Conv2D(8, 3, 3, padding=1)
        self.cls = nn.Linear(8, 4)

    def forward(self, x):
        f = self.trunk(x)
        normal = F.normalize(self.normal(f), axis=1)
        depth = F.softplus(self.depth(f))
        pooled = F.adaptive_avg_pool2d(f, 1).squeeze(axis=[2, 3])
        return {"cls": self.cls(pooled), "dense": {"normal": normal, "depth": depth}, "hidden": None}


class WithLoss(nn.Layer):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 8, padding_idx=0)
        self.conv = nn.Conv1D(8, 12, 3, padding=1)
        self.classifier = nn.Linear(12, 4)

    def forward(self, input_ids, labels=None):
        h = self.emb(input_ids).transpose([0, 2, 1])
        logits = self.classifier(F.relu(self.conv(h)).max(axis=-1))
        if labels is not None:
            return F.cross_entropy(logits, labels), logits
        return logits


class Trunk(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 5)

    def forward(self, x, scale=1.0):
        b = self.b(x) * scale
        a = F.tanh(self.a(x))
        return {"b": b, "c": self.c(a), "a": a}


class Heads(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = Trunk()
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        made = self.inner(x, scale=0.5)
        return self.last(made["a"] + made["b"]), made["c"]


class Pair(nn.Layer):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(ConvBNLayer(3, 8, 2), ConvBNLayer(8, 8, 2))
        self.proj = nn.Linear(8, 1)

    def embed(self, x):
        return self.trunk(x).mean([2, 3])

    def forward(self, left, right):
        distance = (self.embed(left) - self.embed(right)).abs()
        return self.proj(distance).squeeze(-1)


class Pyramid(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stages = nn.LayerList([ConvBNLayer(3, 4, 2), ConvBNLayer(4, 6, 2), ConvBNLayer(6, 8, 2)])

    def forward(self, x):
        features = ()
        for stage in self.stages:
            x = stage(x)
            features += (x,)
        return features
