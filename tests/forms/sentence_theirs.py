"""A recurrent translator as it is published: an embedding whose index 0 pads, an encoder of two directions, additive attention."""

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words=20, features=8, hidden=6):
        super().__init__()
        self.embedding = nn.Embedding(words, features, padding_idx=0)
        self.rnn = nn.GRU(features, hidden, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hidden, hidden)

    def forward(self, source):
        outputs, last = self.rnn(self.embedding(source))
        return outputs, torch.tanh(self.fc(torch.cat((last[-2], last[-1]), dim=1)))


class Attention(nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        self.attn, self.v = nn.Linear(3 * hidden, hidden), nn.Linear(hidden, 1, bias=False)

    def forward(self, state, outputs):
        repeated = state.unsqueeze(1).repeat(1, outputs.shape[1], 1)
        energy = torch.tanh(self.attn(torch.cat((repeated, outputs), dim=2)))
        return F.softmax(self.v(energy).squeeze(2), dim=1)


class Sentence(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.attention, self.fc_out = Encoder(), Attention(), nn.Linear(18, 20)

    def forward(self, source):
        outputs, state = self.encoder(source)
        weights = self.attention(state, outputs)
        context = torch.bmm(weights.unsqueeze(1), outputs).squeeze(1)
        return self.fc_out(torch.cat((state, context), dim=1))
