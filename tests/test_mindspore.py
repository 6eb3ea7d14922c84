"""The third framework, MindSpore: its layers in exact mode, a sound port, its faults; skipped where it is not installed.

``make align-mindspore`` installs it in an environment of its own and runs this file there, the faults included.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alignment.audit.named import named_object
from alignment.cli import main
from alignment.comparisons.update.groups import GROUPS
from alignment.comparisons.update.rates import expected_rates
from alignment.comparisons.update.schedules import whole_schedules
from alignment.frameworks import advice_on, framework
from alignment.frameworks.base import Wanted
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan, SampleKey, sample_params
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import read_state, write_state
from tests.conftest import ROOT
from tests.mindspore_faults import FAULTS, PORT, REFERENCE, found
from tools.convert_weights import main as convert

THREE = ROOT / "tests/pairs/three_small.py"
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
    assert main(["run", str(ROOT / "projects/resnet50/mindspore_project.py")]) == 2
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


@pytest.fixture
def checkpoint(tmp_path):
    """A file, and the arrays that it holds."""
    rng = np.random.default_rng(0)
    state = {
        f"block.{name}": rng.standard_normal(shape).astype(np.float32) for name, shape in {"weight": (3, 200), "b": (7,)}.items()
    }
    state |= {"step": np.array(3, np.int32), "wide": rng.standard_normal((2, 1, 4)), "flag": np.array([True, False])}
    write_state(tmp_path / "a.ckpt", state)
    return tmp_path / "a.ckpt", state


def test_a_checkpoint_holds_what_was_written(checkpoint):
    file, state = checkpoint
    found = read_state(file)
    assert [*found] == [*state]
    for name, array in state.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape and (found[name] == array).all(), name


def test_a_damaged_checkpoint_is_refused(checkpoint):
    """Cut short anywhere, it is refused or lacks whole tensors; other bytes never raise anything else."""
    file, _ = checkpoint
    data, rng, refused = file.read_bytes(), np.random.default_rng(0), 0
    for end in range(0, len(data), 97):
        file.write_bytes(data[:end])
        with pytest.raises(UserError, match="is damaged or not a checkpoint of MindSpore"):
            read_state(file)
    for _ in range(300):
        other = bytearray(data)
        for place in rng.integers(0, 100, 3):
            other[place] = rng.integers(0, 256)
        file.write_bytes(other)
        try:
            read_state(file)
        except UserError:
            refused += 1
    assert refused > 100
    with pytest.raises(UserError, match="of type complex64, which a checkpoint of MindSpore cannot hold"):
        write_state(file, {"a": np.zeros(2, np.complex64)})
    assert file.read_bytes() == bytes(other), "nothing is written over"


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
    own = {entry.canonical: entry for entry in side.entries(layer)}
    return found | {f"gradient of {name}": own[name].to_canonical(a) for name, a in made.parameters.items()}, cotangent


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


DEFAULTS = {
    "Conv2d": {"stride": 1, "pad_mode": "same", "padding": 0, "dilation": 1, "group": 1, "has_bias": False},
    "Dense": {"has_bias": True, "activation": None},
    "BatchNorm2d": {"eps": 1e-5, "momentum": 0.9, "use_batch_statistics": None},
    "LayerNorm": {"epsilon": 1e-7},
    "GroupNorm": {"eps": 1e-5},
    "LeakyReLU": {"alpha": 0.2},
    "GELU": {"approximate": True},
    "MaxPool2d": {"kernel_size": 1, "stride": 1, "pad_mode": "valid"},
    "AvgPool2d": {"kernel_size": 1, "stride": 1, "pad_mode": "valid", "count_include_pad": True},
    "Dropout": {"keep_prob": 0.5, "p": None},
    "SoftmaxCrossEntropyWithLogits": {"sparse": False, "reduction": "none"},
    "CrossEntropyLoss": {"reduction": "mean", "label_smoothing": 0.0, "ignore_index": -100},
    "AdamWeightDecay": {"eps": 1e-6, "weight_decay": 0.0},
}  # docs/three_frameworks.md


@installed
@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_of_mindspore_are_those_of_the_page(name):
    import inspect

    from mindspore import nn

    found = inspect.signature(getattr(nn, name).__init__).parameters
    assert {key: found[key].default for key in DEFAULTS[name]} == DEFAULTS[name]
    assert not nn.Conv2d(3, 4, 1).training, "a new Cell is in evaluation mode"
    assert f"`nn.{name}`" in (ROOT / "docs/three_frameworks.md").read_text()


def moved(make, names, gradient=0.5, updates=1):
    """A parameter of 1.0 after updates by a stock optimizer of MindSpore, by the parameter's name."""
    import mindspore

    parameters = [mindspore.Parameter(mindspore.Tensor(np.ones(1, np.float32)), name=name) for name in names]
    optimizer = make(parameters)
    for _ in range(updates):
        optimizer(tuple(mindspore.Tensor(np.full(1, gradient, np.float32)) for _ in names))
    return {name: float(parameter.asnumpy()[0]) for name, parameter in zip(names, parameters, strict=True)}


