"""What differs between other people's ports and their references, each with a mend and with a proof that does not use the engine.

A mend changes a port in place; with all of its mends a port must pass, or something is left unexplained. A proof is a numeric
experiment on the frameworks themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.vision.models
from paddle import nn

import mobilenetv3_ref.models  # noqa: F401  makes torchvision importable beside a CPU build of torch
from mobilenetv3_paddle.models import BatchNorm2D

import torch  # isort: skip
import torchvision.models  # isort: skip


@dataclass(frozen=True)
class Difference:
    """One difference.

    Attributes:
        what: in one sentence.
        why: where it stands in the source.
        mend: makes a port compute what the reference does; None where that is another network.
        proof: shows it by numbers; raises AssertionError where it does not hold, and returns what was measured.
        training: whether training mode alone shows it.
    """

    what: str
    why: str
    mend: Callable[[nn.Layer], None] | None
    proof: Callable[[], str]
    training: bool = False


# --- mends ------------------------------------------------------------------------------------------------------------------


class ActivatedBatchNorm(BatchNorm2D):
    """Batch normalisation with torch's statistics and a ReLU behind it, in the place of ``paddle.nn.BatchNorm(act="relu")``."""

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        """Pixels (N, C, H, W) to the same."""
        return nn.functional.relu(super().forward(input))


def torch_statistics(model: nn.Layer) -> None:
    """Every BatchNorm keeps the unbiased variance, as torch's does."""
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent.named_children()):
            if type(child) is nn.BatchNorm2D:
                count = child._num_features
                setattr(parent, name, BatchNorm2D(count, eps=child._epsilon, momentum=1.0 - child._momentum))
            elif type(child) is nn.BatchNorm:
                assert child._act in (None, "relu"), child._act
                kind = ActivatedBatchNorm if child._act else BatchNorm2D
                setattr(parent, name, kind(child.weight.shape[0], eps=child._epsilon, momentum=1.0 - child._momentum))


def upscaled_dropout(model: nn.Layer) -> None:
    """Every dropout scales in training and does nothing in evaluation."""
    for layer in model.sublayers():
        if isinstance(layer, nn.Dropout):
            layer.mode = "upscale_in_train"


def first_padding(model: nn.Layer) -> None:
    """SqueezeNet's first convolution does not pad."""
    conv = model._conv
    conv._padding, conv._updated_padding = 0, [0, 0]


def ceiling(model: nn.Layer) -> None:
    """SqueezeNet's poolings keep the last, incomplete window."""
    model._pool.ceil_mode = True


def epsilon(model: nn.Layer) -> None:
    """Every BatchNorm has eps 0.001."""
    for layer in model.sublayers():
        if isinstance(layer, nn.BatchNorm2D):
            layer._epsilon = 1e-3  # torch_statistics, which comes after, keeps it


def average(model: nn.Layer) -> None:
    """AlexNet averages its last feature map to 6 x 6, whatever the picture's size."""
    model._conv5._pool = nn.Sequential(model._conv5._pool, nn.AdaptiveAvgPool2D(6))


# --- proofs -----------------------------------------------------------------------------------------------------------------


def _statistics() -> str:
    given = np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype("float32")
    ours, theirs = nn.BatchNorm2D(1, momentum=0.0), torch.nn.BatchNorm2d(1, momentum=1.0)
    ours.train()
    ours(paddle.to_tensor(given))
    theirs(torch.from_numpy(given))
    biased, unbiased = float(ours._variance[0]), float(theirs.running_var[0])
    assert np.allclose([biased, unbiased], [given.var(), given.var(ddof=1)], rtol=1e-5)
    return f"running variance after one batch of 36 values: Paddle {biased:.6f}, torch {unbiased:.6f} = 36/35 times that"


def _dropout() -> str:
    ones = np.ones((1, 8), dtype="float32")
    ours, theirs = nn.Dropout(0.5, mode="downscale_in_infer"), torch.nn.Dropout(0.5)
    ours.eval(), theirs.eval()
    left = float(ours(paddle.to_tensor(ones)).mean()), float(theirs(torch.from_numpy(ones)).mean())
    assert left == (0.5, 1.0)
    for name in ("squeezenet1_0", "squeezenet1_1", "inception_v3"):
        modes = {layer.mode for layer in getattr(paddle.vision.models, name)().sublayers() if isinstance(layer, nn.Dropout)}
        assert modes == {"downscale_in_infer"}, name
    return "in evaluation mode, of ones: Paddle's 0.5, torch's 1"


def _padding() -> str:
    ones = np.ones((1, 3, 65, 65), dtype="float32")
    ours, theirs = paddle.vision.models.squeezenet1_1()._conv, torchvision.models.squeezenet1_1().features[0]
    sizes = ours(paddle.to_tensor(ones)).shape[2], theirs(torch.from_numpy(ones)).shape[2]
    assert sizes == (33, 32)
    return "first convolution on 65 pixels: 33 pixels from Paddle's, 32 from torchvision's"


def _ceiling() -> str:
    ones = np.ones((1, 1, 54, 54), dtype="float32")  # what the second pooling is given for 224 pixels
    for name in ("squeezenet1_0", "squeezenet1_1"):
        ours, network = getattr(paddle.vision.models, name)()._pool, getattr(torchvision.models, name)()
        theirs = [layer for layer in network.features if isinstance(layer, torch.nn.MaxPool2d)]
        sizes = {ours(paddle.to_tensor(ones)).shape[2], *(layer(torch.from_numpy(ones)).shape[2] for layer in theirs)}
        assert sizes == {26, 27}
    return "pooling of 54 pixels: 26 from Paddle's, 27 from torchvision's"


