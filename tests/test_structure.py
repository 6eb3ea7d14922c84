"""Mistakes in the structure of a port, made as people make them: by editing its source. Each is a finding at its place; what is
only called or nested otherwise passes, with a note."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

from alignment.cli import main as engine
from alignment.comparisons import guarded
from alignment.comparisons.checked import check
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.model import explain as models
from alignment.comparisons.model import forward
from alignment.comparisons.update import backward, runs
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.localize import localize, match_modules
from alignment.models.weights import load_file
from mobilenetv3_common.weights import as_paddle, write_state
from mobilenetv3_ref.models import MODELS
from projects.mobilenetv3.project import PROJECT
from tests.breaking import first_finding
from tests.conftest import ROOT, SMALL, run_command
from tools.align import main

SOURCE = (ROOT / "mobilenetv3_paddle" / "models" / "mobilenetv3.py").read_text()
SE = """        if config.use_se:
            layers.append(SqueezeExcitation(expanded, make_divisible(expanded // 4)))
"""
PROJECTION = "        layers.append(ConvNormActivation(expanded, config.out_channels, 1, None))\n"
NORM = "BatchNorm2D(out_channels, eps=0.001, momentum=0.01)"


def edited(*changes):
    """The port's source with some of its text replaced."""
    source = SOURCE
    for before, after in changes:
        assert before in source, before
        source = source.replace(before, after)
    return source


def project_of(source, folder):
    """The project whose port is built by this source."""
    file = folder / "edited_port.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(f"edited_port_{abs(hash(source))}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return PROJECT.with_models(lambda known: replace(known, port=module.mobilenet_v3_small))


@pytest.fixture(scope="module")
def whole_state():
    """Weights of the small model at full width; the structure is looked at before they count."""
    torch.manual_seed(0)
    return Torch().state(MODELS[SMALL]())


# name: edits, place, kind
MISTAKES = {
    "no squeeze-excitation in one block": (
        [("if config.use_se:", "if config.use_se and config.kernel != 3:")], "features.1.block.1", "layer_missing"),
    "no squeeze-excitation in a later block": (
        [("if config.use_se:", "if config.use_se and config.out_channels != 48:")], "features.7.block.2", "layer_missing"),
    "no squeeze-excitation at all": ([("if config.use_se:", "if False:")], "features.1.block.1", "layer_missing"),
    "another squeeze width": (
        [("make_divisible(expanded // 4)", "make_divisible(expanded // 8)")], "features.4.block.2.fc1.weight", "width"),
    "a bias": ([("bias_attr=False", "bias_attr=None")], "features.0.0.bias", "bias_extra"),
    "no bias": (
        [("nn.Conv2D(squeeze_channels, channels, 1)", "nn.Conv2D(squeeze_channels, channels, 1, bias_attr=False)")],
        "features.1.block.1.fc2.bias", "bias_missing"),
    "an expansion too much": ([("if expanded != config.in_channels:", "if True:")], "features.1.block.0", "layer_extra"),
    "an expansion missing": (
        [("if expanded != config.in_channels:", "if expanded not in (config.in_channels, 88):")],
        "features.3.block.0", "layer_missing"),
    "no expansion at all": ([("if expanded != config.in_channels:", "if False:")], "features.2.block.0", "layer_missing"),
    "squeeze-excitation behind the projection": (
        [(SE + PROJECTION, PROJECTION + SE.replace("(expanded, ", "(config.out_channels, "))], "features.1.block", "call_order"),
    "another width": ([("(5, 96, 40, True", "(5, 96, 48, True")], "features.4.block.3.0.weight", "width"),
    "another expanded width": ([("(3, 72, 24, False, \"RE\", 2),\n    (3, 88", "(3, 64, 24, False, \"RE\", 2),\n    (3, 88")],
        "features.2.block.0.0.weight", "width"),
    "another kernel": ([("(5, 96, 40, True", "(3, 96, 40, True")], "features.4.block.1.0.weight", "kernel_size"),
    "a block missing": ([('    (3, 88, 24, False, "RE", 1),\n', "")], "features.3", "layer_missing"),
    "a wider block missing": ([('    (5, 96, 40, True, "HS", 2),\n', "")], "features.4", "layer_missing"),
    "a block too much": (
        [('    (3, 88, 24, False, "RE", 1),\n', '    (3, 88, 24, False, "RE", 1),\n    (3, 80, 24, False, "RE", 1),\n')],
        "features.4", "layer_extra"),
    "no groups": ([("groups=expanded,", "groups=1,")], "features.1.block.0.0.weight", "groups"),
    "another hidden width": ([("_build(_SMALL, 1024", "_build(_SMALL, 1000")], "classifier.0.weight", "width"),
    "another class count": (
        [("nn.Linear(last_channels, num_classes)", "nn.Linear(last_channels, 10)")], "classifier.3.weight", "class_count"),
    "group normalisation": ([(NORM, "nn.GroupNorm(8, out_channels, 0.001)")], "features.0.1", "layer_replaced"),
    "no normalisation": ([(NORM, "nn.Identity()")], "features.0.1", "layer_replaced"),
    "a normalisation without weights": (
        [(NORM, "nn.InstanceNorm2D(out_channels, 0.001, weight_attr=False, bias_attr=False)")], "features.0.1", "layer_replaced"),
    "a wider tail": ([("6 * configs[-1]", "5 * configs[-1]")], "features.12.0.weight", "width"),
    "names exchanged": (
        [("self.fc1", "self.fc0"), ("self.fc2", "self.fc1"), ("self.fc0", "self.fc2")],
        "features.1.block.1.fc1", "layer_renamed"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_the_structure_is_located_and_named(case, whole_state, tmp_path):
    changes, place, kind = MISTAKES[case]
    broken = Context(project_of(edited(*changes), tmp_path), given_state=whole_state)
    result = guarded(1, lambda: forward.run(broken))
    assert first_finding(broken, result) == (place, kind)


def finding(source, state, folder):
    return models.built(Context(project_of(source, folder), given_state=state))


def test_the_first_of_several_is_the_finding_and_the_others_are_counted(whole_state, tmp_path):
    changes = [("_build(_SMALL, 1024", "_build(_SMALL, 1000"), ("(5, 96, 40, True", "(3, 96, 40, True")]
    first = finding(edited(*changes), whole_state, tmp_path)
    assert first.location == "features.4.block.1.0.weight" and "kernel 3x3, expected 5x5" in first.hint
    assert first.measured.endswith("2 more layers with other weights"), first.measured
    every = finding(edited(("if config.use_se:", "if False:")), whole_state, tmp_path)
    assert every.measured == "280 parameters; 8 more layers with other weights"
    assert every.hint == "the layer SqueezeExcitation is missing in the port"


@pytest.mark.parametrize("row", [1, 4, 6, 7, 11])
def test_a_missing_block_does_not_shift_the_others(row, whole_state, tmp_path):
    """Blocks 5 and 6, and 10 and 11, are built alike: either may be called the missing one."""
    start = SOURCE.index("_SMALL = (\n") + len("_SMALL = (\n")
    rows = SOURCE[start:].splitlines(keepends=True)[:11]
    first = finding(edited(("".join(rows), "".join(rows[: row - 1] + rows[row:]))), whole_state, tmp_path)
    alike = {5: 6, 10: 11}
    if row == 11:  # the tail is built from the last row, whichever it is
        assert first.location == "features.11"
    assert first.location in (f"features.{row}", f"features.{alike.get(row, row)}") and first.kind == "layer_missing", first.line()


ORDER = {
    "activation before normalisation": (
        [("            layers.append(_ACTIVATIONS", "            layers.insert(1, _ACTIVATIONS")], "features.0", "call_order"),
    "squeeze-excitation behind the projection, of the old width": ([(SE + PROJECTION, PROJECTION + SE)], "features.1.block",
        "call_order"),
    "another activation": ([('{"RE": nn.ReLU,', '{"RE": nn.ReLU6,')], "features.1.block.0.2", "activation"),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDER)
def test_what_the_forward_pass_alone_tells(case, small_state, tmp_path):
    changes, place, kind = ORDER[case]
    broken = Context(project_of(edited(*changes), tmp_path), given_state=small_state, options={"width_mult": 0.5})
    result = guarded(1, lambda: forward.run(broken, forward.cases(broken)[3:4]))
    assert first_finding(broken, result) == (place, kind)


# --- sources that raise ----------------------------------------------------------------------------------------------------

RAISING = {
    "a constructor": ("        expanded = config.expanded_channels\n", "        expanded = config.expandd_channels\n",
        "InvertedResidual.__init__", "AttributeError: 'BlockConfig' object has no attribute 'expandd_channels'", "structure"),
    "a forward": ("        output = self.block(input)\n", "        output = self.blocks(input)\n",
        "InvertedResidual.forward", "AttributeError: 'InvertedResidual' object has no attribute 'blocks'", "forward"),
}  # fmt: skip


@pytest.mark.parametrize("case", RAISING)
def test_what_raises_is_found_at_its_line(case, small_state, tmp_path):
    before, after, function, words, stage = RAISING[case]
    source = edited((before, after))
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if text == after.rstrip("\n"))
    broken = Context(project_of(source, tmp_path), given_state=small_state, options={"width_mult": 0.5})
    result = guarded(1, lambda: forward.run(broken, forward.cases(broken)[3:4]))
    first = locate(broken, [result], with_table=False).first
    assert (first.stage, first.location, first.kind) == (stage, f"edited_port.py:{line} in {function}", "raises")
    assert words in first.line() and f"edited_port.py:{line} in {function}" in result.problems[0]


@pytest.fixture
def copied_port(tmp_path):
    """A copy of the port's package, which a command takes in its place, and its environment."""
    shutil.copytree(ROOT / "mobilenetv3_paddle", tmp_path / "mobilenetv3_paddle")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "align.py", tmp_path / "tools")  # a command runs the code of its own folder
    return tmp_path / "mobilenetv3_paddle" / "models" / "mobilenetv3.py", {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


IMPORTS = {
    "a syntax error": ("class SqueezeExcitation(nn.Layer):", "class SqueezeExcitation(nn.Layer:", "SyntaxError: "),
    "an unknown name": ("class SqueezeExcitation(nn.Layer):", "class SqueezeExcitation(nn.Layr):", "AttributeError: "),
    "a missing name": ("def mobilenet_v3_large(", "def mobilenet_v3_big(", "ImportError: cannot import name 'mobilenet_v3_large'"),
}


@pytest.mark.parametrize("case", IMPORTS)
def test_a_port_that_cannot_be_imported_is_said_in_one_line(case, copied_port, tmp_path):
    before, after, words = IMPORTS[case]
    file, environment = copied_port
    file.write_text(edited((before, after)))
    run = run_command(tmp_path / "tools" / "align.py", "--steps", "1", "--result-dir", tmp_path / "r", **environment)
    assert run.returncode == 1 and run.stdout == ""
    line = 1 + next((number for number, text in enumerate(file.read_text().splitlines()) if text == after), 0)
    place = "__init__.py:" if case == "a missing name" else f"mobilenetv3.py:{line}: "
    place = f"mobilenetv3_paddle/models/{place}"
    assert run.stderr.startswith(f"error: the port cannot be imported: {place}"), run.stderr
    assert words in run.stderr and run.stderr.count("\n") == 1


def test_a_constructor_that_raises_ends_with_its_line(copied_port, tmp_path):
    before, after, function, words, _ = RAISING["a constructor"]
    file, environment = copied_port
    file.write_text(edited((before, after)))
    run = run_command(tmp_path / "tools" / "align.py", "--steps", "1,6", "--result-dir", tmp_path / "r", **environment)
    assert run.returncode == 1 and run.stderr == "" and "Traceback" not in run.stdout, run.stdout + run.stderr
    line = 1 + file.read_text().splitlines().index(after.rstrip())
    place = f"mobilenetv3_paddle/models/mobilenetv3.py:{line} in {function}"
    assert f"first divergence: structure: {place}: the model cannot be built ({words})" in run.stdout


@pytest.mark.slow
def test_a_command_finds_a_mistake_with_weights_of_the_reference(copied_port, tmp_path, whole_state):
    """Names come from the reference, whatever the file's form; the port's own would not fit."""
    file, environment = copied_port
    file.write_text(edited(("if config.use_se:", "if config.use_se and config.kernel != 3:")))
    for name, state in (("w.pdparams", as_paddle(whole_state)), ("w.safetensors", as_paddle(whole_state)), ("w.pth", whole_state)):
        write_state(tmp_path / name, state)
        broken = Context(project_of(file.read_text(), tmp_path), weights_from=str(tmp_path / name))
        check(broken)
        assert all(np.array_equal(broken.material.weights.state[key], value) for key, value in whole_state.items())
    flags = ("--steps", "1,4", "--weights", tmp_path / "w.pdparams", "--result-dir", tmp_path / "r")
    run = run_command(tmp_path / "tools" / "align.py", *flags, **environment)
    assert run.returncode == 1 and "Traceback" not in run.stdout + run.stderr, run.stdout + run.stderr
    assert "first divergence: structure: features.1.block.1: the layer SqueezeExcitation is missing in the port" in run.stdout
    report = json.loads((tmp_path / "r" / "alignment.json").read_text())
    assert report["localization"]["first"]["kind"] == "layer_missing"


# --- other names, other nesting --------------------------------------------------------------------------------------------

SOUND = {
    "other names": (
        [("fc1", "reduce"), ("fc2", "expand"), ("self.classifier", "self.head"), ("self.block", "self.body")],
        "classifier (Sequential) is called head in the port"),
    "other nesting": (
        [("self.block = nn.Sequential(*layers)", "self.inner = nn.Sequential(nn.Sequential(*layers[:-1]), layers[-1])"),
         ("self.block(input)", "self.inner(input)"),
         ("self.classifier = nn.Sequential(", "self.a, self.b, self.c, self.d = ("),
         ("self.classifier(paddle.flatten(features, 1))", "self.d(self.c(self.b(self.a(paddle.flatten(features, 1)))))")],
        "have another place in the port and are paired by order of use, first "),
}  # fmt: skip


@pytest.mark.parametrize("case", SOUND)
def test_other_names_and_other_nesting_are_noted_and_the_rest_is_judged(case, small_state, tmp_path):
    changes, note = SOUND[case]
    source = edited(*changes)
    sound = Context(project_of(source, tmp_path), given_state=small_state, options={"width_mult": 0.5})
    result = guarded(1, lambda: forward.run(sound, forward.cases(sound)[3:]))
    assert result.passed, result.problems
    assert any(note in line for line in sound.notes()), sound.notes()
    wrong = source.replace('{"RE": nn.ReLU,', '{"RE": nn.ReLU6,')
    broken = Context(project_of(wrong, tmp_path), given_state=small_state, options={"width_mult": 0.5})
    result = guarded(1, lambda: forward.run(broken, forward.cases(broken)[3:4]))
    assert first_finding(broken, result) == ("features.1.block.0.2", "activation")


POOLED = "features = self.avgpool(self.features(input))"
MEAN = "features = self.features(input).mean([2, 3], keepdim=True)"


def test_a_block_may_be_left_uncalled_where_a_function_gives_its_values(small_state, tmp_path):
    def cases_of(*changes):
        port = Context(project_of(edited(*changes), tmp_path), given_state=small_state, options={"width_mult": 0.5})
        return port, guarded(1, lambda: forward.run(port, forward.cases(port)[3:]))

    port, result = cases_of((POOLED, MEAN))
    assert result.passed, [f"{row.name}: {row.reason}" for row in result.quantities if not row.passed] + result.problems
    assert result.evidence["blocks_of_another_form"] == 1
    port, result = cases_of((POOLED, MEAN.replace("mean", "max")))
    failed = {row.name for row in result.quantities if not row.passed}
    assert {"eval.fake.b2.avgpool", "eval.fake.b2.logits"} <= failed
    # One that is called has to be right, even where the outputs are.
    port, result = cases_of((POOLED, f"self.avgpool(input)\n        {MEAN}"))
    assert {row.name for row in result.quantities if not row.passed} == {f"{c.name}.avgpool" for c in forward.cases(port)[3:]}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["other nesting", pytest.param("other names", marks=pytest.mark.weekly)])
def test_all_steps_know_a_renamed_port(case, small_state, tmp_path):
    sound = Context(project_of(edited(*SOUND[case][0]), tmp_path), given_state=small_state, options={"width_mult": 0.5})
    run = runs.Run("rmsprop.train", runs.RMSPROP, training=True, iterations=2, float32_iterations=1)
    result = guarded(5, lambda: backward.run(sound, (run,)))
    names = {q.name for q in result.quantities}
    assert result.passed and "rmsprop.train.iter0.gradients.features.1.block.1.fc1.weight" in names, result.problems


def test_a_file_in_the_own_names_of_a_renamed_port_is_read(small_state, tmp_path):
    project = project_of(edited(*SOUND["other names"][0]), tmp_path)
    own = {
        name.replace(".block.", ".body.").replace("fc1", "reduce").replace("fc2", "expand").replace("classifier", "head"): array
        for name, array in as_paddle(small_state).items()
    }
    write_state(tmp_path / "own.pdparams", own)
    context = Context(project, weights_from=str(tmp_path / "own.pdparams"))
    assert context.material.weights.options["width_mult"] == 0.5
    assert all(np.array_equal(context.material.weights.state[name], array) for name, array in small_state.items())


class Attention(nn.Layer):
    """Three layers of one shape, used in another order than that of definition."""

    def __init__(self, names, wrong=False):
        super().__init__()
        self.names, self.wrong = names, wrong
        for name in sorted(names):
            setattr(self, name, nn.Linear(6, 6))

    def forward(self, x):
        q, k, v = (getattr(self, name)(x) for name in self.names)
        return q * (k - v if not self.wrong else v - k)


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        return q * (k - v)


def test_layers_of_one_shape_are_paired_in_the_order_of_use():
    reference, inputs = Reference(), np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    report = localize(Attention(("wq", "wk", "wa")), reference, inputs, weights=False)
    assert report.first is None, report.first.line()
    assert "query (Linear) is called wq in the port" in report.notes and len(report.notes) == 3
    exchanged, names = Attention(("wq", "wk", "wa"), wrong=True), {"wq": "query", "wk": "key", "wa": "value"}
    report = localize(exchanged, reference, inputs, weights=False)
    assert report.first is None and "told apart" in report.notes[0], "no name says which of two layers of one shape is which"
    assert localize(exchanged, reference, inputs, weights=False, names=names).first.location == "Attention.forward"
    assert match_modules(Attention(("query", "key", "value")), reference).notes == []


def test_a_map_of_names_is_strict_and_values_tell_layers_apart_without_one(tmp_path, capsys):
    """A port that uses its layers in another order is right with its own map or without one, and wrong with another one."""
    source = (ROOT / "docs" / "examples" / "own_project.py").read_text()
    own = source.replace("spec =", PARALLEL + "\nspec =").replace("ModelSpec(Port, Reference, input_shape=(3, 16, 16))",
        "ModelSpec(OtherPort, OtherReference, input_shape=(6,))")  # fmt: skip
    (tmp_path / "own.py").write_text(own)
    names = tmp_path / "names.yaml"
    names.write_text("first: right\nsecond: left\n")
    base = ["run", str(tmp_path / "own.py"), "--result-dir", str(tmp_path / "r"), "--steps", "1"]
    assert engine([*base, "--names", str(names)]) == 0, capsys.readouterr().out
    (only,) = json.loads((tmp_path / "r" / "alignment.json").read_text())["notes"]
    assert only.startswith("conversion not checked")
    capsys.readouterr()
    assert engine(base) == 0
    assert "with random weights, first left, called second in the port (--names sets other pairs)" in capsys.readouterr().out
    names.write_text("first: left\nsecond: right\n")
    assert engine([*base, "--names", str(names)]) == 1
    for text, message in BAD_MAPS.items():
        names.write_text(text)
        capsys.readouterr()
        assert engine([*base, "--names", str(names)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ") and err.count("\n") == 1 and message in err, err


PARALLEL = """
class OtherPort(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 6)

    def forward(self, x):
        right, left = self.first(x), self.second(x)
        return left * 2 - right


class OtherReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x):
        left, right = self.left(x), self.right(x)
        return left * 2 - right

"""
BAD_MAPS = {
    "first: rigth\n": "--names: the reference has no module 'rigth'; did you mean 'right'?",
    "furst: right\n": "--names: the port has no module 'furst'; did you mean 'first'?",
    "first: left\nsecond: left\n": "--names: first and second of the port are both called left",
    "first: left\nfirst: right\n": "first of the port is named twice",
    "- first\n- left\n": "must hold 'port path: reference path' lines",
    "": "must hold 'port path: reference path' lines",
    "first:\n": "line 1: expected 'port path: reference path'",
    "first: [left, right]\n": "line 1: expected 'port path: reference path'",
    "first: {left: right\n": "is not YAML",
}


def test_a_map_that_is_not_there_is_refused(tmp_path, capsys):
    assert main(["--names", str(tmp_path / "gone.yaml"), "--result-dir", str(tmp_path / "r")]) == 2
    assert "gone.yaml: No such file" in capsys.readouterr().err


def test_files_are_read_by_the_references_names(whole_state, tmp_path):
    """A port that has other layers, or none, does not change what a file holds."""
    write_state(tmp_path / "w.pdparams", as_paddle(whole_state))
    for port in (None, nn.Sequential(nn.Linear(3, 4))):
        state = load_file(tmp_path / "w.pdparams", [(Torch(), MODELS[SMALL]()), (Paddle(), port)])
        assert all(np.array_equal(state[name], array) for name, array in whole_state.items())
    assert paddle.get_default_dtype() == "float32"


def test_a_normalisation_that_does_not_scale_is_named():
    inputs = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    theirs = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.InstanceNorm2d(4, affine=True))
    ours = nn.Sequential(nn.Conv2D(4, 4, 3), nn.InstanceNorm2D(4, weight_attr=False, bias_attr=False))
    first = localize(ours, theirs, inputs).first
    assert (first.location, first.kind) == ("1.weight", "norm_affine") and "affine=False" in first.hint
    plain = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.InstanceNorm2d(4))
    assert localize(nn.Sequential(nn.Conv2D(4, 4, 3), nn.InstanceNorm2D(4)), plain, inputs).first.kind == "norm_affine"


def test_a_name_that_is_another_one_in_every_block_is_noted_once():
    def blocks(n, names):
        made = [n.Sequential() for _ in range(3)]
        for one in made:
            for name in names:
                (one.add_module if n is torch.nn else one.add_sublayer)(name, n.Linear(6, 6))
        return n.Sequential(*made)

    inputs = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    report = localize(blocks(nn, ("conv_a", "conv_b")), blocks(torch.nn, ("a", "b")), inputs, weights=False)
    assert report.first is None and report.notes == [
        f"0.{name} (Linear) is called 0.conv_{name} in the port, and so in 2 more places" for name in "ab"
    ]
