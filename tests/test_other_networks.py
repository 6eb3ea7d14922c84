"""Networks of other kinds than MobileNetV3, as strangers bring them: sound ones pass, mistakes are located, and what cannot be
compared is said not to have been. Each is a whole project of one file."""

from __future__ import annotations

import re

import pytest

from alignment.cli import main
from tests.test_project import OWN, align

HEAD = """
import math
import numpy as np
import paddle
import torch
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side
P, T, PF, TF = paddle.nn, torch.nn, paddle.nn.functional, torch.nn.functional
"""
TAIL = """
PROJECT = Project("other", Side(Paddle()), Side(Torch()), {"net": ModelSpec(Port, Reference, input_shape=SHAPE)})
"""


def network(shape, port, reference, forward):
    """Source of a project: the two constructors' lines, and one forward for both (``{nn}`` is PF or TF)."""
    classes = ""
    for name, base, lines, functions in (("Port", "P.Layer", port, "PF"), ("Reference", "T.Module", reference, "TF")):
        body = "\n        ".join(["super().__init__()", *lines])
        steps = "\n        ".join(forward).replace("{F}", functions).replace("{f}", "paddle" if functions == "PF" else "torch")
        classes += f"\nclass {name}({base}):\n    def __init__(self):\n        {body}\n    def forward(self, x):\n        {steps}\n"
    return f"{HEAD}\nSHAPE = {shape}\n{classes}{TAIL}"


def both(*lines):
    """The same constructor lines for Paddle (N., Conv2D) and torch."""
    capital = [re.sub(r"\b(\w+)([123])d\(", r"\1\2D(", line).replace("N.", "P.").replace("eps=", "epsilon=") for line in lines]
    return capital, [line.replace("N.", "T.") for line in lines]


TOWER = network(
    (10, 12),
    *both(
        "self.pos = N.Embedding(10, 12)",
        "self.blocks = N.LIST([N.Sequential(N.LayerNorm(12, eps=1e-6), N.Linear(12, 24), N.GELU(), N.Dropout(0.1), "
        "N.Linear(24, 12)) for _ in range(2)])",
        "self.head = N.Linear(12, 5)",
    ),
    [
        "x = x + self.pos.weight",
        "for block in self.blocks:",
        "    x = x + block(x)",
        "return self.head(x.mean(1))",
    ],
).replace("P.LIST", "P.LayerList").replace("T.LIST", "T.ModuleList")  # fmt: skip

