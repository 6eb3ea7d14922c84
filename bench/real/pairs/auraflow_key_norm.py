import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.to_q = torch.nn.Linear(8, 8)
        self.to_k = torch.nn.Linear(8, 8)
        self.to_v = torch.nn.Linear(8, 8)
        self.add_q = torch.nn.Linear(8, 8)
        self.add_k = torch.nn.Linear(8, 8)
        self.add_v = torch.nn.Linear(8, 8)
        self.norm_added_q = torch.nn.LayerNorm(8)
        self.norm_added_k = torch.nn.LayerNorm(8)
        self.out = torch.nn.Linear(8, 8)

    def forward(self, x, context):
        q = torch.cat([self.norm_added_q(self.add_q(context)), self.to_q(x)], 1)
        k = torch.cat([self.norm_added_k(self.add_k(context)), self.to_k(x)], 1)
        v = torch.cat([self.add_v(context), self.to_v(x)], 1)
        return self.out((q @ k.transpose(1, 2) * 8**-0.5).softmax(-1) @ v)


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.to_q = nn.Linear(8, 8)
        self.to_k = nn.Linear(8, 8)
        self.to_v = nn.Linear(8, 8)
        self.add_q = nn.Linear(8, 8)
        self.add_k = nn.Linear(8, 8)
        self.add_v = nn.Linear(8, 8)
        self.norm_added_q = nn.LayerNorm(8)
        self.norm_added_k = nn.LayerNorm(8)
        self.out = nn.Linear(8, 8)

    def forward(self, x, context):
        added_q, added_k = self.add_q(context), self.add_k(context)
        added_q = self.norm_added_q(added_q)
        added_k = self.norm_added_q(added_k)  # fix: added_k = self.norm_added_k(added_k)
        q = paddle.concat([added_q, self.to_q(x)], 1)
        k = paddle.concat([added_k, self.to_k(x)], 1)
        v = paddle.concat([self.add_v(context), self.to_v(x)], 1)
        return self.out(F.softmax(q @ k.transpose([0, 2, 1]) * 8**-0.5, -1) @ v)


def inputs(samples, generator):
    shapes = [(samples, 5, 8), (samples, 3, 8)]
    return tuple(generator.standard_normal(shape).astype("float32") for shape in shapes)