@installed
def test_mindspores_optimizers_differ_from_torchs_as_the_page_says():
    """What docs/three_frameworks.md says of stock optimizers, on a weight of 1 with a gradient of 0.5."""
    from mindspore import nn

    plain = moved(lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.1), ["fc.weight", "bn.gamma", "bn.beta", "fc.bias"])
    near = lambda value: pytest.approx(value, rel=1e-5)  # noqa: E731
    assert plain == {"fc.weight": near(0.94), "bn.gamma": near(0.95), "bn.beta": near(0.95), "fc.bias": near(0.94)}
    grouped = moved(lambda p: nn.Momentum([{"params": p, "weight_decay": 0.1}], 0.1, 0.9), ["bn.gamma"])
    assert grouped == {"bn.gamma": near(0.94)}, "a group decays all that it names"
    uncorrected = moved(lambda p: nn.AdamWeightDecay(p, 0.1), ["w"])["w"]
    assert uncorrected == near(1 - 0.1 * (0.1 * 0.5) / ((0.001 * 0.25) ** 0.5 + 1e-6)), "torch: 0.9"
    first = moved(lambda p: nn.Adam(p, 0.1, eps=0.25), ["w"])["w"]
    assert first == near(1 - 0.1 * 0.001**0.5 / 0.1 * (0.1 * 0.5) / ((0.001 * 0.25) ** 0.5 + 0.25)), (
        "torch: 1 - 0.1 * 0.5 / (0.5 + 0.25)"
    )
    inside = moved(lambda p: nn.RMSProp(p, 0.1, 0.9, epsilon=0.25), ["w"])["w"]
    assert inside == near(1 - 0.1 * 0.5 / (0.9 * 1.0 + 0.1 * 0.25 + 0.25) ** 0.5), "torch: from 0, by the root + epsilon"


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
    every = [q for step in report["steps"] for q in step["quantities"] if q["float64_diff"] is not None]
    zero = "train.iter0.gradients.block.conv2.bias"  # before a normalisation: rounding alone
    assert zero in {q["name"] for q in every}
    exact = [q["float64_diff"] for q in every if q["name"] != zero]
    assert len(exact) > 60 and max(exact) < 1e-12


@installed
@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_mindspore_is_detected_located_and_named(name, tmp_path):
    fault, told = FAULTS[name], found(name, tmp_path)
    assert told["status"] == 1 and told["detected"], told
    assert not fault.location or told["location"] == fault.location, told
    assert fault.words in told["hint"], told


def test_at_least_forty_faults_of_mindspore_are_detected_and_nearly_all_located_and_named():
    """Each is made by the test above; here what it expects is counted, and the pages say the same numbers."""
    located = [fault for fault in FAULTS.values() if fault.location]
    named = [fault for fault in located if fault.words]
    assert len(FAULTS) >= 40 and len(located) >= 0.95 * len(FAULTS) and len(named) >= 0.9 * len(FAULTS)
    english, chinese = ((ROOT / f"docs/three_frameworks{end}.md").read_text() for end in ("", "_zh"))
    assert f"{len(FAULTS)} faults, all detected, {len(located)} located, {len(named)} diagnosed" in english
    told = f"共 {len(FAULTS)} 个", f"{len(located)} 个定位正确", f"{len(named)} 个给出了正确诊断"
    assert all(words in chinese for words in told), told


# --- metric, loss, optimizers and schedules ----------------------------------------------------------------------------------


def aligned(folder, *, steps, project=ROOT / "tests/pairs/mindspore_project.py"):
    status = main(["run", str(project), "--steps", steps, "--result-dir", str(folder)])
    return status, json.loads((folder / "alignment.json").read_text())


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_metric_and_loss_agree_with_torchs(tmp_path):
    """Steps 3 and 4: every kind of label; in exact mode the loss and its gradient agree to 1e-12."""
    status, report = aligned(tmp_path, steps="3,4")
    assert status == 0, report["first_divergence"]
    assert [step["step"] for step in report["steps"]] == [3, 4]
    exact = [q["float64_diff"] for q in report["steps"][1]["quantities"] if q["float64_diff"] is not None]
    assert len(exact) > 20 and max(exact) < 1e-12


