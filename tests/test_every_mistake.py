"""Every mistake of a port in one report: what is found is put right in memory, and the search goes on behind it."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from alignment.accepted import KINDS, Accept, marked, parse
from alignment.cli import main
from alignment.finding import Finding
from alignment.frameworks import framework
from alignment.frameworks.base import Wanted
from alignment.kinds import Kind
from alignment.models.mending import mend
from alignment.models.tracing import Network
from alignment.project import load_project
from bench import together
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT, mode_of

LAYERS = ROOT / "projects" / "layers" / "pairs.py"
TORCH = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(c)
        self.act = nn.ReLU()

    def forward(self, x):
        return x + self.act(self.norm(self.conv(x)))

class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.blocks = nn.Sequential(Block(width), Block(width), Block(width))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(self.pool(x).mean((2, 3)))
"""
PADDLE = (
    TORCH.replace("import torch\nfrom torch", "import paddle\nfrom paddle")
    .replace("nn.Module", "nn.Layer")
    .replace("2d(", "2D(")
    .replace("bias=False", "bias_attr=False")
    .replace("mean((2, 3))", "mean([2, 3])")
)
# Each mistake: what becomes of the source; the place, and kind, that it must be given; a part of the line to change.
MISTAKES = {
    "slope": ("nn.ReLU(),\n", "nn.LeakyReLU(0.1),\n", "stem.2", "activation", "nn.LeakyReLU(0.1)"),
    "residual": ("return x + self.act(", "return self.act(", "blocks.0", "no_residual", "return self.act("),
    "pool": ("nn.MaxPool2D(2)", "nn.AvgPool2D(2)", "pool", "pooling", "nn.AvgPool2D(2)"),
    "detached": ("self.blocks(self.stem(x))", "self.blocks(self.stem(x).detach())", "Net.forward", "detached", "detach()"),
    "order": ("mean([2, 3]))", "mean([2, 3])).flip([1])", "Net.forward", "permuted", "flip"),
}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "theirs.py").write_text(TORCH)
    (tmp_path / "ours.py").write_text(PADDLE)
    return tmp_path


def audit(folder, *flags):
    """Exit status of an audit of the two files, and the mistakes it found."""
    sides = ["--port", f"{folder}/ours.py:Net", "--reference", f"{folder}/theirs.py:Net", "--input", "2x3x10x8"]
    status = main(["audit", *mode_of(flags), *sides, "--report", str(folder / "report"), *flags])
    said = json.loads((folder / "report" / "alignment.json").read_text())
    return status, said["localization"]["every"], said


def broken(folder, *names):
    """The port with some of the mistakes."""
    source = PADDLE
    for name in names:
        before, after = MISTAKES[name][:2]
        assert before in source
        source = source.replace(before, after)
    (folder / "ours.py").write_text(source)
    return source.splitlines()


@pytest.mark.parametrize("names", [("slope", "residual", "pool", "order"), ("slope", "pool", "detached"), ("pool",)], ids="-".join)
def test_all_mistakes_are_found_in_one_call_with_their_lines(files, names, capsys):
    lines = broken(files, *names)
    status, found, said = audit(files)
    assert status == 1 and said["passed"] is False
    for name in names:
        _, _, place, kind, line = MISTAKES[name]
        one = next((one for one in found if place in [one["location"], *one["also"]] and one["kind"] == kind), None)
        assert one is not None, (name, found)
        file, _, number = one["source"].partition(":")
        assert file == "ours.py" and line in lines[int(number) - 1], (one["source"], lines[int(number) - 1])
    assert len(found) == len(names), "and nothing else"
    if len(names) > 1:
        assert f"{len(names)} mistakes, each found with the earlier ones fixed in memory:" in capsys.readouterr().out
        block = (files / "report" / "report.md").read_text()
        assert all(f"| {MISTAKES[name][3]} |" in block for name in names), block


def test_with_all_put_right_the_steps_pass_and_with_one_left_they_do_not(files, capsys):
    broken(files, "slope", "residual", "pool")
    words = "with these 3 mistakes fixed in memory, steps 1, 5 pass"
    assert words in " ".join(audit(files)[2]["localization"]["remarks"])


