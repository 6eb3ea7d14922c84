"""The port of ``dropout_theirs.py``: what is a layer there is a function here, and the other way round."""

import paddle.nn.functional as F
from paddle import nn


class Head(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 6, 3)
        self.channels = nn.Dropout2D(0.25)
        self.hidden = nn.Linear(6, 16)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        x = self.channels(F.relu(self.conv(x))).mean([2, 3])
        x = self.drop(F.relu(self.hidden(x)))
        return self.out(F.dropout(x, 0.125, training=self.training))