@pytest.fixture(scope="module")
def trained():
    """Both sides in exact mode, each with a small network and its training code, and float64 weights without zeros."""
    import mindspore
    import torch

    import mobilenetv3_ref.train
    import projects.resnet50.in_mindspore.train

    ms, pt = framework("mindspore"), framework("torch")
    ours = mindspore.nn.SequentialCell(mindspore.nn.BatchNorm2d(4), mindspore.nn.LayerNorm((4,)), mindspore.nn.Dense(4, 3))
    theirs = torch.nn.Sequential(torch.nn.BatchNorm2d(4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 3))
    rng = np.random.default_rng(0)
    start = {name: array + rng.standard_normal(array.shape) / 8 for name, array in pt.state(pt.make_exact(theirs)).items()}
    sides = ((ms, ms.make_exact(ours), projects.resnet50.in_mindspore.train), (pt, theirs, mobilenetv3_ref.train))
    return sides, {name: array for name, array in start.items() if array.ndim}


def updated(trained, make, step, updates=2):
    """The relative distance of both sides' weights after updates with the same gradients, the largest of all tensors."""
    sides, start = trained
    rng, found = np.random.default_rng(1), []
    names = [name for name in start if name.endswith(("weight", "bias"))]
    gradients = [{name: rng.standard_normal(start[name].shape) / 64 for name in names} for _ in range(updates)]
    for side, network, train in sides:
        side.load(network, start)
        side.clear_gradients(network)
        optimizer = make(side, network, train)
        with side.precision("float64"):
            for gradient in gradients:
                side.add_gradients(network, gradient)
                step(network, optimizer, train)
                side.clear_gradients(network)
        found.append(side.state(network))
    assert all(far(found[1][name], start[name]) > 1e-6 for name in names), "nothing has moved"
    return max(far(found[0][name], found[1][name]) for name in names)


@installed
@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_optimizers_in_mindspore_update_as_torchs(number, trained):
    """With three weight decays and a clipped norm; and none of them updates as another does."""
    config = GROUPS[number].in_float32()
    update = lambda network, optimizer, train: train.apply_update(network, optimizer, 0.05)  # noqa: E731
    assert updated(trained, lambda side, network, train: train.build_optimizer(network, config), update) < 1e-14
    other = replace(config, norm_weight_decay=None)
    mistaken = lambda side, network, train: train.build_optimizer(network, other if side.name == "mindspore" else config)  # noqa: E731
    assert updated(trained, mistaken, update) > 1e-6


@installed
def test_an_optimizer_in_mindspore_goes_on_from_its_arrays(trained):
    """What a checkpoint takes is float and finite, the number of updates too; the next update is bit-identical."""
    from projects.resnet50.in_mindspore.train import state

    (sides, start), config = trained, GROUPS[0].in_float32()
    side, network, train = next(one for one in sides if one[0].name == "mindspore")
    gradient = {name: np.ones_like(array) / 64 for name, array in start.items() if name.endswith(("weight", "bias"))}
    side.load(network, start)
    optimizer, found = train.build_optimizer(network, config), []

    def update():
        side.clear_gradients(network)
        side.add_gradients(network, gradient)
        train.apply_update(network, optimizer, 0.05)

    with side.precision("float64"):
        update()
        arrays, weights = state.optimizer_arrays(network, optimizer, None), side.state(network)
        assert all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays.values())
        for _ in range(2):
            side.load(network, weights)
            optimizer = train.build_optimizer(network, config)
            state.load_optimizer_arrays(network, optimizer, None, arrays)
            update()
            found.append((optimizer.count, side.state(network)))
    assert [count for count, _ in found] == [2, 2]
    assert all(np.array_equal(found[0][1][name], found[1][1][name]) for name in start)
    side.load(network, start)
    optimizer = train.build_optimizer(network, config)
    with side.precision("float64"):
        update()
        update()
    assert all(np.array_equal(side.state(network)[name], found[0][1][name]) for name in start)