def test_what_stands_behind_a_place_that_is_not_understood_is_said(files):
    many = "return 0.9 * x.sin().cos().sin().cos().sin() + self.act("  # more calls than the search tries together
    (files / "ours.py").write_text(PADDLE.replace("return x + self.act(", many))
    _, found, said = audit(files)
    assert [one["kind"] for one in found] == [""] and not found[0]["confirmed"], "one class, one line, three places"
    assert [found[0]["location"], *found[0]["also"]] == ["blocks.0", "blocks.1", "blocks.2"]
    assert "a further mistake in its forward shows only after this one is corrected" in said["localization"]["remarks"][0]


ON_AN_EDGE = """
import torch
from torch import nn

class Boxes(nn.Module):
    def forward(self, x):
        return torch.concat([x[..., :2], x[..., :2] + x[..., 2:].abs()], -1).clip(-1, 1)

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 5)

    def forward(self, boxes):
        sides = boxes[..., 2:] - boxes[..., :2]
        size = torch.sqrt(sides[..., :1] * sides[..., 1:])
        return torch.where(size >= 0, self.fc(boxes), torch.zeros_like(self.fc(boxes)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.boxes, self.head = Boxes(), Head()

    def forward(self, x):
        return 2 * self.head(self.boxes(x))
"""


@pytest.mark.parametrize("wrong", [False, True], ids=["sound", "wrong"])
def test_a_module_whose_input_stands_on_an_edge_is_judged_beside_it(tmp_path, wrong):
    """A box that is clipped has no area: an ulp makes that negative, its root no number, and hides each mistake of the module."""
    ours = ON_AN_EDGE.replace("import torch\nfrom torch", "import paddle as torch\nfrom paddle").replace("nn.Module", "nn.Layer")
    if wrong:
        ours = ours.replace("self.fc(boxes), torch", "1.01 * self.fc(boxes), torch")
    (tmp_path / "theirs.py").write_text(ON_AN_EDGE)
    (tmp_path / "ours.py").write_text(ours)
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x64x4"]
    assert main(["audit", "--eval-only", *sides, "--report", str(tmp_path / "report")]) == int(wrong)
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["localization"]["every"] if wrong else []
    assert [one["location"] for one in found] == ["head"] * wrong, found


def test_wrong_structure_does_not_end_the_search(files):
    broken(files, "slope", "pool")
    source = (files / "ours.py").read_text().replace("nn.Linear(width, 5)", "nn.Linear(width, 7)")
    (files / "ours.py").write_text(source.replace("nn.Conv2D(3, width, 3, padding=1)", "nn.Conv2D(3, width, 5, padding=2)"))
    _, found, _ = audit(files)
    assert [one["stage"] for one in found] == ["structure", "structure", "forward", "forward"]
    assert [one["location"] for one in found] == ["stem.0.weight", "head.weight", "stem.2", "pool"]


def test_an_accepted_difference_is_reported_and_no_reason_to_fail(files, capsys):
    """Paddle's biased variance, and its fresh weights; every BatchNorm is a place of the one difference."""
    known = ("--accept", "biased_variance", "--accept", "initialisation")
    status, found, said = audit(files, "--training", *known)
    assert status == 0 and said["passed"] is True and all(one["accepted"] for one in found)
    assert {one["kind"] for one in said["accepted"]} == {"biased_variance", "initialisation"}
    variance = next(one for one in found if one["kind"] == "biased_variance")
    assert [variance["location"], *variance["also"]] == ["stem.1", "blocks.0.norm", "blocks.1.norm", "blocks.2.norm"]
    out = capsys.readouterr().out
    assert "PASS: no mistake found in the port (2 known differences of the frameworks)." in out
    assert audit(files, "--training", "--strict", *known)[0] == 0
    assert audit(files, "--training", "--strict", "--accept", "biased_variance")[0] == 1, "the fresh weights are not accepted"
    assert audit(files, "--training", "--strict", "--accept", "biased_variance@blocks", "--accept", "initialisation")[0] == 1
    assert audit(files, "--training")[0] == 0 and audit(files, "--training", "--strict")[0] == 1


