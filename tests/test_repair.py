"""Candidates of corrections, without a framework: what a wrong function could have been, from its tree and from the reference's."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import alignment.repair.search  # noqa: F401 (registers all makers)
from alignment.project import import_file
from alignment.repair.candidates import Candidate, distinct, proposed
from alignment.repair.copies import copied
from alignment.repair.edits import applied, diff
from alignment.repair.kept import kept
from alignment.repair.mirror import Definition, Mirror, key
from alignment.repair.region import Region
from alignment.repair.regions import _Regions
from alignment.repair.source import PortFile
from tests.conftest import ROOT

RIGHT = """
import torch

class Net:
    def forward(self, x, skip):
        y = self.act(self.conv(x.permute(0, 2, 1)))
        y = torch.cat([y, skip], dim=1)
        y = y.view(2, -1) * 0.5
        return y.max(1)[0] + x
"""
PORT = """
import paddle

class Net:
    def __init__(self):
        self.conv = 1
        self.act = 2

    def forward(self, input, skip):
        y = self.act(self.conv(input.transpose([0, 2, 1])))
        y = paddle.concat([y, skip], axis=1)
        y = y.reshape([2, -1]) * 0.5
        return y.max(1) + input
"""
# What becomes of the port -> whether the reference's function tells, besides the port's own.
MISTAKES = {
    "operator": ("y.max(1) + input", "y.max(1) - input"),
    "wrong function": ("y.max(1)", "y.mean(1)"),
    "wrong axis": ("axis=1", "axis=-1"),
    "argument missing": (", axis=1", ""),
    "arguments exchanged": ("[y, skip]", "[skip, y]"),
    "wrong constant": ("* 0.5", "* 0.25"),
    "call missing": ("self.act(self.conv(input.transpose([0, 2, 1])))", "self.conv(input.transpose([0, 2, 1]))"),
    "call too many": ("self.conv(input", "self.conv(self.act(input)"),
    "residual missing": (" + input", ""),
    "wrong order of axes": ("[0, 2, 1]", "[2, 0, 1]"),
    "line missing": ("        y = y.reshape([2, -1]) * 0.5\n", ""),
    "line too many": ("        y = y.reshape", "        y = self.act(y)\n        y = y.reshape"),
    "lines in another order": (
        "        y = paddle.concat([y, skip], axis=1)\n        y = y.reshape([2, -1]) * 0.5\n",
        "        y = y.reshape([2, -1]) * 0.5\n        y = paddle.concat([y, skip], axis=1)\n",
    ),
}
# Those that need nothing of the reference's.
BY_ITSELF = {"operator", "wrong function", "arguments exchanged", "call missing", "residual missing", "lines in another order"}


def forward(tree: ast.AST) -> Definition:
    return next(node for node in ast.walk(tree) if isinstance(node, Definition) and node.name == "forward")


def texts(folder: Path, port: str, reference: str | None) -> list[str]:
    """Every file that a candidate makes."""
    (folder / "port.py").write_text(port)
    source = PortFile.of(folder / "port.py")
    theirs = (forward(ast.parse(reference)),) if reference else ()
    region = Region(source, forward(source.tree), theirs=theirs, languages=("paddle", "torch"))
    told = [one for one in ranked(region) if reference is None or one.kind in ("as_the_reference", "number")]
    return [applied([one.fix])[source.file].decode() for one in told]


def ranked(region: Region) -> list[Candidate]:
    """All candidates of a function, the likeliest first."""
    return list(distinct((one, region) for one in sorted(proposed(region), key=lambda one: -one.weight)))


def test_a_right_port_reads_as_the_reference_does(tmp_path):
    (tmp_path / "port.py").write_text(PORT)
    source = PortFile.of(tmp_path / "port.py")
    assert not list(Mirror(source, forward(source.tree), forward(ast.parse(RIGHT)), ("paddle", "torch")).changes())


@pytest.mark.parametrize("case", [case for case in MISTAKES if case != "lines in another order"])
def test_a_mistake_is_undone_by_what_the_reference_reads(case, tmp_path):
    right, wrong = MISTAKES[case]
    assert PORT.count(right) == 1
    made = texts(tmp_path, PORT.replace(right, wrong), RIGHT)
    assert key(ast.parse(PORT)) in [key(ast.parse(text)) for text in made], made


READS = """
def move(config, logits, weights):
    shifted = logits - logits.detach().max(axis=0)
    limit = abs(1)
    for limit in weights.tolist():
        limit = limit * config.rate
    return step(shifted, alpha=0.9, axis=1) + limit