@installed
def test_a_parameter_tuple_is_widened_with_its_parameters():
    """A Cell may compute with the tuple's parameters: those of exact mode, not the float32 ones that they replace."""
    import mindspore
    from mindspore import nn

    class Scaled(nn.Cell):
        def __init__(self):
            super().__init__()
            ones = (mindspore.Tensor(np.ones(3, np.float32)) for _ in range(2))
            self.pair = mindspore.ParameterTuple([mindspore.Parameter(one, name=f"p{n}") for n, one in enumerate(ones)])

        def construct(self, x):
            return x * self.pair[0] + self.pair[1]

    side = framework("mindspore")
    model = side.make_exact(Scaled())
    side.load(model, {name: np.full(3, 0.1) for name in side.state(model)})
    assert (side.call(model, (np.full((2, 3), 2.0),)).outputs[0] == 2.0 * 0.1 + 0.1).all()


@installed
@pytest.mark.parametrize("spoilt", ["0.weight", "0.bias", "0.running_mean", "0.running_var", "2.weight", "2.bias"])
def test_a_number_that_is_not_finite_is_found_behind_relu(spoilt):
    """MindSpore's ReLU makes 0 of NaN, torch's does not: logits and gradients of a frozen BatchNorm are finite all the same."""
    import mindspore
    import torch

    from projects.resnet50.in_mindspore.train.distributed import Ranks
    from projects.resnet50.in_mindspore.train.evaluate import judge_batch
    from projects.resnet50.in_mindspore.train.guard import Guard, first_offender
    from projects.resnet50.in_mindspore.train.precision import Precision
    from projects.resnet50.in_mindspore.train.step import accumulate_gradients

    nan = np.full(19, np.nan, np.float32)
    assert (mindspore.ops.relu(mindspore.Tensor(nan)).asnumpy() == 0).all() and torch.relu(torch.tensor(nan)).isnan().all()
    side = framework("mindspore")
    layers = mindspore.nn.BatchNorm2d(4), mindspore.nn.ReLU(), mindspore.nn.Conv2d(4, 3, 1, has_bias=True), mindspore.nn.Flatten()
    model = mindspore.nn.SequentialCell(*layers)
    criterion = lambda logits, labels: (logits * labels).sum()  # noqa: E731
    images, labels = (mindspore.Tensor(np.ones(shape, np.float32)) for shape in ((2, 4, 1, 1), (2, 3)))

    def loss():
        numbers = mindspore.Tensor(np.array([0, 1]))
        return judge_batch(model, images, numbers, np.ones(2, bool), Ranks(), Precision()).loss

    def healthy():
        guard = Guard()
        side.clear_gradients(model)
        accumulate_gradients(model, criterion, [(images, labels)], watch=lambda logits, _: guard.watch(logits))
        return guard.healthy(model)

    model.set_train(False)
    assert healthy() and np.isfinite(loss())
    state = side.state(model)
    state[spoilt].flat[0] = np.nan
    side.load(model, state)
    assert not healthy() and np.isnan(loss())
    stock = {"0.weight": "0.gamma", "0.bias": "0.beta", "2.weight": "2.weight", "2.bias": "2.bias"}
    said = first_offender(model, lambda: model(images))
    assert said == ("output of layer 0 (BatchNorm2d)" if "running" in spoilt else f"weight {stock[spoilt]}")


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_a_run_that_diverges_stops_in_mindspore_as_in_torch(tmp_path, monkeypatch):
    """What step 6 compares; and a guard that looks at logits and gradients alone does not pass."""
    from alignment.comparisons.context import Context
    from alignment.comparisons.run.divergence import Divergence
    from alignment.comparisons.run.engine import Ground
    from projects.resnet50.in_mindspore.train import guard
    from tests.pairs.mindspore_project import PROJECT

    context = Context(PROJECT)
    stops = Divergence(Ground.of(context, tmp_path), context.spec.load is None)
    theirs = stops.measure(context, "reference")
    assert stops.wrong(stops.measure(context, "port"), theirs) == {"weight": "", "picture": ""}
    monkeypatch.setattr(guard, "all_finite", lambda model: True)
    wrong = {"weight": "the port goes on with a weight that is not finite, the reference stops", "picture": ""}
    assert stops.wrong(stops.measure(context, "port"), theirs) == wrong


# --- mixed precision -------------------------------------------------------------------------------------------------------