def test_an_accepted_difference_hides_no_other(files, capsys):
    broken(files, "slope", "pool")
    assert audit(files, "--accept", "activation@stem.2")[0] == 1
    assert audit(files, "--accept", "activation", "--accept", "pooling@pool")[0] == 0
    capsys.readouterr()
    broken(files, "pool")
    assert audit(files, "--accept", "activation", "--accept", "pooling")[0] == 0
    assert "--accept activation: no such difference was found" in capsys.readouterr().out
    broken(files)
    assert audit(files, "--accept", "activation")[0] == 0
    assert "--accept activation: no such difference was found" in capsys.readouterr().out


def test_one_mistake_in_several_places_is_accepted_in_part():
    one = Finding("forward", "a.1", Kind.PADDING, also=["b.1", "ab.1"])
    found, unused = marked([Accept("padding@a", "padding", "a"), Accept("stride", "stride")], [one])
    assert [(f.places, f.accepted) for f in found] == [(["b.1", "ab.1"], False), (["a.1"], True)]
    assert unused == ["stride"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("padings", "no such kind; did you mean padding? The report names the kind of each difference"),
        ("qqq", "no such kind; the report names the kind of each difference"),
        ("padding@", "no place behind the @"),
        ("unknown", "give its place too"),
    ],
)
def test_a_wrong_accept_is_one_line(files, text, words, capsys):
    sides = ["--port", f"{files}/ours.py:Net", "--reference", f"{files}/theirs.py:Net"]
    assert main(["audit", *sides, "--accept", text]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and f"--accept {text}: " in said[0] and words in said[0], said


def test_the_page_lists_every_kind():
    page = (ROOT / "docs" / "audit.md").read_text()
    of_models = list(Kind)[1 : list(Kind).index(Kind.MIRRORED)]
    assert [kind.value for kind in of_models if f"`{kind.value}`" not in page] == []
    assert "`unknown`" in page and {kind.value for kind in of_models} < set(KINDS)


def test_a_kind_that_a_finding_may_have_can_be_accepted():
    """The message recommended to accept what could not be accepted: the axis of a softmax, and what updates show."""
    assert [one.kind for one in parse([kind.value for kind in Kind if kind])] == [kind.value for kind in Kind if kind]


SIDES = {"paddle": PADDLE, "torch": TORCH}


def network(folder, name, source):
    """A model of one side in float64, as a Network."""
    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    side = framework("paddle" if "paddle" in source else "torch")
    return side, side.make_exact(side.copy(module.Net()))


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize(
    "sides", [("paddle", "torch"), ("torch", "paddle"), ("paddle", "paddle"), ("torch", "torch")], ids="-".join
)
def test_a_mended_part_computes_what_the_reference_computes(tmp_path, sides, training):
    """Outputs, gradients of inputs and of the port's own parameters, and statistics; with the port's weights as they are then."""
    wrong = SIDES[sides[0]].replace("return x + self.act(", "return x - self.act(").replace("nn.ReLU(),\n", "nn.Tanh(),\n")
    (ours, port), (theirs, reference) = network(tmp_path, "ours", wrong), network(tmp_path, "theirs", SIDES[sides[1]])
    state = theirs.state(reference)
    paths = {path: path for path in theirs.modules(reference)}
    nets = Network(ours, port, paths), Network(theirs, reference)
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 6))

    def passes():
        made = []
        for side, model in ((ours, port), (theirs, reference)):
            side.load(model, state)
            side.set_training(model, training)
            entries = {e.canonical: (e, t) for e, t in side.described(model) if e.role == "parameter"}
            cotangent = [np.random.default_rng(1).standard_normal((2, 5))]
            found = side.vjp(model, (x,), cotangent, Wanted(parameters={n: t for n, (_, t) in entries.items()}))
            gradients = {n: entries[n][0].to_canonical(g) for n, g in found.parameters.items() if g is not None}
            moved = {n: a for n, a in side.state(model).items() if "running_mean" in n}
            made.append(
                {"output": found.outputs[0], "input": found.inputs[0], **gradients, **{f"{n} after": a for n, a in moved.items()}}
            )
        mine, its = made
        assert mine.keys() == its.keys()
        return {n for n in its if np.abs(mine[n] - its[n]).max() > 1e-9 * max(np.abs(its[n]).max(), 1e-3)}

    assert "output" in passes() and mend(*nets, "blocks.1") and "output" in passes(), "the other mistakes are still there"
    for path in ("stem.2", "blocks.0", "blocks.2"):
        mend(*nets, path)
    assert passes() == set()
    state = {name: array * 1.01 for name, array in state.items()}
    assert passes() == set(), "it computes with the port's weights as they are then"