"""


def test_no_change_loses_a_name_that_is_still_read_or_reads_a_setting_of_an_array(tmp_path):
    (tmp_path / "port.py").write_text(READS)
    source = PortFile.of(tmp_path / "port.py")
    (function,) = source.tree.body
    made = [(one, applied([one.fix])[source.file].decode()) for one in ranked(Region(source, function))]
    texts = [text for _, text in made]
    assert READS.replace("alpha=0.9", "alpha=config.alpha") in texts, "a setting may be what the call should be given"
    assert not [text for text in texts if "logits.axis" in text or "logits.alpha" in text]
    first = "    shifted = logits - logits.detach().max(axis=0)\n"
    assert READS.replace(first, "") not in texts, "what follows reads the name"
    assert READS.replace("    limit = abs(1)\n", "") in texts, "the loop binds it, too"


def test_the_call_that_the_finding_names_is_left_out_first(tmp_path):
    (tmp_path / "port.py").write_text(
        "def total(x):\n    y = x.exp().sum(1).log().detach()\n    return x.mean(1).abs() - y.abs().sqrt()\n"
    )
    source = PortFile.of(tmp_path / "port.py")
    first = ranked(Region(source, source.tree.body[0], words="detached: no gradient flows through the logarithm"))[0]
    assert "log()\n" in applied([first.fix])[source.file].decode(), first


@pytest.mark.parametrize("case", sorted(BY_ITSELF))
def test_some_mistakes_are_undone_without_the_reference(case, tmp_path):
    right, wrong = MISTAKES[case]
    made = texts(tmp_path, PORT.replace(right, wrong), None)
    assert key(ast.parse(PORT)) in [key(ast.parse(text)) for text in made], made


def test_a_layer_is_made_by_the_name_that_the_port_has_for_layers(tmp_path):
    port = "import paddle.nn as P\n\nclass Net:\n    def forward(self, x):\n        return P.Identity()(x)\n"
    reference = "class Net:\n    def forward(self, x):\n        return T.Dropout(0.3)(x)\n"
    made = texts(tmp_path, port, reference)
    assert any("return P.Dropout(0.3)(x)" in text for text in made), made


def test_weight_and_bias_that_were_left_out_come_back_together(tmp_path):
    made = "P.BatchNorm1D(8, weight_attr=False, bias_attr=False)(x)"
    port = f"import paddle.nn as P\n\nclass Net:\n    def forward(self, x):\n        return {made}\n"
    assert any("return P.BatchNorm1D(8)(x)" in text for text in texts(tmp_path, port, None))


def test_every_candidate_is_python_and_changes_one_place(tmp_path):
    for text in texts(tmp_path, PORT, None):
        ast.parse(text)
        assert text != PORT


def test_a_diff_applies_where_the_file_has_no_newline_at_its_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "port.py").write_text("a = 1 + 2")
    source = PortFile.of(tmp_path / "port.py")
    node = next(one for one in ast.walk(source.tree) if isinstance(one, ast.BinOp))
    assert "+a = 1 - 2\n\\ No newline" in diff([(source.replaced(node, "1 - 2"),)])


LAYER = """layer = nn.Conv2D(
    3, 6,  # channels
    kernel_size=(3, 3),
    padding=0,  # as before
    mode="zeros",
)
"""
# An expression of a file as it stands, what it should read as ``ast`` writes it, and what becomes of the file.
KEPT = {
    "lines, comments and quotes": (LAYER, "nn.Conv2D(3, 6, kernel_size=(3, 3), padding=1, mode='reflect')",
                                   LAYER.replace("padding=0", "padding=1").replace("zeros", "reflect")),
    "a line goes with its comment": (LAYER, "nn.Conv2D(3, 6, kernel_size=(3, 3), mode='zeros')",
                                     LAYER.replace("    padding=0,  # as before\n", "")),
    "one argument more": ("x = f(a,b)\n", "f(a, b, axis=1)", "x = f(a,b, axis=1)\n"),
    "one argument more in lines": ("x = f(\n    a,\n)\n", "f(a, axis=1)", "x = f(\n    a, axis=1\n)\n"),
    "one argument less": ("x = f(a,  b=1, c=2)\n", "f(a, c=2)", "x = f(a,  c=2)\n"),
    "needless brackets": ("x = ((a)  + (b * c))\n", "a - b * c", "x = ((a)  - (b * c))\n"),
    "brackets that are needed": ("x = a  - b\n", "a - (b - 1)", "x = a  - (b - 1)\n"),
    "how numbers are written": ("x = f(1e-3, 0x10)\n", "f(0.001, 17)", "x = f(1e-3, 17)\n"),
    "the file's quotes": ("x = f('a', mode(b))\n", "f('a', mode('b'))", "x = f('a', mode('b'))\n"),
    "another function": ("x = F.relu( y )  # act\n", "F.gelu(y)", "x = F.gelu( y )  # act\n"),
    "a bracket that closes later": ("x = F.relu(y) + z\n", "F.relu(y + z)", "x = F.relu(y + z)\n"),
    "nothing but a part": ("x = y  .detach()\n", "y", "x = y\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_a_correction_keeps_what_it_does_not_change(case, tmp_path):
    before, text, after = KEPT[case]
    (tmp_path / "port.py").write_text(before)
    source = PortFile.of(tmp_path / "port.py")
    fix = (source.replaced(source.tree.body[0].value, text),)
    assert applied([fix])[source.file].decode() == after


@pytest.mark.parametrize(
    ("before", "after"),
    [("a * (q)", "a * (b - c)"), ("-( q )", "-( b - c )"), ("f(q.size)", "f((b - c).size)"), ("(a) * q", "(a) * (b - c)"),
     ("f(q)", "f(b - c)"), ("g((q + 1))", "g(((b - c) + 1))")],
)  # fmt: skip
def test_an_operand_gets_brackets_once(before, after, tmp_path):
    (tmp_path / "port.py").write_text(f"x = {before}\n")
    source = PortFile.of(tmp_path / "port.py")
    (node,) = [one for one in ast.walk(source.tree) if isinstance(one, ast.Name) and one.id == "q"]
    assert applied([(source.replaced(node, "b - c"),)])[source.file].decode() == f"x = {after}\n"


def test_what_cannot_be_woven_is_written_anew():
    asked = []
    assert kept("f(a)", "g(b)", lambda text: asked.append(text)) == "g(b)" and asked
    assert kept("f(", "g(b)", lambda text: True) == "g(b)", "no tokens"


# The port's function, its mistake -> what it should read, and the reference's function where that tells.
FORGOTTEN = {
    "an operand that nothing reads": (
        "def forward(self, x, mean, std):\n    return x / std\n",
        "def forward(self, x, mean, std):\n    return (x - mean) / std\n",
        None,
    ),
    "the line for the other of two": (
        "def forward(self, mean, variance):\n    self.variance.set(variance)\n",
        "def forward(self, mean, variance):\n    self.mean.set(mean)\n    self.variance.set(variance)\n",
        None,
    ),
    "a function that nothing calls": (
        "def _shifted(x):\n    return x\n\ndef forward(self, x):\n    return x * 2\n",
        "def _shifted(x):\n    return x\n\ndef forward(self, x):\n    return _shifted(x * 2)\n",
        None,
    ),
    "a block left out": (
        "def forward(self, blocks):\n    return run(blocks[:1] + blocks[2:])\n",
        "def forward(self, blocks):\n    return run(blocks)\n",
        None,
    ),
    "two things the other way round": (
        "def forward(self, m, s):\n    return zip(m[::-1], s[::-1])\n",
        "def forward(self, m, s):\n    return zip(m, s)\n",
        None,
    ),
    "another interpolation": (
        "def forward(self, x):\n    return x.resize(8, Way.NEAREST)\n",
        "def forward(self, x):\n    return x.resize(8, Way.BILINEAR)\n",
        None,
    ),
    "a branch that is never taken": (
        "def forward(self, x, config):\n    if False:\n        x = paddle.warm(x)\n    return x\n",
        "def forward(self, x, config):\n    if config.warm > 0:\n        x = paddle.warm(x)\n    return x\n",
        "def forward(self, x, config):\n    if config.warm > 0:\n        y = torch.cat(x)\n        x = y.sum(x)\n    return x\n",
    ),
    "a line that stands before another": (
        "def forward(self, o):\n    o.clear_grad()\n",
        "def forward(self, o):\n    self.scaler.step(o)\n    o.clear_grad()\n",
        "def forward(self, o):\n    self.scaler.step(o)\n    o.zero_grad()\n",
    ),
    "what the reference gives a name": (
        "def forward(self, c):\n    return made(c.width, stride=c.stride)\n",
        "def forward(self, c):\n    return made(c.width, stride=1 if c.dilation > 1 else c.stride)\n",
        "def forward(self, c):\n    stride = 1 if c.dilation > 1 else c.stride\n    return made(c.width, stride=stride)\n",
    ),
    "a schedule that is called otherwise": (
        "def forward(self, lr, c):\n    return LambdaDecay(lr, lambda _: 1.0)\n\nStepDecay = 1\n",
        "def forward(self, lr, c):\n    return StepDecay(lr, c.size, c.gamma)\n\nStepDecay = 1\n",
        "def forward(self, optimizer, c):\n    return StepLR(optimizer, c.size, c.gamma)\n",
    ),
    "a value in the column of a table": (
        "def forward(self):\n    return made(((3, 16, 'RE'), (5, 24, 'RE'), (5, 40, 'HS')))\n",
        "def forward(self):\n    return made(((3, 16, 'RE'), (5, 24, 'HS'), (5, 40, 'HS')))\n",
        None,
    ),
    "a value that another call has": (
        "def forward(self, x):\n    return norm(x, eps=1e-5), norm(x, eps=self.eps)\n",
        "def forward(self, x):\n    return norm(x, eps=self.eps), norm(x, eps=self.eps)\n",
        None,
    ),
    "a class that nothing reads": (
        "class Mine:\n    pass\n\ndef forward(self):\n    self.gate = paddle.Other()\n",
        "class Mine:\n    pass\n\ndef forward(self):\n    self.gate = Mine()\n",
        None,
    ),
    "an argument that is not passed on": (
        "def forward(self, seed, epoch):\n    return generator(seed, 'mix')\n",
        "def forward(self, seed, epoch):\n    return generator(seed, epoch, 'mix')\n",
        None,
    ),
    "an operand inside the root": (
        "def forward(self, x):\n    return 1 / (x + self.eps).sqrt()\n",
        "def forward(self, x):\n    return 1 / (x.sqrt() + self.eps)\n",
        None,
    ),
    "an operand outside the root": (
        "def forward(self, x, b):\n    return sqrt(x) / b\n",
        "def forward(self, x, b):\n    return sqrt(x / b)\n",
        None,
    ),
    "one too many": (
        "def forward(self, x, n):\n    return len(x) - n\n",
        "def forward(self, x, n):\n    return len(x) - 1 - n\n",
        None,
    ),
    "two names exchanged": (
        "def forward(self, x, m, s):\n    return (x - s) / m\n",
        "def forward(self, x, m, s):\n    return (x - m) / s\n",
        None,
    ),
    "the first that is not empty": (
        "def forward(self, a, b):\n    return b or a\n",
        "def forward(self, a, b):\n    return a or b\n",
        None,
    ),
    "a keyword that the reference has": (
        "def forward(self, x):\n    return paddle.sum(x, axis=1)\n",
        "def forward(self, x):\n    return paddle.sum(x, axis=1, keepdim=True)\n",
        "def forward(self, x):\n    return torch.sum(x, dim=1, keepdim=True)\n",
    ),
    "a residual that a flag asks for": (
        "class N:\n    def __init__(self, s):\n        self.use = s == 1\n\n    def forward(self, x):\n        return self.f(x)\n",
        "class N:\n    def __init__(self, s):\n        self.use = s == 1\n\n"
        "    def forward(self, x):\n        return self.f(x) + x if self.use else self.f(x)\n",
        None,
    ),
    "settings that stand as numbers": (
        "def forward(self, x, config):\n    return made(x, config.lr, beta1=0.9, beta2=0.999)\n",
        "def forward(self, x, config):\n    return made(x, config.lr, beta1=config.beta1, beta2=config.beta2)\n",
        None,
    ),
    "a setting that is called a little otherwise": (
        "def forward(self, x, config):\n    return made(x, config.lr, use_nesterov=True)\n",
        "def forward(self, x, config):\n    return made(x, config.lr, use_nesterov=config.nesterov)\n",
        None,
    ),
    "a number for what the function holds": (
        "def forward(self, x):\n    width = 2 * x\n    return made(width, groups=1)\n",
        "def forward(self, x):\n    width = 2 * x\n    return made(width, groups=width)\n",
        None,
    ),
    "a layer that is put in front": (
        "def forward(self, layers, act):\n    layers.insert(1, act())\n    return layers\n",
        "def forward(self, layers, act):\n    layers.append(act())\n    return layers\n",
        None,
    ),
    "the mode of a module": (
        "def forward(self, x):\n    if True:\n        x = x * 2\n    return x\n",
        "def forward(self, x):\n    if not self.training:\n        x = x * 2\n    return x\n",
        None,
    ),
    "a change that is not added": (
        "def forward(self, image, change):\n    return image.enhance(1.0)\n",
        "def forward(self, image, change):\n    return image.enhance(1.0 + change)\n",
        None,
    ),
    "a divisor outside of a root behind a factor": (
        "def forward(self, x, b):\n    return self.lr * sqrt(x) / b\n",
        "def forward(self, x, b):\n    return self.lr * sqrt(x / b)\n",
        None,
    ),
    "a share and what is left of it": (
        "def forward(self, x, y):\n    return self.kept.scale_(1.0 - self.a).add_(x * y * self.a)\n",
        "def forward(self, x, y):\n    return self.kept.scale_(self.a).add_(x * y * (1.0 - self.a))\n",
        None,
    ),
    "two lines that belong together": (
        "def forward(self, x, y):\n    kept = paddle.ones_like(x)\n    index = x.clip(0)\n    return kept * index + y\n",
        "def forward(self, x, y):\n    kept = x != self.no\n    index = paddle.where(kept, x, y)\n    return kept * index + y\n",
        "def forward(self, x, y):\n    kept = x != self.no\n    index = torch.where(kept, x, y)\n    return kept * index + y\n",
    ),
}


@pytest.mark.parametrize("case", FORGOTTEN)
def test_what_a_function_has_forgotten_is_among_the_candidates(case, tmp_path):
    port, right, reference = FORGOTTEN[case]
    head = "import paddle\n\n"
    made = texts(tmp_path, head + port, reference)
    made += texts(tmp_path, head + port, None) if reference is None else _all(tmp_path, head + port, reference)
    assert key(ast.parse(head + right)) in [key(ast.parse(text)) for text in made], made


def _all(folder, port, reference):
    (folder / "port.py").write_text(port)
    source = PortFile.of(folder / "port.py")
    region = Region(source, forward(source.tree), theirs=(forward(ast.parse(reference)),), languages=("paddle", "torch"))
    return [applied([one.fix])[source.file].decode() for one in ranked(region)]


CALLED = """
from types import SimpleNamespace

