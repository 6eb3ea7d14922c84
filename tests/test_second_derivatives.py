"""Second derivatives, as a gradient penalty needs them: Paddle's are torch's; where an operator lacks them, others give them."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as ours_f
import pytest
import torch
import torch.nn.functional as theirs_f

RNG = np.random.default_rng(0)
WEIGHT, DEPTHWISE, LABELS = RNG.standard_normal((4, 4, 3, 3)), RNG.standard_normal((4, 1, 3, 3)), np.arange(8)
OPERATORS = {
    "conv2d": lambda f, t, x: f.conv2d(x, t(WEIGHT), padding=1),
    "relu": lambda f, t, x: f.relu(x) ** 2,
    "adaptive average": lambda f, t, x: f.adaptive_avg_pool2d(x, 1) * x,
    "depthwise conv2d": lambda f, t, x: f.conv2d(x, t(DEPTHWISE), padding=1, groups=4),
    "hardswish": lambda f, t, x: f.hardswish(x),
    "cross-entropy": lambda f, t, x: f.cross_entropy(x.reshape([8, 32]), t(LABELS)),
}


def cross_entropy(logits, wanted):
    return (paddle.log(paddle.exp(logits).sum(1)) - (logits * wanted).sum(1)).sum() / len(logits)


INSTEAD = {  # of the operators whose second derivative Paddle lacks on a CPU
    "depthwise conv2d": lambda f, t, x: f.conv2d(x, t(DEPTHWISE * np.eye(4)[:, :, None, None]), padding=1),
    "hardswish": lambda f, t, x: x * paddle.clip(x + 3, 0, 6) / 6,
    "cross-entropy": lambda f, t, x: cross_entropy(x.reshape([8, 32]), t(np.eye(32)[LABELS])),
}


def penalties(f, tensor, grad, x, operator):
    """The squared norm of the gradient of the operator's sum of cubes, and that norm's own gradient."""
    (first,) = grad((operator(f, tensor, x) ** 3).sum(), x, create_graph=True)
    norm = (first**2).sum()
    (second,) = grad(norm, x)
    return float(norm.detach()), second.detach().numpy()


def of_paddle(array, operator):
    return penalties(ours_f, paddle.to_tensor, paddle.grad, paddle.to_tensor(array, stop_gradient=False), operator)


@pytest.mark.parametrize("name", OPERATORS)
def test_second_derivatives_are_those_of_the_reference(name):
    array = RNG.standard_normal((2, 4, 4, 8))
    x = torch.tensor(array, requires_grad=True)
    theirs = penalties(theirs_f, torch.tensor, torch.autograd.grad, x, OPERATORS[name])
    ours = of_paddle(array, INSTEAD.get(name, OPERATORS[name]))
    assert np.abs(theirs[1]).max() > 0
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", INSTEAD)
def test_what_is_replaced_has_none(name):
    """When this fails, Paddle has learned it: the replacement can go."""
    with pytest.raises(RuntimeError, match=r"double_grad|doesn't have any grad op"):
        of_paddle(RNG.standard_normal((2, 4, 4, 8)), OPERATORS[name])


def scaled_penalty(framework, scale, divided=True):
    """The squared norm of the gradient of a small network's loss, which a scaler has multiplied, and its own gradient."""
    array, weight = np.linspace(-1, 1, 32).reshape(8, 4), np.linspace(-0.5, 0.7, 4).reshape(4, 1)
    if framework == "torch":
        w = torch.tensor(weight, requires_grad=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        scaled, grad = scaler.scale((torch.tanh(torch.tensor(array) @ w) ** 2).mean()), torch.autograd.grad
        factor = scaler.get_scale()
    else:  # Paddle's scaler works on a GPU alone: on a CPU it does nothing, and the scale is a factor
        w = paddle.to_tensor(weight, stop_gradient=False)
        scaled, grad, factor = (paddle.tanh(paddle.to_tensor(array) @ w) ** 2).mean() * scale, paddle.grad, scale
    (first,) = grad(scaled, w, create_graph=True)
    norm = ((first / factor if divided else first) ** 2).sum()
    (second,) = grad(norm, w)
    return float(norm.detach()), second.detach().numpy()


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_gradient_penalty_does_not_depend_on_the_loss_scale(framework):
    """mp.04: the gradients are divided by the scale before the penalty; forgotten, it grows with the scale's square."""
    plain, other = scaled_penalty(framework, 1.0), scaled_penalty("torch", 1.0)
    assert plain[0] > 0 and np.abs(plain[1]).max() > 0
    np.testing.assert_allclose(plain[0], other[0], rtol=1e-12)
    np.testing.assert_allclose(plain[1], other[1], rtol=1e-12)
    for scale in (128.0, 65536.0):
        right, wrong = scaled_penalty(framework, scale), scaled_penalty(framework, scale, divided=False)
        np.testing.assert_allclose(right[0], plain[0], rtol=1e-12)
        np.testing.assert_allclose(right[1], plain[1], rtol=1e-12)
        np.testing.assert_allclose(wrong[0], plain[0] * scale**2, rtol=1e-12)


def test_a_wrong_replacement_is_seen():
    array = RNG.standard_normal((2, 4, 4, 8))
    x = torch.tensor(array, requires_grad=True)
    theirs = penalties(theirs_f, torch.tensor, torch.autograd.grad, x, OPERATORS["hardswish"])
    wrong = of_paddle(array, lambda f, t, x: x * paddle.clip(x + 3, 0, 5) / 6)
    assert not np.allclose(wrong[1], theirs[1])
