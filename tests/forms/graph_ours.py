"""The port of graph_theirs.py: linear layers in place of matrices, and two vectors for the two ends of an edge."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class Conv(nn.Layer):
    def __init__(self, given, made):
        super().__init__()
        self.lin = nn.Linear(given, made, bias_attr=False)
        self.bias = self.create_parameter([made], is_bias=True)

    def forward(self, adjacency, x):
        return paddle.matmul(adjacency, self.lin(x)) + self.bias


class Attention(nn.Layer):
    def __init__(self, given, made, slope=0.2):
        super().__init__()
        self.lin, self.slope = nn.Linear(given, made, bias_attr=False), slope
        self.att_src, self.att_dst = self.create_parameter([made, 1]), self.create_parameter([made, 1])

    def forward(self, adjacency, x):
        h = self.lin(x)
        scores = F.leaky_relu(h @ self.att_src + (h @ self.att_dst).t(), self.slope)
        scores = paddle.where(adjacency > 0, scores, paddle.full_like(scores, -9e15))
        return F.elu(F.softmax(scores, axis=1) @ h)


class Graph(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1, self.attention, self.conv2 = Conv(6, 8), Attention(8, 5), Conv(5, 4)

    def forward(self, x, edges):
        loops = edges + paddle.eye(edges.shape[0], dtype=edges.dtype)
        degree = loops.sum(1) ** -0.5
        normalised = degree.unsqueeze(1) * loops * degree.unsqueeze(0)
        x = F.relu(self.conv1(normalised, x))
        x = self.attention(loops, x)
        return F.log_softmax(self.conv2(normalised, x), axis=1)
