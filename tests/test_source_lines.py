"""The line that makes a module, as a model's author would point to it."""

from __future__ import annotations

import ast
import functools
import importlib.util
import signal
import subprocess
import sys

import numpy as np
import pytest

from alignment.audit.pair import ModelMaker
from alignment.frameworks import framework_of
from alignment.localize.given import Givers
from alignment.localize.last_set import first_apart, first_made, last_set
from alignment.localize.source import noting_lines, number_of, set_by, source_place

# Each line that makes a layer ends with the layer's path.
SOURCE = """
import copy
from {framework} import nn


def norm(n):
    return nn.{norm}(n)  # first.bn, second.bn


def small(n):
    layers = [
        nn.{conv}(3, n, 1),  # stem.0
        norm(n),
    ]
    for _ in range(2):
        layers.append(nn.ReLU())  # stem.2, stem.3
    return nn.Sequential(*layers)


class Own(nn.{conv}):
    def __init__(self, n):
        super().__init__(n, n, 3)


class Block(nn.{base}):
    def __init__(self, n, down):
        super().__init__()
        self.bn = norm(n)
        self.down = None
        self.act = nn.ReLU() if down else nn.Sigmoid()  # first.act, second.act
        if down:
            self.down = nn.Sequential(
                nn.{conv}(n, n, 1),  # first.down.0
                nn.{norm}(n),  # first.down.1
            )

    def forward(self, x):
        return x


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.stem = small(4)
        self.first = Block(4, True)
        self.second = Block(4, False)
        self.own = Own(4)  # own
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8)  # encoder.linear1, encoder.norm1
        self.first_fc = nn.Linear(4, 4)  # first_fc, copied
        self.copied = copy.deepcopy(self.first_fc)

    def forward(self, x):
        return x
"""
NAMES = {
    "torch": {"norm": "BatchNorm2d", "conv": "Conv2d", "base": "Module"},
    "paddle": {"norm": "BatchNorm2D", "conv": "Conv2D", "base": "Layer"},
}


def written(folder, framework):
    """The file, its text, and the class in it."""
    file, text = folder / f"net_{framework}.py", SOURCE.format(framework=framework, **NAMES[framework])
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return file, text, module.Net


@pytest.mark.parametrize("framework", sorted(NAMES))
def test_each_layer_is_made_in_its_line(tmp_path, framework):
    file, text, net = written(tmp_path, framework)
    side = framework_of(net())
    with noting_lines(side):
        model = net()
    wanted = {
        path: number
        for number, line in enumerate(text.splitlines(), start=1)
        if "  # " in line
        for path in line.partition("  # ")[2].split(", ")
    }
    assert len(wanted) == 14
    assert {path: source_place(side, model, path, True) for path in wanted} == {p: (file, n) for p, n in wanted.items()}


@pytest.mark.parametrize("framework", sorted(NAMES))
def test_of_a_model_that_is_there_already_the_assignment_is_said_but_not_that_of_none(tmp_path, framework):
    file, text, net = written(tmp_path, framework)
    model = net()
    line = 1 + next(n for n, one in enumerate(text.splitlines()) if "first.down.1" in one)
    assert source_place(framework_of(model), model, "first.down.1", True) == (file, line)


NUMBERS_OF_A_CLASS = """
class Other:
    def __init__(self):
        self.scale = 0.8

class Net(Other):
    def __init__(self, held=0.8, other=0.8):
        self.scale, self.offset = -0.8, 2
        self.held = held
        self.late = 0.8
        self.twin = 0.8

    def change(self):
        self.late *= 2

    def forward(self, x):
        x = x * self.scale  # 8
        x = x * self.scale + -0.8  # the number itself
        x = x * self.held  # a parameter
        x = x * self.late  # changed later
        x = x * self.scale + self.twin  # 8
        x = x * self.offset  # 8
        return x * self.unknown  # not set here
"""


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ("x * self.scale  # 8", -0.8, 8), ("the number itself", -0.8, None), ("a parameter", 0.8, None),
        ("changed later", 0.8, None),
        ("self.twin", -0.8, 8), ("self.twin", 0.8, 11), ("self.offset  # 8", 2, 8), ("self.offset  # 8", 0.8, None),
        ("not set here", 0.8, None),
    ],
)  # fmt: skip
def test_a_number_of_an_attribute_is_set_in_the_constructors_line(tmp_path, text, value, line):
    (tmp_path / "net.py").write_text(NUMBERS_OF_A_CLASS)
    lines = NUMBERS_OF_A_CLASS.splitlines()
    used = max(number for number, one in enumerate(lines, 1) if text in one)
    assert set_by(tmp_path / "net.py", used, value) == line