def half(level, **given):
    """A small network at a level: the types of its layers' outputs, its gradients in float32, and what computed them."""
    import mindspore

    from projects.resnet50.in_mindspore.train import Precision, accumulate_gradients

    side, network = framework("mindspore"), named_object("the test", f"{PORT}:Port")()
    side.load(network, {name: np.full(a.shape, 0.5, a.dtype) if a.ndim < 2 else wave(a) for name, a in side.state(network).items()})
    side.set_training(network, False)
    precision, kinds = Precision(level, **given), {}

    def look(name):
        return lambda cell, inputs, output: kinds.__setitem__(name, str(output.dtype)) or output

    precision.prepare(network)
    for name, cell in network.cells_and_names():
        if name in ("stem.0", "stem.1", "stem.2", "norm", "fc"):
            cell.register_forward_hook(look(name))
    images = mindspore.Tensor(np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32))
    labels = mindspore.Tensor(np.array([0, 1, 2, 3]))
    from projects.resnet50.in_mindspore.loss import CrossEntropyLoss

    loss = accumulate_gradients(network, CrossEntropyLoss(), [(images, labels)], precision)
    with side.precision("float32"):
        precision.unscale(network)
    return network, precision, kinds, side.gradients(network), float(loss.asnumpy())


def wave(array):
    """Weights of every size and both signs, the same each time."""
    return np.sin(np.arange(array.size)).reshape(array.shape).astype(array.dtype) / 4


LEVELS = {
    "O1": ["Float16", "Float32", "Float32", "Float32", "Float16"],
    "O2": ["Float16", "Float16", "Float16", "Float16", "Float16"],
    "O3": ["Float16", "Float16", "Float16", "Float16", "Float16"],
}


@installed
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_of_mixed_precision_computes_in_its_types(level):
    """Convolution, normalisation, ReLU, layer normalisation and dense layer; gradients are float32's but for the rounding."""
    full, low = half("O0"), half(level, loss_scale=256.0)
    assert set(full[2].values()) == {"Float32"} and [*low[2].values()] == LEVELS[level]
    assert low[3].keys() == full[3].keys() and all(a.dtype == np.float32 for a in low[3].values())
    every = [np.concatenate([g[name].ravel() for name in full[3]]) for g in (low[3], full[3])]
    assert 1e-5 < far(*every) < 3e-2, "rounded to float16, and the loss scale taken out again"
    assert low[4] == pytest.approx(full[4], rel=1e-2), "the loss is told without its scale"


@installed
def test_normalisations_compute_in_float32_at_o2_and_in_float16_at_o3():
    from mindspore import nn

    from projects.resnet50.in_mindspore.train import Precision

    layers = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Dense(3, 3)
    found = {level: [Precision(level).is_half(layer) for layer in layers] for level in ("O1", "O2", "O3")}
    assert found == {"O1": [True, False, False, True], "O2": [True, False, True, True], "O3": [True, True, True, True]}


@installed
def test_an_infinite_gradient_skips_the_update_and_halves_the_scale():
    from projects.resnet50.in_mindspore.train import Precision

    network, precision, *_ = half("O1", loss_scale=256.0)
    adapting, updates = Precision("O1"), []
    before = adapting.factor
    tensor = network.fc.weight
    tensor._grad = tensor._grad * float("inf")
    adapting.step(network, lambda: updates.append("infinite"))
    assert updates == [] and adapting.factor == before / 2
    precision.step(network, lambda: updates.append("infinite"))
    assert updates == [] and precision.factor == 256.0, "a scale that was given stays"
    tensor._grad = tensor.value()
    adapting.step(network, lambda: updates.append("finite"))
    assert updates == ["finite"]
    again = Precision("O1")
    again.load(adapting.state())
    assert again.factor == adapting.factor and again.state() == adapting.state() and adapting.state()["counter"] == 1
    assert Precision().state() == {} == precision.state() and not Precision().scales


@installed
def test_a_precision_that_mindspore_lacks_is_refused():
    from projects.resnet50.in_mindspore.train import Precision

    with pytest.raises(UserError, match="no convolution in it on a CPU; use --amp-dtype float16"):
        Precision("O1", "bfloat16")
    with pytest.raises(UserError, match="MindSpore's levels are O0, O1, O2, O3"):
        Precision("O4")


@installed
def test_gradient_descent_in_mindspore_is_torchs(trained):
    step = lambda network, optimizer, train: optimizer.step()  # noqa: E731
    assert updated(trained, lambda side, network, train: side.descent(network, 0.125), step) < 1e-15
    wrong = lambda side, network, train: side.descent(network, 0.125 if side.name == "torch" else 0.25)  # noqa: E731
    assert updated(trained, wrong, step) > 1e-4