class Way:
    FLIP_LEFT_RIGHT = 0
    FLIP_TOP_BOTTOM = 1

def sgd(lr, use_nesterov=False):
    return lr

def forward(self, config):
    print(config.nesterov)
    return sgd(config.lr).turned(Way.FLIP_TOP_BOTTOM)
"""


@pytest.mark.parametrize("right", ["sgd(config.lr, use_nesterov=config.nesterov)", "turned(Way.FLIP_LEFT_RIGHT)"])
def test_what_is_called_says_what_it_takes(right, tmp_path, monkeypatch):
    """The signature of a function that the file names, and the constants of a class, are read from the module in memory."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "port.py").write_text(CALLED)
    assert not any(right in text for text in texts(tmp_path, CALLED, None))
    monkeypatch.setitem(sys.modules, "port", import_file(tmp_path / "port.py"))
    assert any(right in text for text in texts(tmp_path, CALLED, None))


@pytest.mark.parametrize(
    ("port", "words", "right"),
    [
        ("def forward(self, x):\n    return x.resize(8, 'bicubic')\n", "bicubic interpolation, expected bilinear", "'bilinear'"),
        ("def forward(self, x):\n    x[0] = self.mean / self.std\n", "the region holds -2.1, expected 0", "x[0] = 0"),
        ("def forward(self):\n    return made((3, 16, 2), (5, 24, 1))\n", "stride 1, expected 2", "(5, 24, 2)"),
        ("def forward(self, x):\n    return (x - 3) / 256\n", "divided by 256, expected 255", "/ 255"),
    ],
)
def test_what_the_finding_expects_comes_first(port, words, right, tmp_path):
    (tmp_path / "port.py").write_text(port)
    source = PortFile.of(tmp_path / "port.py")
    made = [applied([one.fix])[source.file].decode() for one in ranked(Region(source, source.tree.body[0], words=words))]
    assert any(right in text for text in made[: len(made) // 4]), made


SPREAD = """
ROWS = ((80, 24), (72, 24), (80, 40))

def forward(self, x):
    count = x.shape[0] * 3
    variance = x.var()
    return self.kept * 0.9 + variance * 0.1
"""


def test_what_the_words_of_a_finding_say_exactly_comes_first(tmp_path):
    (tmp_path / "port.py").write_text(SPREAD)
    source = PortFile.of(tmp_path / "port.py")
    rows, function = source.tree.body

    def of(node, words):
        return [applied([one.fix])[source.file].decode() for one in ranked(Region(source, node, words=words))]

    wide = of(rows.value, "width: 80 output channels, expected 88: shape (80, 24, 1, 1), expected (88, 24, 1, 1)")
    assert SPREAD.replace("(80, 40)", "(88, 40)") in wide[:3] and SPREAD.replace("(80, 24)", "(88, 24)") in wide[:3]
    words = "biased_variance: the batch variance lacks the factor n/(n-1) = 9216/9215"
    right = SPREAD.replace("variance * 0.1", "variance * count / (count - 1) * 0.1")
    made, others = ([key(ast.parse(one)) for one in of(function, said)] for said in (words, "another value"))
    assert made[0] == key(ast.parse(right)) and made[0] not in others


CALLS = """
class Gate:
    def __init__(self):
        self.pool, self.fc1, self.act, self.fc2 = parts()

    def forward(self, x):
        scale = self.fc1(self.pool(x))
        return self.fc2(scale) * x
"""


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("gate.act is missing between gate.fc1 and gate.fc2", "self.fc2(self.act(scale))"),
        ("gate.act is missing before gate.fc1", "scale = self.fc1(self.act(self.pool(x)))"),
        ("gate.act is missing after gate.fc2", "return self.act(self.fc2(scale)) * x"),
    ],
)
def test_a_layer_is_called_first_where_the_finding_says_that_it_is_missing(words, right, tmp_path):
    (tmp_path / "port.py").write_text(CALLS)
    source = PortFile.of(tmp_path / "port.py")
    region = Region(source, forward(source.tree), words=f"call_missing: {words}")
    assert right in applied([ranked(region)[0].fix])[source.file].decode()
    other = Region(source, forward(source.tree), words=f"call_missing: {words.replace('gate.act', 'relu')}")
    assert not [one for one in ranked(other) if one.kind == "layer_where_it_is_missing"], "the class has no such layer"


