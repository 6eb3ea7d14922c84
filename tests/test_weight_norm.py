"""Weight normalisation of both frameworks, in either form of torch: the same tensors, and a wrong axis is found."""

import numpy as np
import paddle
import pytest
import torch
from torch.nn.utils import parametrizations

from alignment import audit
from alignment.frameworks import framework_of

pytestmark = pytest.mark.usefixtures("own_temporary")
X = np.random.default_rng(0).standard_normal((2, 4, 9)).astype("float32")
OLDER = pytest.mark.filterwarnings("ignore::FutureWarning")


class Theirs(torch.nn.Module):
    def __init__(self, weight_norm=parametrizations.weight_norm):
        super().__init__()
        self.a, self.b = weight_norm(torch.nn.Conv1d(4, 8, 3, padding=1)), weight_norm(torch.nn.Linear(8, 5))
        self.c = weight_norm(torch.nn.Conv1d(5, 6, 3), dim=2)

    def forward(self, x):
        return self.c(self.b(torch.relu(self.a(x)).transpose(1, 2)).transpose(1, 2))


class Ours(paddle.nn.Layer):
    """Paddle's linear layer has its outputs last: axis 1."""

    def __init__(self, linear=1, last=2):
        super().__init__()
        weight_norm = paddle.nn.utils.weight_norm
        self.a, self.b = weight_norm(paddle.nn.Conv1D(4, 8, 3, padding=1)), weight_norm(paddle.nn.Linear(8, 5), dim=linear)
        self.c = weight_norm(paddle.nn.Conv1D(5, 6, 3), dim=last)

    def forward(self, x):
        return self.c(self.b(paddle.nn.functional.relu(self.a(x)).transpose([0, 2, 1])).transpose([0, 2, 1]))


@OLDER
@pytest.mark.parametrize("form", [parametrizations.weight_norm, torch.nn.utils.weight_norm])
@pytest.mark.parametrize(("axes", "place"), [((1, 2), ""), ((0, 2), "b"), ((1, 0), "c")])
def test_the_sizes_and_directions_are_paired_and_a_wrong_axis_is_found(form, axes, place):
    result = audit(lambda: Ours(*axes), lambda: Theirs(form), inputs={"x": X})
    assert result.passed is not bool(place), result.mistakes
    assert [one.place.partition(".")[0] for one in result.mistakes] == ([place] if place else [])


@OLDER
def test_a_model_computes_the_same_in_the_older_form():
    torch.manual_seed(0)
    model, x = Theirs(), torch.from_numpy(X)
    model.b.parametrizations.weight.original0.requires_grad_(False)
    before = model(x).detach()
    framework_of(model).in_plain_form(model)
    assert torch.allclose(before, model(x), rtol=0, atol=1e-6) and not any(
        "parametrizations" in name for name in model.state_dict()
    )
    assert not model.b.weight_g.requires_grad and model.b.weight_v.requires_grad and model.a.weight_g.shape == (8, 1, 1)
    spectral = parametrizations.spectral_norm(torch.nn.Linear(3, 3))
    framework_of(spectral).in_plain_form(spectral)
    assert "parametrizations.weight.original" in spectral.state_dict()
