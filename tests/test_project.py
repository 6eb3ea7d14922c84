"""A project of one file: a network of its own, aligned, broken, and told what was not run; and files that are no project."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from alignment.cli import main
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.model import forward
from alignment.faults import fault_named
from alignment.models.calibration import calibrated_state
from alignment.project import import_file, load_project
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT, run_command

# A port of a network that nobody here has heard of, as a stranger would write it; docs/projects.md shows it.
OWN = (ROOT / "docs" / "examples" / "own_project.py").read_text()
BROKEN = {
    "a setting": ("paddle.nn.Conv2D(3, 8, 3, padding=1)", "paddle.nn.Conv2D(3, 8, 3, padding=2)", "conv", "padding 2"),
    "a layer": ("paddle.nn.ReLU()", "paddle.nn.Sigmoid()", "act", "it computes Sigmoid, expected ReLU"),
    "a gradient": (".mean([2, 3]))", ".mean([2, 3]).detach())", "Port.forward", "detached"),
    "a layer that forward leaves out": ("self.head(self.pool(self.act(self.conv(x))).mean([2, 3]))",
        "self.head(self.act(self.conv(x)).mean([2, 3]))", "Port.forward", "pool is called 0 times in the port's forward"),
    "a bias": ("paddle.nn.Linear(8, 5)", "paddle.nn.Linear(8, 5, bias_attr=False)", "head.bias", "the port has no such tensor"),
    "a width": ("paddle.nn.Conv2D(3, 8, 3", "paddle.nn.Conv2D(3, 9, 3", "conv.weight", "shape (9, 3, 3, 3), expected (8, 3, 3, 3)"),
    "a missing layer": ("self.pool = paddle.nn.MaxPool2D(2)", "self.pool = lambda x: x", "pool", "MaxPool2d: the port lacks it"),
    "a missing layer with weights": ("self.head = paddle.nn.Linear(8, 5)", "self.head = lambda x: x", "head", "Linear is missing"),
}  # fmt: skip


def align(folder, source, *flags):
    """Exit status, what was printed, and alignment.json, of a project file with this source."""
    file = folder / "own.py"
    file.write_text(source)
    status = main(["run", str(file), "--result-dir", str(folder / "result"), *flags])
    return status, json.loads((folder / "result" / "alignment.json").read_text())


def test_a_network_of_ones_own_is_aligned_and_the_table_says_what_was_not_run(tmp_path, capsys):
    assert len(OWN.splitlines()) <= 40
    status, report = align(tmp_path, OWN)
    out = capsys.readouterr().out
    assert status == 0, out
    for number, name, part in ((2, "data", "data"), (3, "metric", "metric"), (4, "loss", "loss"), (6, "train", "train")):
        assert f"step {number} {name}: not run: the port and the reference have no {part} part" in out
        assert re.search(rf"^{number} {name} +(- +)+not run$", out, re.M)
    assert "step 5 backward, in part not run: updates: the port and the reference have no train part" in out
    assert "Passed, as far as steps 1, 5 (in part) can tell; the others were not run." in out
    assert report["passed"] is True and report["rests_on"] == ["forward", "backward"]
    assert [step["passed"] for step in report["steps"]] == [True, None, None, None, True, None]
    assert report["not_run"]["data"] == report["steps"][1]["not_run"] == "the port and the reference have no data part"
    page = (tmp_path / "result" / "report.html").read_text()
    assert "not run" in page and "as far as steps 1, 5 (in part) can tell" in page
    exact = [q["float64_diff"] for q in report["steps"][0]["quantities"] if q["float64_diff"] is not None]
    assert len(exact) > 10 and max(exact) < 1e-14
    assert any("gradients.conv.weight" in q["name"] for q in report["steps"][4]["quantities"])
    assert not (tmp_path / "result" / "data_paddle.npy").exists(), "a step that was not run leaves no record"


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_in_it_is_located(case, tmp_path, capsys):
    before, after, place, words = BROKEN[case]
    assert OWN.count(before) == 1
    status, report = align(tmp_path, OWN.replace(before, after))
    assert status == 1
    first = report["first_divergence"]
    assert first["location"] == place and words in first["hint"], first
    out = capsys.readouterr().out
    assert f"first divergence: {first['stage']}: {place}: " in out
    missing = case.startswith("a missing layer")
    line = int(re.search(rf"{'add it near' if missing else 'line to change:'} \S+\.py:(\d+)$", out, re.M)[1])
    beside = {"pool": "self.act = ", "head": "self.pool = "}  # the layer before it is made there
    changed = beside[place] if missing else after.splitlines()[0]
    assert changed in OWN.replace(before, after).splitlines()[line - 1] and "  next: correct it there" in out


def test_a_reference_in_paddle_and_a_port_in_torch_are_aligned_too(tmp_path):
    """No framework is the reference by nature."""
    swapped = OWN.replace("ModelSpec(Port, Reference", "ModelSpec(Reference, Port").replace(
        "port=Side(Paddle()), reference=Side(Torch())", "port=Side(Torch()), reference=Side(Paddle())"
    )
    status, report = align(tmp_path, swapped)
    assert status == 0 and (report["port"], report["reference"]) == ("torch", "paddle")
    status, report = align(tmp_path, swapped.replace("torch.nn.Conv2d(3, 8, 3, padding=1)", "torch.nn.Conv2d(3, 8, 3, padding=2)"))
    assert status == 1 and report["first_divergence"]["location"] == "conv"
    assert (tmp_path / "result" / "forward_torch.npy").is_file(), "the port's record has its framework's name"


def test_a_step_that_alone_was_asked_for_and_cannot_run_is_refused(tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    assert main(["run", str(tmp_path / "own.py"), "--steps", "2,6", "--result-dir", str(tmp_path / "r")]) == 2
    assert "steps 2, 6 cannot run on own: the port and the reference have no data part" in capsys.readouterr().err
    assert list((tmp_path / "r").iterdir()) == []


BAD = {
    "no such file": (None, "is not a project file: give a Python file that defines PROJECT"),
    "a syntax error": ("def", "cannot be imported: SyntaxError"),
    "an import that fails": ("import no_such_thing", "cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
    "no project": ("x = 1", "defines no PROJECT"),
    "something else": ("PROJECT = 3", "defines no PROJECT"),
    "no models": (OWN.replace('models={"net": spec}', "models={}"), "PROJECT has no models: there is nothing to align"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_no_project_are_refused_in_one_line(case, tmp_path, capsys):
    source, message = BAD[case]
    file = tmp_path / "other.py"
    if source is not None:
        file.write_text(source)
    assert main(["run", str(file), "--result-dir", str(tmp_path / "r")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err and str(file) in err
    assert not (tmp_path / "r").exists()


def test_files_beside_a_project_can_be_imported_by_it(tmp_path):
    (tmp_path / "helper_of_own.py").write_text("NAME = 'from beside'\n")
    (tmp_path / "own.py").write_text("from helper_of_own import NAME\n" + OWN.replace('"own"', "NAME"))
    assert load_project(tmp_path / "own.py").name == "from beside"
    package = tmp_path / "package" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'from the package'\n")
    (package / "project.py").write_text("from .names import NAME\n" + OWN.replace('"own"', "NAME"))
    assert load_project(package / "project.py").name == "from the package"


def test_the_commands_are_there(tmp_path):
    run = run_command("-m", "alignment", "--help")
    assert run.returncode == 0 and all(name in run.stdout for name in ("run", "compare", "bench"))
    for arguments, message in ((["gallop"], "unknown command 'gallop'"), (["run", "README.md"], "README.md is not a project file")):
        run = (
            run_command("-m", "alignment", *arguments, "--result-dir", tmp_path / "r")
            if arguments[0] == "run"
            else run_command("-m", "alignment", *arguments)
        )
        assert run.returncode == 2 and run.stderr.startswith("error: ") and message in run.stderr and run.stderr.count("\n") == 1
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(UserError, match="own lists no faults"):
        fault_named(load_project(tmp_path / "own.py"), "x")


@pytest.mark.slow
def test_the_acceptance_project_is_small_and_its_stock_port_is_told_the_truth():
    """torchvision's ResNet-18 by the project file of ResNet-50: in training the stock BatchNorm2D keeps the biased variance.

    (make align-resnet50 runs all steps of ResNet-50.)
    """
    file = ROOT / "projects" / "resnet50" / "project.py"
    assert len(file.read_text().splitlines()) <= 120
    project = load_project(file)
    state = calibrated_state(project, "resnet18", size=64)
    for model in ("resnet18", "resnet18_stock"):
        context = Context(project, model, given_state=state)
        photos, _ = context.material.photographs(4, 64)
        result = forward.run(
            context, [forward.PassCase(f"{mode}.photos", (photos,), mode == "train") for mode in ("eval", "train")]
        )
        failed = {q.name for q in result.quantities if not q.passed}
        assert max(q.float64_diff for q in result.quantities if q.name.startswith("eval.photos")) < 1e-12
        if model == "resnet18":
            assert result.passed
        else:
            assert failed and all(name.endswith("running_var") for name in failed), "nothing else is wrong with it"
            first = locate(context, [result], with_table=False).first
            assert (first.stage, first.location, first.kind) == ("forward", "bn1", "biased_variance")


def test_a_file_that_was_changed_within_its_second_is_imported_anew(tmp_path, monkeypatch):
    """Of the same length: Python would take the bytecode that it kept."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "port.py"
    for value in (1, 2):
        file.write_text(f"EPS = {value}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        assert value == import_file(file).EPS