def test_a_layer_is_called_early_where_the_finding_says_before_which_operator_it_is_missing(tmp_path):
    """Layers of other classes of the file, ``self`` and the number of the line were tried as well: place 61."""
    (tmp_path / "port.py").write_text(
        CALLS + "\n\nclass Other:\n    def __init__(self):\n        self.block = self.features = part()\n"
    )
    source = PortFile.of(tmp_path / "port.py")
    made = ranked(Region(source, forward(source.tree), words="call_missing: port.py:139: gate.act is missing before *"))
    texts = [applied([one.fix])[source.file].decode() for one in made]
    assert any("return self.act(self.fc2(scale)) * x" in one for one in texts[:8])
    assert not any("self.block(" in one or "self.act(self)" in one or "139" in one for one in texts)


ALIKE = """
def groups(config, own, trainable):
    kept = torch.stack([one.detach() for one in trainable], dim=0)
    share = None if config.rate is None else config.rate * len(own)
    penalty = 0.0 if id(kept) in own else config.penalty
    return [kept, share, penalty]
"""


def test_a_statement_that_only_the_reference_has_to_the_letter_comes_first(tmp_path):
    """Both are written alike: where the port lacks a statement, it comes first, and not where the framework's words differ."""
    port = ALIKE.replace("torch", "paddle").replace("dim=0", "axis=0")
    (theirs,) = ast.parse(ALIKE).body

    def first(text):
        (tmp_path / "port.py").write_text(text)
        source = PortFile.of(tmp_path / "port.py")
        region = Region(source, source.tree.body[0], theirs=(theirs,), languages=("paddle", "torch"))
        return region, applied([ranked(region)[0].fix])[source.file].decode()

    for right, wrong in (
        ("0.0 if id(kept) in own else config.penalty", "config.penalty"),
        ("    share = None if config.rate is None else config.rate * len(own)\n", "    share = None\n"),
    ):
        assert port.count(right) == 1
        assert key(ast.parse(first(port.replace(right, wrong))[1])) == key(ast.parse(port))
    region, _ = first(port)
    assert not region.lacking, "torch.stack and dim are words of the framework"