@installed
def test_schedules_in_mindspore_are_their_formulas(trained):
    (side, network, train), _ = trained[0]
    every = [*whole_schedules()]
    assert len(every) > 40
    for name, config in every:
        optimizer = train.build_optimizer(network, config.optimizer_config(64))
        schedule, rates = train.build_schedule(optimizer, config.schedule_config(4)), []
        for update in range(1, config.epochs * 4 + 1):
            rates.append(side.learning_rate(optimizer))
            if config.lr_unit == "update" or update % 4 == 0:
                schedule.step()
        formula = expected_rates(config, 4, 64)
        assert np.abs(np.array(rates) - formula).max() < 1e-13 * formula.max(), name


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_data_in_mindspore_is_torchs_to_the_last_bit(tmp_path):
    """Step 2: every pixel, label and number of all augmentations, operations and mixings."""
    status, report = aligned(tmp_path, steps="2")
    assert status == 0, report["first_divergence"]
    pixels = [q for q in report["steps"][0]["quantities"] if q["max_abs_diff"] is not None]
    assert len(pixels) > 50 and all(q["max_abs_diff"] == 0 for q in pixels)


@installed
def test_a_loaders_error_is_one_line_and_its_batches_are_in_order(tmp_path):
    """From MindSpore's pipeline as from this thread; a damaged picture is named as everywhere."""
    from projects.resnet50.in_mindspore.data import ImageDataset, build_loader

    data_path = tmp_path / "data"
    shutil.copytree(ROOT / "lite_data", data_path)
    index = index_dataset(data_path, "train")
    plan = BatchPlan(len(index), 5)
    preset = EvalPreset(36, 32)
    runs = [[[t.asnumpy() for t in batch] for batch in build_loader(ImageDataset(index, preset), plan, n)] for n in (0, 2)]
    assert len(runs[0]) == len(runs[1]) == len(plan) and len(runs[0][-1][1]) == len(index) % 5 != 0
    for one, other in zip(*runs, strict=True):
        assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(one, other, strict=True))
    assert np.concatenate([batch[2] for batch in runs[1]]).tolist() == list(range(len(index)))
    Path(index.path(7)).write_bytes(b"no picture")
    for workers in (0, 2):
        with pytest.raises(UserError, match="is not a picture") as caught:
            list(build_loader(ImageDataset(index, preset), plan, workers))
        assert "\n" not in caught.value.line and str(index.names[7]) in caught.value.line


class Rows:
    """Rows that take a while to make."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 60

    def __getitem__(self, number):
        time.sleep(self.seconds)
        return np.full(3, number, np.float32), np.zeros(2, np.float32)


@installed
@pytest.mark.parametrize(("making", "using", "ready"), [(0.0, 0.03, 16), (0.03, 0.0, 0)])
def test_the_doctor_sees_how_full_mindspores_pipeline_is(making, using, ready):
    """Full where updates are slow, empty where rows are; afterwards MindSpore's class is as it was."""
    import mindspore

    from alignment_doctor.frameworks.mindspore import MindSpore

    kind, seen = mindspore.dataset.GeneratorDataset, []
    before = kind.__init__, kind.create_tuple_iterator
    with MindSpore().loader() as fullness:
        assert fullness() is None
        rows = kind(Rows(making), ["a", "b"], shuffle=False, num_parallel_workers=1, python_multiprocessing=False)
        for number, row in zip(range(12), rows.create_tuple_iterator(num_epochs=1, output_numpy=True), strict=False):
            time.sleep(using)
            assert row[0][0] == number
            seen.append(fullness())
    assert (kind.__init__, kind.create_tuple_iterator) == before
    assert {room for _, room in seen} == {mindspore.dataset.config.get_prefetch_size()} == {16}
    assert abs(np.median([count for count, _ in seen]) - ready) <= 1


@installed
def test_the_doctor_waits_until_mindspore_has_computed():
    """On a CPU operators are begun and not awaited: times would be those of their beginning."""
    import mindspore

    from alignment_doctor.frameworks.mindspore import MindSpore

    x = mindspore.Tensor(np.ones((1200, 1200), np.float32))
    mindspore.ops.matmul(x, x).asnumpy()
    for _ in range(3):
        x = mindspore.ops.matmul(x, x)
    MindSpore().wait()
    begun = time.perf_counter()
    x.asnumpy()
    left = time.perf_counter() - begun
    begun = time.perf_counter()
    mindspore.ops.matmul(x, x).asnumpy()
    assert left < 0.5 * (time.perf_counter() - begun)


@installed
def test_more_workers_than_processors_load_all_the_same():
    """MindSpore refuses them; a recipe that was written on a larger machine does not."""
    import mindspore

    from projects.resnet50.in_mindspore.data.loader import Loader

    class Batches(Rows):
        def __getitem__(self, number):
            return (*super().__getitem__(number), np.zeros(1, np.int64))

    rows = Loader([], range(5), 64, 1)._rows(Batches(0.0))
    assert [row[0][0] for row in rows] == list(range(60))
    with pytest.raises(ValueError, match="exceeds the boundary"):
        mindspore.dataset.GeneratorDataset(Rows(0.0), ["a", "b"], num_parallel_workers=1024)


