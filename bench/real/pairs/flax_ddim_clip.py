import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)

    def forward(self, sample, alpha):
        alpha = alpha[:, None]
        noise = self.net(sample)
        original = ((sample - (1 - alpha) ** 0.5 * noise) / alpha**0.5).clamp(-1, 1)
        return 0.9**0.5 * original + 0.1**0.5 * noise


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)

    def forward(self, sample, alpha):
        alpha = alpha.unsqueeze(1)
        noise = self.net(sample)
        original = (sample - (1 - alpha) ** 0.5 * noise) / alpha**0.5
        # add: original = original.clip(-1, 1)
        return 0.9**0.5 * original + 0.1**0.5 * noise


def inputs(samples, generator):
    alpha = generator.uniform(0.1, 0.5, samples).astype("float32")
    return generator.standard_normal((samples, 8)).astype("float32"), alpha