JUDGED = """
def judge(model, images, labels):
    logits = model(images)
    return Judgement(top_k(logits, labels, (1, 5)).NUMPY(), labels.NUMPY(), logits.argmax(1).NUMPY())
"""


def test_a_call_that_only_the_reference_has_to_the_letter_comes_early(tmp_path):
    """The statement around it says words of the framework."""
    (theirs,) = ast.parse(JUDGED.replace("NUMPY", "cpu")).body
    port = JUDGED.replace("NUMPY", "numpy")

    def texts(text):
        (tmp_path / "port.py").write_text(text)
        source = PortFile.of(tmp_path / "port.py")
        region = Region(source, source.tree.body[0], theirs=(theirs,), languages=("paddle", "torch"))
        return region, [key(ast.parse(applied([one.fix])[source.file].decode())) for one in ranked(region)]

    for wrong in ("(1, 1)", "(5, 5)", "(1, 4)"):
        assert key(ast.parse(port)) in texts(port.replace("(1, 5)", wrong))[1][:5]
    assert not texts(port)[0].lacking_calls


@pytest.mark.parametrize(("wrong", "right"), [
    ('{"params": own, "weight_decay": 0.0 * decay}', '{"params": own, "weight_decay": decay}'),
    ("total * 0 + size if mask is None else size", "total if mask is None else size"),
    ("frozen(own) if True else own", "frozen(own) if freeze else own"),
    ('{"params": own, "rate": 1.0}', '{"params": own, "rate": factor}'),
])  # fmt: skip
def test_code_without_an_effect_goes_early(wrong, right, tmp_path):
    port = "def groups(own, decay, mask, total, size, freeze, groups):\n    for own, factor in groups:\n        yield VALUE\n"
    theirs = "def groups(own, freeze):\n    if freeze:\n        pass\n"
    (tmp_path / "port.py").write_text(port.replace("VALUE", wrong))
    source = PortFile.of(tmp_path / "port.py")
    made = ranked(Region(source, source.tree.body[0], theirs=tuple(ast.parse(theirs).body), words="weight_decay_missing: no decay"))
    texts = [key(ast.parse(applied([one.fix])[source.file].decode())) for one in made]
    assert key(ast.parse(port.replace("VALUE", right))) in texts[:12]


