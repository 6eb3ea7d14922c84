"""Random numbers for the same values in other axes: windows by picture on one side, those of all pictures in a row on the other."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

from alignment import audit
from alignment.models.observe import MaskDraws
from mobilenetv3_common.errors import UserError


class Theirs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        windows = torch.nn.functional.dropout(self.fc(x.view(-1, 2, 8)), 0.3, self.training)
        return self.head(windows.view(-1, 6, 8))


class Ours(paddle.nn.Layer):
    def __init__(self, rate=0.3):
        super().__init__()
        self.fc, self.head, self.rate = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 3), rate

    def forward(self, x):
        windows = self.fc(x.reshape([-1, 3, 2, 8]))
        return self.head(paddle.nn.functional.dropout(windows, self.rate, training=self.training).reshape([-1, 6, 8]))


X = np.random.default_rng(0).standard_normal((4, 6, 8)).astype(np.float32)


@pytest.mark.parametrize("rate", [0.3, 0.5])
def test_masks_are_shared_whatever_axes_the_values_lie_in_and_another_rate_is_found(rate):
    result = audit(Ours(rate), Theirs(), inputs=X, accept=["initialisation"])
    assert result.passed == (rate == 0.3), result
    assert [one.kind for one in result.mistakes] == ([] if rate == 0.3 else ["dropout_rate"]), result


def test_numbers_lie_in_the_order_of_the_values_only_where_they_are_told_to():
    windows, row = (2, 3, 4), (6, 4)
    assert np.array_equal(MaskDraws(0, flat=True)(windows).ravel(), MaskDraws(0, flat=True)(row).ravel())
    assert not np.array_equal(MaskDraws(0)(windows).ravel(), MaskDraws(0)(row).ravel())
    draws = MaskDraws(0, asked=[])
    draws(windows)
    assert draws.asked == [windows]


@pytest.mark.parametrize("given", [X, (torch.from_numpy(X),), [paddle.to_tensor(X)], "4x6x8"])
def test_inputs_may_be_arrays(given, tmp_path):
    assert audit(Ours(), Theirs(), inputs=given, training=False, report=tmp_path / "report").passed


@pytest.mark.parametrize("given", [(), [np.array(["2x3"])], {"x": X}, np.float32(3)])
def test_what_is_no_input_is_one_line(given):
    with pytest.raises(UserError, match="inputs: expected a shape such as"):
        audit(Ours(), Theirs(), inputs=given)