def test_the_line_of_the_engine_that_builds_the_model_is_not_said(tmp_path):
    file, _, net = written(tmp_path, "torch")
    side = framework_of(net())
    with noting_lines(side):
        model = ModelMaker("--port", f"{file}:Net", {}).function()
    assert source_place(side, model, "", True) is None


def test_a_constructor_is_the_frameworks_own_again(tmp_path):
    _, _, net = written(tmp_path, "torch")
    side = framework_of(net())
    own = side.module_type.__init__
    with pytest.raises(ZeroDivisionError), noting_lines(side):
        raise ZeroDivisionError
    assert side.module_type.__init__ is own


# A wrong value is given in each line that ends with a layer's path, and handed on to the layer.
GIVEN = """
from {framework} import nn


def conv(n, stride=1):
    return nn.{conv}(n, n, 3, stride, 1)


class Block(nn.{base}):
    def __init__(self, n, stride, eps=1e-5):
        super().__init__()
        self.conv1 = conv(n, stride)
        self.norm = nn.{norm}(n, {eps}=eps)
        self.conv2 = conv(n)


class Both(nn.{base}):
    def __init__(self, n, stride):
        super().__init__()
        self.one = nn.{conv}(n, n, 3, stride)  # both.one
        self.other = nn.{conv}(n, n, 3, {shared})


class Net(nn.{base}):
    rows = [
        (4, 1),
        (4, {wrong}),  # table.1.conv1
        (8, 1),
    ]

    def __init__(self):
        super().__init__()
        self.first = Block(
            4,
            {wrong},  # first.conv1
        )
        stride = {wrong}  # named.conv1
        self.named = Block(n=4, stride=stride)
        self.stage = self.made(4, 2, {wrong})  # stage.0.conv1
        self.table = nn.Sequential(*[Block(n, s) for n, s in self.rows])
        self.lacking = Block(4, 1{more})  # lacking.norm
        self.counted = Block(4, {wrong} * 1)  # counted.conv1
        self.chosen = Block(4, {wrong} if 3 > 2 else 1)  # chosen.conv1
        self.less = Block(4, {less})  # less.conv1
        self.both = Both(4, {wrong})

    def made(self, n, blocks, stride):
        layers = []
        for s in [stride] + [1] * (blocks - 1):
            layers.append(Block(n, s))
        return nn.Sequential(*layers)
"""
WRONG = {"wrong": "3", "less": "2 - 1", "shared": "stride", "more": ""}
RIGHT = {"wrong": "2", "less": "2", "shared": "3", "more": ", eps=1e-3"}


def given(folder, framework, values, source=GIVEN):
    """The model, its framework and its text."""
    eps = {"torch": "eps", "paddle": "epsilon"}[framework]
    file, text = folder / f"given_{framework}.py", source.format(framework=framework, eps=eps, **NAMES[framework], **values)
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    side = framework_of(module.Net())
    with noting_lines(side):
        return side, module.Net(), text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python keeps no positions of calls")
@pytest.mark.parametrize("framework", sorted(NAMES))
def test_a_wrong_setting_is_where_a_caller_gives_it(tmp_path, framework):
    side, right, _ = given(tmp_path, framework, RIGHT)
    side, model, text = given(tmp_path, framework, WRONG)
    layers = {path: side.layer(module) for path, module in side.modules(right, every_path=True).items()}
    giver = Givers(side, model, layers)
    wrong = {path for path in layers if giver.wrong(path)}
    wanted = {line.partition("  # ")[2]: n for n, line in enumerate(text.splitlines(), start=1) if "  # " in line}
    assert wrong == set(wanted)
    found = {path: (one.node.lineno if (one := giver.of(path)) else source_place(side, model, path, True)[1]) for path in wrong}
    assert found == wanted
    assert isinstance(giver.of("less.conv1").node, ast.BinOp), "no constant of a sum is the value"
    assert giver.of("chosen.conv1").node.col_offset < text.splitlines()[wanted["chosen.conv1"] - 1].index(" if "), "no condition"
    assert giver.of("both.one") is None, "another layer has it, too, and rightly"
    assert giver.of("lacking.norm").argument == "eps" and giver.of("first.conv2") is None


