"""What is right on inputs of the usual size of values alone, and normalisations that compute an activation too."""

from __future__ import annotations

import re

import pytest

from alignment.cli import main
from tests.conftest import mode_of

PADDLE = """
import paddle
from paddle import nn
F = nn.functional

class Net(nn.Layer):
    def __init__(self, eps=1e-5, act="relu", momentum=0.9):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 8, 3, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm(8, act=act, epsilon=eps, momentum=momentum)
        self.conv2 = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False)
        self.bn2 = nn.BatchNorm(8, act="relu")
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.bn2(self.conv2(self.bn1(self.conv1(x)))).mean([2, 3]))

class Maximum(nn.Layer):
    def __init__(self, slope=0.2, act=None):
        super().__init__()
        self.conv, self.act, self.fc = nn.Conv2D(3, 8, 3, padding=1), act or nn.LeakyReLU(slope), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.act(self.conv(x)).amax((2, 3)))

class ByFunction(Maximum):
    def __init__(self):
        super().__init__()
        del self.act

    def forward(self, x):
        return self.fc(F.leaky_relu(self.conv(x), 0.01).amax((2, 3)))

def small_slope(): return Maximum(0.01)
def no_slope(): return Maximum(act=nn.ReLU())
def other_eps(): return Net(eps=1e-3)
def other_momentum(): return Net(momentum=0.99)
def relu6(): return Net(act="relu6")
def no_activation(): return Net(act=None)

class Apart(Net):
    def __init__(self):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2D(8), nn.BatchNorm2D(8)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(F.relu(self.bn2(self.conv2(x))).mean([2, 3]))

class Active(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(super().forward(x))

class Ended(Apart):
    def __init__(self):
        super().__init__()
        self.fc = Active(8, 5)

class Limited(Apart):
    def forward(self, x):
        x = F.relu6(self.bn1(self.conv1(x)))
        return self.fc(F.relu(self.bn2(self.conv2(x))).mean([2, 3]))

class Clipped(Apart):
    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x))).clip(-20, 20)
        return self.fc(F.relu(self.bn2(self.conv2(x))).mean([2, 3]))
"""
TORCH = """
from torch import nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(F.relu(self.bn2(self.conv2(x))).mean((2, 3)))

class Maximum(nn.Module):
    def __init__(self, slope=0.2):
        super().__init__()
        self.conv, self.act, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.LeakyReLU(slope), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.act(self.conv(x)).amax((2, 3)))

class ByFunction(Maximum):
    def __init__(self):
        super().__init__()
        del self.act

    def forward(self, x):
        return self.fc(F.leaky_relu(self.conv(x), 0.2).amax((2, 3)))

def rectified(): return Maximum(0.0)

class Layers(Net):
    def __init__(self):
        super().__init__()
        self.relu, self.relu2 = nn.ReLU(), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        return self.fc(self.relu2(self.bn2(self.conv2(x))).mean((2, 3)))
"""


@pytest.fixture
def audit(tmp_path, capsys):
    def run(port, *flags, reference="Net"):
        """Exit status, every mistake as a line, and all that was printed."""
        (tmp_path / "theirs.py").write_text(TORCH)
        (tmp_path / "ours.py").write_text(PADDLE)
        sides = ["--port", f"{tmp_path}/ours.py:{port}", "--reference", f"{tmp_path}/theirs.py:{reference}"]
        status = main(["audit", *mode_of(flags), *sides, "--input", "2x3x16x12", "--report", str(tmp_path / "report"), *flags])
        said = capsys.readouterr().out
        return status, re.findall(r"^  \d+\. (.*)", said, re.MULTILINE), said

    return run


@pytest.mark.parametrize("reference", ["Net", "Layers"])
@pytest.mark.parametrize("port", ["Net", "Apart"])
def test_a_normalisation_with_an_activation_inside_is_no_mistake(audit, port, reference):
    status, mistakes, said = audit(port, "--covered", reference=reference)
    assert status == 0 and not mistakes, said
    assert "inputs 8 times as large" in said


