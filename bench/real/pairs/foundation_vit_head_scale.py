import torch


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = torch.nn.Linear(6, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 40)
        torch.nn.init.trunc_normal_(self.head.weight, std=0.02)
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def forward(self, x):
        return self.head(self.norm(self.patch(x)))


class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = torch.nn.Linear(6, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 40)
        torch.nn.init.trunc_normal_(self.head.weight, std=0.02)
        self.apply(self.scaled)  # fix: self.scaled(self.head)

    def scaled(self, module):
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def forward(self, x):
        return self.head(self.norm(self.patch(x)))


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 6)).astype("float32")
