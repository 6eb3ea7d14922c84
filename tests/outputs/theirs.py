"""References with several inputs and outputs, as strangers write them."""

# ruff: noqa: E741, RUF100
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


def block(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Detector(nn.Module):
    """Two levels, two heads that all levels share; a tuple of lists."""

    def __init__(self, classes=3):
        super().__init__()
        self.c2, self.c3 = block(3, 8, 2), block(8, 12, 2)
        self.lateral2, self.lateral3 = nn.Conv2d(8, 8, 1), nn.Conv2d(12, 8, 1)
        self.cls_head, self.box_head = nn.Conv2d(8, classes, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        c2 = self.c2(x)
        c3 = self.c3(c2)
        p3 = self.lateral3(c3)
        p2 = self.lateral2(c2) + F.interpolate(p3, size=c2.shape[-2:], mode="nearest")
        return [self.cls_head(p) for p in (p2, p3)], [F.relu(self.box_head(p)) for p in (p2, p3)]


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = block(3, 6), block(6, 8), block(8, 10)
        self.up2, self.up1 = nn.ConvTranspose2d(10, 8, 2, 2), nn.ConvTranspose2d(8, 6, 2, 2)
        self.dec2, self.dec1 = block(16, 8), block(12, 6)
        self.out = nn.Conv2d(6, 2, 1)

    @staticmethod
    def fit(x, like):
        dh, dw = like.shape[2] - x.shape[2], like.shape[3] - x.shape[3]
        return F.pad(x, (dw // 2, dw - dw // 2, dh // 2, dh - dh // 2))

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        y = self.dec2(torch.cat([b, self.fit(self.up2(c), b)], 1))
        y = self.dec1(torch.cat([a, self.fit(self.up1(y), a)], 1))
        return self.out(y)


class TextEncoder(nn.Module):
    """Token numbers and a mask, by name; the sequence and a pooled vector."""

    def __init__(self, words=50, d=16, heads=2):
        super().__init__()
        self.heads = heads
        self.word_embeddings = nn.Embedding(words, d)
        self.position_embeddings = nn.Embedding(32, d)
        self.norm = nn.LayerNorm(d)
        self.query, self.key, self.value, self.dense = (nn.Linear(d, d) for _ in range(4))
        self.norm2 = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.pooler = nn.Linear(d, d)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        n = input_ids.shape[1]
        x = self.norm(self.word_embeddings(input_ids) + self.position_embeddings(torch.arange(n, device=input_ids.device)))
        q, k, v = (self.split(f(x)) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None, :].to(scores.dtype)) * -1e4
        a = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = self.norm2(x + self.dense(a))
        x = x + self.down(F.gelu(self.up(x)))
        return x, torch.tanh(self.pooler(x[:, 0]))


class Segmenter(nn.Module):
    """A dictionary, as torchvision's segmentation models give."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = block(3, 8, 2), block(8, 8, 2)
        self.classifier, self.aux_classifier = nn.Conv2d(8, 3, 1), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        size = x.shape[-2:]
        mid = self.stem(x)
        deep = self.body(mid)
        result = OrderedDict()
        result["out"] = F.interpolate(self.classifier(deep), size=size, mode="bilinear", align_corners=False)
        result["aux"] = F.interpolate(self.aux_classifier(mid), size=size, mode="bilinear", align_corners=False)
        return result


@dataclass
class ClipOutput:
    image_embeds: torch.Tensor
    text_embeds: torch.Tensor
    logits_per_image: torch.Tensor
    loss: torch.Tensor | None = None


class Clip(nn.Module):
    """Pictures and token numbers; a dataclass."""

    def __init__(self, d=8):
        super().__init__()
        self.visual = nn.Sequential(block(3, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, d))
        self.token, self.text = nn.Embedding(40, 12), nn.Linear(12, d)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, pixel_values, input_ids):
        image = F.normalize(self.visual(pixel_values), dim=-1)
        text = F.normalize(self.text(self.token(input_ids).mean(1)), dim=-1)
        return ClipOutput(image, text, self.logit_scale.exp() * image @ text.t())


Latent = namedtuple("Latent", ["recon", "mu", "logvar"])


class AutoEncoder(nn.Module):
    """A named tuple; the mean in evaluation mode, a sample in training mode."""

    def __init__(self, d=6, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 16), nn.ELU())
        self.mu, self.logvar = nn.Linear(16, z), nn.Linear(16, z)
        self.dec = nn.Sequential(nn.Linear(z, 16), nn.ELU(), nn.Linear(16, d), nn.Sigmoid())

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return Latent(recon=self.dec(z), mu=mu, logvar=logvar)


class Tagger(nn.Module):
    """Scores, the chosen class as a whole number, and whether it is sure."""

    def __init__(self):
        super().__init__()
        self.features = block(3, 8, 2)
        self.fc = nn.Linear(8, 7)

    def forward(self, x):
        p = self.fc(self.features(x).mean((2, 3))).softmax(-1)
        score, label = p.max(-1)
        return {"scores": p, "label": label, "sure": score > 0.2}


class Tabular(nn.Module):
    """A picture beside columns of numbers and of categories."""

    def __init__(self):
        super().__init__()
        self.cnn = block(1, 6, 2)
        self.emb = nn.ModuleList([nn.Embedding(n, 3) for n in (5, 9)])
        self.num = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(6 + 6 + 8, 2)

    def forward(self, image, numbers, categories):
        x = self.cnn(image).mean((2, 3))
        e = [emb(categories[:, i]) for i, emb in enumerate(self.emb)]
        return self.head(torch.cat([x, *e, self.num(numbers)], 1))


class MultiTask(nn.Module):
    """Dictionaries in dictionaries, None beside tensors."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(block(3, 8, 2), block(8, 8))
        self.depth, self.normal = nn.Conv2d(8, 1, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.cls = nn.Linear(8, 4)

    def forward(self, x):
        f = self.trunk(x)
        dense = {"depth": F.softplus(self.depth(f)), "normal": F.normalize(self.normal(f), dim=1)}
        return {"dense": dense, "cls": self.cls(F.adaptive_avg_pool2d(f, 1).flatten(1)), "hidden": None}


class WithLoss(nn.Module):
    """A loss, where there are labels, before the logits."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 8, padding_idx=0)
        self.conv = nn.Conv1d(8, 12, 3, padding=1)
        self.classifier = nn.Linear(12, 4)

    def forward(self, input_ids, labels=None):
        h = torch.relu(self.conv(self.emb(input_ids).transpose(1, 2))).amax(-1)
        logits = self.classifier(h)
        if labels is None:
            return logits
        return F.cross_entropy(logits, labels), logits


class Heads(nn.Module):
    """An inner module with several outputs, of which the outer one takes two."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 5)

        def forward(self, x, scale=1.0):
            a = torch.tanh(self.a(x))
            return {"a": a, "b": self.b(x) * scale, "c": self.c(a)}

    def __init__(self):
        super().__init__()
        self.inner = Heads.Inner()
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        made = self.inner(x, scale=0.5)
        return self.last(made["a"] + made["b"]), made["c"]


class Pair(nn.Module):
    """Siamese: one trunk for two pictures, and a distance without a class axis."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(block(3, 8, 2), block(8, 8, 2))
        self.proj = nn.Linear(8, 1)

    def forward(self, left, right):
        a, b = (self.trunk(x).mean((2, 3)) for x in (left, right))
        return self.proj((a - b).abs()).squeeze(-1)


class Pyramid(nn.Module):
    """All features as a list, and a global vector."""

    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([block(3, 4, 2), block(4, 6, 2), block(6, 8, 2)])

    def forward(self, x):
        out = []
        for stage in self.stages:
            x = stage(x)
            out.append(x)
        return out


def tokens(count, rng):
    ids = rng.integers(1, 50, (count, 11))
    mask = (rng.integers(4, 12, (count, 1)) > range(11)).astype("int64")
    return {"input_ids": ids, "attention_mask": mask}


def clip(count, rng):
    return {"pixel_values": rng.standard_normal((count, 3, 17, 13)).astype("float32"), "input_ids": rng.integers(0, 40, (count, 7))}


def columns(count, rng):
    picture, numbers = rng.standard_normal((count, 1, 15, 11)), rng.standard_normal((count, 4))
    return picture, numbers, rng.integers(0, 5, (count, 2))


def labelled(count, rng):
    return {"input_ids": rng.integers(0, 30, (count, 9)), "labels": rng.integers(0, 4, count)}


def two(count, rng):
    return rng.standard_normal((count, 3, 19, 14)), rng.standard_normal((count, 3, 19, 14))