def test_groups_of_faults_are_drawn_by_seed_at_different_places():
    project = load_project(ROOT / "projects" / "mobilenetv3" / "project.py")
    pool = together.Pool.of(project, None)
    groups = together.drawn(pool, 3, 20, seed=4)
    assert [[f.name for f in g] for g in groups] == [[f.name for f in g] for g in together.drawn(pool, 3, 20, seed=4)]
    assert [[f.name for f in g] for g in groups] != [[f.name for f in g] for g in together.drawn(pool, 3, 20, seed=5)]
    assert all(len({f.location for f in g}) == 3 and sum(f.area == "weights" for f in g) <= 1 for g in groups)
    with pytest.raises(UserError, match="too few faults"):
        together.drawn(pool, 500, 1, seed=0)
    first, second = groups[0][:2]
    found = [Finding("forward", "elsewhere", first.hint, also=[first.location])]
    outcome = together.Outcome([first, second], found, 0.0)
    assert outcome.located(first) and outcome.named(first) and not outcome.located(second) and not outcome.complete


@pytest.mark.slow  # make test-slow
def test_three_faults_in_one_port_are_found_by_one_search():
    project = load_project(ROOT / "projects" / "mobilenetv3" / "project.py")
    (outcome,) = together.run_all(together.Pool.of(project, None), 3, 1, seed=0)
    assert outcome.complete, [one.line() for one in outcome.found]


BRANCHES = {
    "a module that the reference's cannot replace": (
        "MultiHeadAttention, sequence first: heads", "MaxPool3D: stride", "InstanceNorm3D: no_affine"),
    "a layer without its bias, and a branch whose layers have other names": (
        "LayerNorm: no_bias", "TransformerDecoder: none", "Linear: no_bias"),
    "a normalisation without weights": (
        "TransformerEncoderLayer, norm first: position", "InstanceNorm3D: no_affine",
        "TransformerEncoderLayer, norm last: position"),
}  # fmt: skip


@pytest.mark.parametrize("case", BRANCHES)
def test_the_search_goes_on_in_other_branches(case):
    pool = together.Pool.of(load_project(ROOT / "projects" / "mobilenetv3" / "project.py"), LAYERS)
    faults = {fault.name: fault for fault in pool.faults()}
    outcome = together.searched(pool, [faults[name] for name in BRANCHES[case]], {})
    assert all(map(outcome.named, outcome.faults)), [one.line() for one in outcome.found]
    places = {place.partition(".")[0] for one in outcome.found for place in one.places}
    assert places == {fault.place for fault in outcome.faults}, "nothing else is blamed"


@pytest.mark.slow
@pytest.mark.weekly  # three faults of the model alone run on every change
def test_faults_of_the_model_and_of_single_layers_are_found_by_one_search():
    """A port with branches: the model and a small network around each wrong layer."""
    pool = together.Pool.of(load_project(ROOT / "projects" / "mobilenetv3" / "project.py"), LAYERS)
    groups = together.drawn(pool, 3, 60, seed=0)
    mixed = [sum(isinstance(fault, together.LayerFault) for fault in group) for group in groups]
    assert {1, 2, 3} <= set(mixed), "faults of both lists, and of the layers alone"
    of_weights = [any(getattr(fault, "area", "") == "weights" for fault in group) for group in groups]
    assert not any(weights and number for weights, number in zip(of_weights, mixed, strict=True))
    outcomes = together.run_all(pool, 3, 2, seed=0)
    assert all(outcome.complete for outcome in outcomes), [one.line() for outcome in outcomes for one in outcome.found]
    with pytest.raises(UserError, match="PAIRS"):
        together.Pool.of(pool.project, ROOT / "tests" / "pairs" / "sequence_ours.py")
