"""Fourier transforms: over which axes, how they are scaled, and the same transform in one call or in several."""

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

from alignment.localize import localize

SOUND = {
    "two axes of any number": lambda x: paddle.fft.fftn(x, axes=(1, 2)).real(),
    "the last two": lambda x: paddle.fft.fft2(x).real(),
    "one after the other": lambda x: paddle.fft.fft(paddle.fft.fft(x), axis=1).real(),
    "scaled back": lambda x: paddle.fft.fft2(x, norm="ortho").real() * x[0].size ** 0.5,
}
WRONG = {
    "all axes": (lambda x: paddle.fft.fftn(x).real(), "fftn axis None, expected [1, 2]"),
    "one axis": (lambda x: paddle.fft.fft(x).real(), "fft axis -1, expected [1, 2]"),
    "the samples": (lambda x: paddle.fft.fft2(x, axes=(0, 1)).real(), "fft2 axis [0, 1], expected [1, 2]"),
    "unitary": (lambda x: paddle.fft.fft2(x, norm="ortho").real(), "fft2 norm ortho, expected backward"),
    "backwards": (lambda x: paddle.fft.ifft2(x).real(), "ifft2(axis=[-2, -1]), expected fftn(axis=[1, 2])"),
    "the imaginary part": (lambda x: paddle.fft.fft2(x).imag(), "imag, expected real"),
}
BY_ONE = {
    "all axes": (lambda x: paddle.fft.fftn(x).real(), "fftn(axis=None), expected fft(axis=2) and fft(axis=1)"),
    "one axis twice": (lambda x: paddle.fft.fft(paddle.fft.fft(x)).real(), "fft axis -1, expected 1"),
}


class Mixing(nn.Layer):
    """A port whose tokens are mixed by a function."""

    def __init__(self, function):
        super().__init__()
        self.norm, self.function = nn.LayerNorm(5), function

    def forward(self, x):
        return self.norm(x + self.function(x))


class Right(torch.nn.Module):
    """The reference, whose transform is one call, or one for each axis."""

    def __init__(self, by_one=False):
        super().__init__()
        self.norm, self.by_one = torch.nn.LayerNorm(5), by_one

    def forward(self, x):
        if not self.by_one:
            return self.norm(x + torch.fft.fftn(x, dim=(1, 2)).real)
        mixed = x
        for axis in (2, 1):
            mixed = torch.fft.fft(mixed, axis=axis)
        return self.norm(x + mixed.real)


def found(function, by_one=False):
    values = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    return localize(Mixing(function), Right(by_one), (values,), weights=False).first


@pytest.mark.parametrize("by_one", [False, True])
@pytest.mark.parametrize("name", SOUND)
def test_a_right_transform_of_any_form_is_silent(name, by_one):
    assert found(SOUND[name], by_one) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_transform_is_named(name):
    function, words = WRONG[name]
    first = found(function)
    assert words in first.hint and "test_fourier.py" in first.hint, first.line()


@pytest.mark.parametrize("name", BY_ONE)
def test_a_wrong_transform_beside_one_for_each_axis_is_named(name):
    function, words = BY_ONE[name]
    first = found(function, by_one=True)
    assert words in first.hint and "test_fourier.py" in first.hint, first.line()
