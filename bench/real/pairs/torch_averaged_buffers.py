import torch


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 6, 3)
        self.bn = torch.nn.BatchNorm1d(6)
        self.head = torch.nn.Linear(6, 3)
        self.register_buffer("averaged_mean", torch.zeros(6))
        self.register_buffer("averaged_var", torch.ones(6))

    def forward(self, x):
        x = self.bn(self.conv(x))
        if self.training:
            self.averaged_mean.mul_(0.9).add_(self.bn.running_mean, alpha=0.1)
            self.averaged_var.mul_(0.9).add_(self.bn.running_var, alpha=0.1)
        return self.head(torch.relu(x).mean(2))


class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 6, 3)
        self.bn = torch.nn.BatchNorm1d(6)
        self.head = torch.nn.Linear(6, 3)
        self.register_buffer("averaged_mean", torch.zeros(6))
        self.register_buffer("averaged_var", torch.ones(6))
        self.use_buffers = False  # fix: self.use_buffers = True

    def forward(self, x):
        x = self.bn(self.conv(x))
        if self.training and self.use_buffers:
            self.averaged_mean.mul_(0.9).add_(self.bn.running_mean, alpha=0.1)
            self.averaged_var.mul_(0.9).add_(self.bn.running_var, alpha=0.1)
        return self.head(torch.relu(x).mean(2))


def inputs(samples, generator):
    return generator.standard_normal((samples, 4, 9)).astype("float32")
