"""What a new thing costs, as CONTRIBUTING.md says: each patch of tests/worked adds one to a copy of the project, and it works.

Frameworks: ``test_third_framework.py``; an outside pair: ``test_project.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from mobilenetv3_common.published import cache_dir
from tests.conftest import ROOT

WORKED = ROOT / "tests" / "worked"
AT_MOST = {"comparison": 1, "fault": 1, "form": 3, "hypothesis": 1, "model": 5, "optimizer": 5}
# The new optimizer's run of step 5 alone, three updates.
STEP_5 = """
from dataclasses import replace
from alignment.comparisons import backward
from alignment.comparisons.context import Context
from projects.mobilenetv3.project import PROJECT

runs = [replace(run, iterations=3) for run in backward.RUNS if run.name.startswith("adagrad")]
result = backward.run(Context(PROJECT), tuple(runs))
assert len(result.quantities) > 100
print("passed" if result.passed else "FAILED")
"""
# A metric that clears its counts when it is asked for the shares.
CLEARED = """
from alignment.comparisons import run_step
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from mobilenetv3_paddle.metric import TopKAccuracy
from projects.mobilenetv3.project import PROJECT

class Clears(TopKAccuracy):
    def compute(self):
        shares, self.correct = super().compute(), [0 for _ in self.correct]
        return shares

for project in (PROJECT, PROJECT.with_port("metric", TopKAccuracy=Clears)):
    context = Context(project)
    result = run_step(3, context)
    first = locate(context, [result]).first
    print([row.name for row in result.quantities if not row.passed], first and first.line())
"""
REVERSED = """
import torch
from alignment.localize import localize

class Reversed(torch.nn.Conv2d):
    def forward(self, x):
        return super().forward(x).flip(1)

reference, port = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), torch.nn.Sequential(Reversed(3, 4, 3))
port.load_state_dict(reference.state_dict())
print(localize(port, reference, torch.randn(2, 3, 8, 8).numpy()).first.line())
"""
# A block of the port computes on (batch * length, width), and a factor in it is wrong.
FOLDED = """
import torch
from torch import nn
from alignment.localize import localize

class Gate(nn.Module):
    axis, factor = 2, 1

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        a, b = self.fc(x).chunk(2, self.axis)
        return torch.cat([a * torch.sigmoid(self.factor * b), b], self.axis)

class Flat(Gate):
    axis = 1

class Net(nn.Module):
    gate = Gate

    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(4, 4), self.gate(), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.block(self.first(x)))

class Port(Net):
    gate = Flat

    def forward(self, x):
        return self.last(self.block(self.first(x).flatten(0, 1)).unflatten(0, x.shape[:2]))

torch.manual_seed(0)
reference, port = Net(), Port()
port.load_state_dict(reference.state_dict())
for Flat.factor in (1, 2):
    first = localize(port, reference, torch.randn(2, 6, 4).numpy()).first
    print(Flat.factor, first and first.line())
"""


def files_of(name):
    """The files that a patch touches."""
    return re.findall(r"^\+\+\+ b/(\S+)$", (WORKED / f"{name}.patch").read_text(), re.M)


@pytest.fixture
def patched(tmp_path):
    """Makes a copy of the project with a patch applied; gives what runs Python in it."""

    def make(name):
        listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
        for file in filter(None, listed.stdout.decode().split("\0")):
            if not file.startswith(("docs/", "tests/")) and (ROOT / file).is_file():
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, tmp_path / file)
        subprocess.run(
            ["git", "apply", WORKED / f"{name}.patch"], cwd=tmp_path, check=True, env={**os.environ, "GIT_DIR": "/nowhere"}
        )
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        if name != "model":  # calibrated weights of the models that there are; a new one's stay in the copy
            environment["MOBILENETV3_CACHE"] = str(cache_dir())

        def python(*arguments):
            command = [sys.executable, *arguments]
            return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)

        return python

    return make


@pytest.mark.parametrize("name", AT_MOST)
def test_a_new_thing_touches_few_files_and_the_page_names_them(name):
    files = files_of(name)
    assert 1 <= len(files) <= AT_MOST[name]
    (row,) = re.findall(rf"^\| an? (?:new )?{name}\b.*$", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert f"| {len(files)} |" in row and f"tests/worked/{name}.patch" in row
    for file in files:
        assert f"`{file}`" in row, file


@pytest.mark.slow
def test_a_new_fault_is_injected_and_found(patched):
    done = patched("fault")("tools/align.py", "--steps", "1", "--inject", "eps_of_the_last_batch_norm")
    assert done.returncode == 1, done.stderr
    assert "first divergence: forward: features.12.1: wrong eps: 1e-05, expected 0.001" in done.stdout


def test_a_new_comparison_is_run_and_explained(patched):
    done = patched("comparison")("-c", CLEARED)
    sound, wrong = done.stdout.splitlines()
    assert sound == "[] None", done.stdout + done.stderr
    assert wrong.startswith("['asked_again'] metric: TopKAccuracy.compute: asked a second time it gives other shares"), wrong


def test_a_new_hypothesis_names_its_mistake(patched):
    done = patched("hypothesis")("-c", REVERSED)
    assert "forward: 0: the output channels are reversed" in done.stdout, done.stdout + done.stderr


def test_a_new_form_is_understood_and_a_mistake_in_it_is_named(patched, tmp_path):
    (tmp_path / "case.py").write_text(FOLDED)
    done = patched("form")("case.py")
    sound, wrong = done.stdout.splitlines()
    assert sound == "1 None" and "block: case.py:15: * 2, expected 1" in wrong, done.stdout + done.stderr


@pytest.mark.slow
def test_a_new_model_is_aligned_trained_and_predicts(patched, tmp_path):
    python = patched("model")
    done = python("tools/align.py", "--model", "mobilenet_v3_micro", "--steps", "1,4")
    assert done.returncode == 0 and "mobilenet_v3_micro, 347,584 parameters" in done.stdout, done.stdout + done.stderr
    flags = ("--model", "mobilenet_v3_micro", "--epochs", "1", "--output-dir", "run")
    done = python("tools/train.py", "--config", "configs/lite.yaml", "--data-path", "lite_data", *flags)
    assert done.returncode == 0, done.stderr
    done = python(
        "tools/predict.py", "--img-path", "lite_data/val/cat/cat_0.JPEG", "--pretrained", "run/best.safetensors", "--json"
    )
    assert done.returncode == 0 and '"name": "cat"' in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.weekly  # the other things of the table are made on every change
def test_a_new_optimizer_is_aligned_and_a_wrong_one_is_found(patched, tmp_path):
    python = patched("optimizer")
    done = python("-c", STEP_5)
    assert done.stdout.strip() == "passed", done.stdout + done.stderr
    file = tmp_path / "mobilenetv3_paddle/train/optimizer.py"
    text = file.read_text()
    assert text.count("Adagrad(config.lr, epsilon=config.eps") == 1
    file.write_text(text.replace("Adagrad(config.lr, epsilon=config.eps", "Adagrad(config.lr, epsilon=1e-6"))
    assert python("-c", STEP_5).stdout.strip() == "FAILED"
