"""Exact mode changes nothing but the float32 constants: each replacement computes what it replaces."""

import numpy as np
import paddle
import pytest
import torch

from alignment.exact import TorchDepthwise, exact_paddle, exact_torch
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid
from tests.conftest import relative_l2


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (5, 1, 1), (5, 2, 1), (5, 1, 2), (3, 2, 2)])
@pytest.mark.parametrize("size", [(7, 7), (8, 5), (1, 1)])
def test_the_depthwise_sum_is_torchs_convolution(kernel, stride, dilation, size):
    torch.manual_seed(0)
    padding = (kernel - 1) // 2 * dilation
    conv = torch.nn.Conv2d(6, 6, kernel, stride, padding, dilation, groups=6, bias=False).double()
    results = []
    for module in (conv, TorchDepthwise(conv)):
        x = torch.randn(2, 6, *size, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
        conv.weight.grad = None
        output = module(x)
        (output * torch.arange(output.numel()).reshape(output.shape)).sum().backward()
        results.append((output.detach().numpy(), x.grad.numpy(), conv.weight.grad.numpy()))
    for ours, theirs in zip(*results[::-1], strict=True):
        assert ours.shape == theirs.shape and relative_l2(ours, theirs) < 1e-14


def test_only_depthwise_convolutions_are_replaced():
    grouped = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, groups=2), torch.nn.Conv2d(4, 4, 1), torch.nn.Conv2d(4, 4, 3, groups=4))
    assert [type(m) for m in exact_torch(grouped)] == [torch.nn.Conv2d] * 3, "with a bias it is left alone"


def both(stock, exact, x):
    results = []
    for layer in (stock, exact):
        leaf = paddle.to_tensor(x, stop_gradient=False)
        output = layer(leaf)
        (output * output).sum().backward()
        results.append((output.numpy(), leaf.grad.numpy()))
    return [relative_l2(a, b) for a, b in zip(*results, strict=True)]


@pytest.mark.parametrize("layer", [Hardsigmoid, paddle.nn.Hardsigmoid, lambda: paddle.nn.AdaptiveAvgPool2D(1)])
def test_paddles_stock_kernels_carry_float32_constants(layer):
    """Each replacement differs from the stock kernel by float32 rounding of a constant, and by nothing more."""
    x = np.random.default_rng(0).normal(size=(2, 8, 7, 7)) * 3
    model = paddle.nn.Sequential(layer())
    stock = model[0]
    exact = exact_paddle(model)[0]
    assert type(exact) is not type(stock)
    output, gradient = both(stock, exact, x)
    assert output < 5e-7 and gradient < 5e-7
    assert max(output, gradient) > 1e-10, "the stock kernel has become exact; the replacement can go"


def test_torchs_eps_becomes_paddles():
    norm = exact_torch(torch.nn.Sequential(torch.nn.BatchNorm2d(3, eps=0.001)))[0]
    assert norm.eps == float(np.float32(0.001)) != 0.001 and norm.weight.dtype == torch.float64


def test_float64_without_neutralising_is_no_oracle():
    """Stock float64 kernels of a correct port differ by more than exact mode allows."""
    x = np.random.default_rng(0).normal(size=(4, 8))
    ours = paddle.nn.functional.hardsigmoid(paddle.to_tensor(x)).numpy()
    theirs = torch.nn.functional.hardsigmoid(torch.tensor(x)).numpy()
    assert relative_l2(ours, theirs) > 1e-9