# A value passes through a helper that other blocks call rightly; a line to change ends with the layers that it makes wrong.
HELPED = """
from {framework} import nn


def conv(n, stride=1):
    return nn.{conv}(n, n, 3, stride, 1)


class Block(nn.{base}):
    def __init__(self, n, stride=1):
        super().__init__()
        self.conv1 = conv(n, {first})  # conv1
        self.conv2 = conv(n, {second})  # conv2
        self.down = nn.{conv}(n, n, 1, stride)


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.layer1 = self.stage(4, 1)
        self.layer2 = self.stage(4, 2)

    def stage(self, n, stride):
        return nn.Sequential(Block(n, {given}), Block(n{more}))  # stage
"""
SOUND = {"first": "stride", "second": "1", "given": "stride", "more": ""}
# What is wrong -> the line to change, how many lines hand the value on, and the layers that are wrong.
THROUGH = {
    "left to a default": ({"first": "1", "second": "stride"}, {"layer2.0.conv1": ("conv1", 1), "layer2.0.conv2": ("conv2", 1)}),
    "computed by a caller": ({"given": "max(stride // 2, 1)"}, {"layer2.0.conv1": ("stage", 2), "layer2.0.down": ("stage", 1)}),
    "to a block too many": ({"more": ", stride"}, {"layer2.1.conv1": ("stage", 2), "layer2.1.down": ("stage", 1)}),
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python keeps no positions of calls")
@pytest.mark.parametrize("case", THROUGH)
def test_behind_a_helper_the_line_is_its_callers(tmp_path, case):
    changes, wanted = THROUGH[case]
    side, right, _ = given(tmp_path, "paddle", SOUND, HELPED)
    side, model, text = given(tmp_path, "paddle", SOUND | changes, HELPED)
    giver = Givers(side, model, {path: side.layer(one) for path, one in side.modules(right, every_path=True).items()})
    lines = {line.partition("  # ")[2]: n for n, line in enumerate(text.splitlines(), start=1) if "  # " in line}
    found = {path: [line for _, line in giver.lines(path)] for path in giver.layers if giver.wrong(path)}
    assert {path: (one[0], len(one) - 1) for path, one in found.items()} == {p: (lines[at], n) for p, (at, n) in wanted.items()}
    assert not giver.lines("layer1.0.conv1"), "it is right"


# Each line in which a tensor gets its last values ends with the tensor's path.
SET = {
    "torch": """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3))  # one.scale
        self.register_buffer("table", torch.rand(3))  # one.table
        self.fc = nn.Linear(3, 3)  # one.fc.bias
        nn.init.normal_(self.fc.weight)  # one.fc.weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = Scaled()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)  # conv.bias
        self.apply(self.init)
        self.norm.bias.data[:2] = 0.25  # norm.bias

    def init(self, m):
        if isinstance(m, nn.Conv2d):
            m.weight.data.normal_(0, 0.1)  # conv.weight
            other = 1

    def forward(self, x):
        return x
""",
    "paddle": """
import paddle
from paddle import nn


class Scaled(nn.Layer):
    def __init__(self):
        super().__init__()
        self.scale = self.create_parameter([3], default_initializer=nn.initializer.Normal())  # one.scale
        self.register_buffer("table", paddle.rand([3]))  # one.table
        self.fc = nn.Linear(3, 3)  # one.fc.bias
        nn.initializer.Normal()(self.fc.weight)  # one.fc.weight


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.one = Scaled()
        self.conv, self.norm = nn.Conv2D(3, 3, 1), nn.BatchNorm2D(3)  # conv.bias
        self.apply(self.init)
        self.norm.bias.set_value(paddle.full([3], 0.25))  # norm.bias

    def init(self, m):
        if isinstance(m, nn.Conv2D):
            m.weight.set_value(paddle.randn(m.weight.shape))  # conv.weight
            other = 1

    def forward(self, x):
        return x
""",
}


@pytest.mark.parametrize("framework", sorted(SET))
def test_a_tensor_has_the_line_in_which_it_was_last_set(tmp_path, framework):
    file, text = tmp_path / f"set_{framework}.py", SET[framework]
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    side = framework_of(module.Net())
    with noting_lines(side):
        modules = side.modules(module.Net(), every_path=True)
    wanted = {line.partition("  # ")[2]: (file, n) for n, line in enumerate(text.splitlines(), start=1) if "  # " in line}
    asked = [(number_of(modules[path.rpartition(".")[0]]), path.rpartition(".")[2]) for path in wanted]
    before = sys.gettrace()
    assert dict(zip(wanted, last_set(side, module.Net, asked), strict=True)) == wanted and len(wanted) == 7
    assert sys.gettrace() is before


MADE = """
import numpy as np
import torch

def half(n):
    return np.arange(n) / 2

def table(n):
    made = half(n) ** 2
    return made.astype("float32")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.tensor(table(6)))
        self.register_buffer("two", torch.tensor(half(6)))
        self.register_buffer("seen", torch.arange(6) >= 4)
"""


def test_a_table_has_the_line_that_first_makes_its_values(tmp_path):
    file = tmp_path / "made_net.py"
    file.write_text(MADE)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    side, net = framework_of(module.Net()), module.Net()
    assert first_made(side, module.Net, net.one.numpy()) == (file, 9)
    assert first_made(side, module.Net, net.two.numpy()) == (file, 6)
    assert first_made(side, module.Net, net.seen.numpy()) == (file, 17)
    assert first_made(side, module.Net, np.ones(6)) is None


GRID = """
import numpy as np
import torch

def row(n, places):
    out = np.outer(places, np.arange(1, n + 1))
    return np.sin(out)

def table(n):
    down = np.arange(3.0)
    across = np.arange(4.0)
    grid = np.meshgrid(across, down)
    grid = np.stack(grid).reshape(2, -1)
    first = row(n, grid[0])
    last = row(n, grid[1])
    return np.concatenate([first, last], 1)

class Schedule:
    def __init__(self):
        steps = np.linspace(0.1, 0.5, 6) ** 2
        kept = np.cumprod(1 - steps)
        rows = [np.sqrt(kept), np.log(steps)]
        self.table = torch.tensor(np.stack(rows, 1))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.tensor(table(2)))
        self.schedule = Schedule()
"""
OTHER_NAMES = {"kept": "left", "Schedule": "Plan", "def table": "def lay", "(table(2))": "(lay(2))", "rows, 1)": "rows[::-1], 1)"}
TWO_LINES = {"across = np.arange(4.0)": "across = np.arange(4.0) + 1", "down = np.arange(3.0)": "down = np.arange(3.0) * 2"}
# What is changed in the port -> where each of its two tables parts from the reference's; None where that is not one line.
PARTED = {
    "nothing": ({}, None, None),
    "another order": ({"(across, down)": "(down, across, indexing='ij')"}, "grid = np.meshgrid", None),
    "another formula": ({"0.5, 6) ** 2": "0.5, 6)"}, None, "steps ="),
    "other names and another form": (OTHER_NAMES, None, None),
    "another formula under other names": ({**OTHER_NAMES, "0.5, 6) ** 2": "0.5, 6)"}, None, "steps ="),
    "two lines": (TWO_LINES, None, None),
}


@pytest.mark.parametrize("case", PARTED)
def test_a_table_has_the_line_where_its_values_part_from_the_references(case, tmp_path):
    changes, *places = PARTED[case]
    ours = functools.reduce(lambda text, one: text.replace(one, changes[one]), changes, GRID)
    nets = []
    for name, text in (("parted_ours", ours), ("parted_theirs", GRID)):
        (tmp_path / f"{name}.py").write_text(text)
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        nets.append(module.Net)
    net = nets[0]()
    for values, wanted in zip((net.places.numpy(), net.schedule.table.numpy()), places, strict=True):
        found = first_apart([(framework_of(net), one) for one in nets], values)
        assert (found is None) == (wanted is None) and (wanted is None or wanted in ours.splitlines()[found[1] - 1]), found


STOPPED = """
import os, signal
from alignment.scratch import scratch


def test_one():
    with scratch() as made:
        print(f"FOLDER {made}", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)


def test_two():
    print("STILL HERE", flush=True)
"""


def test_a_signal_in_a_test_ends_the_runner_and_fails_no_test(tmp_path):
    (tmp_path / "test_stopped.py").write_text(STOPPED)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (2, 128 + signal.SIGTERM), done.stdout
    assert "FOLDER" in done.stdout and "STILL HERE" not in done.stdout and "1 failed" not in done.stdout
    assert not any(tmp_path.glob("alignment_patch_*"))