@pytest.mark.parametrize(
    ("port", "place", "words"),
    [
        ("small_slope", "act", "slope 0.01 of the negative values, expected 0.2"),
        ("ByFunction", "ByFunction.forward", "leaky_relu slope 0.01, expected 0.2"),
    ],
)
def test_what_becomes_of_negative_values_before_a_maximum_over_the_map_is_seen(audit, port, place, words):
    status, mistakes, said = audit(port, reference="ByFunction" if port == "ByFunction" else "Maximum")
    assert status == 1 and len(mistakes) == 1, said
    assert mistakes[0].startswith(f"forward: {place}: on inputs 8 times as large: ") and words in mistakes[0], said


@pytest.mark.parametrize(("port", "reference"), [("Maximum", "Maximum"), ("no_slope", "rectified")])
def test_a_right_slope_before_a_maximum_is_no_mistake(audit, port, reference):
    status, mistakes, said = audit(port, reference=reference)
    assert status == 0 and not mistakes, said


def test_an_activation_inside_a_linear_layer_that_the_reference_has_not_is_found_there(audit):
    status, mistakes, said = audit("Ended")
    assert status == 1 and len(mistakes) == 1, said
    assert mistakes[0].startswith("forward: fc.act: ReLU: the reference has no such layer"), said


def test_in_training_mode_its_biased_variance_is_known_and_nothing_else_is_found(audit):
    status, mistakes, said = audit("Net", "--training")
    assert status == 0 and not mistakes, said
    known = re.findall(r"^  (biased_variance|initialisation): .*\((\d+) places, first (.*)\)$", said, re.MULTILINE)
    assert known[0] == ("biased_variance", "2", "bn1") and [kind for kind, _, _ in known[1:]] == ["initialisation"], said


@pytest.mark.parametrize(
    ("port", "flags", "words"),
    [
        ("other_eps", (), "bn1: wrong eps: 0.001, expected 1e-05"),
        ("other_momentum", ("--training",), "bn1: momentum 0.01 in torch's sense, expected 0.1"),
        ("no_activation", (), "relu is missing before conv2"),
        ("relu6", (), "relu6, expected relu"),
        ("Limited", (), "relu6, expected relu"),
        ("Clipped", (), "clip is superfluous"),
    ],
)
def test_its_mistakes_and_those_of_large_values_alone_are_named(audit, port, flags, words):
    status, mistakes, said = audit(port, *flags)
    assert status == 1 and words in mistakes[0], said


PADDLE_TOKENS = """
from paddle import nn

class Net(nn.Layer):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.embed, self.mix = nn.Linear(6, 8), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8, epsilon=eps), nn.Linear(8, 5)

    def forward(self, x):
        x = self.embed(x)
        return self.head(self.norm((x + nn.functional.gelu(self.mix(x)))[:, 0]))

def wrong(): return Net(1e-3)

class Last(Net):
    def forward(self, x):
        x = self.embed(x)
        return self.head(self.norm((x + nn.functional.gelu(self.mix(x)))[:, -1]))
"""
TORCH_TOKENS = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Linear(6, 8), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        x = self.embed(x)
        return self.head(self.norm(x + nn.functional.gelu(self.mix(x)))[:, 0])
"""


@pytest.mark.parametrize(
    ("port", "status", "words"),
    [
        ("Net", 0, "PASS: no mistake found in the port."),
        ("wrong", 1, "first divergence: forward: norm: wrong eps 0.001, expected 1e-05"),
        ("Last", 1, "first divergence: forward: Last.forward: "),
    ],
)
def test_a_module_of_another_form_is_no_mistake_where_the_outputs_agree(tmp_path, capsys, port, status, words):
    """One side normalises the first token alone, the other takes the first of the normalised ones."""
    (tmp_path / "theirs.py").write_text(TORCH_TOKENS)
    (tmp_path / "ours.py").write_text(PADDLE_TOKENS)
    sides = ["--port", f"{tmp_path}/ours.py:{port}", "--reference", f"{tmp_path}/theirs.py:Net"]
    assert main(["audit", "--eval-only", *sides, "--input", "2x4x6", "--report", str(tmp_path / "report")]) == status
    said = capsys.readouterr().out
    assert words in said, said
    assert "expected after it" not in said, "the token may be taken on either side of the normalisation"
