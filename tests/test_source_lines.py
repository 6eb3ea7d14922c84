"""The line that makes a module, as a model's author would point to it."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys

import pytest

from alignment.audit.pair import ModelMaker
from alignment.frameworks import framework_of
from alignment.localize.source import noting_lines, source_place

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
