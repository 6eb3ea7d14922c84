"""Random numbers for the same values in other axes: windows by picture on one side, those of all pictures in a row on the other."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

from alignment import audit
from alignment.models.observe import MaskDraws
from alignment.models.regrouped import pieces_of
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


class InPieces(torch.nn.Module):
    """Decodes a prompt, then what follows with a cache of keys."""

    def __init__(self):
        super().__init__()
        self.fc, self.drop, self.head = torch.nn.Linear(8, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3)

    def forward(self, x):
        keys = x[:, :0]
        found = []
        for part in (x[:, :2], x[:, 2:5], x[:, 5:]):
            h = self.drop(self.fc(part))
            keys = torch.cat([keys, h], 1)
            ahead = torch.ones(h.shape[1], keys.shape[1], dtype=torch.bool).triu(keys.shape[1] - h.shape[1] + 1)
            weights = (h @ keys.transpose(1, 2)).masked_fill(ahead, -torch.inf).softmax(-1)
            found.append(self.head(self.drop(weights) @ keys))
        return torch.cat(found, 1)


class AtOnce(paddle.nn.Layer):
    def __init__(self, rate=0.3):
        super().__init__()
        self.fc, self.drop, self.head = paddle.nn.Linear(8, 8), paddle.nn.Dropout(0.3), paddle.nn.Linear(8, 3)
        self.drop_weights = paddle.nn.Dropout(rate)

    def forward(self, x):
        h = self.drop(self.fc(x))
        ahead = paddle.triu(paddle.full([x.shape[1]] * 2, float("-inf")), 1)
        return self.head(self.drop_weights(paddle.nn.functional.softmax(h @ h.transpose([0, 2, 1]) + ahead)) @ h)


@pytest.mark.parametrize("rate", [0.3, 0.5])
def test_what_is_drawn_for_a_whole_sequence_is_what_its_pieces_draw_and_another_rate_is_found(rate):
    result = audit(AtOnce(rate), InPieces(), inputs=X, accept=["initialisation"])
    assert result.passed == (rate == 0.3), result
    assert not {"call_missing", "call_extra", "dropout_missing"} & {one.kind for one in result.mistakes}, result


def test_pieces_are_those_that_make_up_a_whole():
    whole, keys, crossed = (4, 9, 8), (4, 2, 9, 9), (4, 2, 9, 7)
    parts = [(4, 5, 8), (4, 2, 5, 5), (4, 2, 5, 7), (4, 4, 8), (4, 2, 4, 9), (4, 2, 4, 7)]
    found = pieces_of([whole, keys, crossed], parts)
    assert found == pieces_of(parts, [whole, keys, crossed]) and found == {
        (9, 8): (1, [(5, 8), (4, 8)]),
        (2, 9, 9): (2, [(2, 5, 5), (2, 4, 9)]),
        (2, 9, 7): (2, [(2, 5, 7), (2, 4, 7)]),
    }
    assert pieces_of([(4, 3, 8)], [(4, 1, 8)] * 3) == {(3, 8): (1, [(1, 8)] * 3)}
    for other in ([(4, 5, 8)], [(4, 5, 8), (4, 5, 8)], [(4, 1, 8)], [(4, 9, 1)], [(4, 9, 8)], [(2, 9, 8), (2, 9, 8)]):
        assert pieces_of([whole], other) == {}, other
    draws = MaskDraws(0, pieces=found)
    assert np.array_equal(draws(whole)[:, 5:], draws((4, 4, 8))) and np.array_equal(draws((4, 2, 4, 9)), draws(keys)[:, :, 5:])


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


@pytest.mark.parametrize("given", [(), [np.array(["2x3"])], {"x": "4x6x8"}, np.float32(3)])
def test_what_is_no_input_is_one_line(given):
    with pytest.raises(UserError, match="inputs: expected a shape such as"):
        audit(Ours(), Theirs(), inputs=given)
