"""One command for two models that nobody here wrote: what it finds, what it writes, and what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
import yaml

from alignment.audit.inputs import chosen_inputs
from alignment.cli import main
from alignment.compare import Quantity
from alignment.comparisons.result import StepResult
from alignment.frameworks import framework
from alignment.project import import_file
from alignment.report import table
from tests.conftest import run_command

PADDLE = """
import paddle
from paddle import nn

class Net(nn.Layer):
    def __init__(self, width=8):
        super().__init__()
        self.conv = nn.Conv2D(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2D(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        return self.head(nn.functional.relu(self.norm(self.conv(x))).mean([2, 3]))

class Shared(nn.Layer):
    # One ReLU and one pooling for all places.
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2D(3, 8, 3, padding=1)
        self.b = nn.Conv2D(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 5)
        self.pool = nn.MaxPool2D(2)
        self.act = nn.ReLU()

    def forward(self, x):
        x = self.pool(self.act(self.a(x)))
        x = self.pool(self.act(self.b(x)))
        return self.fc(x.mean([2, 3]))

class Nested(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(nn.functional.relu(self.stem(x)).mean([2, 3]))

class Named(Net):
    # As many ports of Paddle 1's time do.
    def __init__(self, *names):
        super().__init__()
        conv, head = names or ("conv_weights", "head_weights")
        self.conv = nn.Conv2D(3, 8, 3, padding=1, weight_attr=paddle.ParamAttr(name=conv))
        self.head = nn.Linear(8, 5, weight_attr=paddle.ParamAttr(name=head))

def named_twice():
    return Named("weights", "weights")

class Indexed(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, padding=1)
        self.table = self.create_parameter([4])
        self.register_buffer("index", paddle.arange(8) % 4, persistable=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(nn.functional.relu(self.conv(x)).mean([2, 3]) + self.table[self.index])

class Bent(Indexed):
    def forward(self, x):
        return super().forward(x) * 1.25

class Wavy(Net):
    def forward(self, x):
        x = nn.functional.relu(self.norm(self.conv(x)))
        return self.head((x + 0.3 * paddle.sin(3 * x)).mean([2, 3]))

class Twice(Net):
    def forward(self, x):
        made = super().forward(x)
        return made, made.sum(-1)

def raises():
    raise ValueError("no such variant")

def number():
    return 5

def with_arguments(width):
    return Net(width)

model = 3
"""
TORCH = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))

class WithIdentity(Net):
    def __init__(self):
        super().__init__()
        self.drop_path = nn.Identity()

    def forward(self, x):
        return self.head(self.drop_path(torch.relu(self.norm(self.conv(x)))).mean((2, 3)))

class Keeping(nn.Module):
    # Keeps what it makes of a weight while it is evaluated, as LeViT does.
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.table = nn.Parameter(torch.randn(4))
        self.register_buffer("index", torch.arange(8) % 4, persistent=False)
        self.head = nn.Linear(8, 5)
        self.kept = {}

    def train(self, mode=True):
        if mode:
            self.kept = {}
        return super().train(mode)

    def forward(self, x):
        if self.training or "bias" not in self.kept:
            self.kept["bias"] = self.table[self.index]
        return self.head(torch.relu(self.conv(x)).mean((2, 3)) + self.kept["bias"])

class OnePlaceEach(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))

class SameNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1)
        self.b = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 5)
        self.pool1, self.pool, self.act, self.act2 = nn.MaxPool2d(2), nn.MaxPool2d(2), nn.ReLU(), nn.ReLU()

    def forward(self, x):
        x = self.pool1(self.act(self.a(x)))
        x = self.pool(self.act2(self.b(x)))
        return self.fc(x.mean((2, 3)))

def three(count, rng):
    return rng.standard_normal((count, 3, 9, 7)).astype("float32")

def wrong(count, rng):
    return rng.standard_normal((3, 3, 9, 7))
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "theirs.py").write_text(TORCH)
    (tmp_path / "ours.py").write_text(PADDLE)
    return tmp_path


def audit(folder, port="Net", *flags, reference="Net"):
    """Exit status of an audit of two callables of the files above; the report lies in ``folder/report``."""
    sides = ["--port", f"{folder}/ours.py:{port}", "--reference", f"{folder}/theirs.py:{reference}"]
    return main(["audit", *sides, "--report", str(folder / "report"), *flags])


def test_a_sound_pair_passes_and_says_what_was_not_checked(files, capsys):
    assert audit(files, "Net", "--input", "2x3x16x12") == 0
    out = capsys.readouterr().out
    assert "differs" not in out and " s: known differences only\n" in out  # what runs says what the verdict says
    assert "step 1 forward ... differences, examined below, in" in out and "step 5 backward ... passed" in out
    assert "PASS: no mistake found in the port (2 known differences of the frameworks)." in out
    said = json.loads((files / "report" / "alignment.json").read_text())
    assert said["passed"] and said["audit"]["weights"].startswith("calibrated, SHA-256 ") and "processor" in said["audit"]
    block = (files / "report" / "report.md").read_text()
    for words in ("### PASS: no mistake", "- biased_variance: ", "| 1 forward |", "Not checked:", "SHA-256", "| torch | "):
        assert words in block, words
    assert not (files / "report" / "map.yaml").exists()


def test_a_port_that_names_its_parameters_is_built_as_often_as_needed(files, capsys):
    """Paddle refuses a name that another model of the process has; and one that the same model has, which is the port's mistake."""
    assert audit(files, "Named", "--input", "2x3x16x12") == 0
    assert audit(files, "named_twice", "--input", "2x3x16x12") == 2
    assert "parameter name [weights] have be been used" in capsys.readouterr().err


def test_an_identity_that_one_side_lacks_is_never_blamed(files, capsys):
    assert audit(files, "Net", "--input", "2x3x16x12", reference="WithIdentity") == 0
    assert audit(files, "Wavy", "--input", "2x3x16x12", reference="WithIdentity") == 1
    assert "(Identity)" not in capsys.readouterr().out


def test_what_a_reference_keeps_from_other_weights_is_no_mistake(files, capsys):
    """Torch refuses to copy a tensor that was computed, and what was kept before the weights changed would be compared."""
    assert audit(files, "Indexed", "--input", "2x3x16x12", reference="Keeping") == 0
    assert audit(files, "Bent", "--input", "2x3x16x12", reference="Keeping") == 1
    out = capsys.readouterr().out
    assert "every value times 1.25" in out and "still fails" not in out
    network = import_file(files / "theirs.py").Keeping().eval()
    network(torch.ones(1, 3, 8, 8))
    other = framework("torch").copy(network)
    assert other.kept["bias"] is not network.kept["bias"] and torch.equal(other.kept["bias"], network.kept["bias"])


def test_training_mode_finds_what_evaluation_cannot(files, capsys):
    """The stock BatchNorm of Paddle keeps the biased variance; fresh weights are drawn otherwise, too."""
    assert audit(files, "Net", "--input", "2x3x16x12", "--training", "--strict") == 1
    assert "first divergence: forward: norm: biased variance" in capsys.readouterr().out
    block = (files / "report" / "report.md").read_text()
    assert (
        block.startswith("### FAIL: no mistake found in the port, but 2 known differences of the frameworks")
        and "**First difference:** forward: norm: biased" in block
    )


def test_a_mistake_is_located_and_written_down(files, capsys):
    (files / "ours.py").write_text(PADDLE.replace("nn.Conv2D(3, width, 3, padding=1)", "nn.Conv2D(3, width, 3, padding=2)"))
    assert audit(files, "Net", "--input", "2x3x16x12") == 1
    out = capsys.readouterr().out
    assert "first divergence: forward: conv: padding 2" in out, out[-900:]
    assert "forward: conv: padding 2" in (files / "report" / "report.md").read_text()
    failed = (files / "report" / "report.md").read_text().split("What failed:\n\n")[1].split("\n\n")[0]
    assert re.search(r"^- conv \(Conv2D\), evaluation mode, batch of 1, 2, 8; training mode, batch of 4: ", failed, re.M), failed
    assert "gradient of conv.weight (Conv2D)" in failed and "; the same at 1 more place: norm (BatchNorm2D)\n" in failed
    assert "eval.fake" not in failed and len(failed.splitlines()) < 10, failed


def test_other_names_and_nesting_are_paired_written_down_and_taken_back(files, capsys):
    assert audit(files, "Nested", "--input", "2x3x16x12") == 0
    assert "paired by order of use" in capsys.readouterr().out
    names = files / "report" / "map.yaml"
    assert yaml.safe_load(names.read_text()) == {"stem.0": "conv", "stem.1": "norm", "fc": "head"}
    names.rename(files / "map.yaml")
    assert audit(files, "Nested", "--input", "2x3x16x12", "--names", f"{files}/map.yaml") == 0
    assert "paired by order of use" not in capsys.readouterr().out
    (files / "map.yaml").write_text('"stem.0": norm\n"stem.1": conv\nfc: head\n')
    assert audit(files, "Nested", "--input", "2x3x16x12", "--names", f"{files}/map.yaml") == 2, "a person's map is strict"
    assert "not compared: both sides hold" in capsys.readouterr().err


@pytest.mark.parametrize("reference", ["OnePlaceEach", "SameNames"])
def test_one_layer_for_several_places_is_no_mistake(files, reference, capsys):
    """Its calls cannot be told from those of the reference's layers; the parts around it are compared."""
    assert audit(files, "Shared", "--input", "2x3x16x12", reference=reference) == 0
    (files / "ours.py").write_text(PADDLE.replace("x = self.pool(self.act(self.b(x)))", "x = self.pool(self.b(x))"))
    assert audit(files, "Shared", "--input", "2x3x16x12", reference=reference) == 1
    (files / "ours.py").write_text(PADDLE.replace("nn.MaxPool2D(2)", "nn.AvgPool2D(2)"))
    assert audit(files, "Shared", "--input", "2x3x16x12", reference=reference) == 1


@pytest.mark.parametrize("given", ["arrays.npz", "theirs.py:three"])
def test_inputs_of_a_file_and_of_a_function(files, given, capsys):
    np.savez(files / "arrays.npz", np.random.default_rng(0).standard_normal((5, 3, 9, 7)))
    assert audit(files, "Net", "--input", f"{files}/{given}") == 0
    assert f"input: {files}/{given}" in capsys.readouterr().out


def test_json_alone_goes_to_standard_output(files, capsys):
    assert audit(files, "Net", "--input", "2x3x16x12", "--json") == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["passed"] is True and "PASS: no mistake found" in streams.err


LOW_OUTPUT = """
def held(y):
    # Half of the values are cut off, in low precision alone.
    return y if y.dtype in (paddle.float32, paddle.float64) else y.clip(-1, 1)
"""


@pytest.mark.parametrize(("port", "reference"), [("Net", "Net"), ("Nested", "Net"), ("Shared", "SameNames")])
def test_low_precision_has_a_verdict_from_measured_floors(files, port, reference, capsys):
    """A sound port passes, whatever its layers are called; one that is wrong in bfloat16 alone is found."""
    flags = ("--input", "2x3x16x12", "--precision", "bfloat16", "--eval-only")
    assert audit(files, port, *flags, reference=reference) == 0
    said = capsys.readouterr().out
    compared = (files / "report" / "covered.txt").read_text().splitlines()
    assert "  evaluation mode" in compared and "  bfloat16" in compared and "bfloat16" not in said.partition("Not checked")[2]
    returned = re.sub(r"return (self\.(?:fc|head)\(.*\))\n", r"return held(\1)\n", PADDLE)
    assert returned.count("held(") == 5
    (files / "ours.py").write_text(returned + LOW_OUTPUT)
    assert audit(files, port, *flags, reference=reference) == 1
    out = capsys.readouterr().out
    assert f"first divergence: forward: {port}.forward:" in out and ", in bfloat16)" in out, out[-900:]
    assert "x what rounding gives the reference" in (files / "report" / "report.md").read_text()


def test_a_step_is_named_once_and_has_every_reason_once():
    reason = "training mode: left out (--eval-only)"
    both = [
        StepResult(5, "backward", not_run=f"{reason}; updates: no train part"),
        StepResult(5, "updates", not_run=f"{reason}; it has no optimizer"),
    ]
    for result in both:
        result.quantities.append(Quantity("row", []))
    assert table.steps_in_words([StepResult(1, "forward"), *both]) == "steps 1, 5 (in part)"
    line = f"step 5 backward, in part not run: {reason}; updates: no train part; updates: it has no optimizer"
    assert table.not_run(both) == [line]


BAD = {
    "no colon": (("--port", "paddle.vision.models"), "expected MODULE:CALLABLE"),
    "no module": (("--port", "nowhere_to_be_found:Net"), "there is no module 'nowhere_to_be_found'"),
    "no file": (("--port", "nowhere.py:Net"), "nowhere.py: there is no such file"),
    "no name": (("--port", "{ours}:Nett"), "did you mean 'Net'?"),
    "no callable": (("--port", "{ours}:model"), "is a int"),
    "arguments": (("--port", "{ours}:with_arguments"), "missing a required argument: 'width'; give its arguments with --port-args"),
    "other arguments": (("--port-args", '{{"wide": 3}}'), "got an unexpected keyword argument 'wide'"),
    "no JSON": (("--port-args", "width=3"), "no JSON"),
    "no object": (("--reference-args", "[3]"), "expected a JSON object"),
    "it raises": (("--port", "{ours}:raises"), "ValueError: no such variant (ours.py:"),
    "outputs": (("--port", "{ours}:Twice"), "Twice returns 2 tensors in evaluation mode, --reference"),
    "no model": (("--reference", "{ours}:number"), "makes a int"),
    "shape": (("--input", "2x0x16x16"), "a size of 0"),
    "no shape": (("--input", "big"), "expected a shape such as 2x3x224x224"),
    "channels": (("--input", "2x4x16x16"), "the reference does not run on it: RuntimeError"),
    "no samples": (("--input", "3x16x16"), "(the first number counts samples: did you mean --input 2x3x16x16?): RuntimeError"),
    "no npz": (("--input", "{folder}/none.npz"), "cannot be read"),
    "function": (("--input", "{theirs}:wrong"), "it must return arrays of 2 samples"),
    "weights": (("--weights", "none.pth"), "none.pth"),
    "names": (("--names", "none.yaml"), "cannot read --names none.yaml"),
    "seed": (("--seed", "-1"), "--seed must be 0 or more"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_status_2(files, case, capsys):
    flags, words = BAD[case]
    places = {"folder": files, "ours": f"{files}/ours.py", "theirs": f"{files}/theirs.py"}
    shape = () if "--input" in flags else ("--input", "2x3x16x12")
    assert audit(files, "Net", *shape, *(flag.format(**places) for flag in flags)) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("error: ") and words in said[0], said


FIRST_LAYERS = {
    "pictures": (lambda nn: nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Flatten()), (3, 224, 224), (3, 97, 115)),
    "small pictures": (lambda nn: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 30 * 30, 2)), (1, 32, 32), None),
    "a signal": (lambda nn: nn.Conv1d(2, 4, 3), (2, 1024), None),
    "a volume": (lambda nn: nn.Conv3d(2, 4, 3), (2, 32, 32, 32), None),
    "features": (lambda nn: nn.Linear(7, 4), (7,), None),
    "tokens": (lambda nn: nn.Embedding(11, 4), (16,), None),
    "a sequence": (lambda nn: nn.GRU(6, 4, batch_first=True), (6,), None),
}


@pytest.mark.parametrize("case", FIRST_LAYERS)
def test_without_input_it_tries_what_the_reference_accepts(case):
    torch = framework("torch")
    from torch import nn

    make, shape, small = FIRST_LAYERS[case]
    found = chosen_inputs(None, torch, make(nn))
    assert (found.shape, found.small) == (shape, small), found.words


@pytest.mark.slow  # make test-slow
def test_models_of_installed_packages_by_name_alone(tmp_path):
    """torchvision beside a CPU build of torch is importable without a line of the user's."""
    sides = ("--port", "paddle.vision.models:squeezenet1_1", "--reference", "torchvision.models:squeezenet1_1")
    run = run_command("-W", "ignore", "-m", "alignment", "audit", *sides, "--input", "2x3x65x65", "--report", str(tmp_path))
    assert run.returncode == 1, run.stderr
    assert "first divergence: forward: features.0: padding 1" in run.stdout, run.stdout  # nn.Conv2D(3, 64, 3, 2, padding=1) there
