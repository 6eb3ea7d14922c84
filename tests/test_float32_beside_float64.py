"""Ports and references that are right in float32, and hold tensors in float32 that exact mode does not know."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as PF
import pytest
import torch
import torch.nn.functional as TF

from alignment import audit
from alignment.frameworks import framework
from mobilenetv3_common.errors import UserError

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder
WINDOW = np.hanning(6)[1:5].astype(np.float32).reshape(4, 1)


class Held(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 4)
        self.register_buffer("window", torch.from_numpy(WINDOW), persistent=False)

    def forward(self, x):
        return self.fc(x) @ self.window


class Kept(Held):
    def __init__(self):
        torch.nn.Module.__init__(self)
        self.fc, self.window = torch.nn.Linear(6, 4), torch.from_numpy(WINDOW)


class Made(Kept):
    def forward(self, x):
        return self.fc(x) @ torch.from_numpy(WINDOW)


class Chosen(Kept):
    def forward(self, x):
        y = self.fc(x)
        return y @ TF.one_hot((x[:, 0] > 0).long(), 4).to(y.dtype).t(), torch.sqrt(torch.arange(1, 5).to(y.dtype)) * y


class Port(paddle.nn.Layer):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.fc, self.window = paddle.nn.Linear(6, 4), [paddle.to_tensor(WINDOW)]

    def forward(self, x):
        return paddle.matmul(self.fc(x), self.window[0] * self.factor)


class PortMade(Port):
    def forward(self, x):
        return paddle.matmul(self.fc(x), paddle.to_tensor(WINDOW))


class PortChosen(Port):
    def forward(self, x):
        y = self.fc(x)
        return paddle.matmul(y, PF.one_hot((x[:, 0] > 0).astype("int64"), 4), transpose_y=True), paddle.sqrt(
            paddle.arange(1, 5)
        ) * y


class Wrong(Port):
    factor = 1.1


class Guarded(Port):
    def forward(self, x):
        assert x.dtype == paddle.float32, "float32 alone"
        return super().forward(x)


@pytest.mark.parametrize(
    ("port", "reference"),
    [(Port, Held), (PortMade, Held), (PortChosen, Chosen), (PortMade, Kept), (Port, Made)],
    ids=lambda one: one.__name__,
)
def test_a_tensor_that_stays_in_float32_is_no_mistake(port, reference):
    result = audit(port, reference, inputs="5x6")
    assert result.passed and not result.mistakes, result


def test_a_wrong_factor_of_such_a_tensor_is_one():
    result = audit(Wrong, Kept, inputs="5x6")
    assert [one.kind for one in result.mistakes] == ["scaled"] and "1.1" in result.mistakes[0].words, result


def test_a_port_that_takes_float32_alone_is_not_compared_and_its_line_is_said():
    with pytest.raises(
        UserError, match=r"the port runs in float32, but not in float64.*test_float32_beside_float64\.py:\d+ in Guarded.*alone"
    ):
        audit(Guarded, Held, inputs="5x6")


def numbers(*shape, kind="float64"):
    made = paddle.to_tensor(np.random.default_rng(0).uniform(0.2, 0.7, shape))
    return paddle._C_ops.cast(made, paddle.float32) if kind == "float32" else made  # exact mode widens what a model casts


OF_TWO_TYPES = {
    "matmul": lambda kind: paddle.matmul(numbers(2, 3), numbers(3, 2, kind=kind)),
    "@": lambda kind: numbers(3, 2, kind=kind) @ numbers(2, 3),
    "einsum": lambda kind: paddle.einsum("ij,jk->ik", numbers(2, 3), numbers(3, 2, kind=kind)),
    "concat": lambda kind: paddle.concat([numbers(2, 3), numbers(2, 3, kind=kind)]),
    "where": lambda kind: paddle.where(numbers(2, 3) > 0.4, numbers(2, 3), numbers(2, 3, kind=kind)),
    "masked_fill": lambda kind: paddle.masked_fill(numbers(3, 2), numbers(3, 2) > 0.3, numbers(1, kind=kind)),
    "scatter": lambda kind: paddle.scatter(numbers(3, 2), paddle.to_tensor([0, 1]), numbers(2, 2, kind=kind)),
    "conv2d": lambda kind: PF.conv2d(numbers(2, 3, 8, 8), numbers(4, 3, 3, 3, kind=kind)),
    "grid_sample": lambda kind: PF.grid_sample(numbers(1, 2, 4, 4), numbers(1, 2, 2, 2, kind=kind)),
    "focal": lambda kind: PF.sigmoid_focal_loss(numbers(2, 3), numbers(2, 3, kind=kind)),
    "soft labels": lambda kind: PF.cross_entropy(numbers(2, 3), numbers(2, 3, kind=kind), soft_label=True),
    "layer_norm": lambda kind: PF.layer_norm(numbers(2, 3), [3], numbers(3, kind=kind), numbers(3, kind=kind)),
}


@pytest.mark.parametrize("name", OF_TWO_TYPES)
def test_a_function_of_one_type_computes_in_float64_where_it_is_given_two(name):
    function, side = OF_TWO_TYPES[name], framework("paddle")
    with side.precision("float64"):
        mixed, both = function("float32"), function("float64")
    assert mixed.dtype == paddle.float64
    assert 0 < np.abs(mixed.numpy() - both.numpy()).max() < 1e-6  # the rounding of what was float32, and no more
    if name not in ("@", "where"):  # outside exact mode Paddle's functions are as ever
        with pytest.raises(ValueError, match="type"):
            function("float32")
