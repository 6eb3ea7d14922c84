"""Is paddle.vision's ResNet-18 torchvision's? Run: python docs/examples/localize_resnet18.py"""

import numpy as np
import paddle
import torch
from paddle.vision.models.resnet import BasicBlock, ResNet

import mobilenetv3_ref  # noqa: F401  # lets PyPI's torchvision be imported beside a CPU build of torch

import torchvision  # isort: skip

from alignment.localize import localize
from alignment.models.weights import copy_weights

torch.manual_seed(0)
reference = torchvision.models.resnet18(num_classes=10)
port = paddle.vision.models.resnet18(num_classes=10)
copy_weights(reference, port)
images = np.random.default_rng(0).standard_normal((4, 3, 64, 64)).astype("float32")

print("evaluation:", localize(port, reference, images).verdict())
print("training:", localize(port, reference, images, training=True).verdict())

# One stride is forgotten.
port.layer3[0].conv1 = paddle.nn.Conv2D(128, 256, 3, padding=1, bias_attr=False)
port.layer3[0].conv1.weight.set_value(reference.layer3[0].conv1.weight.detach().numpy())
print("stride:", localize(port, reference, images).verdict())


class Renamed(ResNet):
    """The last layer has another name, and the pooling in front of it is left out of forward."""

    def __init__(self):
        super().__init__(BasicBlock, 18, num_classes=10)
        self.head = self.fc
        del self.fc

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.head(x.max([2, 3]))


port = Renamed()
copy_weights(reference, port, names={"head": "fc"})
report = localize(port, reference, images)
print("renamed:", report.notes[0])
print("what is wrong:", report.verdict())
print("\n".join(report.table().splitlines()[:8]), "\n...")