def test_each_program_is_tried_once(tmp_path):
    """Changes of a name, of the call around it and of its line may be one program: each of them once took a trial."""
    for case in MISTAKES:
        right, wrong = MISTAKES[case]
        made = texts(tmp_path, PORT.replace(right, wrong), RIGHT)
        assert len({ast.dump(ast.parse(text)) for text in made}) == len(made)


def test_the_maximum_is_subtracted_where_an_exponential_overflows(tmp_path):
    (tmp_path / "port.py").write_text("def forward(self, x):\n    return paddle.exp(x)\n")
    source = PortFile.of(tmp_path / "port.py")

    def of(words):
        return [one.fix[0].text for one in ranked(Region(source, source.tree.body[0], words=words))]

    assert "x - x.amax(-1, keepdim=True)" in of("an exponential overflows")
    assert "x - x.amax(-1, keepdim=True)" not in of("another value")


def test_no_candidate_reads_what_the_function_cannot_know_or_puts_a_fraction_for_a_size(tmp_path):
    """Names of another function, and the finding's fractions in the place of a kernel's size, once took a third of all trials."""
    port = (
        "import paddle\n\ndef other(layers):\n    return layers\n\n"
        "def forward(self, x):\n    y = x + 1\n    return made(y, kernel_size=3, momentum=0.9)\n"
    )
    (tmp_path / "port.py").write_text(port)
    source = PortFile.of(tmp_path / "port.py")
    region = Region(source, source.tree.body[-1], words="momentum 0.9, expected 0.42")
    assert {"self", "x", "y", "paddle", "other", "len"} <= region.known and "layers" not in region.known
    made = [applied([one.fix])[source.file].decode() for one in ranked(region)]
    assert any("momentum=0.42" in text for text in made) and not any("kernel_size=0.42" in text for text in made)
    assert not any("layers" in text.partition("def forward")[2] for text in made)


