"""Defaults that differ between the frameworks: the doctor's table is what the pinned versions say, and whole."""

import inspect
import math

import numpy as np
import paddle
import pytest
import torch

import mobilenetv3_ref  # noqa: F401  (before anything of torchvision)
from alignment_doctor.check.defaults import DEFAULTS, INITIAL, relied_on
from mobilenetv3_common.errors import UserError

SAME = [("eps", "epsilon"), ("dim", "axis"), ("lr", "learning_rate"), ("alpha", "rho")]
MEANT_ALIKE = {(None, True), (False, "none"), (None, 0), (False, None), ("float32", None)}  # written otherwise, and the same


def of(framework, path):
    for part in path.split("."):
        framework = getattr(framework, part)
    return framework


def defaults_of(kind):
    """Name -> default of every argument of a class, and of those that it reads from a base's ``**kwargs``."""
    found = {}
    for base in reversed(kind.__mro__):
        if "__init__" in vars(base) and base is not object:
            found |= {p.name: p.default for p in inspect.signature(base.__init__).parameters.values()}
    return found


@pytest.mark.parametrize("default", DEFAULTS, ids=lambda row: f"{row.paddle}.{row.settings[0] or row.settings[1]}")
def test_each_default_is_the_frameworks_own(default):
    sides = zip(
        (paddle, torch), (default.paddle, default.torch), default.settings, default.settings[::-1], default.values, strict=True
    )
    for framework, path, setting, of_the_other, value in sides:
        known = defaults_of(of(framework, path))
        if setting:
            assert repr(known[setting]) == value
        else:
            assert of_the_other not in known


def test_settings_of_opposite_meaning_have_it():
    ones = np.ones((1, 1, 2, 2), np.float32)
    assert paddle.nn.AvgPool2D(3, 1, 1)(paddle.to_tensor(ones)).numpy().min() == 1
    assert torch.nn.AvgPool2d(3, 1, 1)(torch.tensor(ones)).numpy().max() < 1
    steps = np.zeros((2, 5, 3), np.float32)
    assert paddle.nn.LSTM(3, 4)(paddle.to_tensor(steps))[1][0].shape == [1, 2, 4]
    assert torch.nn.LSTM(3, 4)(torch.tensor(steps))[1][0].shape == (1, 5, 4)


def unlisted(rows):
    """Settings of one name, in classes of one name, whose defaults differ and which have no row; and how many were compared."""
    known = {(row.paddle.rsplit(".", 1)[-1], row.settings[0]) for row in rows}
    classes = {name: kind for name, kind in vars(paddle.nn).items() if inspect.isclass(kind)}
    pairs = [(kind, getattr(torch.nn, name.replace("D", "d") if name[-1] == "D" else name, None)) for name, kind in classes.items()]
    optimizers = {"Momentum": "SGD", "RMSProp": "RMSprop"}
    pairs += [
        (kind, getattr(torch.optim, optimizers.get(name, name), None))
        for name, kind in vars(paddle.optimizer).items()
        if inspect.isclass(kind)
    ]
    found, compared = [], 0
    for ours, theirs in pairs:
        if theirs is None or ours.__name__.startswith("Transformer") or ours.__name__ == "RNNCellBase":
            continue  # a name of an activation and a function
        here, there = defaults_of(ours), defaults_of(theirs)
        for name, value in here.items():
            other = next((a for a, b in SAME if b == name and a in there), name)
            if other not in there or inspect.Parameter.empty in (value, there[other]):
                continue
            compared += 1
            if value != there[other] and (value, there[other]) not in MEANT_ALIKE and (ours.__name__, name) not in known:
                found.append(f"{ours.__name__}.{name}")
    return found, compared


def test_no_other_setting_of_one_name_has_another_default():
    found, compared = unlisted(DEFAULTS)
    assert found == [] and compared > 150
    assert unlisted([row for row in DEFAULTS if row.paddle not in ("optimizer.RMSProp", "nn.Softmax")])[0] == [
        "Softmax.axis",
        "RMSProp.rho",
        "RMSProp.epsilon",
    ]


def test_first_weights_have_the_tables_spread():
    made = {
        "nn.Conv2D": (64, 96, 3), "nn.Conv2DTranspose": (64, 96, 3), "nn.Linear": (512, 256), "nn.Embedding": (1000, 64),
    }  # fmt: skip
    for row in INITIAL:
        if (sizes := made.get(row.paddle)) is None:
            continue  # one and three dimensions, as two
        inner = 9 if "Conv" in row.paddle else 1
        numbers = {"fan_in": sizes[0] * inner, "fan_out": sizes[1] * inner, "entries": sizes[0], "features": sizes[1]}
        for framework, path, said in zip((paddle, torch), (row.paddle, row.torch), row.values, strict=True):
            form, formula = said.split(", deviation ")
            names = numbers
            if (framework, row.paddle) == (paddle, "nn.Conv2DTranspose"):  # by the weight's shape, (in, out, k, k)
                names = {"fan_in": sizes[1] * inner, "fan_out": sizes[0] * inner}
            expected = eval(formula.replace("(3 fan", "(3 * fan"), {"sqrt": math.sqrt, **names})
            weight = of(framework, path)(*sizes).weight
            values = np.asarray(weight.numpy() if framework is paddle else weight.detach().numpy(), dtype=np.float64)
            assert abs(values.std() / expected - 1) < 0.05, (path, values.std(), expected)
            assert (np.abs(values).max() < 1.8 * expected) == (form == "uniform"), path


def test_what_a_run_relies_on_is_named_and_its_own_classes_are_not():
    class BatchNorm2D(paddle.nn.BatchNorm2D):
        pass

    used = [paddle.nn.BatchNorm2D, paddle.nn.BatchNorm2D, BatchNorm2D, paddle.nn.ReLU, paddle.optimizer.Momentum]
    found = [(row.seen_from("paddle"), count) for row, count in relied_on("paddle", used)]
    assert found == [
        (("nn.BatchNorm2D momentum", "0.9", "0.1 (nn.BatchNorm2d momentum)"), 2),
        (("optimizer.Momentum momentum", "0.9", "0 (optim.SGD momentum)"), 1),
    ]
    assert {row.seen_from("torch")[0] for row, _ in relied_on("torch", [torch.optim.SGD, torch.nn.LSTM])} == {
        "optim.SGD momentum",
        "nn.LSTM batch_first",
    }
    with pytest.raises(UserError, match="no table of mindspore"):
        relied_on("mindspore", [])