@installed
def test_mindspore_turns_data_sinking_off_on_a_cpu():
    """A run that sinks its data tells one loss an epoch; on a CPU it tells each."""
    import mindspore
    from mindspore import nn

    rows = mindspore.dataset.GeneratorDataset(Rows(0.0), ["a", "b"], shuffle=False).batch(15)
    network, told = nn.Dense(3, 2), []

    class Losses(mindspore.Callback):
        def step_end(self, run_context):
            told.append(run_context.original_args().net_outputs)

    optimizer = nn.SGD(network.trainable_params(), 1e-4)
    mindspore.Model(network, nn.MSELoss(), optimizer).train(1, rows, callbacks=[Losses()], dataset_sink_mode=True)
    assert len(told) == 4 and mindspore.get_context("device_target") == "CPU"


@installed
@pytest.mark.parametrize("size", [32, 224])
def test_a_crop_out_of_a_padded_picture_is_torchvisions(size):
    """MindSpore's side of CIFAR-10's recipe; tests/test_padded_crops.py has the other two."""
    from PIL import Image

    from projects.resnet50.in_mindspore.data.transforms import train_transform
    from tests.test_padded_crops import GIVEN, PICTURE, STD, by_torchvision

    preset = TrainConfig(crop_padding=4, crop_size=size, resize_size=size, **GIVEN).train_preset
    for number in range(8):
        params = sample_params(preset, 0, SampleKey(0, number, number), 32, 32)
        right = by_torchvision(size, params.crop, params.flip)
        made = train_transform(Image.fromarray(PICTURE), preset, params)
        np.testing.assert_allclose(made, right, atol=1.01 / 255 / min(STD))
        assert np.abs(made - right).mean() < 1e-3


@installed
def test_mindspores_operations_on_arrays_are_not_those_on_pictures():
    """What docs/three_frameworks.md says: of an array ``vision.Resize`` smooths nothing, and ``vision.Equalize`` differs."""
    from mindspore.dataset import vision
    from PIL import Image

    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8))
    resize = vision.Resize((20, 20), vision.Inter.BILINEAR)
    right = np.asarray(picture.resize((20, 20), Image.Resampling.BILINEAR)).astype(int)
    assert (np.asarray(resize(picture)) == right).all() and np.abs(resize(np.asarray(picture)) - right).max() > 40
    of_array, of_picture = (np.asarray(vision.Equalize()(one)).astype(int) for one in (np.asarray(picture), picture))
    assert np.abs(of_array - of_picture).max() > 1


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_both_ports_pass_in_one_table(tmp_path, capsys):
    """MindSpore's and Paddle's port of one reference; in exact mode forward passes and losses agree to 1e-12 in both."""
    assert main(["run", str(THREE), "--steps", "1,3,4", "--result-dir", str(tmp_path)]) == 0
    head = next(line for line in capsys.readouterr().out.splitlines() if line.split() == ["mindspore", "paddle"])
    assert head
    found = json.loads((tmp_path / "ports.json").read_text())
    assert found["passed"] and [*found["ports"]] == ["mindspore", "paddle"]
    for one in found["ports"].values():
        assert [step["step"] for step in one["steps"]] == [1, 3, 4]
        assert all(step["exact"] < 1e-12 for step in one["steps"] if step["step"] != 3)


@installed
@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("port", ["mindspore", "paddle"])
def test_a_hundred_updates_stay_inside_the_references_envelope(port, tmp_path):
    """Step 6's curves and final accuracies on digits in CIFAR-10's layout: two epochs of three seeds."""
    from alignment.comparisons.context import Context
    from alignment.comparisons.result import StepResult
    from alignment.comparisons.run import runs, train
    from alignment.project import load_project

    digits_as_cifar(tmp_path, 160, 200)
    context, plan = Context(load_project(THREE, port)), train.Plan(iterations=100, draws=5, seeds=3, epochs=2)
    trial, result = train.RunTrial(context, plan, str(tmp_path)), StepResult(6, "train")
    runs.add(result, trial, trial.measure(context, "port"), trial.measure(context, "reference"))
    assert result.passed, [(q.name, q.reason) for q in result.quantities if not q.passed] + result.problems
    assert {"curve.float32", "curve.float64", "final_top1"} <= {q.name for q in result.quantities}


