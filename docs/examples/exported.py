"""A network and two exports of it: one is right, the other normalises pictures that its client has normalised already."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import nn

FOLDER = Path("output/exported")


def network() -> nn.Module:
    """A small classifier with weights that are drawn from a seed."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs, eps=1e-3), nn.Hardswish()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).eval()


class WithPreprocessing(nn.Module):
    """What somebody exported, so that clients need not normalise; the clients still do."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.network((pictures - self.mean) / self.deviation)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, model in (("network", network()), ("deployed", WithPreprocessing().eval())):
        torch.onnx.export(model, (torch.zeros(2, 3, 64, 64),), FOLDER / f"{name}.onnx", dynamo=False, input_names=["pictures"])
        print(FOLDER / f"{name}.onnx")
