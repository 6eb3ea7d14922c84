"""The port of sentence_theirs.py: other names, the two directions joined by a reshape."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class Encoder(nn.Layer):
    def __init__(self, words=20, features=8, hidden=6):
        super().__init__()
        self.words = nn.Embedding(words, features, padding_idx=0)
        self.gru = nn.GRU(features, hidden, direction="bidirect")
        self.project = nn.Linear(2 * hidden, hidden)

    def forward(self, source):
        outputs, last = self.gru(self.words(source))
        both = last.transpose([1, 0, 2]).reshape([source.shape[0], -1])
        return outputs, paddle.tanh(self.project(both))


class Additive(nn.Layer):
    def __init__(self, hidden=6):
        super().__init__()
        self.energy, self.score = nn.Linear(3 * hidden, hidden), nn.Linear(hidden, 1, bias_attr=False)

    def forward(self, state, outputs):
        state = paddle.expand(state.unsqueeze(1), [-1, outputs.shape[1], -1])
        energy = paddle.tanh(self.energy(paddle.concat([state, outputs], axis=2)))
        return F.softmax(self.score(energy).squeeze(2), axis=1)


class Sentence(nn.Layer):
    def __init__(self):
        super().__init__()
        self.enc, self.att, self.out = Encoder(), Additive(), nn.Linear(18, 20)

    def forward(self, source):
        outputs, state = self.enc(source)
        context = paddle.matmul(self.att(state, outputs).unsqueeze(1), outputs).squeeze(1)
        return self.out(paddle.concat([state, context], axis=1))
