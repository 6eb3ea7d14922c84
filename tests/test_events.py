"""What one random number decides on all samples: another rate, or none, is found, though most passes are the same."""

import random

import numpy as np
import paddle
import pytest
import torch

from alignment import audit
from alignment.comparisons.model.events import CHANGES, Events

pytestmark = pytest.mark.usefixtures("own_temporary")


class Theirs(torch.nn.Module):
    """Each of four layers is left out with its own probability."""

    def __init__(self, rate=0.2):
        super().__init__()
        self.a, self.b, self.rate = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), rate

    def forward(self, x):
        for number in range(4):
            layer = self.a if number % 2 else self.b
            if self.training and torch.rand([]).item() < self.rate * (number + 1) / 4:
                continue
            x = x + torch.tanh(layer(x))
        return x


class Ours(paddle.nn.Layer):
    def __init__(self, rate=0.2, draw=lambda: paddle.rand([1]).item()):
        super().__init__()
        self.a, self.b, self.rate, self.draw = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 6), rate, draw

    def forward(self, x):
        for number in range(4):
            layer = self.a if number % 2 else self.b
            if self.training and self.left_out(self.rate * (number + 1) / 4):
                continue
            x = x + paddle.tanh(layer(x))
        return x

    def left_out(self, rate):
        return self.draw() < rate


class FromTheOtherEnd(Ours):
    def left_out(self, rate):
        return self.draw() > 1 - rate


class Never(Ours):
    def left_out(self, rate):
        return False


@pytest.mark.parametrize("port", [
    Ours, FromTheOtherEnd, lambda: Ours(draw=lambda: np.random.rand()), lambda: Ours(draw=lambda: random.random()),
    lambda: FromTheOtherEnd(draw=lambda: np.random.uniform(0.0, 1.0)),
])  # fmt: skip
def test_the_same_probabilities_pass_however_they_are_drawn(port):
    result = audit(port, Theirs, inputs="4x6")
    assert result.passed, result.mistakes


@pytest.mark.parametrize(("port", "reference", "kind", "words"), [
    (lambda: Ours(0.3), Theirs, "dropout_rate", "0.075, 0.15, 0.225, 0.3, expected 0.05, 0.1, 0.15, 0.2"),
    (lambda: FromTheOtherEnd(0.3), Theirs, "dropout_rate", "0.075, 0.15, 0.225, 0.3, expected 0.05, 0.1, 0.15, 0.2"),
    (Never, Theirs, "dropout_missing", "nothing is left out at random"),
    (lambda: Ours(0.1), lambda: Theirs(0.0), "layer_extra", "something is left out at random"),
])  # fmt: skip
def test_other_probabilities_are_found_once(port, reference, kind, words):
    (found,) = audit(port, reference, inputs="4x6").mistakes
    assert found.kind == kind and words in found.words, found


class Noisy(torch.nn.Module):
    def __init__(self, least=0.1):
        super().__init__()
        self.fc, self.least = torch.nn.Linear(6, 6), least

    def forward(self, x):
        return self.fc(x) * (1 + self.least * torch.randn(1)) if self.training else self.fc(x)


def test_a_number_that_always_counts_is_no_event():
    assert audit(Noisy, Noisy, inputs="4x6").passed


def test_the_judgement_of_plain_data():
    comparison = Events({})
    some, other = {CHANGES: np.array([0.1, 0.3])}, {CHANGES: np.array([0.7, 0.9])}
    assert not comparison.judge({}, {}) and comparison.judge(some, some)[0].passed and comparison.judge(some, other)[0].passed
    assert not comparison.judge(some, {})[0].passed and not comparison.judge(some, {CHANGES: np.array([0.1])})[0].passed
