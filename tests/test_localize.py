"""Localisation of any Paddle layer against any torch module, and no finding in sound ports."""

from __future__ import annotations

import dataclasses

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

from alignment.comparisons import STEPS
from alignment.comparisons.comparison import explained
from alignment.comparisons.data import data
from alignment.comparisons.explain import AFTER, BEFORE, locate
from alignment.comparisons.update import backward
from alignment.localize import localize, match_modules
from alignment.models.weights import copy_weights
from mobilenetv3_common.errors import UserError

INPUTS = np.random.default_rng(0).standard_normal((4, 3, 12, 12)).astype(np.float32)


def small_pair():
    """The same little network in both frameworks, with the same weights."""
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AvgPool2d(3, 2, 1),
        torch.nn.Conv2d(8, 8, 3, stride=2, padding=1),
        torch.nn.GELU(),
        torch.nn.Flatten(),
        torch.nn.Linear(72, 72),
    )
    return build([*range(8)], theirs), theirs


def build(kept, theirs=None, extra=None):
    layers = [
        nn.Conv2D(3, 8, 3, padding=1),
        nn.BatchNorm2D(8),
        nn.ReLU(),
        nn.AvgPool2D(3, 2, 1, exclusive=False),
        nn.Conv2D(8, 8, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(72, 72),
    ]
    ours = nn.Sequential(*[layers[i] for i in kept])
    if extra is not None:
        ours = nn.Sequential(*list(ours.children())[: extra[0]], extra[1], *list(ours.children())[extra[0] :])
    if theirs is not None:
        copy_weights(theirs, ours)
    return ours


def test_a_sound_pair_has_no_finding_and_a_whole_table():
    report = localize(*small_pair(), INPUTS)
    assert report.first is None
    assert [row.name for row in report.layers if row.phase == "forward"] == [*map(str, range(8)), ""]
    assert all(row.difference < 1e-13 and row.cosine > 1 - 1e-12 for row in report.layers)
    assert next(row.name for row in report.layers if row.phase == "backward") == ""
    assert "AvgPool2d" in report.table()


CHANGES = {
    "exclusive": (3, nn.AvgPool2D(3, 2, 1), ("3", "pooling")),
    "activation": (5, nn.GELU(approximate=True), ("5", "activation")),
    "max pooling": (3, nn.MaxPool2D(3, 2, 1), ("3", "pooling")),
    "identity": (2, nn.Identity(), ("2", "activation")),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_replaced_layer_is_named(case):
    place, layer, expected = CHANGES[case]
    ours, theirs = small_pair()
    ours[place] = layer
    first = localize(ours, theirs, INPUTS).first
    assert (first.location, first.kind) == expected, first.line()


def change_stride(ours):
    ours[4]._stride = [1, 1]


def transpose_square(ours):
    ours[7].weight.set_value(ours[7].weight.T.contiguous())


def drop_bias(ours):
    ours[0].bias.set_value(paddle.zeros_like(ours[0].bias))


def stop(ours):
    ours[4].weight.stop_gradient = True


SETTINGS = {
    "stride": (change_stride, ("forward", "4", "stride")),
    "square weight": (transpose_square, ("weights", "7.weight", "weight_transposed")),
    "bias": (drop_bias, ("weights", "0.bias", "weights_not_loaded")),
    "frozen": (stop, ("backward", "4", "frozen")),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_changed_setting_is_named(case):
    change, expected = SETTINGS[case]
    ours, theirs = small_pair()
    change(ours)
    first = localize(ours, theirs, INPUTS).first
    assert (first.stage, first.location, first.kind) == expected, first.line()


def test_stock_batch_norm_is_found_in_training_alone():
    ours, theirs = small_pair()
    first = localize(ours, theirs, INPUTS, training=True).first
    assert (first.location, first.kind) == ("1", "biased_variance")
    assert "n/(n-1) = 576/575" in first.hint
    assert theirs[1].num_batches_tracked == 0 and float(ours[1]._mean.abs().sum()) == 0, "the models given are left alone"


def test_a_missing_layer_is_named_and_does_not_shift_the_others():
    _, theirs = small_pair()
    ours = build([0, 1, 2, 3, 5, 6, 7])
    first = localize(ours, theirs, INPUTS).first
    assert (first.stage, first.location, first.kind) == ("structure", "4", "layer_missing")
    assert match_modules(ours, theirs).paths["7"] == "6"


def test_an_extra_layer_is_named():
    _, theirs = small_pair()
    ours = build(range(8), extra=(4, nn.Conv2D(8, 8, 1)))
    first = localize(ours, theirs, INPUTS).first
    assert (first.location, first.kind) == ("4", "layer_extra")


def test_a_missing_activation_is_named():
    """It has no weights, so only the outputs tell."""
    _, theirs = small_pair()
    ours = build([0, 1, 3, 4, 5, 6, 7])
    first = localize(ours, theirs, INPUTS, weights=False).first
    assert (first.location, first.kind) == ("2", "layer_missing")


def test_other_names_are_mapped():
    class Ours(nn.Layer):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Conv2D(3, 4, 3), nn.Linear(4, 5)

        def forward(self, x):
            return self.head(paddle.nn.functional.relu(self.stem(x)).mean([2, 3]))

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)

        def forward(self, x):
            return self.fc(torch.relu(self.conv(x)).mean((2, 3)))

    ours, theirs = Ours(), Theirs()
    names = {"stem": "conv", "head": "fc"}
    copy_weights(theirs, ours, names)
    for given in (None, names):
        report = localize(ours, theirs, INPUTS, names=given)
        assert report.first is None and len(report.notes) == (0 if given else 2)
    ours.stem._padding = ours.stem._updated_padding = [1, 1]
    for given in (None, names):
        first = localize(ours, theirs, INPUTS, names=given).first
        assert (first.location, first.kind) == ("conv", "padding")


def test_a_layer_that_forward_leaves_out_is_named():
    class Ours(nn.Layer):
        def __init__(self, used):
            super().__init__()
            self.conv, self.act, self.fc, self.used = nn.Conv2D(3, 4, 3), nn.ReLU(), nn.Linear(4, 5), used

        def forward(self, x):
            x = self.conv(x)
            if self.used == "twice":
                x = self.act(x - 0.1)
            return self.fc((x if self.used == "never" else self.act(x)).mean([2, 3]))

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.act, self.fc = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Linear(4, 5)

        def forward(self, x):
            return self.fc(self.act(self.conv(x)).mean((2, 3)))

    theirs = Theirs()
    for used in ("once", "never", "twice"):
        ours = Ours(used)
        copy_weights(theirs, ours)
        first = localize(ours, theirs, INPUTS).first
        if used == "once":
            assert first is None
        else:
            assert (first.location, first.kind) == ("Ours.forward", "layer_not_called"), first.line()
            assert first.hint.startswith(f"act is called {2 if used == 'twice' else 0} times in the port's forward, expected 1: ")
            assert ("act is missing between" if used == "never" else "act(") in first.hint or used == "twice", first.hint


def test_a_reference_that_cannot_run_is_refused():
    with pytest.raises(UserError, match="the reference cannot run on these inputs"):
        localize(*small_pair(), INPUTS[:, :2])


LONG = [pytest.mark.slow, pytest.mark.weekly]  # the runs of step 6: make align, which .ci/run has among the pages, runs them too
# Less of a step, with every comparison of it; make align runs the whole steps.
SHORT = {
    2: lambda sound: data.run(sound, {"mixup": data.POLICIES["mixup"]}),
    5: lambda sound: backward.run(sound, (dataclasses.replace(backward.RUNS[0], iterations=4, float32_iterations=2),)),
}


@pytest.mark.parametrize("step", [pytest.param(step, marks=LONG * (step == 6)) for step in STEPS])
def test_a_sound_port_has_no_finding(context, step):
    sound = context()
    found = explained(SHORT.get(step, STEPS[step])(sound))
    for search in (*BEFORE.get(step, ()), *AFTER.get(step, ())):
        found = found or search(sound)
    assert found is None, found.line()


def test_the_table_of_a_sound_port(context):
    layers = locate(context(), [], always=True).layers
    assert len(layers) > 250 and max(row.difference for row in layers) < 1e-11


class Difference(torch.nn.Module):
    def forward(self, x):
        return x[:, 0] - x[:, 1]


class DifferenceOtherwise(nn.Layer):
    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return (3 * x[:, 0] - 3 * x[:, 1]) / 3 * self.factor


@pytest.mark.parametrize("first", [1.0, 1.3, 1.7])
def test_a_number_whose_terms_cancel_is_held_to_several_draws_of_rounding(first):
    inputs = np.array([[first, first - 1e-6]])  # by chance one draw moves both terms alike, and their difference not at all
    assert localize(DifferenceOtherwise(), Difference(), inputs, backward=False).first is None
    assert localize(DifferenceOtherwise(1 + 1e-7), Difference(), inputs, backward=False).first is not None
