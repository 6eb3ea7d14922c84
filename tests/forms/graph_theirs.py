"""Networks over a graph as published: a convolution with a matrix of its own, an attention with one vector for both ends."""

import torch
import torch.nn.functional as F
from torch import nn


class GraphConvolution(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(given, made)), nn.Parameter(torch.randn(made))

    def forward(self, x, adjacency):
        return torch.spmm(adjacency, torch.mm(x, self.weight)) + self.bias


class GraphAttention(nn.Module):
    def __init__(self, given, made, alpha=0.2):
        super().__init__()
        self.W, self.a = nn.Parameter(torch.randn(given, made)), nn.Parameter(torch.randn(2 * made, 1))
        self.made, self.leakyrelu = made, nn.LeakyReLU(alpha)

    def forward(self, h, adjacency):
        wh = torch.mm(h, self.W)
        scores = torch.matmul(wh, self.a[: self.made]) + torch.matmul(wh, self.a[self.made :]).T
        scores = torch.where(adjacency > 0, self.leakyrelu(scores), -9e15 * torch.ones_like(scores))
        return F.elu(torch.matmul(F.softmax(scores, dim=1), wh))


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gat, self.gc2 = GraphConvolution(6, 8), GraphAttention(8, 5), GraphConvolution(5, 4)

    def forward(self, x, edges):
        adjacency = edges + torch.eye(edges.shape[0], dtype=edges.dtype)
        degree = adjacency.sum(1).pow(-0.5)
        normalised = degree[:, None] * adjacency * degree[None]
        x = self.gat(F.relu(self.gc1(x, normalised)), adjacency)
        return F.log_softmax(self.gc2(x, normalised), dim=1)