def _epsilon() -> str:
    ours = {layer._epsilon for layer in paddle.vision.models.inception_v3().sublayers() if isinstance(layer, nn.BatchNorm2D)}
    network = torchvision.models.inception_v3(aux_logits=False, init_weights=False)
    theirs = {layer.eps for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)}
    assert (ours, theirs) == ({1e-5}, {1e-3})
    return "eps of every BatchNorm: Paddle 1e-5, torchvision 1e-3"


def dropout_rate(model: nn.Layer) -> None:
    """Inception v3's dropout drops half of the values."""
    model.dropout.p = 0.5


def _dropout_rate() -> str:
    network = torchvision.models.inception_v3(aux_logits=False, init_weights=False)
    rates = paddle.vision.models.inception_v3().dropout.p, network.dropout.p
    assert rates == (0.2, 0.5)
    return "p of the dropout: Paddle 0.2, torchvision 0.5"


def _average() -> str:
    network, other = paddle.vision.models.alexnet(), torchvision.models.alexnet()
    ours = sum(isinstance(layer, nn.AdaptiveAvgPool2D) for layer in network.sublayers())
    theirs = sum(isinstance(layer, torch.nn.AdaptiveAvgPool2d) for layer in other.modules())
    assert (ours, theirs) == (0, 1)
    ones = np.ones((1, 3, 256, 256), dtype="float32")
    assert other(torch.from_numpy(ones)).shape == (1, 1000)
    try:
        network(paddle.to_tensor(ones))
    except ValueError as error:
        if "12544" not in str(error):
            raise AssertionError(str(error)) from error
        return "on 256 pixels: torchvision's gives 1000 numbers, Paddle's first linear layer of 9216 inputs is given 12544"
    raise AssertionError("Paddle's AlexNet takes pictures of 256 pixels")


def _width() -> str:
    ours = {int(weight.shape[0]) for weight in paddle.vision.models.shufflenet_v2_x2_0().parameters()}
    theirs = {int(weight.shape[0]) for weight in torchvision.models.shufflenet_v2_x2_0().parameters()}
    assert 112 in ours - theirs and 122 in theirs - ours  # each half of a block's channels
    return "channels of a branch of the first stage: Paddle 112, torchvision 122"


def _googlenet() -> str:
    ours = sum(isinstance(layer, nn.BatchNorm2D) for layer in paddle.vision.models.googlenet().sublayers())
    network = torchvision.models.googlenet(aux_logits=False, init_weights=False)
    theirs = sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in network.modules())
    assert (ours, theirs) == (0, 57)
    return "BatchNorm layers: Paddle 0, torchvision 57"


DIFFERENCES = {
    "variance": Difference(
        "BatchNorm keeps the biased variance of the batch, the reference the unbiased one",
        "paddle.nn.BatchNorm2D (see known_differences.md)",
        torch_statistics,
        _statistics,
        training=True,
    ),
    "dropout": Difference(
        "dropout multiplies by 1 - p in evaluation, where the reference's does nothing, and does not scale in training",
        'Dropout(mode="downscale_in_infer")',
        upscaled_dropout,
        _dropout,
    ),
    "padding": Difference(
        "the first convolution has padding 1, the reference's none",
        "squeezenet.py: nn.Conv2D(3, 64, 3, stride=2, padding=1); torchvision's squeezenet.py: nn.Conv2d(3, 64, 3, stride=2)",
        first_padding,
        _padding,
    ),
    "ceiling": Difference(
        "the poolings drop the last, incomplete window, the reference's keep it",
        "squeezenet.py: MaxPool2D(kernel_size=3, stride=2, padding=0); torchvision's: nn.MaxPool2d(3, stride=2, ceil_mode=True)",
        ceiling,
        _ceiling,
    ),
    "average": Difference(
        "no average pooling before the linear layers, so that only pictures of about 224 pixels run",
        "alexnet.py: paddle.flatten follows self._conv5; torchvision's: nn.AdaptiveAvgPool2d((6, 6))",
        average,
        _average,
    ),
    "epsilon": Difference(
        "eps of every BatchNorm is 1e-5, the reference's 1e-3",
        "inceptionv3.py leaves the default; torchvision's inception.py: nn.BatchNorm2d(out_channels, eps=0.001)",
        epsilon,
        _epsilon,
    ),
    "rate": Difference(
        "dropout drops a fifth of the values, the reference's half",
        "inceptionv3.py: Dropout(p=0.2); torchvision's inception.py: dropout: float = 0.5",
        dropout_rate,
        _dropout_rate,
        training=True,
    ),
    "width": Difference(
        "the first stage has 224 channels, the reference's 244",
        "shufflenetv2.py: [-1, 24, 224, 488, 976, 2048]; torchvision's: [24, 244, 488, 976, 2048]",
        None,
        _width,
    ),
    "googlenet": Difference(
        "no BatchNorm, ReLU only behind the concatenation, and three outputs in evaluation mode: another network",
        "googlenet.py: ConvLayer is a convolution alone; torchvision's BasicConv2d has BatchNorm and ReLU",
        None,
        _googlenet,
    ),
}
