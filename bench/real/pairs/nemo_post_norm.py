import torch
from paddle import nn


class TorchBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = torch.nn.Linear(8, 8)
        self.norm1 = torch.nn.LayerNorm(8)
        self.ffn = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
        self.norm2 = torch.nn.LayerNorm(8)

    def forward(self, x):
        x = self.norm1(x + self.attn(x))
        return self.norm2(x + self.ffn(x))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(8, 8)
        self.block = TorchBlock()

    def forward(self, x):
        return self.block(self.embed(x))


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(8, 8)
        self.norm1 = nn.LayerNorm(8)
        self.ffn = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.norm2 = nn.LayerNorm(8)

    def forward(self, x):
        added = x + self.attn(x)
        normed = self.norm1(added)
        # add: added = normed
        return self.norm2(added + self.ffn(normed))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.block = Block()

    def forward(self, x):
        return self.block(self.embed(x))


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 8)).astype("float32")
