"""How a candidate of a correction is judged: as the audit's own step judges it."""

import numpy as np
import paddle
import pytest
import torch

from alignment.audit.trial import same_outputs


class Waves(torch.nn.Module):
    """It enlarges every difference by five digits where ``rate`` is large."""

    def __init__(self, rate):
        super().__init__()
        self.linear, self.rate = torch.nn.Linear(8, 8), rate

    def forward(self, x):
        return torch.sin(self.rate * self.linear(x))


class WavesInPaddle(paddle.nn.Layer):
    def __init__(self, rate, factor=1.0):
        super().__init__()
        self.linear, self.rate, self.factor = paddle.nn.Linear(8, 8), rate, factor

    def forward(self, x):
        return paddle.sin(self.rate * (self.factor * self.linear(x)))


@pytest.mark.parametrize(
    ("rate", "factor", "right"),
    [(1e5, 1.0, True), (1e5, 1 + 2**-52, True), (1e5, 1 + 1e-11, False), (1.0, 1.0, True), (1.0, 1 + 1e-11, False)],
)
def test_a_right_candidate_in_a_network_that_enlarges_rounding_passes(rate, factor, right):
    """A deep network in training mode lost its right correction: by rounding alone its outputs differ by more than 1e-12."""
    inputs = (np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32),)
    torch.manual_seed(0)
    assert same_outputs(WavesInPaddle(rate, factor), Waves(rate), inputs, training=True) == right
