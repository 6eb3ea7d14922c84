"""A layer too much in a block that the reference does not have is shown where the block makes it."""

import inspect

import numpy as np
import paddle
import torch
from paddle import nn

from alignment import audit


class Embedded(nn.Layer):
    """The port's own block around embedding and positions, whose dropout the reference lacks."""

    def __init__(self, extra):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.drop = nn.Dropout(0.3) if extra else None

    def forward(self, numbers):
        found = self.words(numbers) + self.places(paddle.arange(numbers.shape[1]))
        return found if self.drop is None else self.drop(found)


class Port(nn.Layer):
    def __init__(self, extra=True):
        super().__init__()
        self.embedded, self.norm, self.head = Embedded(extra), nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, numbers):
        return self.head(self.norm(self.embedded(numbers)))


class Right(torch.nn.Module):
    """The reference, whose embeddings lie in the network itself."""

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(20, 8), torch.nn.Embedding(6, 8)
        self.norm, self.head = torch.nn.LayerNorm(8), torch.nn.Linear(8, 5)

    def forward(self, numbers):
        return self.head(self.norm(self.words(numbers) + self.places(torch.arange(numbers.shape[1]))))


GIVEN = np.random.default_rng(0).integers(0, 20, (8, 6))


def test_the_line_of_a_layer_too_much_is_that_of_the_block_that_makes_it():
    lines, start = inspect.getsourcelines(Embedded)
    line = start + next(number for number, text in enumerate(lines) if "nn.Dropout" in text)
    first = audit(Port, Right, inputs=GIVEN).mistakes[0]
    assert first.kind == "layer_extra" and first.source.endswith(f"test_extra_layer_line.py:{line}"), str(first)


def test_a_block_of_the_ports_own_without_it_is_right():
    assert not audit(lambda: Port(extra=False), Right, inputs=GIVEN).mistakes
