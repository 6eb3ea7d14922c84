import torch


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=2, dilation=2, bias=False)
        self.bn = torch.nn.BatchNorm2d(8, eps=1e-5, momentum=0.001)
        self.head = torch.nn.Conv2d(8, 4, 1)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.conv(x))))


class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=2, dilation=2, bias=False)
        # add: self.bn = torch.nn.BatchNorm2d(8, eps=1e-5, momentum=0.001)
        self.bn = torch.nn.BatchNorm2d(8, eps=1e-5, momentum=0.999)  # drop
        self.head = torch.nn.Conv2d(8, 4, 1)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.conv(x))))


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 9, 9)).astype("float32")