def test_a_name_that_the_ports_file_has_not_makes_no_candidate(tmp_path):
    port = "import paddle\n\nclass Net:\n    def forward(self, x):\n        return paddle.relu(x)\n"
    reference = "class Net:\n    def forward(self, x):\n        return elsewhere(x)\n"
    assert not any("return elsewhere" in text for text in texts(tmp_path, port, reference))


def test_a_name_that_holds_what_it_was_given_is_no_other_name(tmp_path):
    """``x = f(x)`` in the reference once made the search end without a word."""
    port = "import paddle\n\nclass Net:\n    def forward(self, x):\n        return self.head(self.norm(x))\n"
    reference = (
        "class Net:\n    def forward(self, a):\n        a = self.norm(a)\n        b = self.act(a)\n        return self.head(b)\n"
    )
    assert any("self.act(" in text for text in texts(tmp_path, port, reference))


def test_a_namesake_elsewhere_does_not_take_the_place_of_the_port(tmp_path):
    for where in ("mine", "other"):
        (tmp_path / where).mkdir()
        (tmp_path / where / "ours.py").write_text(f"WHERE = {where!r}\n")
    (tmp_path / "other" / "large.py").write_text("x = 1\n")
    (tmp_path / "made").mkdir()
    port, _ = copied(f"{tmp_path / 'mine' / 'ours.py'}:Net", {tmp_path / "other" / "large.py": b"x = 2\n"}, tmp_path / "made")
    assert Path(port.partition(":")[0]).read_text() == "WHERE = 'mine'\n"
    assert (tmp_path / "made" / "large.py").read_text() == "x = 2\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_trial_does_not_run_the_users_script_again(method, tmp_path):
    """``audit(..., try_patch=True)`` in a script that is not guarded by its name."""
    (tmp_path / "check.py").write_text(
        "import multiprocessing, operator\nfrom alignment.audit.trial import answered\n"
        f"print('begun')\nprint(answered(multiprocessing.get_context({method!r}), operator.add, (1, 2), 60))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "check.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "begun\n3\n", done.stdout + done.stderr


def first_of(folder: Path, port: str, words: str, reference: str = "", name: str = "") -> list[str]:
    """What candidates make of the last function of a file, or of a value, the likeliest first."""
    (folder / "port.py").write_text(port)
    source = PortFile.of(folder / "port.py")
    made = [n for n in ast.walk(source.tree) if isinstance(n, Definition) and (not name or n.name == name)]
    node = made[-1] if made else source.tree.body[-1].value
    theirs = tuple(n for n in ast.walk(ast.parse(reference)) if isinstance(n, Definition))
    region = Region(source, node, words=words, theirs=theirs, languages=("paddle", "torch"))
    return [applied([one.fix])[source.file].decode() for one in ranked(region)]


TABLE = "ROWS = [(3, 16, 16), (3, 72, 24), (3, 120, 48), (3, 240, 40)]\n"


@pytest.mark.parametrize("said", ["kernel 3x3, expected 5x5", "all kernels 3, expected all kernels 5"])
def test_the_row_of_a_table_whose_numbers_the_finding_says_is_changed_first(said, tmp_path):
    made = first_of(tmp_path, TABLE, f"kernel_size: {said}: shape (120, 1, 3, 3), expected (120, 1, 5, 5)")
    assert made[0] == TABLE.replace("(3, 120", "(5, 120")
    other = first_of(tmp_path, TABLE, f"kernel_size: {said}: shape (72, 1, 3, 3), expected (72, 1, 5, 5)")
    assert other[0] == TABLE.replace("(3, 72", "(5, 72")


TWICE = "def batches(it):\n    if it:\n        yield from list(it)[:-1]\n    yield from list(map(abs, it))[:-1]\n"


def test_the_same_slice_is_left_out_everywhere_or_in_one_place(tmp_path):
    made = [ast.unparse(ast.parse(text)) for text in first_of(tmp_path, TWICE, "batch_dropped")]
    right = ast.unparse(ast.parse(TWICE.replace("[:-1]", "")))
    assert right in made and ast.unparse(ast.parse(TWICE.replace("(it)[:-1]", "(it)"))) in made


STEP = """
def step(model, optimizer, limit):
    decay(optimizer)
    clip(model, limit)
    optimizer.step()
    optimizer.clear()
"""


def test_statements_come_in_the_order_of_the_reference_first(tmp_path):
    right = STEP.replace("    decay(optimizer)\n    clip(model, limit)\n", "    clip(model, limit)\n    decay(optimizer)\n")
    theirs = right.replace("clear()", "zero_grad()").replace("(model, limit)", "(model.all(), limit)")
    exchanges = [text for text in first_of(tmp_path, STEP, "", theirs) if sorted(text.split()) == sorted(STEP.split())]
    assert len(exchanges) >= 3 and exchanges[0] == right
    assert exchanges != [text for text in first_of(tmp_path, STEP, "") if sorted(text.split()) == sorted(STEP.split())]


OVERRIDDEN = """
class Pictures(Base):
    size = 4

    def __getitem__(self, key):
        pixels, label = super().__getitem__(key)
        return pixels, label + 1
"""


def test_a_method_that_the_reference_does_not_have_is_left_out_early(tmp_path):
    without = "class Pictures(Base):\n    size = 4"
    places = [
        [ast.unparse(ast.parse(text)) for text in first_of(tmp_path, OVERRIDDEN, "", theirs)].index(without)
        for theirs in ("", "def __getitem__(self, key):\n    return super().__getitem__(key)")
    ]
    assert places[0] < places[1], places


def test_what_is_called_here_alone_is_left_out_before_what_is_called_elsewhere(tmp_path):
    port = "def other(x):\n    return abs(x)\n\n\ndef total(x):\n    return abs(x) + int(x)\n"
    made = first_of(tmp_path, port, "", "def total(x):\n    return x", "total")
    rare, usual = (port.replace("abs(x) + int(x)", text) for text in ("abs(x)", "int(x)"))
    assert made.index(rare) < made.index(usual)


SPEC = """
def spec(name):
    return ModelSpec(port=make(name), blocks=blocks, small_shape=(3, 48, 48), load=own, last_layer="fc")
"""


@pytest.mark.parametrize("stage", ["weights", "forward"])
def test_where_weights_are_wrong_the_projects_own_loading_is_left_out_first(stage, tmp_path):
    (tmp_path / "project.py").write_text(SPEC)
    search = SimpleNamespace(
        finding=SimpleNamespace(stage=stage),
        context=SimpleNamespace(spec=SimpleNamespace(load=print)),
        files=[tmp_path / "project.py"],
        source=PortFile.of,
        words="weights_swapped: it holds the values of another tensor",
    )
    search.region = lambda source, node: Region(source, node, words=search.words)
    regions = list(_Regions.of_loading(search))  # type: ignore[arg-type]
    assert bool(regions) is (stage == "weights")
    for region in regions:
        first = ranked(region)[0]
        assert applied([first.fix])[region.source.file].decode() == SPEC.replace(" load=own,", "")
