"""A normalisation whose class adds a function behind it, where the other side calls the function by itself."""

import json

import pytest
import torch

from alignment.cli import main
from alignment.frameworks import framework
from alignment.models.carried import alone, put_below, stock_of
from tests.conftest import ROOT

APART = """
import paddle
from paddle import nn
from paddle.nn import functional as F


def act(x):
    return F.gelu(x)


class Block(nn.Layer):
    def __init__(self, inside, outside):
        super().__init__()
        self.bn1 = nn.BatchNorm2D(inside)
        self.conv1 = nn.Conv2D(inside, outside, 3, padding=1, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(outside)
        self.proj = nn.Conv2D(outside, outside, 1)

    def forward(self, x):
        return self.proj(act(self.bn2(self.conv1(act(self.bn1(x))))))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, 2, 1, bias_attr=False)
        self.first = nn.BatchNorm2D(8)
        self.stages = nn.Sequential(Block(8, 12), Block(12, 12))
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        return self.fc(self.stages(act(self.first(self.conv(x)))).mean((2, 3)))
"""
CARRIED = APART
for BEFORE, AFTER in (
    (
        "def act(x):\n    return F.gelu(x)",
        "class Norm(nn.BatchNorm2D):\n    def forward(self, x):\n        return F.gelu(super().forward(x))",
    ),
    ("= nn.BatchNorm2D(", "= Norm("),
    ("act(self.bn2(self.conv1(act(self.bn1(x)))))", "self.bn2(self.conv1(self.bn1(x)))"),
    ("act(self.first(self.conv(x)))", "self.first(self.conv(x))"),
):
    CARRIED = CARRIED.replace(BEFORE, AFTER)

# Which side adds the function, what is changed in the port's source, and kind, place and words of the one mistake.
MISTAKES = {
    "sound": ("", "", ""),
    "eps": ("bn1 = NORM(inside", "bn1 = NORM(inside, epsilon=1e-3", ("batch_norm_eps", "blocks.0.pre", "wrong eps: 0.001")),
    "momentum": ("bn2 = NORM(outside", "bn2 = NORM(outside, momentum=0.1", ("momentum_inverted", "blocks.0.norm", "momentum")),
    "argument": ("F.gelu(GIVEN)", "F.gelu(GIVEN, approximate=True)", ("call_argument", "blocks.0", "gelu approximate True")),
    "missing": ("proj(act(self.bn2(self.conv1(act(self.bn1(x))))))", "proj(self.bn2(self.conv1(act(self.bn1(x)))))",
                ("call_missing", "blocks.0", "gelu is missing")),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
@pytest.mark.parametrize("carried", [False, True], ids=["in the reference", "in the port"])
def test_the_form_is_not_blamed_and_a_mistake_beside_it_is_named(carried, case, tmp_path, capsys):
    before, after, wanted = MISTAKES[case]
    source, norm, given = (CARRIED, "Norm", "super().forward(x)") if carried else (APART, "nn.BatchNorm2D", "x")
    if case == "missing" and carried:
        norm, (before, after) = "Norm", ("bn2 = Norm(", "bn2 = nn.BatchNorm2D(")
    before, after = (text.replace("NORM", norm).replace("GIVEN", given) for text in (before, after))
    assert before in source
    (tmp_path / "ours.py").write_text(source.replace(before, after) if case != "sound" else source)
    reference = f"{ROOT}/tests/forms/carrying_theirs.py:{'Apart' if carried else 'Net'}"
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", reference, "--input", "2x3x16x16")
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert (status, len(mistakes)) == (0, 0) if case == "sound" else (1, 1), capsys.readouterr().out
    for one in mistakes:
        assert (one["kind"], one["location"]) == wanted[:2] and wanted[2] in one["hint"]


class Gated(torch.nn.BatchNorm2d):
    def forward(self, x):
        return torch.sigmoid(super().forward(x))


class Own(torch.nn.Module):
    def forward(self, x):
        return super().forward(x)


class Same(torch.nn.Conv2d):
    def forward(self, x):
        return torch.nn.functional.conv2d(x, self.weight, self.bias, padding="same")


def test_a_module_computes_as_its_stock_class_and_what_is_supplied_stands_below_its_own_function():
    side, module, x = framework("torch"), Gated(3).eval(), torch.randn(2, 3, 4, 4)
    assert stock_of(side, module) is torch.nn.BatchNorm2d
    assert [stock_of(side, one) for one in (torch.nn.BatchNorm2d(3), Own(), Same(3, 3, 3))] == [None] * 3
    whole = module(x)
    handles = alone(side, module, [])
    assert torch.equal(torch.sigmoid(module(x)), whole)
    for handle in handles:
        handle.remove()
    assert torch.equal(module(x), whole)
    module.forward = lambda given: 2 * given
    put_below(side, module, torch.nn.BatchNorm2d)
    assert torch.equal(module(x), torch.sigmoid(2 * x)) and isinstance(module, Gated) and "forward" not in vars(module)


def test_fresh_weights_are_drawn_by_names_of_arguments_too():
    """``weight.data.normal_(mean=0.0, std=0.02)``, as language models are initialised."""
    layer = torch.nn.Linear(600, 600)
    with framework("torch").loaded_next():
        layer.weight.data.normal_(mean=0.0, std=0.02)
        layer.bias.data.uniform_(-0.5, to=0.5)
        layer.weight.data.normal_(0.0, std=0.02)
        torch.nn.init.trunc_normal_(layer.weight, mean=1.0, std=0.1)
    assert abs(layer.weight.mean().item() - 1) < 0.01 and layer.bias.abs().max() <= 0.5