def digits_as_cifar(folder, each, last):
    """scikit-learn's digits as five training batches and one of validation."""
    from PIL import Image
    from sklearn.datasets import load_digits

    from mobilenetv3_common.cifar import CLASSES
    from tests.test_cifar import write_batch

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    for number in range(6):
        chosen = order[number * each :][: last if number == 5 else each]
        drawn = [Image.fromarray((digits.images[n] * 15.9).astype(np.uint8)).resize((32, 32)) for n in chosen]
        rows = np.stack([np.repeat(np.asarray(one).reshape(1, -1), 3, axis=0).ravel() for one in drawn])
        labels = [int(digits.target[n]) for n in chosen]
        names = [f"{CLASSES[label]}_s_{place:06d}.png" for place, label in enumerate(labels)]
        name = "test_batch" if number == 5 else f"data_batch_{number + 1}"
        write_batch(folder / name, {"batch_label": name, "labels": labels, "data": rows, "filenames": names})
    write_batch(folder / "batches.meta", {"num_cases_per_batch": each, "label_names": list(CLASSES), "num_vis": 3072})


@installed
def test_two_processes_give_the_same_verdict(tmp_path):
    """A dump of the reference, one of the port, and their comparison."""
    reference, port = tmp_path / "reference", tmp_path / "port"
    assert main(["dump", f"{REFERENCE}:Reference", "--input", "2x3x32x32", "--out", str(reference)]) == 0
    assert main(["dump", f"{PORT}:Port", "--reference-dump", str(reference), "--out", str(port)]) == 0
    assert main(["audit", "--port-dump", str(port), "--reference-dump", str(reference), "--report", str(tmp_path / "r")]) == 0
    content = json.loads((port / "dump.json").read_text())
    assert content["framework"] == "mindspore"


# --- ResNet ----------------------------------------------------------------------------------------------------------------


@installed
@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
@pytest.mark.parametrize("depth", [18, 50])
def test_resnets_in_three_frameworks_agree_to_1e_12(depth, stem):
    """Training mode, with torch's weights: outputs, every gradient, and the statistics afterwards."""
    names = ("torch", "mindspore", "paddle")
    x = np.random.default_rng(0).standard_normal((4, 3, 32, 32) if stem == "cifar" else (4, 3, 64, 64))
    cotangent, state, right = np.random.default_rng(1).standard_normal((4, 10)), None, {}
    for name in names:
        side = framework(name)
        models = importlib.import_module(f"projects.resnet50.models.in_{name}")
        model = side.make_exact(getattr(models, f"resnet{depth}")(num_classes=10, stem=stem))
        state = state or side.state(model)
        found, _ = passed(side, model, x, True, state, cotangent)
        right = right or found
        assert found.keys() == right.keys()
        for key, array in right.items():
            assert far(found[key], array) < 1e-12, f"{name}: {key}"


@installed
def test_weights_go_to_mindspore_and_back(tmp_path):
    """torch's .pth as a .ckpt that MindSpore loads, and back to equal arrays; a file that lacks a tensor is refused."""
    import mindspore
    import torch

    sides = framework("mindspore"), framework("torch")
    pair = [named_object("the test", text)() for text in (f"{PORT}:Port", f"{REFERENCE}:Reference")]
    torch.save(pair[1].state_dict(), tmp_path / "a.pth")
    command = ["--port", f"{PORT}:Port", "--reference", f"{REFERENCE}:Reference"]
    assert convert([str(tmp_path / "a.pth"), str(tmp_path / "b.ckpt"), *command]) == 0
    assert mindspore.load_param_into_net(pair[0], mindspore.load_checkpoint(str(tmp_path / "b.ckpt"))) == ([], [])
    for name, array in sides[1].state(pair[1]).items():
        assert (sides[0].state(pair[0])[name] == array).all(), name
    mindspore.save_checkpoint(pair[0], str(tmp_path / "c.ckpt"))
    assert convert([str(tmp_path / "c.ckpt"), str(tmp_path / "d.pth"), *command]) == 0
    found = torch.load(tmp_path / "d.pth", weights_only=True)
    assert all((found[name] == tensor).all() for name, tensor in pair[1].state_dict().items())
    state = read_state(tmp_path / "c.ckpt")
    del state["fc.bias"]
    write_state(tmp_path / "e.ckpt", state)
    assert convert([str(tmp_path / "e.ckpt"), str(tmp_path / "f.pth"), *command]) == 2
    assert not (tmp_path / "f.pth").exists()
