import math

import torch


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = torch.nn.Conv2d(4, 8, 3, padding=1)
        self.classes = torch.nn.Conv2d(8, 6, 3, padding=1)
        torch.nn.init.constant_(self.classes.bias, -math.log(0.99 / 0.01))

    def forward(self, x):
        return self.classes(torch.relu(self.tower(x)))


class Port(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = torch.nn.Conv2d(4, 8, 3, padding=1)
        self.classes = torch.nn.Conv2d(8, 6, 3, padding=1)
        # add: torch.nn.init.constant_(self.classes.bias, -math.log(0.99 / 0.01))

    def forward(self, x):
        return self.classes(torch.relu(self.tower(x)))


def inputs(samples, generator):
    return generator.standard_normal((samples, 4, 7, 7)).astype("float32")