SOUND = {
    "blocks in a list": TOWER,
    "no normalisation, functions for layers": network(
        (3, 48, 48),
        *both("self.a = N.Conv2d(3, 16, 3, padding=1)", "self.b = N.Conv2d(16, 16, 3, padding=1)", "self.head = N.Linear(16, 5)"),
        ["x = {F}.relu(self.b({F}.relu(self.a(x))))", "return self.head(x.mean([2, 3]))"],
    ),
    "no layers at all": f"""{HEAD}
SHAPE = (6,)
class Port(P.Layer):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = self.create_parameter([6, 4]), self.create_parameter([4])
    def forward(self, x):
        return x @ self.weight + self.bias
class Reference(T.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = T.Parameter(torch.randn(6, 4)), T.Parameter(torch.randn(4))
    def forward(self, x):
        return x @ self.weight + self.bias
{TAIL}""",
    "a layer on one side, its function on the other; an unused layer; a layer under two names": network(
        (3, 16, 16),
        ["self.a = P.Conv2D(3, 8, 3)", "self.spare = P.Linear(2, 2)", "self.b = P.Linear(8, 8)",
         "self.b2 = self.b", "self.head = P.Linear(8, 5)"],
        ["self.a = T.Conv2d(3, 8, 3)", "self.relu = T.ReLU()", "self.spare = T.Linear(2, 2)", "self.b = T.Linear(8, 8)",
         "self.b2 = self.b", "self.head = T.Linear(8, 5)"],
        ["x = {F}.relu(self.a(x)) if '{f}' == 'paddle' else self.relu(self.a(x))", "x = self.b2(self.b(x.mean([2, 3])))",
         "return self.head(x)"],
    ),
    "other normalisations, recurrence": network(
        (8, 16),
        [*both("self.conv = N.Conv1d(8, 8, 3)", "self.groups = N.GroupNorm(2, 8)")[0], "self.each = P.InstanceNorm1D(8)",
         "self.act = P.PReLU(8)", "self.rnn = P.LSTM(8, 6, num_layers=2)", "self.head = P.Linear(6, 5)"],
        [*both("self.conv = N.Conv1d(8, 8, 3)", "self.groups = N.GroupNorm(2, 8)")[1],
         "self.each = T.InstanceNorm1d(8, affine=True)", "self.act = T.PReLU(8)",
         "self.rnn = T.LSTM(8, 6, num_layers=2, batch_first=True)", "self.head = T.Linear(6, 5)"],
        ["x = self.act(self.each(self.groups(self.conv(x))))",
         "x = x.transpose([0, 2, 1]) if '{f}' == 'paddle' else x.transpose(1, 2)", "return self.head(self.rnn(x)[0][:, -1])"],
    ),
    "kernels with float32 constants": network(
        (3, 12, 12),
        *both("self.a = N.Conv2d(3, 6, 3)", "self.elu = N.ELU(0.7)", "self.selu = N.SELU()", "self.celu = N.CELU(0.7)",
              "self.pool = N.AdaptiveAvgPool2d(3)", "self.head = N.Linear(54, 5)"),
        ["x = self.celu(self.selu(self.elu(self.a(x))))", "x = {F}.interpolate(x, size=[17, 13], mode='bilinear')",
         "return self.head(self.pool(x).reshape([x.shape[0], -1]))"],
    ),
    "whole numbers beside the output": network(
        (6,), *both("self.head = N.Linear(6, 5)"), ["y = self.head(x)", "return y, y.argmax(1)"]
    ),
    "one number for the whole batch": network((6,), *both("self.head = N.Linear(6, 5)"), ["return self.head(x).square().mean()"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_network_of_another_kind_passes(case, tmp_path, capsys):
    status, report = align(tmp_path, SOUND[case])
    assert status == 0, capsys.readouterr().out
    assert [step["passed"] for step in report["steps"]] == [True, None, None, None, True, None]
    assert not report["steps"][0]["not_run"]


MISTAKES = {
    "GELU by tanh": ("P.GELU()", "P.GELU(True)", "blocks.0.2", "it computes GELU (tanh), expected GELU"),
    "another eps": ("epsilon=1e-6", "epsilon=1e-5", "blocks.0.0", ""),
    "the order of the blocks": ("for block in self.blocks:", "for block in list(self.blocks)[::-1]:", "Port.forward", ""),
    "no residual": ("x = x + block(x)", "x = block(x)", "Port.forward", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_inside_and_around_a_list_of_modules_are_located(case, tmp_path):
    before, after, place, words = MISTAKES[case]
    port, reference = TOWER.split("class Reference")
    assert before in port
    status, report = align(tmp_path, "class Reference".join((port.replace(before, after, 1), reference)), "--steps", "1")
    first = report["first_divergence"]
    assert status == 1 and first["location"] == place and words in first["hint"], first


def test_random_numbers_that_cannot_be_shared_are_not_called_equal(tmp_path, capsys):
    """Another rate of an alpha dropout would be hidden by the reference's own randomness."""
    forward = ["return self.head({F}.alpha_dropout(x, 0.5, training=self.training))"]
    source = network((64,), *both("self.head = N.Linear(64, 5)"), forward)
    for changed in (source, source.replace("PF.alpha_dropout(x, 0.5", "PF.alpha_dropout(x, 0.25")):
        status, report = align(tmp_path, changed)
        out = capsys.readouterr().out
        assert status == 0 and "Passed, as far as steps 1 (in part), 5 (in part) can tell" in out
        for step in (0, 4):
            assert "training mode: the reference draws random numbers that cannot be shared" in report["steps"][step]["not_run"]
            assert not any(q["name"].startswith("train.") for q in report["steps"][step]["quantities"])
    # Random numbers in the port alone are a mistake.
    reference = source.rpartition("TF.alpha_dropout(x, 0.5, training=self.training)")
    status, report = align(tmp_path, reference[0] + "x" + reference[2])
    assert status == 1 and report["first_divergence"]["stage"] == "forward"


def test_a_function_in_place_of_a_layer_is_not_called_the_mistake(tmp_path):
    """The port calls the function, rightly, and leaves the residual out."""
    case = SOUND["a layer on one side, its function on the other; an unused layer; a layer under two names"]
    before = "x = self.b2(self.b(x.mean([2, 3])))"
    assert case.count(before) == 2
    status, report = align(
        tmp_path, case.replace(before, "x = x.mean([2, 3]) + self.b2(self.b(x.mean([2, 3])))", 1), "--steps", "1"
    )
    first = report["first_divergence"]
    assert status == 1 and first["location"] == "Port.forward" and not first["hint"].startswith("relu"), first


SLOPES = network((3, 8, 8), *both("self.a = N.Conv2d(3, 6, 3)", "self.act = N.LeakyReLU(0.2)"), ["return self.act(self.a(x))"])
ORDER = network(
    (6,),
    *both("self.a = N.Linear(6, 6)", "self.b = N.Linear(6, 6)"),
    ["left = self.a(x)", "right = self.b(x)", "return left + right"],
)


def test_hints_are_about_what_differs(tmp_path):
    for given, expected in (("0.01", "0.01"), ("0.3", "0.3")):
        _, report = align(tmp_path, SLOPES.replace("P.LeakyReLU(0.2)", f"P.LeakyReLU({given})"), "--steps", "1")
        assert report["first_divergence"]["hint"].startswith(f"slope {expected} of the negative values, expected 0.2")
    # Two layers that do not feed each other may be called in either order: that is not what is wrong here.
    port, reference = ORDER.split("class Reference")
    swapped = port.replace("left = self.a(x)\n        right = self.b(x)", "right = self.b(x)\n        left = self.a(x)")
    assert align(tmp_path, "class Reference".join((swapped, reference)), "--steps", "1")[0] == 0
    wrong = swapped.replace("left + right", "left - right")
    _, report = align(tmp_path, "class Reference".join((wrong, reference)), "--steps", "1")
    first = report["first_divergence"]
    assert first["location"] == "Port.forward" and first["hint"].startswith("it computes a - b, expected a + b")


def test_a_difference_of_float32s_size_in_exact_mode_says_so(tmp_path):
    """A layer of the port's own has a constant in float32, which exact mode cannot know."""
    first, theirs = both("self.fc = N.Linear(6, 6)")
    source = network((6,), [*first, "self.third = Third()"], [*theirs, "self.third = Exactly()"], ["return self.third(self.fc(x))"])
    classes = "class Third(P.Layer):\n    def forward(self, x):\n        return x.tanh() * float(np.float32(1 / 3))\n"
    classes += "class Exactly(T.Module):\n    def forward(self, x):\n        return x.tanh() / 3\n"
    status, report = align(tmp_path, source.replace("class Port", classes + "class Port", 1), "--steps", "5")
    first = report["first_divergence"]
    assert status == 1 and first["location"] == "third"
    assert (
        "Look for a number that the port rounds to float32" in first["hint"] and "exact_layers in docs/projects.md" in first["hint"]
    )


TRAINED = ", loss=mobilenetv3_{0}.loss, train=mobilenetv3_{0}.train)"


@pytest.mark.parametrize(
    ("returned", "reason"), [("y", ""), ("y, y * 2", "updates: the network has 2 outputs, and the train part takes one")]
)
def test_a_training_part_without_data_runs_updates_and_no_training_run(returned, reason, tmp_path):
    source = network((6,), *both("self.head = N.Linear(6, 5)"), ["y = self.head(x)", f"return {returned}"])
    source = source.replace("import torch\n", "import torch\nimport mobilenetv3_paddle.loss, mobilenetv3_paddle.train\n"
        "import mobilenetv3_ref.loss, mobilenetv3_ref.train\n", 1)  # fmt: skip
    source = source.replace("Side(Paddle())", "Side(Paddle()" + TRAINED.format("paddle"))
    status, report = align(tmp_path, source.replace("Side(Torch())", "Side(Torch()" + TRAINED.format("ref")))
    assert status == 0 and [step["passed"] for step in report["steps"]] == [True, None, None, True, True, None]
    assert report["steps"][4]["not_run"] == (reason or None) and report["steps"][5]["not_run"].endswith("no data part")
    assert any(".iter2." in q["name"] for q in report["steps"][4]["quantities"]) == (not reason)


SPEC = "ModelSpec(Port, Reference, input_shape=(3, 16, 16))"
WRONG = {
    "models in a list": ('models={"net": spec}', "models=[spec]", "models must be a dict"),
    "no spec": ('{"net": spec}', '{"net": (Port, Reference)}', "models['net'] must be a ModelSpec, found a tuple"),
    "a shape that is a number": ("input_shape=(3, 16, 16)", "input_shape=16", "input_shape of net must be a tuple"),
    "another channel count": ("input_shape=(3, 16, 16)", "input_shape=(1, 16, 16)", "cannot run on inputs of shape (2, 1, 16, 16)"),
    "exchanged builders": (SPEC, SPEC.replace("Port, Reference", "Reference, Port"), "must make a PyTorch model"),
    "no side": ("port=Side(Paddle())", "port=Paddle()", "port must be a Side, e.g. Side(Paddle()), found a Paddle"),
    "a class of framework": ("Side(Torch())", "Side(Torch)", "must be an object such as Paddle(), found the class Torch"),
    "a last layer that is not there": (SPEC, SPEC[:-1] + ', last_layer="fc")', "has no module 'fc'"),
    "an unknown option": (SPEC, SPEC[:-1] + ', options={"depth": 3})', "unexpected keyword argument 'depth'"),
    "inputs that are no tuple": (SPEC, SPEC[:-1] + ", inputs=lambda n, shape, rng: rng.normal(size=(n, *shape)))",
        "inputs of net must return a tuple of arrays"),
    "a model in place of a class": (SPEC, SPEC.replace("Port, ", "Port(), "), "must be a class or function that makes the model"),
    "options that are no list": (SPEC, SPEC[:-1] + ", compared_options={'depth': 3})",
        "compared_options of net must be a list of dicts"),
    "options that the reference does not have": (SPEC, SPEC[:-1] + ", compared_options=[{'depth': 3}])",
        "does not take compared_options {'depth': 3}"),
    "a structure that the reference does not have": (SPEC, SPEC[:-1] + ", compared_structures=[{'depth': 3}])",
        "does not take compared_structures {'depth': 3}"),
    "blocks in a list": (SPEC, SPEC[:-1] + ', blocks=["conv"])', "blocks of net must be a function, found a list"),
    "blocks that are not there": (SPEC, SPEC[:-1] + ', blocks=lambda *a: ["stem"])', "has no module 'stem'"),
    "an exit": ("PROJECT =", "raise SystemExit(3)\nPROJECT =", "cannot be imported: SystemExit: 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_project_that_says_something_wrong_is_refused_in_one_line(case, tmp_path, capsys):
    before, after, message = WRONG[case]
    assert OWN.count(before) == 1
    (tmp_path / "own.py").write_text(OWN.replace(before, after))
    assert main(["run", str(tmp_path / "own.py"), "--result-dir", str(tmp_path / "r")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err, err


def test_flags_for_what_a_project_lacks_are_refused(tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    for flags, message in (
        (["--data-path", "nowhere"], "have no data part, so no pictures are read"),
        (["--inject", "list"], "no known faults"),
    ):
        assert main(["run", str(tmp_path / "own.py"), "--result-dir", str(tmp_path / "r"), *flags]) == 2
        assert message in capsys.readouterr().err
