"""A table that one side rounds to float32 is no reason for gradients that differ by far more: what is detached is found."""

import numpy as np
import pytest

from alignment import audit
from alignment.localize.blame import Blame
from alignment.localize.hypotheses.stopped import beyond_rounding
from alignment.models.tracing import Answer

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
THEIRS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("window", torch.hann_window(8), persistent=False)

    def forward(self, x):
        y = torch.tanh(self.first(x))
        rest = y - self.second(y)
        return (rest * self.window.to(x.dtype)).sum(-1)
"""
OURS = """
import numpy as np
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = paddle.tanh(self.first(x))
        rest = y - self.second(y)
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8)
        window[1] += 3e-9
        return (rest * paddle.to_tensor(window, dtype=x.dtype)).sum(-1)
"""
WRONG = OURS.replace("y - self.second(y)", "y - self.second(y).detach()")


@pytest.mark.parametrize("source", [OURS, WRONG])
def test_what_is_detached_is_found_beside_a_rounded_table(source, tmp_path):
    (tmp_path / "ours.py").write_text(source)
    (tmp_path / "theirs.py").write_text(THEIRS)
    sides = f"{tmp_path}/ours.py:Net", f"{tmp_path}/theirs.py:Net"
    result = audit(*sides, inputs=X, report=tmp_path / "report", accept=["initialisation"])
    line = source[: source.index("rest =")].count("\n") + 1
    found = [(one.kind, one.source) for one in result.mistakes]
    assert result.passed == (source is OURS), result.mistakes
    assert [kind for kind, _ in found] == ([] if source is OURS else ["detached"]), found
    assert all(place.endswith(f"ours.py:{line}") for _, place in found), found


@pytest.mark.parametrize(("judged", "beyond"), {"gradient of its input": False, "gradient of its input 2": True}.items())
def test_gradients_that_were_judged_right_are_none_that_differ(judged, beyond):
    """One that jumps with a change of one ulp may differ by much and is right: a box that a threshold keeps or drops."""
    right = [np.full(4, 1.0), np.full(4, 0.5)]
    made = [right[0] * (1 + 1e-9), right[1] * 1.1]
    blame = Blame(True, every=[judged], ours=Answer(input_gradients=made), theirs=Answer(input_gradients=right))
    assert beyond_rounding(blame) is beyond
