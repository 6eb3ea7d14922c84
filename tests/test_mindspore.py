"""The third framework, MindSpore: its layers in exact mode, a sound port, its faults; skipped where it is not installed.

``make align-mindspore`` installs it in an environment of its own and runs this file there, the faults included.
"""

from __future__ import annotations

import importlib.util
import json
import sys

import numpy as np
import pytest

from alignment.cli import main
from alignment.frameworks import advice_on, framework
from alignment.frameworks.base import Wanted
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT

PORT, REFERENCE = ROOT / "tests/pairs/mindspore_port.py", ROOT / "tests/pairs/torch_reference.py"
installed = pytest.mark.skipif(
    importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed: make align-mindspore runs this"
)


# --- without MindSpore -----------------------------------------------------------------------------------------------------


def test_a_missing_mindspore_says_how_to_install_it(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "mindspore" or name.endswith("frameworks.mindspore")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mindspore", None)
    with pytest.raises(UserError, match=r"mindspore is not installed: pip install -c constraints\.txt -e '\.\[mindspore\]'"):
        framework("mindspore")
    assert main(["audit", "--port", f"{PORT}:Port", "--reference", f"{REFERENCE}:Reference"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "mindspore is not installed: pip install" in told


def test_the_extra_that_is_named_exists():
    assert "\nmindspore = [" in (ROOT / "pyproject.toml").read_text()
    assert "\nmindspore==" in (ROOT / "constraints.txt").read_text()


def test_mindspore_after_paddle_says_what_to_do():
    error = ImportError("libmindspore_ops_host.so: undefined symbol: dnnl_threadpool_interop_stream_create")
    assert advice_on(error).endswith("import mindspore first, at the top of the file")
    assert advice_on(ImportError("libother.so: undefined symbol: x")) == ""
    assert advice_on(ModuleNotFoundError("No module named 'something'", name="something")) == ""


# --- layers ----------------------------------------------------------------------------------------------------------------


def layers():
    """Stock layers of MindSpore beside torch's: name -> (MindSpore's, torch's)."""
    import torch
    from mindspore import nn, ops
    from torch import nn as theirs

    class Function(nn.Cell):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def construct(self, x):
            return self.function(x)

    class Theirs(theirs.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    both = lambda function: (Function(function), Theirs(function))  # noqa: E731
    return {
        "convolution": (nn.Conv2d(4, 6, 3, 2, "pad", (1, 1, 2, 2), has_bias=True), theirs.Conv2d(4, 6, 3, 2, (1, 2))),
        "dilated": (nn.Conv2d(4, 6, 3, 1, "pad", 2, dilation=2), theirs.Conv2d(4, 6, 3, padding=2, dilation=2, bias=False)),
        "same, depthwise": (nn.Conv2d(4, 4, 5, group=4), theirs.Conv2d(4, 4, 5, padding=2, groups=4, bias=False)),
        "valid": (nn.Conv2d(4, 6, 1, 2, "valid"), theirs.Conv2d(4, 6, 1, 2, bias=False)),
        "batch norm": (nn.BatchNorm2d(4), theirs.BatchNorm2d(4)),
        "batch norm, momentum": (nn.BatchNorm2d(4, 1e-3, 0.7), theirs.BatchNorm2d(4, 1e-3, 0.3)),
        "layer norm": (nn.LayerNorm((9,), epsilon=1e-5), theirs.LayerNorm(9)),
        "group norm": (nn.GroupNorm(2, 4), theirs.GroupNorm(2, 4)),
        "dense": (nn.Dense(9, 5), theirs.Linear(9, 5)),
        "relu6": (nn.ReLU6(), theirs.ReLU6()),
        "hardswish": (nn.HSwish(), theirs.Hardswish()),
        "hardsigmoid": (nn.HSigmoid(), theirs.Hardsigmoid()),
        "silu": (nn.SiLU(), theirs.SiLU()),
        "elu": (nn.ELU(), theirs.ELU()),
        "leaky relu": (nn.LeakyReLU(0.1), theirs.LeakyReLU(0.1)),
        "gelu": (nn.GELU(approximate=False), theirs.GELU()),
        "gelu, tanh": (nn.GELU(), theirs.GELU("tanh")),
        "prelu": (nn.PReLU(4), theirs.PReLU(4)),
        "log softmax": (nn.LogSoftmax(), theirs.LogSoftmax(-1)),
        "max pooling": (nn.MaxPool2d(3, 2), theirs.MaxPool2d(3, 2)),
        "max pooling, padded": (nn.MaxPool2d(3, 2, "pad", 1), theirs.MaxPool2d(3, 2, 1)),
        "average pooling": (nn.AvgPool2d(3, 2), theirs.AvgPool2d(3, 2)),
        "average pooling, padded": (nn.AvgPool2d(3, 2, "pad", 1), theirs.AvgPool2d(3, 2, 1)),
        "global pooling": (nn.AdaptiveAvgPool2d(1), theirs.AdaptiveAvgPool2d(1)),
        "clip": (Function(lambda x: ops.clip(x, -0.3, 0.7)), Theirs(lambda x: torch.clip(x, -0.3, 0.7))),
        "numbers": both(lambda x: (x * 0.1 + 0.3) / 0.7 - 0.2),
        "numbers first": both(lambda x: 0.1 / (0.3 + x * x) - (0.2 - 0.7 * x)),
    }


LAYERS = [
    "convolution", "dilated", "same, depthwise", "valid", "batch norm", "batch norm, momentum", "layer norm", "group norm", "dense",
    "relu6", "hardswish", "hardsigmoid", "silu", "elu", "leaky relu", "gelu", "gelu, tanh", "prelu", "log softmax", "max pooling",
    "max pooling, padded", "average pooling", "average pooling, padded", "global pooling", "clip", "numbers", "numbers first",
]  # fmt: skip


def far(a, b):
    """Relative L2."""
    return float(np.linalg.norm((a - b).ravel()) / max(np.linalg.norm(b.ravel()), 1e-30))


def passed(side, layer, x, training, state, cotangent=None):
    """Everything that a pass through a layer gives, by name, and the gradient that it was given."""
    side.load(layer, state)
    side.set_training(layer, training)
    if cotangent is None:
        shape = side.call(layer, (x,)).outputs[0].shape
        cotangent = np.random.default_rng(1).standard_normal(shape)
        side.load(layer, state)
    made = side.vjp(layer, (x,), [cotangent.astype(x.dtype)], Wanted(parameters=side.parameters(layer)))
    found = {"output": made.outputs[0], "input": made.inputs[0], **side.state(layer)}
    return found | {f"gradient of {name}": array for name, array in made.parameters.items()}, cotangent


@installed
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_in_exact_mode_is_the_stock_layer_and_torchs(name, training):
    ms, torch = framework("mindspore"), framework("torch")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 8, 9)).astype(np.float32)
    every = layers()
    assert [*every] == LAYERS
    ours, theirs = every[name]
    drawn = {n: np.abs(rng.standard_normal(a.shape)).astype(np.float32) + 0.1 for n, a in ms.state(ours).items()}
    assert drawn.keys() == torch.state(theirs).keys()
    stock, cotangent = passed(ms, ours, x, training, drawn)
    wide = x.astype(np.float64)
    exact, _ = passed(ms, ms.make_exact(ours), wide, training, drawn, cotangent)
    right, _ = passed(torch, torch.make_exact(theirs), wide, training, drawn, cotangent)
    assert stock.keys() == exact.keys() == right.keys()
    for key, array in right.items():
        assert exact[key].dtype == np.float64
        assert far(stock[key], array) < 2e-6, key
        assert far(exact[key], array) < 2e-14, key


@installed
def test_gradients_of_inner_calls_are_those_of_torch():
    """A module that is called twice, one that nothing reaches, and a parameter that nothing reaches."""
    import torch
    from mindspore import nn

    class Ours(nn.Cell):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.unused = nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 4)

        def construct(self, x):
            return self.a(self.b(self.a(x))) + x

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.unused = torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)

        forward = Ours.construct

    sides, models = (framework("mindspore"), framework("torch")), (Ours(), Theirs())
    sides[0].load(models[0], sides[1].state(models[1]))
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    made = []
    for side, model in zip(sides, models, strict=True):
        wanted = Wanted(parameters=side.parameters(model), modules={n: m for n, m in side.modules(model).items() if n})
        made.append(side.vjp(model, (x,), None, wanted))
        assert side.gradients(model) == {}, "none is left behind"
    assert made[0].calls.keys() == made[1].calls.keys() == {"a", "b", "a#2"}
    for name, call in made[1].calls.items():
        assert far(made[0].calls[name].gradients[0], call.gradients[0]) < 1e-6
    assert made[0].parameters["unused.weight"] is made[1].parameters["unused.weight"] is None
    assert far(made[0].parameters["a.weight"], made[1].parameters["a.weight"]) < 1e-6
    assert far(made[0].inputs[0], made[1].inputs[0]) < 1e-6


# --- a port, sound and broken ----------------------------------------------------------------------------------------------


def audited(folder, source, *flags):
    (folder / "port.py").write_text(source)
    status = main([
        "audit", "--port", f"{folder / 'port.py'}:Port", "--reference", f"{REFERENCE}:Reference", "--input", "2x3x32x32",
        "--training", "--report", str(folder / "report"), *flags,
    ])  # fmt: skip
    return status, json.loads((folder / "report" / "alignment.json").read_text())


@installed
def test_a_sound_port_agrees_to_1e_12(tmp_path):
    status, report = audited(tmp_path, PORT.read_text())
    assert status == 0 and (report["port"], report["reference"]) == ("mindspore", "torch")
    exact = [q["float64_diff"] for step in report["steps"] for q in step["quantities"] if q["float64_diff"] is not None]
    assert len(exact) > 60 and max(exact) < 1e-12
