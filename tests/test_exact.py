"""Exact mode changes nothing but the float32 constants: each exact function computes what it replaces."""

import numpy as np
import paddle
import pytest
import torch

from alignment.frameworks.base import Wanted
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import TINY_MAP, Torch
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid
from tests.conftest import relative_l2


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (5, 1, 1), (5, 2, 1), (5, 1, 2), (3, 2, 2)])
@pytest.mark.parametrize("size", [(7, 7), (4, 3), (1, 1)])
def test_the_depthwise_sum_is_torchs_convolution(kernel, stride, dilation, size):
    torch.manual_seed(0)
    padding = (kernel - 1) // 2 * dilation
    conv = torch.nn.Conv2d(6, 6, kernel, stride, padding, dilation, groups=6, bias=False).double()
    results = []
    for exact in (False, True):
        x = torch.randn(2, 6, *size, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
        conv.weight.grad = None
        with Torch().exact_calls() if exact else torch.enable_grad():
            output = conv(x)
        (output * torch.arange(output.numel()).reshape(output.shape)).sum().backward()
        summed = "MulBackward" in str(output.grad_fn.next_functions[0][0].next_functions)
        assert summed == (exact and output[0, 0].numel() <= TINY_MAP), "the right one was used"
        results.append((output.detach().numpy(), x.grad.numpy(), conv.weight.grad.numpy()))
    for ours, theirs in zip(*results[::-1], strict=True):
        assert ours.shape == theirs.shape and relative_l2(ours, theirs) < 1e-14


def gradients(framework, layer, x, exact):
    """Output and input gradient of sum(output ** 2 / 2), by the stock kernels or in exact mode."""
    if exact:
        outputs = framework.call(layer, (x,)).outputs
        return outputs[0], framework.vjp(layer, (x,), outputs, Wanted()).inputs[0]
    leaf = framework._leaf(x)
    output = layer(leaf)
    (output * output / 2).sum().backward()
    return framework.array(output), framework.array(leaf.grad)


CONSTANTS = {
    "the project's Hardsigmoid": lambda: Hardsigmoid(),
    "Hardsigmoid": lambda: paddle.nn.Hardsigmoid(),
    "F.hardsigmoid": lambda: paddle.nn.functional.hardsigmoid,
    "AdaptiveAvgPool2D(1)": lambda: paddle.nn.AdaptiveAvgPool2D(1),
    "AvgPool2D": lambda: paddle.nn.AvgPool2D(3, 2, 1),
    "AvgPool2D with its margin": lambda: paddle.nn.AvgPool2D(3, 2, 1, exclusive=False),
    "AdaptiveAvgPool2D": lambda: paddle.nn.AdaptiveAvgPool2D((3, 5)),
    "ELU": lambda: paddle.nn.ELU(0.7),
    "CELU": lambda: paddle.nn.CELU(0.7),
    "SELU": lambda: paddle.nn.SELU(),
    "Hardtanh": lambda: paddle.nn.Hardtanh(-0.3, 0.7),
    "Softshrink": lambda: paddle.nn.Softshrink(0.3),
    "bilinear to a size": lambda: paddle.nn.Upsample([13, 9], mode="bilinear"),
    "bilinear by a factor, corners aligned": lambda: paddle.nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
}
VOLUMES = {  # ours, theirs, shape
    "AvgPool3D": (paddle.nn.AvgPool3D(3, 2, 1), torch.nn.AvgPool3d(3, 2, 1, count_include_pad=False), (9, 8, 7)),
    "ceil mode": (paddle.nn.AvgPool2D(3, 2, ceil_mode=True), torch.nn.AvgPool2d(3, 2, ceil_mode=True), (8, 12)),
    "a divisor": (paddle.nn.AvgPool2D(3, 2, divisor_override=5), torch.nn.AvgPool2d(3, 2, divisor_override=5), (8, 12)),
    "AdaptiveAvgPool3D": (paddle.nn.AdaptiveAvgPool3D(3), torch.nn.AdaptiveAvgPool3d(3), (8, 7, 5)),
    "LocalResponseNorm": (
        paddle.nn.LocalResponseNorm(5, alpha=0.1, beta=0.5, k=2.0), torch.nn.LocalResponseNorm(5, 0.1, 0.5, 2.0), (7, 6),
    ),
    **{
        f"{mode} {corners}": (
            paddle.nn.Upsample(scale_factor=1.5, mode=mode, align_corners=corners, data_format=f"NC{'DHW'[-count:]}"),
            torch.nn.Upsample(scale_factor=1.5, mode=mode, align_corners=corners), (7, 5, 6)[:count],
        )
        for count, mode in ((2, "bilinear"), (2, "bicubic"), (3, "trilinear")) for corners in (False, True)
    },
}  # fmt: skip
THEIRS = {
    "AdaptiveAvgPool2D": lambda: torch.nn.AdaptiveAvgPool2d((3, 5)),
    "ELU": lambda: torch.nn.ELU(0.7),
    "CELU": lambda: torch.nn.CELU(0.7),
    "SELU": lambda: torch.nn.SELU(),
    "Hardtanh": lambda: torch.nn.Hardtanh(-0.3, 0.7),
    "Softshrink": lambda: torch.nn.Softshrink(0.3),
    "bilinear to a size": lambda: torch.nn.Upsample((13, 9), mode="bilinear"),
    "bilinear by a factor, corners aligned": lambda: torch.nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
}


@pytest.mark.parametrize("case", THEIRS)
def test_exact_mode_is_the_same_in_both_frameworks(case):
    x = np.random.default_rng(0).normal(size=(2, 8, 7, 7)) * 3
    ours, theirs = gradients(Paddle(), CONSTANTS[case](), x, True), gradients(Torch(), THEIRS[case](), x, True)
    for a, b in zip(ours, theirs, strict=True):
        assert relative_l2(a, b) < 1e-14


@pytest.mark.parametrize("case", VOLUMES)
def test_exact_mode_takes_out_a_constant_and_nothing_more(case):
    ours, theirs, sides = VOLUMES[case]
    x = np.random.default_rng(0).normal(size=(2, 8, *sides))
    exact, stock = (gradients(Paddle(), ours, x, mode) for mode in (True, False))
    for a, b, c in zip(exact, gradients(Torch(), theirs, x, True), stock, strict=True):
        assert relative_l2(a, b) < 1e-14 and relative_l2(a, c) < 2e-6
    assert max(relative_l2(a, c) for a, c in zip(exact, stock, strict=True)) > 1e-10, "the stock kernel has become exact"


def test_pooling_over_one_dimension_is_exact_too():
    x = np.random.default_rng(0).normal(size=(2, 8, 14))
    pairs = (
        (paddle.nn.AvgPool1D(3, 2, 1, exclusive=False), torch.nn.AvgPool1d(3, 2, 1)),
        (paddle.nn.AdaptiveAvgPool1D(5), torch.nn.AdaptiveAvgPool1d(5)),
    )
    for ours, theirs in pairs:
        for a, b in zip(gradients(Paddle(), ours, x, True), gradients(Torch(), theirs, x, True), strict=True):
            assert relative_l2(a, b) < 1e-14
        assert relative_l2(gradients(Paddle(), ours, x, False)[1], gradients(Torch(), theirs, x, False)[1]) > 1e-10


def test_torchs_celu_has_a_reciprocal_in_float32():
    x = np.random.default_rng(0).normal(size=(2, 8, 7, 7)) * 3
    stock, exact = (gradients(Torch(), torch.nn.CELU(0.7), x, mode) for mode in (False, True))
    assert relative_l2(stock[0], exact[0]) < 1e-15 and 1e-10 < relative_l2(stock[1], exact[1]) < 5e-7


@pytest.mark.parametrize("case", CONSTANTS)
def test_paddles_stock_kernels_carry_float32_constants(case):
    """Each exact function differs from the stock kernel by float32 rounding of a constant, and by nothing more."""
    x = np.random.default_rng(0).normal(size=(2, 8, 7, 7)) * 3
    framework, layer = Paddle(), CONSTANTS[case]()
    # A module looks its function up when it is called; a plain function has to be looked up inside the block.
    inside = (lambda value: paddle.nn.functional.hardsigmoid(value)) if case.startswith("F.") else layer
    stock, exact = gradients(framework, layer, x, False), gradients(framework, inside, x, True)
    differences = [relative_l2(a, b) for a, b in zip(stock, exact, strict=True)]
    assert max(differences) < 5e-7
    assert max(differences) > 1e-10, "the stock kernel has become exact; its exact version can go"


def test_paddles_stock_batch_norm_holds_its_momentum_in_float32():
    """In exact mode the running statistics follow the momentum that the port gives, with the stock kernel's biased variance."""
    x = np.random.default_rng(0).normal(size=(4, 3, 5, 5))
    framework, layer = Paddle(), paddle.nn.BatchNorm2D(3, momentum=0.9)
    layer = framework.make_exact(layer)
    start = {name: framework.array(tensor) for name, tensor in framework.own_tensors(layer).items()}
    found = {}
    for exact in (False, True):
        for name, tensor in framework.own_tensors(layer).items():
            framework.assign(tensor, start[name])
        layer.train()
        framework.call(layer, (x,)) if exact else layer(framework.tensor(x))
        found[exact] = framework.state(layer)
    expected = {"running_mean": 0.1 * x.mean((0, 2, 3)), "running_var": 0.9 + 0.1 * x.var((0, 2, 3))}
    for name, values in expected.items():
        assert relative_l2(found[True][name], values) < 1e-14
        assert 1e-9 < relative_l2(found[False][name], values) < 5e-7, "the stock kernel has become exact"


def test_torchs_hard_sigmoid_has_a_sixth_in_float32():
    x = np.random.default_rng(0).normal(size=(2, 8, 7, 7)) * 3
    stock, exact = (gradients(Torch(), torch.nn.Hardsigmoid(), x, mode) for mode in (False, True))
    assert relative_l2(stock[0], exact[0]) < 1e-15 and 1e-10 < relative_l2(stock[1], exact[1]) < 5e-7


@pytest.mark.parametrize("slope", [0.2, 0.1667, 1 / 6 + 1e-6])
def test_a_wrong_slope_stays_wrong_in_exact_mode(slope):
    """What is taken out is a constant of the kernel, never what the port's author wrote."""
    x = np.linspace(-4, 4, 101)
    made = Paddle().call(lambda value: paddle.nn.functional.hardsigmoid(value, slope=slope), (x,)).outputs[0]
    assert relative_l2(made, np.clip(x * slope + 0.5, 0, 1)) < 1e-15
    assert relative_l2(made, np.clip(x + 3, 0, 6) / 6) > 1e-7


def test_float32_is_computed_by_the_stock_kernels():
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    for framework, layer in ((Paddle(), paddle.nn.AvgPool2D(2)), (Torch(), torch.nn.Hardsigmoid())):
        assert np.array_equal(framework.call(layer, (x,)).outputs[0], framework.array(layer(framework.tensor(x))))


def test_the_frameworks_functions_are_their_own_again_after_the_block():
    before = paddle.nn.functional.hardsigmoid, torch.nn.functional.conv2d
    inside = []

    def fails():
        with Paddle().exact_calls(), Torch().exact_calls(), Torch().exact_calls():
            inside.extend((paddle.nn.functional.hardsigmoid, torch.nn.functional.conv2d))
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert inside[0] is not before[0] and inside[1] is not before[1]
    assert (paddle.nn.functional.hardsigmoid, torch.nn.functional.conv2d) == before


@pytest.mark.parametrize("norm", [torch.nn.BatchNorm2d(3, eps=0.001), torch.nn.LayerNorm(3, eps=0.001)])
def test_torchs_eps_becomes_paddles(norm):
    exact = Torch().make_exact(torch.nn.Sequential(norm))[0]
    assert exact.eps == float(np.float32(0.001)) != 0.001 and exact.weight.dtype == torch.float64


def test_paddles_group_norm_holds_its_eps_in_float64():
    x = np.random.default_rng(0).normal(size=(2, 8, 7, 7)) * 0.01
    ours, theirs = Paddle().make_exact(paddle.nn.GroupNorm(2, 8, 0.001)), Torch().make_exact(torch.nn.GroupNorm(2, 8, 0.001))
    assert relative_l2(Paddle().call(ours, (x,)).outputs[0], Torch().call(theirs, (x,)).outputs[0]) < 1e-14


def test_integer_buffers_keep_their_type():
    """An index table that has become floating point cannot index any more."""

    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("index", torch.arange(3))

    assert Torch().make_exact(Table()).index.dtype == torch.int64
    layer = paddle.nn.Layer()
    layer.register_buffer("index", paddle.arange(3))
    assert Paddle().make_exact(layer).index.dtype == paddle.int64


def test_float64_without_exact_functions_is_no_oracle():
    """Stock float64 kernels of a correct port differ by more than exact mode allows."""
    x = np.random.default_rng(0).normal(size=(4, 8))
    ours = paddle.nn.functional.hardsigmoid(paddle.to_tensor(x)).numpy()
    theirs = torch.nn.functional.hardsigmoid(torch.tensor(x)).numpy()
    assert relative_l2(ours, theirs) > 1e-9


def test_a_projects_own_kernel_gets_its_own_exact_layer():
    class Sixth(paddle.nn.Layer):
        """A kernel of a project's own, with a float32 constant inside."""

        def forward(self, x):
            return x * float(np.float32(1 / 6))

    class ExactSixth(paddle.nn.Layer):
        def forward(self, x):
            return x / 6

    x = np.random.default_rng(0).normal(size=(4, 8))
    framework = Paddle(layers={Sixth: "sixth"}, exact_layers={Sixth: lambda layer: ExactSixth()})
    made = framework.make_exact(paddle.nn.Sequential(Sixth()))
    assert relative_l2(framework.call(made, (x,)).outputs[0], x / 6) < 1e-16
    assert framework.layer(made[0]).kind == "sixth" and framework.layer(made[0]).title == "Sixth"


@pytest.mark.parametrize("named", [False, True], ids=["by place", "by name"])
def test_a_grid_alone_has_a_gradient_in_every_pass(named):
    """Paddle's kernel ends the process; values and gradients are torch's."""
    picture = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    grid = np.random.default_rng(1).uniform(-0.9, 0.9, size=(2, 4, 4, 2))
    found = []
    for side, functional in ((Paddle(), paddle.nn.functional), (Torch(), torch.nn.functional)):

        def sample(grid, side=side, functional=functional):
            x = side.tensor(picture)
            how = {"mode": "bilinear", "padding_mode": "border", "align_corners": False}
            return (
                functional.grid_sample(**({"x" if side.name == "paddle" else "input": x, "grid": grid}), **how)
                if named
                else (functional.grid_sample(x, grid, *how.values()))
            )

        made = side.vjp(sample, (grid,), None, Wanted())
        found.append((made.outputs[0], made.inputs[0]))
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape and relative_l2(ours, theirs) < 1e-13
