"""Exact mode: both models in float64, with the float32 constants inside kernels taken out on both sides.

A float64 run is an oracle only then. With stock kernels a correct port agrees to 1e-7 in float64; with these neutralised
it agrees to 1e-14:

=====================================  ==========================================================================
constant                               what is done
=====================================  ==========================================================================
Paddle's hardsigmoid slope             ``relu6(x + 3) / 6`` on both sides
torch's hardsigmoid gradient, 1/6      the same
Paddle's BatchNorm eps                 torch's eps is rounded to float32; Paddle's is left as the port has it
Paddle's adaptive average pool, 1/N    ``mean([2, 3])`` on the Paddle side
Paddle's average pool's gradient, 1/N  the mean over unfolded windows on the Paddle side
optimizers' hyperparameters            rounded to float32 on both sides (``OptimizerConfig.in_float32``)
=====================================  ==========================================================================

Only the stock layer classes are replaced, so a port that uses another layer in their place keeps its mistake.
"""

from __future__ import annotations

import numpy as np
import paddle
import torch

import mobilenetv3_ref  # noqa: F401  (makes torchvision importable beside a CPU torch)
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid


class PaddleHardsigmoid(paddle.nn.Layer):
    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        return paddle.nn.functional.relu6(input + 3.0) / 6.0


class _PaddleGlobalMean(paddle.nn.Layer):
    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        return input.mean([2, 3], keepdim=True)


class _PaddleAvgPool(paddle.nn.AvgPool2D):
    """Average pooling as the mean over unfolded windows; the stock kernel's gradient has 1/N in float32."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        sides = [(n, n) if isinstance(n, int) else tuple(n) for n in (self.ksize, self.stride or self.ksize, self.padding)]
        (high, wide), strides, padding = sides
        samples, channels, height, width = x.shape

        def sums(image: paddle.Tensor) -> paddle.Tensor:
            windows = paddle.nn.functional.unfold(image, [high, wide], list(strides), list(padding))
            return windows.reshape([image.shape[0], image.shape[1], high * wide, -1]).sum(2)

        counts = sums(paddle.ones([1, 1, height, width], x.dtype)) if self.exclusive else float(high * wide)
        rows = (height + 2 * padding[0] - high) // strides[0] + 1
        return (sums(x) / counts).reshape([samples, channels, rows, -1])


def _has_plain_windows(pool: paddle.nn.Layer) -> bool:
    if type(pool) is not paddle.nn.AvgPool2D or pool.ceil_mode or pool.divisor is not None or pool.data_format != "NCHW":
        return False
    return isinstance(pool.padding, int) or (len(pool.padding) == 2 and all(isinstance(n, int) for n in pool.padding))


class TorchHardsigmoid(torch.nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.relu6(input + 3.0) / 6.0


class TorchDepthwise(torch.nn.Module):
    """A depthwise convolution as a sum over the kernel's taps.

    In float64 torch convolves group by group, which for 576 groups takes half the time of a whole training step. This
    computes the same (a test holds it to 1e-15 of torch's own, forward and backward) without that loop.
    """

    def __init__(self, conv: torch.nn.Conv2d) -> None:
        super().__init__()
        self.weight = conv.weight
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        samples, channels = input.shape[:2]
        taps = self.weight.shape[2:]
        height, width = (
            (size + 2 * padding - dilation * (tap - 1) - 1) // stride + 1
            for size, padding, dilation, tap, stride in zip(
                input.shape[2:], self.padding, self.dilation, taps, self.stride, strict=True
            )
        )
        seen = torch.nn.functional.unfold(input, taps, self.dilation, self.padding, self.stride)
        seen = seen.reshape(samples, channels, -1, height * width)  # what each tap sees, place by place
        return (seen * self.weight.reshape(1, channels, -1, 1)).sum(2).reshape(samples, channels, height, width)


def is_depthwise(module: torch.nn.Module) -> bool:
    """A convolution with one filter a channel and nothing that TorchDepthwise does not do."""
    if type(module) is not torch.nn.Conv2d or module.bias is not None or module.padding_mode != "zeros":
        return False
    return module.groups == module.in_channels == module.out_channels and not isinstance(module.padding, str)


def exact_paddle(model: paddle.nn.Layer) -> paddle.nn.Layer:
    """Turn a Paddle model into its exact form, in place."""
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent.named_children()):
            if type(child) in (Hardsigmoid, paddle.nn.Hardsigmoid):
                setattr(parent, name, PaddleHardsigmoid())
            elif type(child) is paddle.nn.AdaptiveAvgPool2D and child._output_size in (1, (1, 1), [1, 1]):
                setattr(parent, name, _PaddleGlobalMean())
            elif _has_plain_windows(child):
                child.__class__ = _PaddleAvgPool
    # Layer.to keeps BatchNorm's statistics with its parameters; astype on the whole layer covers them all.
    return model.to(dtype="float64")


def exact_torch(model: torch.nn.Module) -> torch.nn.Module:
    """Turn a torch model into its exact form, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Hardsigmoid:
                setattr(parent, name, TorchHardsigmoid())
            elif isinstance(child, torch.nn.BatchNorm2d):
                child.eps = float(np.float32(child.eps))
            elif is_depthwise(child):
                setattr(parent, name, TorchDepthwise(child))
    return model.double()
