import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = torch.nn.Conv1d(1, 8, 5, 2)
        self.head = torch.nn.Linear(8, 6)

    def forward(self, wave):
        wave = TF.layer_norm(wave, wave.shape[1:])
        return self.head(TF.gelu(self.frames(wave[:, None])).transpose(1, 2))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.frames = nn.Conv1D(1, 8, 5, 2)
        self.head = nn.Linear(8, 6)

    def forward(self, wave):
        mean = wave.mean()  # fix: mean = wave.mean(1, keepdim=True)
        wave = wave - mean
        var = (wave**2).mean()  # fix: var = (wave**2).mean(1, keepdim=True)
        wave = wave / (var + 1e-5).sqrt()
        return self.head(F.gelu(self.frames(wave.unsqueeze(1))).transpose([0, 2, 1]))


def inputs(samples, generator):
    loudness = generator.uniform(0.2, 3, (samples, 1))
    return (generator.standard_normal((samples, 40)) * loudness).astype("float32")
